package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A handing is what came of a resignation in favour of a follower.
type handing struct {
	notice time.Duration // from the call of ResignTo until the work was to stop
	idle   time.Duration // from when the work had stopped until that of the next leader began
	err    error         // of ResignTo
}

// A noticed is a leader, a, whose work takes a while to stop, and its follower, b.
type noticed struct {
	st        store.Store
	a, b      leasehold.ElectionOptions
	steady    time.Duration // that long before
	drain     time.Duration
	successor string                                           // empty: b
	within    time.Duration                                    // the context of ResignTo; 0: without end
	meanwhile func(ctx context.Context, a *leasehold.Election) // from when they are steady
}

// handOver has a resign in favour of its successor, when both have been steady for a while.
func (n noticed) handOver(t *testing.T) (h handing) {
	t.Helper()
	if n.st == nil {
		n.st = memstore.New()
	}
	if n.successor == "" {
		n.successor = "b"
	}
	n.a.Holder, n.b.Holder = "a", "b"
	a, b := newElection(t, newStoreOver(n.st), n.a), newElection(t, newStoreOver(n.st), n.b)
	ctx, stop := context.WithCancel(t.Context())
	done, leads, next := make(chan error, 2), make(chan bool), make(chan bool)
	var asked, stopped time.Time
	go func() {
		done <- a.Run(ctx, func(work context.Context, _ *leasehold.Lease) error {
			close(leads)
			<-work.Done()
			h.notice = time.Since(asked)
			time.Sleep(n.drain)
			stopped = time.Now()
			return nil
		})
	}()
	<-leads
	time.Sleep(time.Second)
	go func() {
		done <- b.Run(ctx, func(work context.Context, _ *leasehold.Lease) error {
			h.idle = time.Since(stopped)
			close(next)
			<-work.Done()
			return nil
		})
	}()
	if n.meanwhile != nil {
		go n.meanwhile(ctx, a)
	}
	time.Sleep(n.steady)
	asked = time.Now()
	limited, cancel := context.WithCancel(ctx)
	if n.within > 0 {
		limited, cancel = context.WithTimeout(ctx, n.within)
	}
	h.err = a.ResignTo(limited, n.successor)
	cancel()
	<-next
	stop()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	return h
}

// A follower without peers learned from the release that it was next, at its next look: nobody led for
// up to a third of the TTL. Now it knows before, and its looks are a 24th of the TTL or a second apart.
func TestSuccessorHasNotice(t *testing.T) {
	needsSuccessors(t)
	for _, ttl := range []time.Duration{3 * time.Second, leasehold.DefaultTTL, 30 * time.Second} {
		for _, drain := range []time.Duration{0, ttl / 20, ttl / 4, ttl/3 - 100*time.Millisecond} {
			for phase := time.Duration(0); phase < 10; phase += 2 {
				bubble(t, func(t *testing.T) {
					opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl}}
					h := noticed{a: opts, b: opts, steady: 10*ttl + phase*ttl/30, drain: drain}.handOver(t)
					look := min(ttl/24, time.Second) * 5 / 4
					if h.err != nil || h.notice > ttl*11/24 || h.idle > look {
						// At 30 s notice would take more than 15 s in the first part of an interval.
						if ttl != 30*time.Second || h.notice > 0 || h.idle > ttl/3+ttl/8 {
							t.Errorf("TTL %v, %v after a renewal, the work takes %v to stop: notice of %v, idle for %v, %v", ttl, phase*ttl/30, drain, h.notice, h.idle, h.err)
						}
					}
				})
			}
		}
	}
}

// TestNoNotice: the work stops at once where notice is of no use, and when there is no time for it.
func TestNoNotice(t *testing.T) {
	needsSuccessors(t)
	const never, steady = time.Hour, time.Minute + 500*time.Millisecond
	minute := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}}
	for what, c := range map[string]struct {
		noticed
		notice, idle time.Duration
		err          error
	}{
		"the next renewal is too far away": {noticed: noticed{a: minute, b: minute, steady: 10 * time.Minute}, idle: 25 * time.Second},
		"ctx ends":                         {noticed: noticed{within: 2 * time.Second}, notice: 2 * time.Second, idle: 6 * time.Second, err: context.DeadlineExceeded},
		"it resigns meanwhile": {
			noticed: noticed{meanwhile: func(ctx context.Context, a *leasehold.Election) {
				time.Sleep(steady + time.Second)
				if err := a.Resign(ctx); err != nil {
					t.Error(err)
				}
			}},
			notice: time.Second, idle: 6 * time.Second,
		},
		"the successor asks it": {
			noticed: noticed{meanwhile: func(ctx context.Context, a *leasehold.Election) {
				said, _ := a.Attend(ctx, leasehold.Question{Lock: "leaders/scheduler"})
				_, _ = a.Attend(ctx, leasehold.Question{Lock: "leaders/scheduler", Holder: "b", Waited: 1, Known: said.Version, Wait: never})
			}},
			idle: 6 * time.Second,
		},
		"its name does not fit": {noticed: noticed{successor: string(make([]byte, 1<<20))}, idle: 6 * time.Second},
	} {
		bubble(t, func(t *testing.T) {
			if c.steady == 0 {
				c.steady = steady
			}
			h := c.handOver(t)
			if !errors.Is(h.err, c.err) || h.notice != c.notice || h.idle > c.idle {
				t.Errorf("%s: notice of %v, want %v; idle for %v; %v", what, h.notice, c.notice, h.idle, h.err)
			}
		})
	}
}
