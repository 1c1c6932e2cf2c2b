// Contention lets many tasks compete for one lock, in one process or in several.
//
//	go run ./examples/contention --compare
//	go run ./examples/contention --compare --processes 10 --layout epochs
//
// Each task acquires the lock, holds it for a while, releases it and acquires it
// again. The program prints who has the lock, and at the end for how much of the time
// it was in use and what that cost in requests; with --compare it then does the same
// by the plain loop that needs no library (see loop).
//
// It checks that no two tasks are inside at once, by a file that each creates when it
// has acquired the lock and removes before it releases it: that rests on no lock, no
// lease and no store. The exit code is 0 only if no two were.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/filestore"
)

// workerArg, as its only argument, makes this program one of the processes.
const workerArg = "worker"

// The exit codes other than 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var code int
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		code = work(ctx, os.Stdin, os.Stdout, os.Stderr)
	} else {
		code = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	os.Exit(code)
}

// options are what the command line says.
type options struct {
	plan
	protocols                      []string
	tasks, processes, acquisitions int
	json                           bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var layouts []string
	for _, l := range leasehold.Layouts {
		layouts = append(layouts, string(l))
	}
	var o options
	flags := flag.NewFlagSet("contention", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.Store, "store", "", "`URL` of the store, such as s3://bucket/prefix; default: memory for one process, a temporary directory for several")
	layout := flags.String("layout", layouts[0], "how the lock lies in the store: "+strings.Join(layouts, ", "))
	flags.IntVar(&o.tasks, "tasks", 100, "`number` of tasks, in all processes together")
	flags.IntVar(&o.processes, "processes", 1, "`number` of processes that the tasks are divided among")
	flags.IntVar(&o.acquisitions, "acquisitions", 0, "`number` of acquisitions after which it ends; default: one for each task")
	flags.DurationVar(&o.Hold, "hold", 200*time.Millisecond, "how long a task holds the lock")
	flags.DurationVar(&o.TTL, "ttl", leasehold.DefaultTTL, "TTL of the lock")
	loopOnly := flags.Bool(plainLoop, false, "use the plain loop instead of the library: create a marker, else try again after 0.5 to 1 s; delete it")
	compare := flags.Bool("compare", false, "use the library, and then the plain loop")
	flags.BoolVar(&o.json, "json", false, "print one line of JSON for each of them, and nothing else")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.protocols = []string{*layout}
	switch {
	case *loopOnly:
		o.protocols = []string{plainLoop}
	case *compare:
		o.protocols = append(o.protocols, plainLoop)
	}
	if o.acquisitions == 0 {
		o.acquisitions = o.tasks
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.processes < 1 || o.tasks < o.processes || o.acquisitions < 1 || o.Hold < 0:
		return o, errors.New("there must be one process at least, a task in each, and one acquisition; and the hold must not be negative")
	case !slices.Contains(layouts, *layout):
		return o, fmt.Errorf("there is no layout %q: use one of %s", *layout, strings.Join(layouts, ", "))
	case *loopOnly && *compare:
		return o, fmt.Errorf("--compare runs the plain loop too: leave out --%s", plainLoop)
	case o.processes > 1 && strings.HasPrefix(o.Store, "mem:"):
		return o, fmt.Errorf("%s: processes share no memory; use a directory or a bucket", o.Store)
	}
	return o, nil
}

// run is the program without its process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "contention:", err)
		return exitUsage
	}
	if err := o.compete(ctx, stdout); err != nil {
		fmt.Fprintln(stderr, "contention:", err)
		return exitFailed
	}
	return 0
}

// compete lets the tasks compete by one protocol after the other.
func (o options) compete(ctx context.Context, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "contention")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.Inside = filepath.Join(dir, "inside")
	switch {
	case o.Store != "":
	case o.processes == 1:
		o.Store = "mem://contention"
	default:
		st, err := filestore.New(filepath.Join(dir, "store"), nil)
		if err != nil {
			return err
		}
		o.Store = st.String()
	}
	var all []figures
	overlaps := 0
	for _, o.Protocol = range o.protocols {
		f, err := o.measure(ctx, stdout)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Protocol, err)
		}
		all = append(all, f)
		overlaps += f.Overlaps
	}
	if err := o.report(stdout, all); err != nil {
		return err
	}
	if overlaps > 0 {
		return fmt.Errorf("a task was inside when another came in: %d times", overlaps)
	}
	return nil
}

func (o options) report(w io.Writer, all []figures) error {
	if !o.json {
		return table(w, all)
	}
	for _, f := range all {
		if err := json.NewEncoder(w).Encode(f); err != nil {
			return err
		}
	}
	return nil
}
