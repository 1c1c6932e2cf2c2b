package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/go-co-op/gocron/v2"
	"go.uber.org/goleak"

	"github.com/leasehold/leasehold"
	leasegocron "github.com/leasehold/leasehold/adapter/gocron"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store/memstore"
)

// testElector makes a process of each scheduler, which it knows by the context of its job: a candidate of its own.
type testElector struct {
	notLeader chan struct{}
	processes[*candidate]
}

type candidate struct {
	*leasegocron.Elector
	name   string
	leader chan string // the first that was seen
}

func (t *testElector) IsLeader(ctx context.Context) error {
	c := t.of(ctx, func(st *memstore.Store, n int) (*candidate, func()) {
		c := &candidate{name: fmt.Sprint(n), leader: make(chan string, 1)}
		opts := &leasehold.ElectionOptions{}
		opts.Holder, opts.Trace = c.name, &locktrace.Trace{Leader: func(_ context.Context, e locktrace.Leader) {
			select {
			case c.leader <- e.Name:
			default:
			}
		}}
		c.Elector = must(leasegocron.NewElector(must(leasehold.NewElection(st, "leader", opts))))
		run, cancel := context.WithCancel(context.Background())
		ended := make(chan bool)
		go func() { c.Run(run); close(ended) }()
		return c, func() { cancel(); <-ended }
	})
	leader := <-c.leader
	c.leader <- leader
	for leader == c.name && c.Elector.IsLeader(ctx) != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // it has won, and its term is about to begin
	}
	err := c.Elector.IsLeader(ctx)
	if errors.Is(err, leasehold.ErrNotLeading) {
		t.notLeader <- struct{}{}
	}
	return err
}

// testLocker makes a process of each scheduler too.
type testLocker struct {
	notLocked chan struct{}
	processes[*leasegocron.Locker]
}

func (t *testLocker) Lock(ctx context.Context, name string) (Lock, error) {
	lock, err := t.of(ctx, locker).Lock(ctx, name)
	if errors.Is(err, leasehold.ErrHeld) {
		t.notLocked <- struct{}{}
	}
	return lock, err
}

func locker(st *memstore.Store, _ int) (*leasegocron.Locker, func()) {
	locks := must(leasehold.NewLocks(st, nil))
	return must(leasegocron.NewLocker(locks, nil)), func() { must(0, locks.Close(context.Background())) }
}

// errorLocker finds the lock held by another.
type errorLocker struct{}

func (errorLocker) Lock(ctx context.Context, name string) (Lock, error) {
	st := memstore.New()
	a, enda := locker(st, 0)
	b, endb := locker(st, 0)
	defer endb()
	defer enda()
	lock := must(a.Lock(ctx, name))
	defer lock.Unlock(ctx)
	return b.Lock(ctx, name)
}

// processes are what schedulers have in their processes, which share a store.
type processes[T any] struct {
	mu  sync.Mutex
	st  *memstore.Store
	all map[context.Context]T
}

var (
	endings sync.Mutex
	ends    []func()
)

func (p *processes[T]) of(ctx context.Context, begin func(*memstore.Store, int) (T, func())) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.st, p.all = memstore.New(), map[context.Context]T{}
	}
	it, ok := p.all[ctx]
	if !ok {
		var end func()
		it, end = begin(p.st, len(p.all))
		p.all[ctx] = it
		endings.Lock()
		defer endings.Unlock()
		ends = append(ends, end)
	}
	return it
}

func verifyNoGoroutineLeaks(t *testing.T) {
	for _, end := range ends {
		end()
	}
	ends = nil
	goleak.VerifyNone(t)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
