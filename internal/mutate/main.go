// Mutate removes the rules that leasehold rests on from its code, one at a time, and
// checks that the tests notice each.
//
//	go run ./internal/mutate [flags] [FILE…]
//	go run ./internal/mutate -general PACKAGE [flags] [PACKAGE…]
//
// It is run where go.mod is. The files list the mutations; see parse for their form. By
// default they are internal/mutate/*.txt. A mutated file is never written to the tree:
// the go command gets it by -overlay.
//
// First the tests that the mutations name must pass as they are. Then each of them must
// fail for each mutation that names it, in the form in which everybody runs it, with
// -short. A test binary that takes longer than -timeout counts as failed.
//
// The exit code is 0 only if every mutation was caught. A mutation whose text is not in
// its file exactly once is stale, and one that does not compile or ends the tests
// outside of any test proves nothing: both are errors, like a mutation that survived.
//
// With -general the mutations are made from the code of a package; see general. The tests
// are its own and then those of the other packages, of which one must fail. Those that do
// not compile do not count. What survives must stand in internal/mutate/explained.txt with
// the reason why it makes no difference; see explain. It takes a second and a half each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, ".", os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run does the work of main in the module in dir, and returns the exit code.
func run(ctx context.Context, dir string, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		only    = flags.String("run", "", "try only the mutations whose rule and title match this `regexp`")
		list    = flags.Bool("list", false, "list the mutations and try none")
		verbose = flags.Bool("v", false, "show what the tests said")
		jobs    = flags.Int("j", 2, "try `n` mutations at a time")
		pkg     = flags.String("general", "", "mutate all the code of this `package`")
		timeout = flags.Duration("timeout", time.Minute, "how long a test binary may run")
	)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	match, err := regexp.Compile(*only)
	var mutations []mutation
	switch {
	case err != nil:
		err = fmt.Errorf("-run: %w", err)
	case *pkg == "":
		mutations, err = load(dir, flags.Args())
	default:
		mutations, err = loadGeneral(dir, *pkg, flags.Args())
	}
	mutations = slices.DeleteFunc(mutations, func(m mutation) bool { return !match.MatchString(m.String()) })
	if err == nil && len(mutations) == 0 {
		err = errors.New("no mutation is listed, or matches -run")
	}
	if err != nil {
		fmt.Fprintf(stderr, "mutate: %v\n", err)
		return 2
	}
	r := newReport(stdout, mutations, *verbose)
	if *list {
		r.list()
		return 0
	}
	t := &trial{dir: dir, timeout: *timeout, jobs: make(chan struct{}, max(*jobs, 1))}
	if err := t.unmutated(ctx, mutations); err != nil {
		fmt.Fprintf(stderr, "mutate: %v\n", err)
		return 1
	}
	if !r.all(t.start(ctx, mutations)) {
		return 1
	}
	return 0
}

// load reads the mutations of the files, or of those there are by default, and checks
// them against the tree.
func load(dir string, files []string) (all []mutation, err error) {
	if len(files) == 0 {
		if files, err = filepath.Glob(filepath.Join(dir, "internal/mutate/*.txt")); err != nil {
			return nil, err
		}
		files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == explained })
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		listed, err := parse(filepath.Base(file), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, listed...)
	}
	var stale []error
	for _, m := range all {
		if _, err := m.apply(dir); err != nil {
			stale = append(stale, err)
		}
	}
	return all, errors.Join(stale...)
}

// loadGeneral makes the mutations of a package, with the reasons of those that survive.
func loadGeneral(dir, pkg string, others []string) ([]mutation, error) {
	all, err := general(dir, pkg, others)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "internal/mutate", explained))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return all, explain(all, string(text))
}
