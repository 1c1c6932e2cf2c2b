package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// work is one process. Its tasks compete until stdin ends, or until one of them fails.
func (o options) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	opened, err := storeurl.Open(ctx, o.store)
	if err != nil {
		return err
	}
	st := faultstore.Wrap(opened, nil) // it counts requests
	lock, err := leasehold.NewLock(st, "contention/"+string(o.layout), &leasehold.LockOptions{
		TTL: o.ttl, Layout: o.layout,
		Logger: slog.New(slog.DiscardHandler), // the program makes the faults itself
	})
	if err != nil {
		return err
	}
	var tasks sync.WaitGroup
	failed := make(chan error, o.tasks+1)
	for task := (o.worker - 1) * o.tasks / o.processes; task < o.worker*o.tasks/o.processes; task++ {
		tasks.Go(func() {
			var err error
			for ctx.Err() == nil && err == nil {
				err = lock.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error { return o.inside(ctx, task) })
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				failed <- fmt.Errorf("task %d: %w", task, err)
				stop()
			}
		})
	}
	tasks.Wait()
	// A task may have given up while its claim was under way. If the process ended now and
	// the claim landed, nobody would hold the lock, and nobody could have it for its TTL.
	failed <- lock.Settle(context.WithoutCancel(ctx))
	n := st.Counts()
	fmt.Println("requests", n.Get, n.Put, n.List, n.Delete)
	return <-failed // the first
}

// inside is what a task does while it has the lock. ctx ends before another can have it.
func (o options) inside(ctx context.Context, task int) error {
	file, err := os.OpenFile(o.insideFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("it has the lock, and is not alone inside: %w", err)
	}
	_ = file.Close()
	fmt.Println("acquired lock", task)
	select {
	case <-ctx.Done():
	case <-time.After(o.hold):
	}
	fmt.Println("releasing lock", task)
	return os.Remove(o.insideFile)
}
