// Package clitest tests the command leasehold from outside: by scripts, on terminals, and under
// a service manager.
//
// The command is the one in PATH: the test binary itself in the tests of package main, and
// what Build has built in those of other modules.
package clitest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/internal/testenv"
)

// Root is the repository, as seen from the packages that use this one.
const Root = "../.."

// Build builds the command for tests outside of its package, runs the tests, and returns
// their exit code.
func Build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "leasehold-clitest")
	if err != nil {
		return failed(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()                                                                          // it is a temporary directory
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "leasehold"), "./cmd/leasehold") //nolint:noctx // there is no test yet
	build.Dir = Root
	if out, wrong := build.CombinedOutput(); wrong != nil {
		return failed(fmt.Errorf("%w: %s", wrong, out))
	}
	if err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return failed(err)
	}
	testenv.Signals()
	return m.Run()
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Command is the program with some arguments, and a store for bare names.
func Command(t testing.TB, store string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("leasehold")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, UnderTest.Args(args)...)
	// The command does not read variables for tests, and would say so.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LEASEHOLD_TEST_") })
	if store != "" {
		store = UnderTest.URL(store)
	}
	cmd.Env = append(cmd.Env, "LEASEHOLD_STORE="+store)
	if UnderTest == leasetest.MarkerNoIfMatch {
		cmd.Env = append(cmd.Env, "LEASEHOLD_SWEEP=true")
	}
	return cmd
}

// Scripts are the scripts of one directory, for package testscript.
type Scripts struct {
	Dir   string
	Way   leasetest.Way                   // of all locks: by default UnderTest
	Setup func(env *testscript.Env) error // optional
}

// Run runs them as parallel subtests.
func (s Scripts) Run(t *testing.T) {
	t.Helper()
	if s.Way.Layout == "" {
		s.Way = UnderTest
	}
	testscript.Run(t, testscript.Params{
		Dir:                 s.Dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LEASEHOLD_STORE", s.Way.URL("file://"+filepath.ToSlash(env.WorkDir)+"/locks"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state"))
			if err := os.Mkdir(filepath.Join(env.WorkDir, "locks"), 0o700); err != nil {
				return err
			}
			for _, v := range os.Environ() {
				if strings.HasPrefix(v, "MUTATE_") { // the mutant that lives; see proof/mutate
					env.Vars = append(env.Vars, v)
				}
			}
			s.setWay(env)
			late := time.AfterFunc(10*time.Minute, func() { abort(env) })
			env.Defer(func() {
				late.Stop()
				if script, ok := env.T().(interface{ Failed() bool }); ok && script.Failed() {
					abort(env)
				}
			})
			servers.NewAuthority(t).Write(t, env.WorkDir, "127.0.0.1", "localhost")
			if s.Setup == nil {
				return nil
			}
			err := s.Setup(env)
			env.Setenv("PLAIN_BUCKET", env.Getenv("BUCKET")) // for locks of the layout object
			for _, name := range []string{"BUCKET", "NO_BUCKET"} {
				if bucket := env.Getenv(name); bucket != "" {
					env.Setenv(name, s.Way.URL(bucket))
				}
			}
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "until": until, "oneline": s.oneLineOnly, "fill": fill, "lockurl": lockURL,
			"ask": ask, "silent": s.silent, "plant": s.plant, "objects": s.objects, "usurp": s.usurp, "dies": dies,
			"stub": stubStore, "requests": requests, "events": eventLines,
			"fetch": fetch, "addressfrom": addressFrom, "curls": curls,
		},
		Condition: s.condition,
	})
}

// Bucket has each script use a bucket of its own on a server.
func Bucket(t *testing.T, srv *servers.Server) func(*testscript.Env) error {
	t.Helper()
	return func(env *testscript.Env) error {
		env.Vars = append(env.Vars, srv.Env()...)
		env.Setenv("BUCKET", srv.URL(srv.Bucket(t)))
		env.Setenv("NO_BUCKET", srv.URL("leasehold-no-such-bucket"))
		examples, err := filepath.Abs(filepath.Join(Root, "examples"))
		env.Setenv("EXAMPLES", examples)
		return err
	}
}
