package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// general makes mutations of all the code of a package, without knowing what it is for: a
// condition is turned round, its bound is let in or out, a sum becomes a difference, a
// number is one more, true is false, a statement, an assignment or a field is left out,
// and a function does nothing. The package's own tests are to notice each, or else one of
// those that are named.
func general(dir, pkg string, others []string) ([]mutation, error) {
	files, err := filepath.Glob(filepath.Join(dir, pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	tests := []test{{pkg: pkg}}
	for _, other := range others {
		tests = append(tests, test{pkg: other})
	}
	var all []mutation
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		g := generator{file: filepath.Join(pkg, filepath.Base(path)), src: string(src), fset: token.NewFileSet(), tests: tests, seen: map[string]int{}}
		if err := g.generate(); err != nil {
			return nil, err
		}
		all = append(all, g.all...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no code to mutate", pkg)
	}
	return all, nil
}

// A generator makes the mutations of one file.
type generator struct {
	file  string
	src   string
	fset  *token.FileSet
	tests []test
	seen  map[string]int // titles
	where string         // the function
	all   []mutation
}

func (g *generator) generate() error {
	tree, err := parser.ParseFile(g.fset, g.file, g.src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range tree.Decls {
		g.where = "the package"
		if f, ok := decl.(*ast.FuncDecl); ok {
			g.where = f.Name.Name
			if f.Recv != nil {
				g.where = strings.TrimPrefix(g.text(f.Recv.List[0].Type), "*") + "." + f.Name.Name
			}
			if f.Type.Results == nil && f.Body != nil && len(f.Body.List) > 0 {
				g.mutate(f.Body.Lbrace+1, f.Body.Lbrace+1, " return;", "all of it → nothing")
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			g.node(n)
			return true
		})
	}
	return nil
}

// operators are what takes the place of an operator.
var operators = map[token.Token][]string{
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LSS: {"<=", ">="}, token.LEQ: {"<", ">"}, token.GTR: {">=", "<="}, token.GEQ: {">", "<"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"/"}, token.QUO: {"*"},
	token.LAND: {"||"}, token.LOR: {"&&"}, token.SHL: {">>"}, token.SHR: {"<<"},
}

func (g *generator) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		for _, op := range operators[n.Op] {
			g.replace(n, g.text(n.X)+" "+op+" "+g.text(n.Y))
		}
		if n.Op == token.LAND || n.Op == token.LOR {
			g.negate(n.X, n.Y)
		}
	case *ast.IfStmt:
		g.negate(n.Cond)
	case *ast.SwitchStmt:
		for _, clause := range n.Body.List {
			if c, ok := clause.(*ast.CaseClause); ok && n.Tag == nil {
				g.negate(c.List...)
			}
		}
	case *ast.BlockStmt:
		g.drop(n.List)
	case *ast.CaseClause:
		g.drop(n.Body)
	case *ast.AssignStmt:
		g.assignment(n)
	case *ast.CompositeLit:
		for i, element := range n.Elts {
			if _, ok := element.(*ast.KeyValueExpr); ok {
				end := n.Rbrace
				if i+1 < len(n.Elts) {
					end = n.Elts[i+1].Pos()
				}
				g.change(element.Pos(), end, "")
			}
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			g.replace(n, other)
		}
	case *ast.BasicLit:
		if n.Kind == token.INT {
			g.replace(n, "("+n.Value+" + 1)")
		}
	}
}

// negate turns conditions round that have no operator of their own.
func (g *generator) negate(conditions ...ast.Expr) {
	for _, c := range conditions {
		switch c := c.(type) {
		case *ast.BinaryExpr, *ast.ParenExpr:
		case *ast.UnaryExpr:
			g.replace(c, g.text(c.X))
		default:
			g.replace(c, "!"+g.text(c))
		}
	}
}

// drop leaves out each statement that declares nothing and decides nothing.
func (g *generator) drop(statements []ast.Stmt) {
	for _, s := range statements {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				g.replace(s, "")
			}
		case *ast.ExprStmt, *ast.IncDecStmt:
			g.replace(s, "")
		}
	}
}

// assignment leaves out each of several, and turns round one that adds.
func (g *generator) assignment(s *ast.AssignStmt) {
	switch s.Tok {
	case token.ASSIGN:
		for _, to := range s.Lhs {
			if len(s.Lhs) > 1 && g.text(to) != "_" {
				g.replace(to, "_")
			}
		}
	case token.ADD_ASSIGN:
		g.replace(s, g.text(s.Lhs[0])+" -= "+g.text(s.Rhs[0]))
	case token.SUB_ASSIGN:
		g.replace(s, g.text(s.Lhs[0])+" += "+g.text(s.Rhs[0]))
	}
}

func (g *generator) text(n ast.Node) string { return g.src[g.offset(n.Pos()):g.offset(n.End())] }

func (g *generator) offset(p token.Pos) int { return g.fset.Position(p).Offset }

func (g *generator) replace(n ast.Node, by string) { g.change(n.Pos(), n.End(), by) }

func (g *generator) change(from, to token.Pos, by string) {
	g.mutate(from, to, by, brief(g.src[g.offset(from):g.offset(to)])+" → "+brief(by))
}

// mutate makes one mutation. Its title stays the same when lines are added elsewhere.
func (g *generator) mutate(from, to token.Pos, by, what string) {
	i, j := g.offset(from), g.offset(to)
	title := g.where + ": " + what
	if g.seen[title]++; g.seen[title] > 1 {
		title += fmt.Sprintf(" (%d)", g.seen[title])
	}
	at := fmt.Sprintf("%s:%d", g.file, g.fset.Position(from).Line)
	g.all = append(g.all, mutation{
		rule: filepath.Base(g.file), title: title, at: at, tests: g.tests, general: true,
		edits: []edit{{file: g.file, at: at, old: strings.Split(g.src, "\n"), new: strings.Split(g.src[:i]+by+g.src[j:], "\n")}},
	})
}

// brief is a text on one line.
func brief(text string) string {
	words := []rune(strings.Join(strings.Fields(text), " "))
	switch {
	case len(words) == 0:
		return "nothing"
	case len(words) > 90:
		return string(words[:89]) + "…"
	}
	return string(words)
}

// explained is the name of the list of survivors that are no findings, beside the lists
// of mutations.
const explained = "explained.txt"

// explain gives the mutations their reasons to survive, from a list such as
//
//	step.go Candidate.seek: now.Clock >= c.until → now.Clock > c.until
//		In the very nanosecond it makes no difference: the next step is due at once.
//
// The lines at the margin are mutations, and the indented ones after them the reason for
// all of these. Empty lines and those that begin with "#" say nothing.
func explain(mutations []mutation, text string) error {
	index := map[string]*mutation{}
	for i := range mutations {
		index[mutations[i].String()] = &mutations[i]
	}
	var stale []error
	var group, all []*mutation
	for i, line := range strings.Split(text, "\n") {
		switch m := index[line]; {
		case line == "" || line[0] == '#':
		case line[0] == '\t':
			for _, m := range group {
				m.why += line[1:] + " "
			}
		case m == nil:
			stale = append(stale, fmt.Errorf("%s:%d: there is no mutation %q", explained, i+1, line))
		default:
			if len(group) > 0 && group[0].why != "" {
				group = nil
			}
			group, all = append(group, m), append(all, m)
		}
	}
	for _, m := range all {
		if m.why == "" {
			stale = append(stale, fmt.Errorf("%s: no reason is given for %q", explained, m))
		}
	}
	return errors.Join(stale...)
}
