package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// sources is a package's code without tests, as built here.
type sources struct {
	pkg   string // for the go command
	dir   string // its directory
	path  string // its import path
	name  string
	files []*source
	fset  *token.FileSet
	deps  types.Importer
	info  *types.Info
}

type source struct {
	name string // relative to go.mod
	path string
	text string
	tree *ast.File
}

// readSources reads and type-checks a package of the module in dir.
func readSources(ctx context.Context, dir, pkg string) (*sources, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles,DepOnly", pkg)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", pkg, err, stderr.String())
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &sources{pkg: pkg, fset: token.NewFileSet()}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p struct {
			ImportPath, Name, Dir, Export string
			GoFiles                       []string
			DepOnly                       bool
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly {
			continue
		}
		s.path, s.dir, s.name = p.ImportPath, p.Dir, p.Name
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			from, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			s.files = append(s.files, &source{name: from, path: path, text: string(text)})
		}
	}
	s.deps = importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s was not built", path)
		}
		return os.Open(exports[path])
	})
	s.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	var trees []*ast.File
	for _, f := range s.files {
		tree, err := parser.ParseFile(s.fset, f.name, f.text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		f.tree = tree
		trees = append(trees, tree)
	}
	if wrong := s.check(trees, s.info); len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return s, nil
}

func (s *sources) check(trees []*ast.File, info *types.Info) (wrong []error) {
	c := types.Config{Importer: s.deps, Error: func(err error) { wrong = append(wrong, err) }}
	_, _ = c.Check(s.path, s.fset, trees, info) // Error has them all
	return wrong
}

// compiles reports whether the package compiles with this text for the changed file.
func (s *sources) compiles(changed *source, text string) bool {
	var trees []*ast.File
	for _, f := range s.files {
		tree := f.tree
		if f == changed {
			var err error
			if tree, err = parser.ParseFile(s.fset, f.name, text, parser.SkipObjectResolution); err != nil {
				return false
			}
		}
		trees = append(trees, tree)
	}
	return len(s.check(trees, nil)) == 0
}
