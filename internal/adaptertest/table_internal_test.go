package adaptertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const begin, end = "<!-- the table, written by tests -->\n", "<!-- the end of the table -->\n"

// TestTable: docs/adapters.md has the rows that the tests of the adapters have written, and nothing that an adapter is for
// is needed by the library or the command.
func TestTable(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := filepath.Glob(filepath.Join(root, "docs", "adapters", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	needed, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| adapter | of | its tests that are run | passed | left out, and why | lines of code |\n|---|---|---|---|---|---|\n")
	for _, path := range files {
		text, failure := os.ReadFile(path)
		if failure != nil {
			t.Fatal(failure)
		}
		var r Row
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err = d.Decode(&r); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err = os.Stat(filepath.Join(root, "adapter", r.Adapter, "go.mod")); err != nil {
			t.Errorf("%s is of no adapter: %v", path, err)
		}
		if strings.Contains(string(needed), "\t"+r.Module+" ") {
			t.Errorf("whoever uses the library gets %s too: go.mod requires it", r.Module)
		}
		table.WriteString(r.line())
	}
	path := filepath.Join(root, "docs", "adapters.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	kept, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	if want := "\n" + table.String() + "\n"; kept != want {
		if !*update {
			t.Fatalf("%s is not of the rows in docs/adapters; -update writes it:\n%s", path, want)
		}
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
}

func (r Row) line() string {
	names := slices.Clone(r.Ran)
	if len(names) > 6 {
		names = append(names[:5], fmt.Sprintf("and %d more", len(r.Ran)-5))
	}
	var left []string
	for test, why := range r.LeftOut {
		left = append(left, test+": "+why)
	}
	slices.Sort(left)
	size := fmt.Sprint(r.Lines)
	if r.Long != "" {
		size += ": " + r.Long
	}
	return fmt.Sprintf("| [%s](../adapter/%s) | %s %s | %s | %d of %d | %s | %s |\n",
		r.Adapter, r.Adapter, r.Module, r.Version, strings.Join(names, ", "), r.Passed, len(r.Ran), strings.Join(left, "; "), size)
}

func TestLines(t *testing.T) {
	const text = "// Package p is one.\npackage p\n\nimport \"fmt\" // for f\n\n/* a comment\nof two lines */\n" +
		"func f() {\n\tfmt.Print(`one\ntwo`,\n\t\t3)\n}\n"
	if got := linesOf(t, "p.go", []byte(text)); got != 7 {
		t.Errorf("%d lines, want 7", got)
	}
}
