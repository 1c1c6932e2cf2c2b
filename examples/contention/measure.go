package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/leasehold/leasehold/store/faultstore"
)

// List prices of S3 Standard in us-east-1, in dollars for one request. A DELETE costs
// nothing, a request that is refused as much as one that is not.
const (
	putPrice = 0.005 / 1000 // and LIST
	getPrice = 0.0004 / 1000
)

// figures are what a competition showed.
type figures struct {
	Protocol     string  `json:"protocol"`
	Processes    int     `json:"processes"`
	Tasks        int     `json:"tasks"`
	Acquisitions int     `json:"acquisitions"`
	Served       int     `json:"served"` // tasks that had the lock
	Overlaps     int     `json:"overlaps"`
	Seconds      float64 `json:"seconds"` // from the first acquisition to the last release
	InUse        float64 `json:"in_use"`  // the share of that time in which a task was inside

	// Requests to the store and their price, for each acquisition.
	Get      float64 `json:"get"`
	Put      float64 `json:"put"`
	List     float64 `json:"list"`
	Delete   float64 `json:"delete"`
	Requests float64 `json:"requests"`
	Dollars  float64 `json:"dollars"`
}

// measure lets the tasks compete until there have been enough acquisitions.
func (o options) measure(ctx context.Context, stdout io.Writer) (figures, error) {
	f := figures{Protocol: o.Protocol, Processes: o.processes, Tasks: o.tasks}
	// They all write whole lines to one pipe: so the lines come in the order of the events.
	read, write, err := os.Pipe()
	if err != nil {
		return f, err
	}
	defer read.Close() //nolint:errcheck // it was read to its end
	whole := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		all  sync.WaitGroup
		errs = make(chan error, o.processes)
	)
	for i := range o.processes {
		p := o.plan
		p.First, p.End = i*o.tasks/o.processes, (i+1)*o.tasks/o.processes
		cmd, failed := p.start(ctx, write)
		if failed != nil {
			errs <- failed
			stop()
			break
		}
		all.Go(func() {
			if ended := cmd.Wait(); ended != nil {
				errs <- fmt.Errorf("process %d of %d: %w", i+1, o.processes, ended)
				stop()
			}
		})
	}
	_ = write.Close() // theirs are open
	if o.json {
		stdout = io.Discard
	}
	if err = f.watch(read, o.acquisitions, stop, stdout); err != nil {
		stop()
		_, _ = io.Copy(io.Discard, read) // until they have ended
	}
	all.Wait()
	close(errs)
	for failed := range errs {
		err = errors.Join(err, failed)
	}
	return f, errors.Join(err, whole.Err())
}

// start starts a process with a plan. The end of ctx tells it to stop.
func (p plan) start(ctx context.Context, stdout *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, workerArg)
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = func() error {
		_ = in.Close()           // it may have ended by itself
		return os.ErrProcessDone // what counts is how it ends
	}
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = json.NewEncoder(in).Encode(p) // who cannot read it fails, and says so
	return cmd, nil
}

// watch takes in what the processes tell, until all have ended. It stops them after
// enough acquisitions.
func (f *figures) watch(r io.Reader, enough int, stop func(), stdout io.Writer) error {
	var (
		begun, ended time.Time
		used         time.Duration
		requests     faultstore.Counts
		served       = map[int]bool{}
	)
	for lines := json.NewDecoder(r); ; {
		var n news
		if err := lines.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("news of a process: %w", err)
		}
		if n.Overlap != "" {
			f.Overlaps++
			fmt.Fprintf(os.Stderr, "contention: task %d came in while %s\n", n.Task, n.Overlap)
		}
		switch {
		case n.Requests != nil:
			requests.Get += n.Requests.Get
			requests.Put += n.Requests.Put
			requests.List += n.Requests.List
			requests.Delete += n.Requests.Delete
		case f.Acquisitions == enough: // it is over
		case n.Releasing:
			fmt.Fprintln(stdout, "releasing lock", n.Task)
			f.Acquisitions++
			used += n.Held
			ended = n.At
			if f.Acquisitions == enough {
				stop()
			}
		default:
			fmt.Fprintln(stdout, "acquired lock", n.Task)
			served[n.Task] = true
			if begun.IsZero() {
				begun = n.At
			}
		}
	}
	f.Served = len(served)
	f.Seconds = ended.Sub(begun).Seconds()
	f.InUse = used.Seconds() / f.Seconds
	f.cost(requests)
	return nil
}

func (f *figures) cost(n faultstore.Counts) {
	each := func(requests int) float64 { return float64(requests) / float64(f.Acquisitions) }
	f.Get, f.Put, f.List, f.Delete = each(n.Get), each(n.Put), each(n.List), each(n.Delete)
	f.Requests = f.Get + f.Put + f.List + f.Delete
	f.Dollars = f.Get*getPrice + (f.Put+f.List)*putPrice
}

// table prints figures for people.
func table(w io.Writer, all []figures) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\t\t\t\t\tfor each acquisition:\t\t\t\t\tfor 1,000:\t")
	fmt.Fprintln(t, "protocol\tprocesses\tacquisitions\ttasks served\tin use\tGET\tPUT\tLIST\tDELETE\trequests\tdollars\t")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d of %d\t%.1f %%\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.4f\t\n",
			f.Protocol, f.Processes, f.Acquisitions, f.Served, f.Tasks, f.InUse*100,
			f.Get, f.Put, f.List, f.Delete, f.Requests, f.Dollars*1000)
	}
	fmt.Fprintln(t)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "Prices: S3 Standard in us-east-1, $0.005 for 1,000 PUT or LIST, $0.0004 for 1,000 GET, DELETE free.")
	return err
}
