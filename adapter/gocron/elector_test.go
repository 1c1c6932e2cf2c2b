package leasegocron_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold/leasehold"
	leasegocron "github.com/leasehold/leasehold/adapter/gocron"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A candidate has a scheduler that runs its jobs while it leads.
type candidate struct {
	gocron.Scheduler
	*leasegocron.Elector
	resign func()
	ended  chan error
}

func campaign(t testing.TB, st store.Store, key string, opts *leasehold.ElectionOptions) *candidate {
	t.Helper()
	election, err := leasehold.NewElection(st, key, opts)
	if err != nil {
		t.Fatal(err)
	}
	e, err := leasegocron.NewElector(election)
	if err != nil {
		t.Fatal(err)
	}
	if err = e.IsLeader(context.Background()); !errors.Is(err, leasehold.ErrNotLeading) {
		t.Errorf("before Run it says %v", err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(e))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &candidate{s, e, cancel, make(chan error, 1)}
	go func() { c.ended <- e.Run(ctx) }()
	return c
}

func (c *candidate) end(t testing.TB) {
	t.Helper()
	if err := c.Shutdown(); err != nil {
		t.Error(err)
	}
	c.resign()
	if err := <-c.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ends with %v", err)
	}
	if err := c.IsLeader(context.Background()); !errors.Is(err, leasehold.ErrNotLeading) {
		t.Errorf("after Run it says %v", err)
	}
}

// ticks are the moments at which a job has run. gocron by itself runs a job twice at one moment now and then, where time stands
// still between its timer and what it notes of it, as in a bubble.
type ticks struct {
	mu sync.Mutex
	at map[time.Time]bool
}

func (k *ticks) run(context.Context, *leasehold.Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at == nil {
		k.at = map[time.Time]bool{}
	}
	k.at[time.Now()] = true
	return nil
}

func (k *ticks) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.at)
}

// TestElector: one of three schedulers runs each tick, and another does after the leader has resigned.
func TestElector(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		var runs [3]ticks
		var all [3]*candidate
		for i := range all {
			all[i] = campaign(t, st, "leader", nil)
			defer all[i].end(t)
			every(t, all[i], "report", time.Minute, time.Minute, all[i].Task(runs[i].run), nil)
		}
		time.Sleep(10*time.Minute + time.Second)
		first := leader(t, all[:])
		if runs[first].count() != 10 {
			t.Errorf("%d runs of the leader in ten minutes", runs[first].count())
		}
		all[first].resign()
		time.Sleep(10 * time.Minute)
		if second := leader(t, all[:]); second == first || runs[second].count() != 10 || runs[first].count() != 10 {
			t.Errorf("%d runs of the leader in the next ten minutes", runs[second].count())
		}
	})
}

// leader is the one that says so.
func leader(t *testing.T, all []*candidate) (which int) {
	t.Helper()
	which = -1
	for i, c := range all {
		switch err := c.IsLeader(t.Context()); {
		case err == nil && which >= 0:
			t.Fatalf("%d and %d lead", which, i)
		case err == nil:
			which = i
		case !errors.Is(err, leasehold.ErrNotLeading):
			t.Error(err)
		}
	}
	if which < 0 {
		t.Fatal("nobody leads")
	}
	return which
}

// TestElectorLoss: the context of a task ends with the lease, from then on IsLeader says no, and no task begins.
func TestElectorLoss(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		c := campaign(t, st, "leader", nil)
		defer c.end(t)
		failed := make(chan error, 1)
		every(t, c, "report", time.Minute, time.Hour, c.Task(func(ctx context.Context, lease *leasehold.Lease) error {
			st.Partition(true)
			for lease.Valid() {
				if err := c.IsLeader(ctx); err != nil && lease.Valid() {
					t.Errorf("while the lease is valid: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			if err := c.IsLeader(context.WithoutCancel(ctx)); !errors.Is(err, leasehold.ErrNotLeading) {
				t.Errorf("with a lease that is not valid: %v", err)
			}
			<-ctx.Done()
			return nil
		}), failed)
		if err := <-failed; !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("gocron hears %v", err)
		}
		st.Partition(false)
		time.Sleep(time.Minute)
		leader(t, []*candidate{c})
	})
}

// TestElectorResigns: whoever resigns keeps the lease until the tasks that are told to stop have returned.
func TestElectorResigns(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := campaign(t, st, "leader", nil)
		defer a.end(t)
		var working atomic.Bool
		begun := make(chan bool)
		every(t, a, "report", time.Minute, time.Hour, a.Task(func(ctx context.Context, lease *leasehold.Lease) error {
			working.Store(true)
			defer working.Store(false)
			begun <- true
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) || !lease.Valid() {
				t.Errorf("it is to stop with %v, and the lease is valid: %t", cause, lease.Valid())
			}
			time.Sleep(3 * time.Second)
			return nil
		}), nil)
		<-begun
		b := campaign(t, st, "leader", nil)
		defer b.end(t)
		a.resign()
		synctest.Wait()
		for b.IsLeader(t.Context()) != nil {
			if working.Load() && a.IsLeader(t.Context()) == nil {
				t.Error("one that resigns says that it leads")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if working.Load() {
			t.Error("another leads, and a task has not returned")
		}
	})
}

// TestElectorTask: a task does not begin where nobody campaigns, whatever gocron was told.
func TestElectorTask(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		e := must(leasegocron.NewElector(must(leasehold.NewElection(memstore.New(), "leader", nil))))
		s := must(gocron.NewScheduler())
		failed := make(chan error, 1)
		var runs atomic.Int32
		every(t, s, "report", time.Minute, time.Hour, e.Task(counts(&runs)), failed)
		if err := <-failed; !errors.Is(err, leasehold.ErrNotLeading) || runs.Load() != 0 {
			t.Errorf("%v, and %d runs", err, runs.Load())
		}
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.IsLeader(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}
