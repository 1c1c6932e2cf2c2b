// Mutate removes the rules that leasehold rests on from its code, one at a time, and
// checks that the tests notice each.
//
//	go -C proof run ./mutate [flags] [FILE…]
//	go -C proof run ./mutate -general PACKAGE [flags] [PACKAGE…]
//
// It runs in the directory proof, and packages are named from the one above. The files list the mutations; see parse for their form. By
// default they are proof/mutate/*.txt. A mutated file is never written to the tree:
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
// With -general the mutations are made from the code of a package; see general. All of them are
// compiled at once; see schema. A test is run for a mutation if it comes by it: first those of
// the package, then those of the other packages, the quickest first, until one fails or takes
// ten times as long as usual. The subtests of a slow test are run as tests of their own.
// Mutations that do not compile do not count. A survivor must stand in proof/mutate/explained,
// in the file of the package, with the reason why it makes no difference; see explain. A reason that begins with OPEN says that a test is missing;
// -record adds survivors in that way, and with -survey they are only counted. With -share 3/20
// a twentieth of them is tried, the third, which stays the same while the code does.
//
// Some mutations of internal/guardian kill all that they may. On Linux, as root, they are
// tried where only the tests are:
//
//	-exec "unshare --pid --fork --mount-proc --kill-child setsid"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, "..", os.Args[1:], os.Stdout, os.Stderr)
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
		part    = flags.String("share", "1/1", "try only this share, `k/n`")
		add     = flags.Bool("record", false, "add what survives -general to the list of the explained, as open")
		survey  = flags.Bool("survey", false, "count what survives -general, and do not fail for it")
		prefix  = flags.String("exec", "", "run the test binaries of -general by this `command`")
		timeout = flags.Duration("timeout", 2*time.Minute, "how long a test binary may run whose usual time is not known")
	)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	t := &trial{dir: dir, timeout: *timeout, prefix: strings.Fields(*prefix), jobs: make(chan struct{}, max(*jobs, 1))}
	wrong := func(code int, err error) int {
		fmt.Fprintf(stderr, "mutate: %v\n", err)
		return code
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return wrong(2, fmt.Errorf("-run: %w", err))
	}
	in, err := share(*part)
	if err != nil {
		return wrong(2, err)
	}
	var mutations []*mutation
	var code *sources
	if *pkg == "" {
		mutations, err = load(dir, flags.Args())
	} else {
		code, mutations, err = loadGeneral(ctx, dir, *pkg)
	}
	if err != nil {
		return wrong(2, err)
	}
	tried := slices.DeleteFunc(slices.Clone(mutations), func(m *mutation) bool { return !match.MatchString(m.String()) || !in(m) })
	if len(tried) == 0 {
		return wrong(2, errors.New("no mutation is listed, or matches -run"))
	}
	r := newReport(stdout, tried, *verbose)
	if *list {
		r.list()
		return 0
	}
	try, remove := t.try, func() {}
	if *pkg == "" {
		err = t.unmutated(ctx, tried)
	} else {
		try, remove, err = t.general(ctx, code, mutations, flags.Args())
	}
	if err != nil {
		return wrong(1, err)
	}
	defer remove()
	held := r.all(t.start(ctx, tried, try), *survey && *pkg != "")
	if *add && *pkg != "" {
		if err := record(explained(dir, *pkg), r.survivors); err != nil {
			return wrong(1, err)
		}
	}
	if !held {
		return 1
	}
	return 0
}

// share reads k/n, and tells which mutations are of it: by their names, so that a change
// of the code moves no other.
func share(part string) (func(*mutation) bool, error) {
	var k, n uint32
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || k > n {
		return nil, fmt.Errorf("-share %s is none, such as 3/20, the third of twenty", part)
	}
	return func(m *mutation) bool {
		h := fnv.New32a()
		_, _ = io.WriteString(h, m.String()) // it never fails
		return h.Sum32()%n == k-1
	}, nil
}

// load reads the mutations of the files, or of those there are by default, and checks
// them against the tree.
func load(dir string, files []string) (all []*mutation, err error) {
	if len(files) == 0 {
		if files, err = filepath.Glob(filepath.Join(dir, "proof/mutate/*.txt")); err != nil {
			return nil, err
		}
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
func loadGeneral(ctx context.Context, dir, pkg string) (*sources, []*mutation, error) {
	code, err := readSources(ctx, dir, pkg)
	if err != nil {
		return nil, nil, err
	}
	all, err := general(code)
	if err != nil {
		return nil, nil, err
	}
	return code, all, explain(all, explained(dir, pkg))
}
