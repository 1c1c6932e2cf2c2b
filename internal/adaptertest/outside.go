package adaptertest

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Outside copies declarations out of a test file of the other project, from the module cache into a file of the
// package's external test, whose path it returns: for the Files of an [Upstream] whose adapter imports the package that
// is tested, which would be a cycle within it. What the package exports is there under its bare name, and a file of ours has
// what else the declarations need. It fails for a name that is not declared in the file.
func Outside(t *testing.T, dir, pkg, file string, names ...string) string {
	t.Helper()
	out, err := goIn(t.Context(), dir, "list", "-f", "{{.Dir}}", pkg)
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", pkg, err, out)
	}
	fset := token.NewFileSet()
	theirs, err := parser.ParseFile(fset, filepath.Join(strings.TrimSpace(string(out)), file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var kept []ast.Decl
	used := map[string]bool{}
	for _, d := range theirs.Decls {
		if name := declared(d); slices.Contains(names, name) {
			kept = append(kept, d)
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
			ast.Inspect(d, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok {
						used[x.Name] = true
					}
				}
				return true
			})
		}
	}
	if len(names) > 0 {
		t.Fatalf("%s does not declare %v", file, names)
	}
	var text strings.Builder
	text.WriteString("package " + theirs.Name.Name + "_test\n\nimport . " + strconv.Quote(pkg) + "\n")
	for _, i := range theirs.Imports {
		of, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if i.Name == nil && used[path.Base(of)] {
			text.WriteString("import " + i.Path.Value + "\n")
		}
	}
	for _, d := range kept {
		text.WriteString("\n")
		if err := format.Node(&text, fset, d); err != nil {
			t.Fatal(err)
		}
		text.WriteString("\n")
	}
	to := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(to, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// declared is the name of a declaration; a method's has its type before it, as in "T.Method".
func declared(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		of := d.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if x, ok := of.(*ast.Ident); ok {
			return x.Name + "." + d.Name.Name
		}
	case *ast.GenDecl:
		switch spec := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return spec.Name.Name
		case *ast.ValueSpec:
			return spec.Names[0].Name
		}
	}
	return ""
}
