package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// general makes mutations of a package's code, without knowing its purpose. A condition is always
// false, negated, or loses an operand. A bound becomes inclusive or exclusive, a sum a
// difference, a number one more, true false. A statement, assignment or field is dropped, and a
// function does nothing.
func general(s *sources) ([]*mutation, error) {
	var all []*mutation
	for _, f := range s.files {
		g := generator{file: f, fset: s.fset, seen: map[string]int{}}
		g.generate()
		all = append(all, g.all...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no code to mutate", s.pkg)
	}
	for i, m := range all {
		m.change.id = i + 1
	}
	return all, nil
}

// A change is a general mutation's change of its file.
type change struct {
	id       int
	file     *source
	from, to int // the replaced text
	by       string
	path     []ast.Node // the enclosing nodes, innermost first
	choices  []*site    // possible sites, innermost first
}

func (c *change) mutated() string { return c.file.text[:c.from] + c.by + c.file.text[c.to:] }

// A generator makes a file's mutations.
type generator struct {
	file  *source
	fset  *token.FileSet
	seen  map[string]int // titles
	where string         // the current function
	stack []ast.Node
	all   []*mutation
}

func (g *generator) generate() {
	for _, decl := range g.file.tree.Decls {
		g.where = "the package"
		if f, ok := decl.(*ast.FuncDecl); ok {
			g.where = f.Name.Name
			if f.Recv != nil {
				g.where = strings.TrimPrefix(g.text(f.Recv.List[0].Type), "*") + "." + f.Name.Name
			}
			if f.Type.Results == nil && f.Body != nil && len(f.Body.List) > 0 {
				g.stack = []ast.Node{f.Body}
				g.mutate(f.Body.Lbrace+1, f.Body.Lbrace+1, " return;", "all of it → nothing")
			}
		}
		g.stack = nil
		ast.Inspect(decl, func(n ast.Node) bool {
			if n == nil {
				g.stack = g.stack[:len(g.stack)-1]
				return true
			}
			g.stack = append(g.stack, n)
			g.node(n)
			return true
		})
	}
}

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
			g.replace(n, g.text(n.X))
			g.replace(n, g.text(n.Y))
		}
	case *ast.IfStmt:
		g.negate(n.Cond)
		g.never(n.Cond)
	case *ast.SwitchStmt:
		for _, clause := range n.Body.List {
			if c, ok := clause.(*ast.CaseClause); ok && n.Tag == nil {
				g.negate(c.List...)
				g.never(c.List...)
			}
		}
	case *ast.BlockStmt:
		g.drop(n.List)
	case *ast.CaseClause:
		g.drop(n.Body)
	case *ast.CommClause:
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

func (g *generator) never(conditions ...ast.Expr) {
	for _, c := range conditions {
		if text := g.text(c); text != "true" && text != "false" {
			g.replace(c, "false")
		}
	}
}

// drop drops each statement that neither declares anything nor returns a value.
func (g *generator) drop(statements []ast.Stmt) {
	for _, s := range statements {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				g.replace(s, "")
			}
		case *ast.ReturnStmt:
			if len(s.Results) == 0 {
				g.replace(s, "")
			}
		case *ast.BranchStmt:
			if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
				g.replace(s, "")
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
			g.replace(s, "")
		}
	}
}

// assignment drops each target of several, and turns an addition into a subtraction or back.
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

func (g *generator) text(n ast.Node) string { return g.file.text[g.offset(n.Pos()):g.offset(n.End())] }

func (g *generator) offset(p token.Pos) int { return g.fset.Position(p).Offset }

func (g *generator) replace(n ast.Node, by string) { g.change(n.Pos(), n.End(), by) }

func (g *generator) change(from, to token.Pos, by string) {
	g.mutate(from, to, by, brief(g.file.text[g.offset(from):g.offset(to)])+" → "+brief(by))
}

// mutate adds a mutation. Its title does not depend on lines elsewhere.
func (g *generator) mutate(from, to token.Pos, by, what string) {
	title := g.where + ": " + what
	if g.seen[title]++; g.seen[title] > 1 {
		title += fmt.Sprintf(" (%d)", g.seen[title])
	}
	m := &mutation{
		rule: filepath.Base(g.file.name), title: title,
		at:     fmt.Sprintf("%s:%d", g.file.name, g.fset.Position(from).Line),
		change: &change{file: g.file, from: g.offset(from), to: g.offset(to), by: by},
	}
	// Search from the root of the stack: the nodes around the change may not be on it yet.
	m.change.path = g.enclosing(from, to)
	g.all = append(g.all, m)
}

// enclosing returns the nodes around a range, innermost first.
func (g *generator) enclosing(from, to token.Pos) (path []ast.Node) {
	ast.Inspect(g.stack[0], func(n ast.Node) bool {
		if n == nil || n.Pos() > from || n.End() < to {
			return false
		}
		path = append(path, n)
		return true
	})
	slices.Reverse(path)
	return path
}

// brief returns a text on one line, shortened.
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
