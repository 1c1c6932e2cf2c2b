// Contention lets many tasks compete for one lock, in one process or in several.
//
//	go run ./examples/contention
//	go run ./examples/contention --processes 10 --layout epochs --store s3://bucket/prefix
//
// worker.go is how a program uses the library. This file starts the processes and prints
// who has the lock, and at the end how much of the time it was in use and what that cost.
//
// The program checks itself. Each task creates a file when it has acquired the lock, which
// must not be there, and removes it before it releases the lock; that rests on no lock. If
// two tasks are inside at once, all ends and the exit code is 1.
//
// In one process the tasks queue in the library, in order of arrival, and only one at a time
// talks to the store. The lock is idle only while it is handed over: for one PUT with the
// layout object, for up to two and a LIST with epochs, for a DELETE and a PUT with marker. A
// process passes the lock on among its own tasks, at the default hold for about 5 s, and then
// lets it rest for about 150 ms, so that other processes can see that it is free: in a short
// run only some of them are served. A process that waits looks at each change of holder, by a GET, which costs
// a twelfth of a PUT.
//
// docs/benchmarks.md compares a hundred tasks with other locks, and with the loop that creates
// a marker, or else tries again after a random pause. That loop needs no library, but a task
// that dies inside keeps the lock for good, nobody is told that it lost the lock, there is no
// token, and with few tasks the lock lies idle for most of a second at each hand-over.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/filestore"
)

type options struct {
	store, insideFile                      string
	layout                                 leasehold.Layout
	tasks, processes, acquisitions, worker int
	hold, ttl                              time.Duration
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "contention:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	run := o.compete
	if o.worker > 0 {
		run = o.work
	}
	err = run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "contention:", err)
		os.Exit(1)
	}
}

var layouts = []leasehold.Layout{leasehold.LayoutObject, leasehold.LayoutEpochs, leasehold.LayoutMarker}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("contention", flag.ExitOnError)
	flags.StringVar(&o.store, "store", "", "`URL` of the store, such as s3://bucket/prefix (default a temporary directory)")
	flags.StringVar((*string)(&o.layout), "layout", string(leasehold.LayoutObject), fmt.Sprintf("how the lock is stored: one of %v", layouts))
	flags.IntVar(&o.tasks, "tasks", 100, "`number` of tasks, in all processes together")
	flags.IntVar(&o.processes, "processes", 1, "`number` of processes that the tasks are divided among")
	flags.IntVar(&o.acquisitions, "acquisitions", 100, "`number` of acquisitions after which it ends")
	flags.DurationVar(&o.hold, "hold", 200*time.Millisecond, "how long a task holds the lock")
	flags.DurationVar(&o.ttl, "ttl", leasehold.DefaultTTL, "TTL of the lock")
	flags.IntVar(&o.worker, "worker", 0, "be the process with this `number`; only for the program itself, as is --inside")
	flags.StringVar(&o.insideFile, "inside", "", "`name` of the file that is there while a task is inside")
	_ = flags.Parse(args) // it exits if that fails
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.processes < 1 || o.tasks < o.processes || o.acquisitions < 1 || o.hold < 0:
		err = errors.New("there must be one process at least, a task in each, and one acquisition; and the hold must not be negative")
	case !slices.Contains(layouts, o.layout):
		err = fmt.Errorf("there is no layout %q: use one of %v", o.layout, layouts)
	case o.processes > 1 && strings.HasPrefix(o.store, "mem:"):
		err = fmt.Errorf("%s: processes share no memory; use a directory or a bucket", o.store)
	}
	return o, err
}

// compete runs the processes until there have been enough acquisitions.
func (o options) compete(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "contention")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args := []string{"--inside", filepath.Join(dir, "inside")}
	if o.store == "" {
		st, failed := filestore.New(filepath.Join(dir, "store"), nil)
		if failed != nil {
			return failed
		}
		args = append(args, "--store", st.String())
	}
	args = append(args, os.Args[1:]...)
	// All write whole lines to one pipe, so what happened first is read first.
	news, write, err := os.Pipe()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var processes sync.WaitGroup
	failed := make(chan error, o.processes)
	for i := range o.processes {
		cmd := exec.CommandContext(running, os.Args[0], append([]string{"--worker", strconv.Itoa(i + 1)}, args...)...)
		cmd.Stdout, cmd.Stderr = write, os.Stderr
		stdin, err := cmd.StdinPipe()
		cmd.Cancel = func() error { return errors.Join(stdin.Close(), os.ErrProcessDone) } // it stops then
		if err == nil {
			err = cmd.Start()
		}
		processes.Go(func() {
			if err == nil {
				err = cmd.Wait()
			}
			if err != nil {
				failed <- fmt.Errorf("process %d of %d: %w", i+1, o.processes, err)
				stop()
			}
		})
	}
	_ = write.Close() // theirs are open
	o.watch(news, stop)
	processes.Wait()
	close(failed)
	return errors.Join(<-failed, ctx.Err())
}

// watch prints the news until the processes have ended, which it stops after enough
// acquisitions, and then what they come to.
func (o options) watch(news io.Reader, stop func()) {
	var (
		acquisitions      int
		served            = map[string]bool{}
		begun, since, end time.Time // the first acquisition, the last one, the last release
		used              time.Duration
		requests          [4]int
	)
	for lines := bufio.NewScanner(news); lines.Scan(); {
		now, fields := time.Now(), strings.Fields(lines.Text())
		switch {
		case fields[0] == "requests": // of a process, at its end
			for i := range requests {
				n, _ := strconv.Atoi(fields[i+1])
				requests[i] += n
			}
		case acquisitions == o.acquisitions: // it is over
		case fields[0] == "acquired":
			fmt.Println(lines.Text())
			served[fields[2]] = true
			if since = now; begun.IsZero() {
				begun = now
			}
		default:
			fmt.Println(lines.Text())
			used, end = used+now.Sub(since), now
			if acquisitions++; acquisitions == o.acquisitions {
				stop()
			}
		}
	}
	if acquisitions == 0 {
		return
	}
	each := func(kind int) float64 { return float64(requests[kind]) / float64(acquisitions) }
	fmt.Printf("\nacquisitions: %d\ntasks served: %d of %d\n", acquisitions, len(served), o.tasks)
	fmt.Printf("in use: %.1f %% of the time\n", 100*used.Seconds()/end.Sub(begun).Seconds())
	fmt.Printf("requests for each acquisition: %.2f GET, %.2f PUT, %.2f LIST, %.2f DELETE\n", each(0), each(1), each(2), each(3))
}
