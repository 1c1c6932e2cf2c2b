package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// affected is a report of the standard library, which is mended in FIXED.
const affected = `{
  "schema_version": "1.3.1", "id": "GO-2026-0001", "modified": "2026-01-02T00:00:00Z", "summary": "It can be made to fail",
  "database_specific": {"url": "https://example.com/GO-2026-0001"},
  "affected": [{
    "package": {"name": "stdlib", "ecosystem": "Go"},
    "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "FIXED"}]}],
    "ecosystem_specific": {"imports": [{"path": "strings", "symbols": ["ToUpper"]}]}
  }]
}`

// folder is one with reports.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFound: govulncheck finds, by the database, a call of what is vulnerable, and nothing where it is mended.
func TestFound(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "govulncheck")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, "golang.org/x/vuln/cmd/govulncheck").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for fixed, found := range map[string]bool{"1.999.0": true, "1.2.0": false} {
		db := filepath.Join(t.TempDir(), "db")
		n, latest, err := run(folder(t, map[string]string{"GO-2026-0001.json": strings.Replace(affected, "FIXED", fixed, 1), "README": "text"}), db)
		if err != nil || n != 1 || latest != "GO-2026-0001" {
			t.Fatalf("%d reports, the latest is %s, %v", n, latest, err)
		}
		cmd := exec.CommandContext(t.Context(), tool, "-db", "file://"+db, "./...")
		cmd.Dir = folder(t, map[string]string{
			"go.mod":  "module example.com/m\n\ngo 1.26\n",
			"main.go": "package main\n\nimport \"strings\"\n\nfunc main() { println(strings.ToUpper(\"a\")) }\n",
		})
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 || strings.Contains(string(out), "Vulnerability #1: GO-2026-0001") != found {
			t.Errorf("mended in %s: %v, want found %t: %s", fixed, err, found, out)
		}
	}
}

// TestRefused: a report that would be left out is an error.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":       {map[string]string{"README": "text"}, "has no report"},
		"no JSON":       {map[string]string{"GO-2026-0001.json": "text"}, "invalid character"},
		"another name":  {map[string]string{"GO-2026-0002.json": affected}, `it is the report "GO-2026-0001"`},
		"no module":     {map[string]string{"GO-2026-0001.json": `{"id":"GO-2026-0001"}`}, "it names no module"},
		"nameless":      {map[string]string{"GO-2026-0001.json": `{"id":"GO-2026-0001","affected":[{"package":{}}]}`}, "without a name"},
		"withdrawn one": {map[string]string{"GO-2026-0001.json": `{"id":"GO-2026-0001","withdrawn":"2026-01-01T00:00:00Z"}`}, ""},
	} {
		_, _, err := run(folder(t, c.files), filepath.Join(t.TempDir(), "db"))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
