package adaptertest

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestOutcomes: tests are counted by themselves, or else by their subtests.
func TestOutcomes(t *testing.T) {
	const out = `{"Action":"run","Test":"TestA"}
{"Action":"pass","Test":"TestA"}
go: a line that is no JSON
{"Action":"pass","Test":"TestB/one"}
{"Action":"fail","Test":"TestB/two/deep"}
{"Action":"fail","Test":"TestB/two"}
{"Action":"fail","Test":"TestB"}
{"Action":"output","Test":"TestC","Output":"why"}
{"Action":"skip","Test":"TestC"}
{"Action":"fail"}
`
	for subtests, want := range map[bool]map[string]string{
		false: {"TestA": "pass", "TestB": "fail", "TestC": "skip"},
		true:  {"TestA": "pass", "TestB/one": "pass", "TestB/two/deep": "fail", "TestC": "skip"},
	} {
		got, said := outcomes([]byte(out), subtests)
		if !maps.Equal(got, want) || said != "go: a line that is no JSONwhy" {
			t.Errorf("with subtests %t: %v, %q, want %v", subtests, got, said, want)
		}
	}
}

// TestEdit: a text that the file does not have exactly once is refused.
func TestEdit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.go")
	if err := os.WriteFile(path, []byte("one two two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for old, want := range map[string]string{"one": "1 two two", "two": "", "three": ""} {
		if got, err := (Edit{"f.go", old, "1"}).edited(dir); string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", old, got, err, want)
		}
	}
}
