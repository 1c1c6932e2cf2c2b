package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"text/template"
)

// A schema is a package with all of its mutants, compiled once. Each site asks for the active
// mutant and runs it, or the original code:
//
//	func() bool { if m := mutant__at(3); m == 17 { return a >= b }; return a > b }()
//
// A mutation without a choice at run time, such as one of a constant, has no site. It is compiled
// separately; see suites.
type schema struct {
	*sources
	sites map[key]*site
	all   []*site // by number
}

type form int

const (
	beginning  form = iota // of a function
	statement              // in a block
	simple                 // a statement where a block is impossible, such as the init statement of an if
	expression             // a value
)

type key struct {
	file     *source
	from, to int
	form     form
}

// A site is a place in the code with mutants.
type site struct {
	key
	number  int
	typ     types.Type // of an expression
	mutants []*mutation
	span    span   // in the written text
	spans   []span // of the mutants
}

type span struct{ from, to int }

func (s span) holds(at int) bool { return s.from <= at && at < s.to }

// newSchema gives each mutation a site at which the package compiles, if there is one.
func newSchema(s *sources, mutations []*mutation) (*schema, error) {
	x := &schema{sources: s, sites: map[key]*site{}}
	for _, m := range mutations {
		x.choose(m)
		x.place(m)
	}
	for range 100 {
		wrong, err := x.wrong()
		if err != nil || len(wrong) == 0 {
			return x, err
		}
		for _, m := range wrong {
			x.leave(m)
			x.place(m)
		}
	}
	return nil, fmt.Errorf("the mutants of %s do not compile, whatever is left out", s.pkg)
}

// choose finds the possible sites of a mutation.
func (x *schema) choose(m *mutation) {
	c := m.change
	add := func(n ast.Node, f form, typ types.Type) {
		c.choices = append(c.choices, &site{key: key{c.file, x.offset(n.Pos()), x.offset(n.End()), f}, typ: typ})
	}
	if c.from == c.to {
		c.choices = []*site{{key: key{c.file, c.from, c.to, beginning}}}
		return
	}
	if slices.ContainsFunc(c.path, constant) {
		return
	}
	for i, n := range c.path {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.FuncDecl:
			return
		case *ast.ArrayType:
			c.choices = nil // its length is a constant
		case ast.Expr:
			if c, ok := n.(*ast.CompositeLit); ok && c.Type == nil {
				continue // it has no type of its own
			}
			if whole, ok := c.path[min(i+1, len(c.path)-1)].(ast.Expr); ok && whole != n && x.info.Types[whole].Value != nil {
				continue // nor has a part of a constant
			}
			if t := x.info.Types[n]; t.IsValue() && !recovers(n) {
				if _, several := t.Type.(*types.Tuple); !several {
					add(n, expression, types.Default(t.Type))
				}
			}
		case *ast.AssignStmt, *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt, *ast.ReturnStmt, *ast.BranchStmt:
			if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.DEFINE || i+1 == len(c.path) {
				continue
			}
			switch in := c.path[i+1].(type) {
			case *ast.BlockStmt, *ast.CaseClause:
				add(n, statement, nil)
			case *ast.CommClause:
				if n != in.Comm {
					add(n, statement, nil)
				}
			case *ast.IfStmt, *ast.ForStmt, *ast.SwitchStmt:
				if !recovers(n) {
					add(n, simple, nil)
				}
			}
		}
	}
}

func constant(n ast.Node) bool {
	decl, ok := n.(*ast.GenDecl)
	return ok && decl.Tok == token.CONST
}

// recovers reports whether n mentions recover, which has no effect in a function of its own.
func recovers(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == "recover"
		return !found
	})
	return found
}

func (x *schema) offset(p token.Pos) int { return x.fset.Position(p).Offset }

func (x *schema) place(m *mutation) {
	if len(m.change.choices) == 0 {
		return
	}
	wanted := m.change.choices[0]
	s := x.sites[wanted.key]
	if s == nil {
		s = wanted
		x.sites[s.key] = s
	}
	s.mutants = append(s.mutants, m)
}

func (x *schema) leave(m *mutation) {
	s := x.sites[m.change.choices[0].key]
	m.change.choices = m.change.choices[1:]
	if s.mutants = slices.DeleteFunc(s.mutants, func(other *mutation) bool { return other == m }); len(s.mutants) == 0 {
		delete(x.sites, s.key)
	}
}

// wrong returns the mutations that keep the package from compiling.
func (x *schema) wrong() (all []*mutation, err error) {
	stub, err := parser.ParseFile(x.fset, "mutant__.go", "package "+x.name+"; func mutant__at(int) int { return 0 }", 0)
	if err != nil {
		return nil, err
	}
	trees := []*ast.File{stub}
	written := map[string]*source{}
	for _, f := range x.write() {
		tree, err := parser.ParseFile(x.fset, f.path, f.text, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("what is made of %s cannot be read: %w", f.name, err)
		}
		trees, written[f.path] = append(trees, tree), f
	}
	errs := x.check(trees, nil)
	for _, err := range errs {
		var e types.Error
		if !errors.As(err, &e) {
			return nil, err
		}
		at := e.Fset.Position(e.Pos)
		for _, m := range x.blame(written[at.Filename], at.Offset) {
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	if len(all) == 0 && len(errs) > 0 { // an error outside of the sites is caused by another one
		return nil, fmt.Errorf("what is made of %s does not compile: %w", x.pkg, errs[0])
	}
	return all, nil
}

// blame returns the mutation at an offset in a written file, or else those of the innermost site.
func (x *schema) blame(f *source, at int) []*mutation {
	var inner *site
	for _, s := range x.all {
		if f != nil && s.file.path == f.path && s.span.holds(at) && (inner == nil || s.span.from >= inner.span.from && s.span.to <= inner.span.to) {
			inner = s
		}
	}
	if inner == nil {
		return nil
	}
	for i, span := range inner.spans {
		if span.holds(at) {
			return inner.mutants[i : i+1]
		}
	}
	return slices.Clone(inner.mutants)
}

// write returns the package's files with all sites, and numbers the sites.
func (x *schema) write() (files []*source) {
	x.all = nil
	for _, s := range x.sites {
		x.all = append(x.all, s)
	}
	slices.SortFunc(x.all, func(a, b *site) int {
		return cmp.Or(cmp.Compare(a.file.name, b.file.name), cmp.Compare(a.from, b.from), -cmp.Compare(a.to, b.to), cmp.Compare(a.form, b.form))
	})
	for _, f := range x.files {
		w := &writer{x: x, file: f, imports: map[string]string{}}
		for i, s := range x.all {
			s.number = i
			if s.file == f {
				w.sites = append(w.sites, s)
			}
		}
		w.between(0, len(f.text))
		files = append(files, &source{name: f.name, path: f.path, text: w.withImports()})
	}
	return files
}

// A writer writes a file of a schema.
type writer struct {
	x       *schema
	file    *source
	sites   []*site // remaining, in order
	written []*site
	imports map[string]string // names by path
	b       strings.Builder
}

// between writes the text between two offsets.
func (w *writer) between(from, to int) {
	for len(w.sites) > 0 && w.sites[0].from >= from && w.sites[0].to <= to {
		s := w.sites[0]
		w.sites = w.sites[1:]
		w.b.WriteString(w.file.text[from:s.from])
		w.site(s)
		from = s.to
	}
	w.b.WriteString(w.file.text[from:to])
}

func (w *writer) site(s *site) {
	s.span.from, s.spans = w.b.Len(), nil
	w.written = append(w.written, s)
	returns := ""
	switch s.form {
	case beginning:
		w.b.WriteString(" ")
	case simple:
		w.b.WriteString("func() { ")
	case expression:
		fmt.Fprintf(&w.b, "func() %s { ", types.TypeString(s.typ, w.name))
		returns = "return "
	}
	ask := fmt.Sprintf("mutant__m := mutant__at(%d); ", s.number)
	for _, m := range s.mutants {
		fmt.Fprintf(&w.b, "if %smutant__m == %d { %s", ask, m.change.id, returns)
		from := w.b.Len()
		w.b.WriteString(w.file.text[s.from:m.change.from] + m.change.by + w.file.text[m.change.to:s.to])
		s.spans = append(s.spans, span{from, w.b.Len()})
		w.b.WriteString(" } else ")
		ask = ""
	}
	w.b.WriteString("{ " + returns)
	w.between(s.from, s.to)
	w.b.WriteString(" }")
	switch s.form {
	case beginning:
		w.b.WriteString("; ")
	case simple, expression:
		w.b.WriteString(" }()")
	}
	s.span.to = w.b.Len()
}

// withImports returns the written text, with the imports for its names on the line of the package
// clause.
func (w *writer) withImports() string {
	var added strings.Builder
	for _, path := range slices.Sorted(maps.Keys(w.imports)) {
		fmt.Fprintf(&added, "; import %s %q", w.imports[path], path)
	}
	n := added.Len()
	for _, s := range w.written {
		s.span = span{s.span.from + n, s.span.to + n}
		for i, at := range s.spans {
			s.spans[i] = span{at.from + n, at.to + n}
		}
	}
	end := w.x.offset(w.file.tree.Name.End())
	text := w.b.String()
	return text[:end] + added.String() + text[end:]
}

func (w *writer) name(p *types.Package) string {
	if p.Path() == w.x.path {
		return ""
	}
	if w.imports[p.Path()] == "" {
		w.imports[p.Path()] = fmt.Sprintf("mutant__%d", len(w.imports))
	}
	return w.imports[p.Path()]
}

// asks is the additional file of a schema.
var asks = template.Must(template.New("").Parse(`package {{.Name}}

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutant__lives, _ = strconv.Atoi(os.Getenv("{{.Lives}}"))
	mutant__seen, _  = os.OpenFile(os.Getenv("{{.Seen}}"), os.O_WRONLY|os.O_APPEND, 0)
	mutant__sites    [{{.Sites}} + 1]atomic.Bool
)

func mutant__at(site int) int {
	if mutant__seen != nil && !mutant__sites[site].Load() && !mutant__sites[site].Swap(true) {
		mutant__seen.WriteString(strconv.Itoa(site) + "\n")
	}
	return mutant__lives
}
`))

// Environment variables of a test binary: the active mutant, and the file for the numbers of the
// sites that it reaches.
const (
	livesVar = "MUTATE_LIVES"
	seenVar  = "MUTATE_SEEN"
)

func (x *schema) text() (string, error) {
	var b bytes.Buffer
	err := asks.Execute(&b, map[string]any{"Name": x.name, "Sites": len(x.all), "Lives": livesVar, "Seen": seenVar})
	return b.String(), err
}
