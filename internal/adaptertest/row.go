package adaptertest

import (
	"encoding/json"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// most is how many lines of code an adapter may have without a reason.
const most = 150

// A Row is what docs/adapters.md says of an adapter.
type Row struct {
	Adapter string            `json:"adapter"`        // the directory in adapter
	Module  string            `json:"module"`         // of the other project
	Version string            `json:"version"`        // that the tests run with, from go.mod
	Ran     []string          `json:"ran"`            // tests of that project
	Passed  int               `json:"passed"`         // of these
	LeftOut map[string]string `json:"left_out"`       // other tests of it that are about the interface, and why they are not run
	Lines   int               `json:"lines"`          // of code in all packages of the module but examples, without comments, blank lines and tests
	Long    string            `json:"long,omitempty"` // why these are 150 or more
}

// Check compares the row with the one that was kept in docs/adapters, or writes it there. It is called from the directory
// of the adapter, and finds Adapter, Version and Lines itself.
func (r Row) Check(t *testing.T) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var root string
	for d := dir; ; d = filepath.Dir(d) { // also of an adapter deeper down
		if filepath.Base(d) == "adapter" {
			root = filepath.Dir(d)
			r.Adapter = filepath.ToSlash(strings.TrimPrefix(dir, d+string(filepath.Separator)))
			break
		}
		if d == filepath.Dir(d) {
			t.Fatalf("%s is not in a directory adapter", dir)
		}
	}
	r.Version, r.Lines = version(t, r.Module), lines(t, dir)
	if (r.Lines >= most) == (r.Long == "") {
		t.Errorf("%d lines of code, want under %d, or a reason why not: %q", r.Lines, most, r.Long)
	}
	if len(r.Ran) == 0 {
		t.Error("none of that project's tests were run")
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	path := filepath.Join(root, "docs", "adapters", strings.ReplaceAll(r.Adapter, "/", "-")+".json")
	if *update {
		if err = os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	kept, err := os.ReadFile(path)
	if err != nil || string(kept) != string(text) {
		t.Errorf("%s is not what these tests find, which is below; -update writes it, and then that of internal/adaptertest\n%s", path, text)
	}
}

// version is that of a module in go.mod.
func version(t *testing.T, module string) string {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("go.mod does not require %s", module)
	}
	return string(m[1])
}

// lines counts those with code in the files of the module that are no tests and no examples.
func lines(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			_, other := os.Stat(filepath.Join(path, "go.mod"))
			if path != dir && (other == nil || slices.Contains([]string{"example", "testdata"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			n += linesOf(t, path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// linesOf counts the lines on which something of the language stands.
func linesOf(t *testing.T, path string, text []byte) (n int) {
	t.Helper()
	fset := token.NewFileSet()
	if _, err := parser.ParseFile(fset, path, text, parser.PackageClauseOnly); err != nil {
		t.Fatal(err)
	}
	file := fset.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0) // without comments
	for last := 0; ; {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		first := file.Line(pos)
		end := first + strings.Count(literal, "\n")
		n += end - max(first-1, last)
		last = end
	}
}
