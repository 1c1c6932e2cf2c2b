package repo_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/errors.md anew")

// TestErrors: docs/reference/errors.md has every error that a package exports, with its comment, and each
// comment says what happened and what to do.
func TestErrors(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString(`# Errors

For Go programmers: every error that a package exports, with what happened and what to do. The table is generated from the
comments in the code, by ` + "`go test ./internal/repo -run TestErrors -update`" + `.

Errors are wrapped with their causes, so use ` + "`errors.Is`" + ` for variables and ` + "`errors.As`" + ` for types. An error of a lock that matches
none of package leasehold is one of package store, or the end of your context. ` + "`leasehold.Final`" + ` reports whether retrying makes
sense.
`)
	n := 0
	for _, dir := range packages(t) {
		rows := exportedErrors(t, dir)
		if len(rows) == 0 {
			continue
		}
		name := path.Join("leasehold", filepath.ToSlash(dir))
		fmt.Fprintf(&b, "\n## %s\n\n| error | what happened, and what to do |\n|---|---|\n", name)
		for _, row := range rows {
			if sentences(row.text) < 2 {
				t.Errorf("%s: the comment of %s does not say what happened and what to do: %s", name, row.name, row.text)
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", row.name, row.text)
			n++
		}
	}
	if n < 50 {
		t.Errorf("only %d errors were found", n)
	}
	file := filepath.Join("docs", "reference", "errors.md")
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("docs/reference/errors.md is not what the code says (%v): run go test ./internal/repo -run TestErrors -update", err)
	}
}

// packages are the directories of the packages that a program can import, the root first.
func packages(t *testing.T) (dirs []string) {
	t.Helper()
	for _, pattern := range []string{"*.go", "*/*.go", "*/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			dir := filepath.Dir(file)
			top, _, _ := strings.Cut(filepath.ToSlash(dir), "/")
			own := []string{"adapter", "bench", "cmd", "examples", "integration", "internal", "proof", "tools", "spec"}
			if !slices.Contains(own, top) && !strings.Contains(dir, "internal") {
				dirs = append(dirs, dir)
			}
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

type exported struct{ name, text string }

var (
	link  = regexp.MustCompile(`\[(\*?[A-Za-z][A-Za-z.]*)\]`)
	space = regexp.MustCompile(`\s+`)
	named = regexp.MustCompile(`^\w+: `)
)

// exportedErrors are the variables Err… and the types …Error of a package, in the order of its files.
func exportedErrors(t *testing.T, dir string) (all []exported) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, comments ...*ast.CommentGroup) {
		if !ast.IsExported(strings.TrimPrefix(name, "*")) {
			return
		}
		for _, c := range comments {
			if text := c.Text(); text != "" {
				text = space.ReplaceAllString(strings.TrimSpace(text), " ")
				text = named.ReplaceAllString(link.ReplaceAllString(text, "`$1`"), "")
				text = strings.ToUpper(text[:1]) + text[1:]
				all = append(all, exported{name, strings.ReplaceAll(text, "|", `\|`)})
				return
			}
		}
		t.Errorf("%s: %s has no comment", dir, name)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range group.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					if group.Tok == token.VAR && strings.HasPrefix(s.Names[0].Name, "Err") {
						add(s.Names[0].Name, s.Doc, group.Doc)
					}
				case *ast.TypeSpec:
					if strings.HasSuffix(s.Name.Name, "Error") {
						add("*"+s.Name.Name, s.Doc, group.Doc)
					}
				}
			}
		}
	}
	return all
}

// sentences counts the sentences of a text.
func sentences(text string) int {
	return len(regexp.MustCompile(`[.?!](\s|$)`).FindAllString(text, -1))
}
