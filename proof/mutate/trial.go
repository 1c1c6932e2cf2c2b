package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A trial runs tests over mutated code of the module in dir.
type trial struct {
	dir     string
	timeout time.Duration
	prefix  []string      // a command that runs test binaries, if any
	jobs    chan struct{} // its capacity limits concurrency
}

// verdict is the result of one mutation.
type verdict struct {
	passed []test   // tests that noticed nothing
	caught []string // tests that failed
	bad    error    // why it proves nothing
	took   time.Duration
	said   string // the tests' output

	unreached bool // no test reaches the change
}

// unmutated returns an error unless the tests named by the mutations pass without a mutation.
func (t *trial) unmutated(ctx context.Context, mutations []*mutation) error {
	var tests []test
	for _, m := range mutations {
		for _, each := range m.tests {
			if !slices.Contains(tests, each) {
				tests = append(tests, each)
			}
		}
	}
	failed := make(chan error)
	for _, each := range tests {
		go func() {
			t.jobs <- struct{}{}
			defer func() { <-t.jobs }()
			o, err := t.goTest(ctx, each, "", patience*t.timeout)
			switch {
			case err == nil && len(o.failed) > 0:
				err = fmt.Errorf("%s fails in %s without a mutation:\n%s", each, strings.Join(o.failed, ", "), o.said)
			case err == nil && o.ran == 0:
				err = fmt.Errorf("%s has no test", each)
			}
			failed <- err
		}()
	}
	var all []error
	for range tests {
		all = append(all, <-failed)
	}
	return errors.Join(all...)
}

// start tries the mutations. The verdicts are in their order.
func (t *trial) start(ctx context.Context, mutations []*mutation, try func(context.Context, *mutation) verdict) []<-chan verdict {
	var all []<-chan verdict
	turn := make(chan struct{}, 1) // they also begin in order
	turn <- struct{}{}
	for _, m := range mutations {
		done, mine, next := make(chan verdict, 1), turn, make(chan struct{}, 1)
		turn = next
		all = append(all, done)
		go func() {
			<-mine
			t.jobs <- struct{}{}
			next <- struct{}{}
			done <- try(ctx, m)
			<-t.jobs
		}()
	}
	return all
}

func (t *trial) try(ctx context.Context, m *mutation) (v verdict) {
	began := time.Now()
	defer func() { v.took = time.Since(began) }()
	overlay, remove, err := t.overlay(m)
	if err != nil {
		return verdict{bad: err}
	}
	defer remove()
	for _, each := range m.tests {
		o, err := t.goTest(ctx, each, overlay, t.timeout)
		v.said += o.said
		switch {
		case err != nil:
			v.bad = err
			return v
		case len(o.failed) == 0:
			v.passed = append(v.passed, each)
		default:
			v.caught = append(v.caught, o.failed[0])
		}
	}
	return v
}

// overlay writes the mutated files and their overlay for go test.
func (t *trial) overlay(m *mutation) (path string, remove func(), err error) {
	root, err := filepath.Abs(t.dir)
	if err != nil {
		return "", nil, err
	}
	mutated, err := m.apply(t.dir)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // leftovers are in the temporary directory
	var replace struct{ Replace map[string]string }
	replace.Replace = map[string]string{}
	for file, text := range mutated {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace.Replace)))
		replace.Replace[filepath.Join(root, file)] = to
		if err = os.WriteFile(to, []byte(text), 0o600); err != nil {
			break
		}
	}
	path = filepath.Join(dir, "overlay.json")
	body, marshal := json.Marshal(replace)
	if err = errors.Join(err, marshal, os.WriteFile(path, body, 0o600)); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

var errUnbuilt = errors.New("does not compile")

// module returns the directory of a package's module, and the package's path there: the proofs
// are a separate module, and the go command must run inside it.
func (t *trial) module(pkg string) (dir, path string) {
	for above := pkg; above != "."; above = filepath.Dir(above) {
		if _, absent := os.Stat(filepath.Join(t.dir, above, "go.mod")); absent == nil {
			inside, err := filepath.Rel(above, pkg)
			if err != nil {
				break
			}
			return filepath.Join(t.dir, above), "./" + filepath.ToSlash(inside)
		}
	}
	return t.dir, pkg
}

// patience is how many times -timeout a test may take without a mutation, because on a busy machine
// it must not fail for being late.
const patience = 10

// goTest runs a test, with an overlay if that is not empty. An error means that the tests did not
// finish.
func (t *trial) goTest(ctx context.Context, what test, overlay string, limit time.Duration) (outcome, error) {
	args := []string{
		"test", "-json", "-vet=off", "-ldflags=-s -w", "-short", "-failfast", "-count=1",
		"-timeout", limit.String(), "-run", what.run, "-overlay", overlay,
	}
	module, path := t.module(what.pkg)
	cmd := exec.CommandContext(ctx, "go", append(args, path)...)
	cmd.Dir = module
	cmd.WaitDelay = 10 * time.Second // for a test binary that outlives the go command
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	o := read(stdout.Bytes())
	o.said += stderr.String()
	switch {
	case ctx.Err() != nil:
		return o, ctx.Err()
	case o.unbuilt:
		return o, fmt.Errorf("%s %w:\n%s", what.pkg, errUnbuilt, o.said)
	case err != nil && len(o.failed) == 0:
		return o, fmt.Errorf("%s fails outside of its tests: %w\n%s", what, err, o.said)
	}
	return o, nil
}
