package leasehold_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// asked is a context that calls a function each time somebody asks whether it has ended: an
// acquisition does that once its lease is granted, before it returns the lease.
type asked struct {
	context.Context
	before func()
}

func (c asked) Err() error {
	c.before()
	return c.Context.Err()
}

// TestCampaignThatResigned: who resigns before Campaign has returned is not given a lease, and is
// told why.
func TestCampaignThatResigned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newElection(t, newStore(), leasehold.ElectionOptions{})
		ctx := asked{t.Context(), func() {
			if e.IsLeader() {
				if err := e.Resign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}}
		if lease, err := e.Campaign(ctx); lease != nil || !errors.Is(err, leasehold.ErrResigned) {
			t.Errorf("the campaign returned %v, %v", lease, err)
		}
	})
}

// TestRunThatResigned: who resigns before the term has begun is not told that it has, neither by
// OnElected nor by the work.
func TestRunThatResigned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var resigned atomic.Bool
		e := newElection(t, newStore(), leasehold.ElectionOptions{OnElected: func(ctx context.Context, _ *leasehold.Lease) error {
			t.Errorf("elected, resigned %v: %v", resigned.Load(), ctx.Err())
			return nil
		}})
		ctx, stop := context.WithCancel(t.Context())
		err := e.Run(asked{ctx, func() {
			if e.IsLeader() && resigned.CompareAndSwap(false, true) {
				go func() {
					if err := e.Resign(t.Context()); err != nil {
						t.Error(err)
					}
					stop()
				}()
				time.Sleep(time.Millisecond) // in which the resignation begins
			}
		}}, func(ctx context.Context, _ *leasehold.Lease) error {
			t.Errorf("led, resigned %v: %v", resigned.Load(), ctx.Err())
			return nil
		})
		if !errors.Is(err, context.Canceled) || !resigned.Load() {
			t.Errorf("resigned %v; %v", resigned.Load(), err)
		}
	})
}

// TestRunThatEnded: the end of Run's context that crosses the grant begins no term either.
func TestRunThatEnded(t *testing.T) {
	for range 20 { // what is to stop the term runs beside it
		bubble(t, func(t *testing.T) {
			e := newElection(t, newStore(), leasehold.ElectionOptions{OnElected: func(context.Context, *leasehold.Lease) error {
				t.Error("elected, and nobody campaigns any more")
				return nil
			}})
			ctx, stop := context.WithCancel(t.Context())
			err := e.Run(asked{ctx, func() {
				if e.IsLeader() {
					stop()
				}
			}}, func(context.Context, *leasehold.Lease) error {
				t.Error("led, and nobody campaigns any more")
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v", err)
			}
		})
	}
}

// TestResignBetweenTerms: when a term is over, there is nothing to resign from.
func TestResignBetweenTerms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newElection(t, newStore(), leasehold.ElectionOptions{})
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, func() {
			if err := e.Resign(t.Context()); !errors.Is(err, leasehold.ErrNotLeading) {
				t.Errorf("after a term: %v", err)
			}
			stop()
		})
		if err := e.Run(ctx, func(context.Context, *leasehold.Lease) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestWorkDoesNotBegin: what has happened while OnElected ran keeps the work from being called.
func TestWorkDoesNotBegin(t *testing.T) {
	for what, during := range map[string]func(*leasehold.Election, func()){
		"the context of Run has ended": func(_ *leasehold.Election, stop func()) { stop() },
		"it has resigned":              func(e *leasehold.Election, _ func()) { go e.Resign(context.Background()) }, //nolint:errcheck // the work tells
		"the machine was suspended":    func(*leasehold.Election, func()) { slept.Store(int64(time.Hour)) },
	} {
		bubble(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var e *leasehold.Election
			elected := 0
			e = newElection(t, newStore(), leasehold.ElectionOptions{OnElected: func(context.Context, *leasehold.Lease) error {
				if elected++; elected == 1 {
					time.AfterFunc(time.Second, stop)
					during(e, stop)
					if slept.Load() == 0 {
						synctest.Wait()
					}
				}
				return nil
			}})
			err := e.Run(ctx, func(_ context.Context, lease *leasehold.Lease) error {
				if elected == 1 {
					t.Errorf("%s, and the work begins: %v", what, lease.Err())
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Run returned %v", what, err)
			}
		})
	}
}

// TestContextOfWorkEnds: when the work has returned by itself its context has ended, and with it
// what the work has left behind.
func TestContextOfWorkEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var ended func() error
		e := newElection(t, newStore(), leasehold.ElectionOptions{})
		_ = e.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
			ended = ctx.Err
			time.AfterFunc(time.Second, stop)
			return nil
		})
		if ended() == nil {
			t.Error("the work has returned, and its context goes on")
		}
	})
}

// logged runs an election for some time, and returns what it has logged.
func logged(t *testing.T, opts leasehold.ElectionOptions, st *faultstore.Store, d time.Duration, lead func(context.Context, *leasehold.Lease) error) string {
	t.Helper()
	var log leasetest.Log
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	opts.Layout = leasehold.LayoutObject // markers have something to say of themselves
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	if err := newElection(t, st, opts).Run(ctx, lead); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run returned %v", err)
	}
	return log.String()
}

// TestLogOfAnElection: what nobody is told otherwise is in the log, once each time, and an election
// in which all goes well logs nothing.
func TestLogOfAnElection(t *testing.T) {
	refuse := errors.New("not ready")
	wait := func(ctx context.Context, _ *leasehold.Lease) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		elected, lead func(context.Context, *leasehold.Lease) error
		says          string // nothing, if it is empty
	}{
		"all is well":                {nil, wait, ""},
		"OnElected takes its time":   {func(context.Context, *leasehold.Lease) error { time.Sleep(14 * time.Second); return nil }, wait, ""},
		"OnElected hangs":            {func(context.Context, *leasehold.Lease) error { time.Sleep(16 * time.Second); return nil }, wait, "callback=OnElected"},
		"OnElected fails":            {func(context.Context, *leasehold.Lease) error { return refuse }, wait, "resigning, since OnElected failed"},
		"the work fails":             {nil, func(context.Context, *leasehold.Lease) error { return refuse }, "resigning, since the work failed"},
		"the work is done":           {nil, func(context.Context, *leasehold.Lease) error { return nil }, ""},
		"the work fails as it stops": {nil, func(ctx context.Context, _ *leasehold.Lease) error { <-ctx.Done(); return refuse }, ""},
	} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			log := logged(t, leasehold.ElectionOptions{OnElected: c.elected}, st, 50*time.Second, c.lead)
			if c.says == "" && log != "" || !strings.Contains(log, c.says) {
				t.Errorf("%s: the log says %q", name, log)
			}
		})
	}
	bubble(t, func(t *testing.T) { // one that waits for another leader
		inner := memstore.New()
		leader := newElection(t, inner, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		if _, err := leader.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if log := logged(t, leasehold.ElectionOptions{}, newStoreOver(inner), time.Minute, nil); log != "" {
			t.Errorf("a follower logged %q", log)
		}
		if err := leader.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(t *testing.T) { // one whose release is refused
		st := newStore()
		log := logged(t, leasehold.ElectionOptions{}, st, 8*time.Second, func(ctx context.Context, _ *leasehold.Lease) error {
			<-ctx.Done()
			st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put"})
			return nil
		})
		if strings.Count(log, "leadership not released") != 1 {
			t.Errorf("a release was refused, and the log says %q", log)
		}
	})
}

// TestCallbacksComeOneByOne: no two callbacks of a lock run at once, however long they take, and they come
// in the order of what they tell.
func TestCallbacksComeOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		var running atomic.Int32
		var told []string
		tell := func(what string) {
			if running.Add(1) > 1 {
				t.Errorf("%s is told while another callback runs", what)
			}
			time.Sleep(12 * time.Second)
			told = append(told, what)
			running.Add(-1)
		}
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{
			Layout:  leasehold.LayoutObject,
			OnRenew: func(*leasehold.Lease) { tell("renewed") },
			OnLost:  func(*leasehold.Lease, error) { tell("lost") },
		}))
		time.Sleep(11 * time.Second) // two renewals
		st.Partition(true)
		<-lease.Done()
		_ = lease.Release(t.Context())
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"renewed", "renewed", "lost"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
