package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// suites has the tests that run over a schema.
type suites struct {
	*trial
	schema *schema
	tmp    string
	json   string // the program test2json
	all    []*suite
}

// A suite is a package's tests, with their measurements.
type suite struct {
	pkg    string // as given
	dir    string // its directory
	module string // where the go command must run
	path   string // for the go command, there
	binary string
	tests  []*measured // the fastest first
}

// measured is a test's result when it runs alone and no mutant is active.
type measured struct {
	name string
	took time.Duration
	seen map[int]bool // reached sites

	leaves []string // subtests without subtests
}

func (m *measured) parent() string { return m.name[:max(strings.LastIndexByte(m.name, '/'), 0)] }

// general compiles the tests over a package's mutations and measures each. The returned function
// try tries one mutation.
func (t *trial) general(ctx context.Context, code *sources, mutations []*mutation, others []string) (
	try func(context.Context, *mutation) verdict, remove func(), err error,
) {
	s := &suites{trial: t}
	if s.schema, err = newSchema(code, mutations); err != nil {
		return nil, nil, err
	}
	if s.tmp, err = os.MkdirTemp("", "mutate"); err != nil {
		return nil, nil, err
	}
	remove = func() { _ = os.RemoveAll(s.tmp) } // leftovers are in the temporary directory
	if err = errors.Join(open(s.tmp), s.measureAll(ctx, others)); err != nil {
		remove()
		return nil, nil, err
	}
	return s.try, remove, nil
}

func (s *suites) measureAll(ctx context.Context, others []string) error {
	json, err := s.goTool(ctx, s.dir, "tool", "-n", "test2json")
	if err != nil {
		return err
	}
	s.json = json
	asks, err := s.schema.text()
	if err != nil {
		return err
	}
	overlay, err := s.overlay(append(s.schema.write(), &source{path: filepath.Join(s.schema.dir, "mutant__.go"), text: asks})...)
	if err != nil {
		return err
	}
	own := &suite{pkg: s.schema.pkg, dir: s.schema.dir, module: s.dir, path: s.schema.pkg}
	// A package needs no tests if those of others are named.
	if tests, _ := filepath.Glob(filepath.Join(own.dir, "*_test.go")); len(tests) > 0 || len(others) == 0 {
		s.all = append(s.all, own)
	}
	for _, other := range others {
		each := &suite{pkg: other}
		each.module, each.path = s.module(other)
		if each.dir, err = s.goTool(ctx, each.module, "list", "-f", "{{.Dir}}", each.path); err != nil {
			return err
		}
		s.all = append(s.all, each)
	}
	for i, each := range s.all {
		if each.binary, err = s.build(ctx, each, fmt.Sprintf("schema%d.test", i), overlay); err != nil {
			return err
		}
		if err = s.measure(ctx, each); err != nil {
			return err
		}
	}
	return nil
}

// goTool runs the go command in a directory and returns its output.
func (s *suites) goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// overlay writes the files and their overlay for the go command.
func (s *suites) overlay(files ...*source) (path string, err error) {
	dir, err := os.MkdirTemp(s.tmp, "overlay")
	if err != nil {
		return "", err
	}
	var replace struct{ Replace map[string]string }
	replace.Replace = map[string]string{}
	for i, f := range files {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		replace.Replace[f.path] = to
		if err = os.WriteFile(to, []byte(f.text), 0o600); err != nil {
			return "", err
		}
	}
	body, err := json.Marshal(replace)
	path = filepath.Join(dir, "overlay.json")
	return path, errors.Join(err, os.WriteFile(path, body, 0o600))
}

func (s *suites) build(ctx context.Context, of *suite, name, overlay string) (binary string, err error) {
	binary = filepath.Join(s.tmp, name)
	_, err = s.goTool(ctx, of.module, "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, "-overlay", overlay, of.path)
	return binary, err
}

func (s *suites) measure(ctx context.Context, of *suite) error {
	cmd := exec.CommandContext(ctx, of.binary, "-test.list", ".")
	cmd.Dir = of.dir
	listed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the tests of %s cannot be listed: %w", of.pkg, err)
	}
	for name := range strings.Lines(string(listed)) {
		if name = strings.TrimSpace(name); !strings.HasPrefix(name, "Benchmark") {
			of.tests = append(of.tests, &measured{name: name, seen: map[int]bool{}})
		}
	}
	if len(of.tests) == 0 {
		return fmt.Errorf("%s has no test", of.pkg)
	}
	if err = errors.Join(s.measureEach(ctx, of, of.tests)...); err != nil {
		return err
	}
	for _, test := range slices.Clone(of.tests) {
		s.split(ctx, of, test)
	}
	slices.SortStableFunc(of.tests, func(a, b *measured) int { return cmp.Compare(a.took, b.took) })
	return nil
}

func (s *suites) measureEach(ctx context.Context, of *suite, tests []*measured) []error {
	wrong := make([]error, len(tests))
	var all sync.WaitGroup
	for i, test := range tests {
		all.Go(func() {
			s.jobs <- struct{}{}
			defer func() { <-s.jobs }()
			wrong[i] = s.measureOne(ctx, of, test)
		})
	}
	all.Wait()
	return wrong
}

// split adds the subtests of a slow test as separate tests. The test itself keeps only sites that
// they do not reach when they run alone.
func (s *suites) split(ctx context.Context, of *suite, test *measured) {
	if test.took < 2*time.Second || len(test.leaves) < 2 {
		return
	}
	var parts []*measured
	for _, name := range test.leaves {
		parts = append(parts, &measured{name: name, seen: map[int]bool{}})
	}
	for i, err := range s.measureEach(ctx, of, parts) {
		if err != nil { // it needs other subtests
			continue
		}
		of.tests = append(of.tests, parts[i])
		for site := range parts[i].seen {
			delete(test.seen, site)
		}
	}
}

func (s *suites) measureOne(ctx context.Context, of *suite, test *measured) error {
	file, err := os.CreateTemp(s.tmp, "seen")
	if err != nil {
		return err
	}
	_ = file.Close()                                    // nothing was written
	if err = os.Chmod(file.Name(), 0o666); err != nil { // a test may switch to another user
		return err
	}
	begun := time.Now()
	o, err := s.run(ctx, of, of.binary, []*measured{test}, patience*s.timeout, seenVar+"="+file.Name())
	test.took, test.leaves = time.Since(begun), o.leaves
	if err == nil && len(o.failed) > 0 {
		err = fmt.Errorf("%s fails in %s without a mutation:\n%s", of.pkg, strings.Join(o.failed, ", "), o.said)
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file.Name())
	for line := range strings.Lines(string(text)) {
		if n, bad := strconv.Atoi(strings.TrimSpace(line)); bad == nil { // a process may be killed during a write
			test.seen[n] = true
		}
	}
	return err
}

// run runs tests until one fails. An error means that the tests did not finish.
func (s *suites) run(ctx context.Context, of *suite, binary string, tests []*measured, limit time.Duration, env ...string) (outcome, error) {
	tmp, err := os.MkdirTemp(s.tmp, "run")
	if err = errors.Join(err, open(tmp)); err != nil {
		return outcome{}, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // removed with the rest
	within, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	argv := append(slices.Clone(s.prefix), binary, "-test.v=test2json", "-test.short", "-test.failfast", "-test.paniconexit0",
		"-test.timeout", limit.String(), "-test.run", pattern(tests))
	cmd := exec.CommandContext(within, argv[0], argv[1:]...)
	cmd.Dir = of.dir
	cmd.Env = append(append(os.Environ(), "TMPDIR="+tmp), env...)
	cmd.WaitDelay = time.Second // for processes left by the tests
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Run()
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	convert := exec.CommandContext(ctx, s.json)
	convert.Stdin = &said
	events, wrong := convert.Output()
	if wrong != nil {
		return outcome{}, fmt.Errorf("test2json: %w", wrong)
	}
	o := read(events)
	if err == nil {
		o.failed = nil
	} else if len(o.failed) == 0 {
		return o, fmt.Errorf("%s fails outside of its tests: %w\n%s", of.pkg, err, o.said)
	}
	return o, nil
}

// try runs the tests that reach a mutation, the fastest first.
func (s *suites) try(ctx context.Context, m *mutation) (v verdict) {
	begun := time.Now()
	defer func() { v.took = time.Since(begun) }()
	v.unreached = true
	overlay := ""
	if len(m.change.choices) == 0 {
		if !s.schema.compiles(m.change.file, m.change.mutated()) {
			return verdict{bad: errUnbuilt}
		}
		var err error
		if overlay, err = s.overlay(&source{path: m.change.file.path, text: m.change.mutated()}); err != nil {
			return verdict{bad: err}
		}
	}
	for _, of := range s.all {
		tests, binary := of.tests, of.binary
		if overlay == "" {
			site := s.schema.sites[m.change.choices[0].key].number
			tests = slices.DeleteFunc(slices.Clone(tests), func(t *measured) bool { return !t.seen[site] })
		} else {
			var err error
			if binary, err = s.build(ctx, of, fmt.Sprintf("mutant%d.test", m.change.id), overlay); err != nil {
				return verdict{bad: fmt.Errorf("%w: %w", errUnbuilt, err)} // in the tests, because the package compiles
			}
			defer func() { _ = os.Remove(binary) }() // removed with the rest
		}
		for len(tests) > 0 {
			var some []*measured
			var usual time.Duration
			some, tests, usual = batch(tests)
			v.unreached = false
			o, err := s.run(ctx, of, binary, some, 10*usual+5*time.Second, livesVar+"="+strconv.Itoa(m.change.id))
			v.said += o.said
			if err != nil {
				v.bad = err
				return v
			}
			if len(o.failed) > 0 {
				v.passed, v.caught = nil, o.failed[:1]
				return v
			}
		}
		v.passed = append(v.passed, test{pkg: of.pkg})
	}
	return v
}

// pattern returns the regexp for tests with the same parent.
func pattern(tests []*measured) string {
	var levels, names []string
	if parent := tests[0].parent(); parent != "" {
		for level := range strings.SplitSeq(parent, "/") {
			levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
		}
	}
	for _, test := range tests {
		names = append(names, regexp.QuoteMeta(test.name[strings.LastIndexByte(test.name, '/')+1:]))
	}
	return strings.Join(append(levels, "^("+strings.Join(names, "|")+")$"), "/")
}

// batch takes tests with the same parent from the front, for up to 0.2 s or four times the first
// one's duration.
func batch(tests []*measured) (some, rest []*measured, usual time.Duration) {
	limit := max(200*time.Millisecond, 4*tests[0].took)
	n := 0
	for ; n < len(tests) && usual+tests[n].took <= limit && tests[n].parent() == tests[0].parent(); n++ {
		usual += tests[n].took
	}
	return tests[:n], tests[n:], usual
}

// open lets other users into a directory, because a test may switch to one.
func open(dir string) error { return os.Chmod(dir, 0o755) }
