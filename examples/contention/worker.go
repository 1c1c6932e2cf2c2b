package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// A plan is what a process has to know. It is told on stdin, whose end tells it to
// stop.
type plan struct {
	Store      string
	Protocol   string // a layout of the library, or plainLoop
	First, End int    // its tasks
	Hold, TTL  time.Duration
	Inside     string // the name of the file that is there while a task is inside
}

// news is what a process tells, a line of JSON each.
type news struct {
	Task      int
	At        time.Time // by the clock of this machine, which is that of all processes
	Acquired  bool
	Releasing bool
	Held      time.Duration      // Releasing: for how long
	Overlap   string             // Acquired: who was inside already, if anybody
	Requests  *faultstore.Counts // of the whole process, at its end
}

// A protocol is a way to do something under a lock.
type protocol interface {
	// do does it when it has the lock. It returns nil if ctx ended first.
	do(ctx context.Context, what func(context.Context) error) error
	// end leaves nothing of this process behind in the store.
	end() error
}

// work is one process: it runs its tasks until stdin ends.
func work(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	in := json.NewDecoder(stdin)
	var p plan
	if err := in.Decode(&p); err != nil {
		fmt.Fprintln(stderr, "contention worker: no plan on stdin:", err)
		return exitUsage
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // its end is all that matters
		stop()
	}()
	if err := p.work(ctx, stop, teller(stdout)); err != nil {
		fmt.Fprintln(stderr, "contention worker:", err)
		return exitFailed
	}
	return 0
}

// work runs the tasks until ctx ends, or one of them fails.
func (p plan) work(ctx context.Context, stop func(), tell func(news)) error {
	opened, err := storeurl.Open(ctx, p.Store)
	if err != nil {
		return err
	}
	st := faultstore.Wrap(opened, nil) // it counts
	lock, err := p.protocol(st)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make(chan error, p.End-p.First+1)
	for task := p.First; task < p.End; task++ {
		all.Go(func() {
			if err := p.repeat(ctx, task, lock, tell); err != nil {
				failed <- err
				stop()
			}
		})
	}
	all.Wait()
	counts := st.Counts()
	tell(news{Requests: &counts})
	if err := lock.end(); err != nil {
		failed <- err
	}
	close(failed)
	return <-failed // the first, or nil
}

// teller writes each news at once, in one piece.
func teller(w io.Writer) func(news) {
	var mu sync.Mutex
	lines := json.NewEncoder(w)
	return func(n news) {
		mu.Lock()
		defer mu.Unlock()
		_ = lines.Encode(n) // who does not listen will soon end stdin too
	}
}

// protocol makes the lock that all tasks of the process share.
func (p plan) protocol(st store.Store) (protocol, error) {
	key := "contention/" + p.Protocol
	if p.Protocol == plainLoop {
		return loop{st, key}, nil
	}
	lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{TTL: p.TTL, Layout: leasehold.Layout(p.Protocol)})
	return library{lock}, err
}

// library is a lock of leasehold.
type library struct{ *leasehold.Lock }

func (l library) do(ctx context.Context, what func(context.Context) error) error {
	err := l.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error { return what(ctx) })
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// end waits for claims that were under way when their tasks gave up: they are followed to
// their end in the background, and a process that ends has no background.
func (l library) end() error { return l.Settle(context.Background()) }

// plainLoop is the name of loop.
const plainLoop = "plain-loop"

// loop is what people begin with: a marker is created if there is none, else the task
// tries again after a random time from 0.5 to 1 s; and it is deleted. The marker of a
// process that died inside stays.
type loop struct {
	store store.Store
	key   string
}

func (l loop) do(ctx context.Context, what func(context.Context) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500*time.Millisecond + rand.N(500*time.Millisecond)):
		}
		// Without its answer, nobody knows whether the marker is there.
		whole := context.WithoutCancel(ctx)
		_, err := l.store.Put(whole, l.key, []byte("\n"), store.IfAbsent())
		switch {
		case errors.Is(err, store.ErrPrecondition), errors.Is(err, store.ErrConflict):
			continue
		case err != nil:
			return err
		}
		return errors.Join(what(ctx), l.store.Delete(whole, l.key))
	}
}

func (loop) end() error { return nil }

// repeat is one task.
func (p plan) repeat(ctx context.Context, task int, lock protocol, tell func(news)) error {
	for ctx.Err() == nil {
		err := lock.do(ctx, func(ctx context.Context) error { return p.inside(ctx, task, tell) })
		if err != nil {
			return fmt.Errorf("task %d: %w", task, err)
		}
	}
	return nil
}

// inside is what a task does while it has the lock.
func (p plan) inside(ctx context.Context, task int, tell func(news)) error {
	begun := time.Now()
	leave, overlap, err := enter(p.Inside, task)
	if err != nil {
		return err
	}
	tell(news{Task: task, At: begun, Acquired: true, Overlap: overlap})
	select {
	case <-ctx.Done():
	case <-time.After(p.Hold - time.Since(begun)):
	}
	err = leave()
	end := time.Now()
	tell(news{Task: task, At: end, Releasing: true, Held: end.Sub(begun)})
	return err
}

// enter makes the file that says who is inside, and tells who is there already.
func enter(name string, task int) (leave func() error, overlap string, err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		who, _ := os.ReadFile(name) // it may have been written half, or be gone
		return func() error { return nil }, fmt.Sprintf("task %s is inside", who), nil
	}
	if err != nil {
		return nil, "", err
	}
	_, err = fmt.Fprint(file, task)
	return func() error { return os.Remove(name) }, "", errors.Join(err, file.Close())
}
