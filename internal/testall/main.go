// Testall runs every test of leasehold and sets up what the tests need.
//
//	go run ./internal/testall [flags] [packages]
//
// It builds the pinned object-storage servers and runs go test over the packages (./... unless
// some are named), with the tests that the everyday loop leaves out. With -what it runs the proofs,
// which start many processes or play many histories; the packages whose tests are about locks in
// each of the other layouts; or the modules of their own that have tests, which compile for minutes.
// Of the slowest packages, the adapters and the other layouts it runs the everyday loop only: -long
// runs all of them in full, which takes hours on two cores. It says how long each package took, the
// longest first, and ends with one line:
//
//	812 passed, 0 failed, 3 skipped
//
// The exit code is 0 only if nothing failed and something passed. Leaf tests
// are counted: a test with subtests stands for itself only if it failed or was
// skipped of its own accord. A package that does not build, panics, exits or
// times out counts as failed, once for each test that it left unfinished and at
// least once.
//
// LEASEHOLD_TEST_WITHOUT=minio,versitygw leaves those servers out. With CI=true
// in the environment a skip that is not on the list in skips.go is a failure.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/internal/longtest"
	"github.com/leasehold/leasehold/internal/servers"
)

// layouts are those besides the default one that tests are run over, and layered the
// packages whose tests care.
var (
	layouts = []string{"epochs", "epochs+if-match", "marker", "marker+if-match"}
	layered = []string{".", "./admin"}
	// The command and whole processes see nothing of how two layouts of one kind differ: in the condition of a write.
	byKind = map[string][]string{"epochs": {command, "./internal/proof/e2e"}, "marker": {command, "./internal/proof/e2e"}}
)

// The tests of these packages start processes, dozens at a time. Each has the machine for itself: beside others its
// processes get to run so late that leases end, on a machine with two cores.
var (
	command = "./cmd/leasehold"
	driving = []string{"./internal/proof/chaos", "./internal/proof/linear"}
	slowest = []string{"./internal/proof/e2e", "./internal/proof/mutate", "./internal/proof/quorum", "./internal/proof/sim"} // half an hour in full
)

// modules gives those of their own that have tests, which "./..." does not see, but for the
// comparison: it takes minutes to compile, and nobody depends on it (-C bench).
func modules() []string {
	var dirs []string
	for _, pattern := range []string{"adapter/*/go.mod", "adapter/*/*/go.mod"} {
		files, _ := filepath.Glob(pattern) // the pattern is a good one
		for _, f := range files {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	dirs = append(dirs, "internal/pagetest", "internal/promtest", "internal/sqltest", "tools/release")
	slices.SortStableFunc(dirs, func(a, b string) int {
		return cmp.Compare(slices.Index(heavy, filepath.ToSlash(a)), slices.Index(heavy, filepath.ToSlash(b)))
	})
	return dirs
}

// heavy are the modules that take longest to compile, minutes each. They come last.
var heavy = []string{"adapter/gocloud", "adapter/caddy", "adapter/kubernetes", "adapter/kubernetes/controllerruntime"}

// The parts of the whole. The first is what is run unless -what names others.
var parts = []string{"root", "proofs", "layouts", "modules"}

// parse gives the parts that -what names, and those that it leaves out.
func parse(what string) (these, others []string, err error) {
	these = strings.Split(what, ",")
	for _, p := range these {
		if !slices.Contains(parts, p) {
			return nil, nil, fmt.Errorf("-what %s: there is no part %q; there are %s", what, p, strings.Join(parts, ", "))
		}
	}
	return these, slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return slices.Contains(these, p) }), nil
}

// without is the environment variable by which servers are left out.
const without = "LEASEHOLD_TEST_WITHOUT"

func main() {
	if err := longtest.Want(); err != nil {
		fmt.Fprintln(os.Stderr, "testall:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run does the work of main and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testall", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		race    = flags.Bool("race", false, "look for data races")
		short   = flags.Bool("short", false, "leave long tests out")
		verbose = flags.Bool("v", false, "show the output of tests that pass, too")
		long    = flags.Bool("long", false, "run the long tests of the slowest packages, of the adapters and of the other layouts too")
		only    = flags.String("run", "", "run only the tests that match this `regexp`")
		count   = flags.Int("count", 1, "run each test `n` times")
		what    = flags.String("what", parts[0], "the `parts` to run: root, proofs, layouts, modules")
		within  = flags.Duration("within", 0, "begin nothing more after so long, and say what was left out; 0: no limit")
		dir     = flags.String("C", ".", "test the module in this `directory`, and no other")
	)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	packages, whole := flags.Args(), flags.NArg() == 0 && *dir == "." && *only == ""
	these, others, err := parse(*what)
	if !whole && *what != parts[0] {
		err = fmt.Errorf("-what %s is of whole parts, and packages, -C or -run name less", *what)
	}
	if err != nil {
		fmt.Fprintln(stderr, "testall:", err)
		return 2
	}
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	several := runtime.NumCPU() + 1 // the long ones wait, most of the time
	t := &tally{out: stdout, verbose: *verbose, ci: os.Getenv("CI") == "true"}
	begun := time.Now()
	var late []string
	built := buildServers(ctx, t)
	over := func() bool { return *within > 0 && time.Since(begun) > *within }
	test := func(dir, layout string, everyday bool, atATime int, args ...string) {
		if over() {
			late = append(late, named(dir, layout, args))
			return
		}
		if dir != "." || layout != "object" {
			t.printf("\n%s:\n", named(dir, layout, args))
		}
		t.layout, t.everyday = layout, everyday
		goTest(ctx, t, append([]string{
			"-C", dir, "test", "-json", "-timeout", "20m", "-count", strconv.Itoa(*count), "-p", strconv.Itoa(atATime),
			"-race=" + strconv.FormatBool(*race), "-short=" + strconv.FormatBool(*short || everyday), "-run", *only,
		}, args...), built, stderr)
	}
	if !whole {
		test(*dir, "object", false, several, packages...)
		these, others = nil, nil
	}
	for _, part := range these {
		switch part {
		case "root":
			rest, err := besides(ctx, []string{command}, driving, slowest)
			if err != nil {
				fmt.Fprintln(stderr, "testall:", err)
				return 1
			}
			test(".", "object", false, several, rest...)
			test(".", "object", false, 1, command)
		case "proofs":
			test(".", "object", false, 1, driving...)
			test(".", "object", !*long, 1, slowest...)
		case "modules":
			if !over() {
				installPostgres(ctx, t)
			}
			for _, dir := range modules() {
				test(dir, "object", !*long && strings.HasPrefix(filepath.ToSlash(dir), "adapter/"), several, "./...")
			}
		case "layouts":
			for _, layout := range layouts {
				args := append([]string{"-ldflags", "-X " + module + "/internal/inside.DefaultLayout=" + layout}, slices.Concat(layered, byKind[layout])...)
				test(".", layout, !*long, 1, args...)
			}
		}
	}
	if len(late) > 0 {
		t.printf("\nleft out, since %v had passed: %s\n", *within, strings.Join(late, ", "))
	}
	if len(others) > 0 {
		t.printf("\nnot run: %s; for these: go run ./internal/testall -what %s\n", strings.Join(others, " and "), strings.Join(others, ","))
	}
	t.summary(built)
	if t.failed > 0 || t.passed == 0 {
		return 1
	}
	return 0
}

// named says what a run of go test is of.
func named(dir, layout string, packages []string) string {
	switch {
	case dir != ".":
		return dir
	case layout != "object":
		return "the layout " + layout
	default:
		return strings.Join(packages, " ")
	}
}

// besides lists the other packages. Those of the stores take longest, and come first.
func besides(ctx context.Context, these ...[]string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./...: %w", err)
	}
	others := slices.DeleteFunc(strings.Fields(string(out)), func(pkg string) bool {
		return slices.Contains(slices.Concat(these...), "."+strings.TrimPrefix(pkg, module))
	})
	slices.SortStableFunc(others, func(a, b string) int {
		return cmp.Compare(strings.Index(b, "/store/"), strings.Index(a, "/store/"))
	})
	return others, nil
}

// outcome sorts the names of the servers by what became of them.
type outcome struct {
	ready, leftOut, broken []string
}

// buildServers builds the servers that are not left out. One that does not
// build is a failure; the tests then run without it, so that the rest is known.
func buildServers(ctx context.Context, t *tally) outcome {
	var o outcome
	for _, name := range append(slices.Clone(servers.Names), servers.GCS) {
		if servers.LeftOut(name) {
			o.leftOut = append(o.leftOut, name)
			continue
		}
		begun := time.Now()
		err := build(ctx, t, name, begun)
		if err != nil {
			err = fmt.Errorf("%w\nto test without it: %s=%s", err, without, name)
			o.broken = append(o.broken, name)
		} else {
			o.ready = append(o.ready, name)
		}
		t.step("build "+name, time.Since(begun), err)
	}
	return o
}

// build builds one server and says every half minute that it is still at it: a
// cold build of MinIO takes minutes.
func build(ctx context.Context, t *tally, name string, begun time.Time) error {
	done := make(chan error, 1)
	go func() {
		_, err := servers.Binary(ctx, name)
		done <- err
	}()
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			t.printf("      build %s: not done after %.0fs\n", name, time.Since(begun).Seconds())
		}
	}
}

// goTest runs go test and feeds what it says to t.
func goTest(ctx context.Context, t *tally, args []string, built outcome, stderr io.Writer) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = t, stderr
	cmd.Env = append(os.Environ(), "LEASEHOLD_LAYOUT="+t.layout)
	if t.everyday {
		cmd.Env = append(cmd.Env, longtest.Without)
	}
	if len(built.broken) > 0 {
		left := append([]string{os.Getenv(without)}, built.broken...)
		cmd.Env = append(cmd.Env, without+"="+strings.Join(left, ","))
	}
	before, passed, begun := t.failed, t.passed, time.Now()
	err := runGroup(cmd)
	t.end()
	if err == nil && t.passed == passed {
		err = errors.New("no test was run")
	}
	if err != nil && t.failed == before {
		t.step("go test", time.Since(begun), err)
	}
}
