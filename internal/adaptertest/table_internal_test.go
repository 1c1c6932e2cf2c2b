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
	var table, leftOut strings.Builder
	table.WriteString("| adapter | tested with | tests passed | lines of code |\n|---|---|---|---|\n")
	leftOut.WriteString("\n| adapter | tests not run | why |\n|---|---|---|\n")
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
		table.WriteString(r.line(filepath.Base(path)))
		leftOut.WriteString(r.leftOut())
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
	if want := "\n" + table.String() + leftOut.String() + "\n"; kept != want {
		if !*update {
			t.Fatalf("%s is not of the rows in docs/adapters; -update writes it:\n%s", path, want)
		}
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
}

func (r Row) line(file string) string {
	size := fmt.Sprint(r.Lines)
	if r.Long != "" {
		size += ": " + r.Long
	}
	return fmt.Sprintf("| [%s](../adapter/%s) | %s %s | [%d of %d](adapters/%s) | %s |\n",
		r.Adapter, r.Adapter, r.Module, r.Version, r.Passed, len(r.Ran), file, size)
}

// leftOut has a line for each reason.
func (r Row) leftOut() string {
	tests := map[string][]string{}
	for test, why := range r.LeftOut {
		tests[why] = append(tests[why], test)
	}
	var lines []string
	for why, names := range tests {
		slices.Sort(names)
		lines = append(lines, fmt.Sprintf("| %s | %s | %s |\n", r.Adapter, strings.Join(names, ", "), why))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestLines(t *testing.T) {
	const text = "// Package p is one.\npackage p\n\nimport \"fmt\" // for f\n\n/* a comment\nof two lines */\n" +
		"func f() {\n\tfmt.Print(`one\ntwo`,\n\t\t3)\n}\n"
	if got := linesOf(t, "p.go", []byte(text)); got != 7 {
		t.Errorf("%d lines, want 7", got)
	}
}
