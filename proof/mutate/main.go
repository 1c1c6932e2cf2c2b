// Mutate removes leasehold's rules from its code, one at a time, and checks that the tests
// notice.
//
//	go -C proof run ./mutate [flags] [FILE…]
//	go -C proof run ./mutate -general PACKAGE [flags] [PACKAGE…]
//
// It runs in the directory proof. Packages are relative to its parent. The files list the
// mutations in the format described at parse; by default they are proof/mutate/*.txt. Mutated
// files are never written to the tree: the go command gets them with -overlay.
//
// First the tests named by the mutations must pass without a mutation. Then each of them must
// fail for each mutation that names it. Tests run with -short, as usual. A test binary that takes
// longer than -timeout has failed; without a mutation it may take ten times as long.
//
// The exit code is 0 only if every mutation was caught. A mutation is stale if its text is not in
// its file exactly once. It proves nothing if it does not compile, or if the binary fails outside
// of any test. Both are errors, like a surviving mutation.
//
// With -general the mutations are made from a package's code (see general) and compiled all at
// once (see schema). The tests that reach a mutation run over it, those of the package before
// those of the other packages, the fastest first, until one fails or takes about ten times its
// usual duration. Subtests of a slow test run separately. Mutations that do not compile do not
// count.
//
// A survivor must be listed in proof/mutate/explained, in the package's file, with the reason why
// it makes no difference; see explain. A reason that begins with OPEN means a missing test.
// -record adds survivors as OPEN, and -survey only counts them. -share 3/20 tries the third
// twentieth of the mutations, which stays the same while the code does.
//
// Some mutations of internal/guardian kill every process they can. On Linux, as root, run them in
// a PID namespace:
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

// run is main in the module in dir. It returns the exit code.
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
	matched := slices.DeleteFunc(slices.Clone(mutations), func(m *mutation) bool { return !match.MatchString(m.String()) })
	if len(matched) == 0 {
		return wrong(2, errors.New("no mutation is listed, or matches -run"))
	}
	tried := slices.DeleteFunc(matched, func(m *mutation) bool { return !in(m) })
	if len(tried) == 0 { // titles are hashed, so some of many shares are empty
		_, _ = fmt.Fprintf(stdout, "no mutation is in the share %s\n", *part)
		return 0
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

// share parses k/n and returns a function that reports whether a mutation is in this share. It
// depends on the mutation's name, so that a change of the code moves no other mutation.
func share(part string) (func(*mutation) bool, error) {
	var k, n uint32
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || k > n {
		return nil, fmt.Errorf("-share %s is none, such as 3/20, the third of twenty", part)
	}
	return func(m *mutation) bool {
		h := fnv.New32a()
		_, _ = io.WriteString(h, m.String()) // never fails
		return h.Sum32()%n == k-1
	}, nil
}

// load reads the mutations in the given files, or in the default ones, and checks them against
// the tree.
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
