package leasehold_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A crowd is a store that takes its time for a look, and counts how many are under way at once.
type crowd struct {
	store.Store
	delay     time.Duration
	now, most atomic.Int64
}

func (c *crowd) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	select {
	case <-time.After(c.delay):
	case <-ctx.Done():
	}
	c.now.Add(-1)
	return c.Store.Get(ctx, key, unless)
}

// about selects what is asked about one lock, in any layout.
func about(key string, op ...string) func(faultstore.Call) bool {
	return func(c faultstore.Call) bool {
		return strings.HasPrefix(c.Key, key) && (len(op) == 0 || strings.Contains(strings.Join(op, " "), c.Op))
	}
}

// held are the locks that somebody holds.
func heldOf(t *testing.T, st store.Store, keys ...string) (held []string) {
	t.Helper()
	for _, lock := range locksOf(t, st, nil, keys...) {
		info, err := lock.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.Held {
			held = append(held, lock.Key())
		}
	}
	return held
}

// settleAll waits until nothing is under way of what was given up.
func settleAll(t *testing.T, locks []*leasehold.Lock) {
	t.Helper()
	for _, lock := range locks {
		if err := lock.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// anyOf acquires one of the locks, and says how long that took.
func anyOf(t *testing.T, locks []*leasehold.Lock) (*leasehold.Lease, time.Duration) {
	t.Helper()
	began := time.Now()
	lease, err := leasehold.AcquireAny(t.Context(), locks)
	if err != nil {
		t.Fatal(err)
	}
	if err = lease.Err(); err != nil {
		t.Fatal(err)
	}
	return lease, time.Since(began)
}

// TestAcquireAnyLooksAtMany: one free lock among many is found by eight looks at a time, and never more.
func TestAcquireAnyLooksAtMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		all := keys(81)
		release(t, acquire(t, locksOf(t, inner, nil, all[0])[0]))
		for _, lock := range locksOf(t, inner, nil, all[1:]...) {
			defer release(t, acquire(t, lock))
		}
		st := &crowd{Store: inner, delay: 20 * time.Millisecond}
		lease, took := anyOf(t, locksOf(t, st, nil, all...))
		// One after the other would be 81 looks, and 41 on average.
		if lease.Key() != all[0] || took > 15*st.delay {
			t.Errorf("after %v: %v", took, lease.Key())
		}
		if most := st.most.Load(); most != 8 {
			t.Errorf("%d looks at a time, want 8", most)
		}
		release(t, lease)
	})
}

// TestAcquireAnyCosts: of many locks that are free one is claimed, by one write.
func TestAcquireAnyCosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		b := budgets[here()]
		all := keys(40)
		for _, lock := range locksOf(t, st, nil, all...) {
			release(t, acquire(t, lock))
		}
		locks := locksOf(t, st, nil, all...)
		var lease *leasehold.Lease
		got := cost(st, func() { lease, _ = anyOf(t, locks) })
		if most := b.unknown.plus(b.inspect.times(7)).plus(b.look.times(8)); !got.within(requests{put: b.unknown.put}, most) {
			t.Errorf("nothing known: %v, want %v at most", got, most)
		}
		release(t, lease)
		for _, lock := range locks { // whose last versions are known from now on
			release(t, acquire(t, lock))
		}
		if got = cost(st, func() { lease, _ = anyOf(t, locks) }); got != b.acquire {
			t.Errorf("all known to be free: %v, want %v", got, b.acquire)
		}
		release(t, lease)
	})
}

// TestAcquireAnyPassesASlowLock: where the store does not answer about one lock, another is had, at once or a second
// later, and nothing is left of the first.
func TestAcquireAnyPassesASlowLock(t *testing.T) {
	for _, c := range []struct {
		what  string
		fault faultstore.Fault
		most  time.Duration
	}{
		{"a look", faultstore.Fault{Kind: faultstore.DelayBefore, When: about("jobs/a"), Delay: time.Hour}, 0},
		{"a claim", faultstore.Fault{Kind: faultstore.DelayBefore, When: about("jobs/a", "put"), Delay: 6 * time.Second}, time.Second},
		{"the answer to a claim", faultstore.Fault{Kind: faultstore.DelayAfter, When: about("jobs/a", "put"), Delay: 6 * time.Second}, time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for range 10 {
					st := newStore()
					st.Inject(c.fault)
					locks := locksOf(t, st, nil, "jobs/a", "jobs/b")
					lease, took := anyOf(t, locks)
					if lease.Key() != "jobs/b" || took > c.most {
						t.Errorf("after %v: %v", took, lease.Key())
					}
					st.Clear()
					settleAll(t, locks)
					if held := heldOf(t, st, "jobs/a", "jobs/b"); len(held) != 1 || held[0] != "jobs/b" {
						t.Errorf("%q are held by one that wanted one", held)
					}
					release(t, lease)
				}
			})
		})
	}
}

// TestAcquireAnyGoesOnWithASlowClaim: a claim that takes long wins all the same where all others are held.
func TestAcquireAnyGoesOnWithASlowClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		other := acquire(t, locksOf(t, st, nil, "jobs/b")[0])
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, When: about("jobs/a", "put"), Nth: 1, Delay: 4 * time.Second})
		locks := locksOf(t, st, nil, "jobs/a", "jobs/b")
		lease, took := anyOf(t, locks)
		if lease.Key() != "jobs/a" || took != 4*time.Second {
			t.Errorf("after %v: %v", took, lease.Key())
		}
		st.Clear()
		release(t, other)
		settleAll(t, locks[1:])
		if held := heldOf(t, st, "jobs/a", "jobs/b"); len(held) != 1 || held[0] != "jobs/a" {
			t.Errorf("%q are held by one that wanted one", held)
		}
		release(t, lease)
	})
}

// TestAcquireAnyHoldsOne: however slow the store is, one lock is held in the end, and none when the caller gives up.
func TestAcquireAnyHoldsOne(t *testing.T) {
	for after := 500 * time.Millisecond; after <= 8*time.Second; after += 500 * time.Millisecond {
		bubble(t, func(t *testing.T) {
			st := newStore()
			for _, key := range keys(10) {
				st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, When: about(key, "put"), Nth: 1, Delay: 1500 * time.Millisecond, Jitter: 4 * time.Second})
			}
			locks := locksOf(t, st, nil, keys(10)...)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			lease, err := leasehold.AcquireAny(ctx, locks)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			st.Clear()
			settleAll(t, locks)
			held := heldOf(t, st, keys(10)...)
			if lease == nil && len(held) > 0 || lease != nil && (len(held) != 1 || held[0] != lease.Key()) {
				t.Errorf("given up after %v: %v, and %q are held", after, lease, held)
			}
			if lease != nil {
				release(t, lease)
			}
		})
	}
}

// TestAcquireAnyPassesALockThatFails: one that is denied keeps nobody from the others, free now or later.
func TestAcquireAnyPassesALockThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 10 {
			st := newStore()
			locks := locksOf(t, st, nil, "jobs/a", "jobs/b")
			release(t, acquire(t, locks[0])) // known to be free
			st.Inject(faultstore.Fault{Kind: faultstore.Denied, When: about("jobs/a")})
			lease, took := anyOf(t, locks)
			if lease.Key() != "jobs/b" || took > time.Second {
				t.Errorf("after %v: %v", took, lease.Key())
			}
			time.AfterFunc(5*time.Second, func() { release(t, lease) })
			again, took := anyOf(t, locksOf(t, st, nil, "jobs/a", "jobs/b"))
			if again.Key() != "jobs/b" || took < 4*time.Second || took > 10*time.Second {
				t.Errorf("after %v: %v", took, again.Key())
			}
			release(t, again)
		}
	})
}

// suspendedWithALease are the options of locks with which the machine is suspended for an hour when the first of them has
// been granted a lease, and before anybody has it.
func suspendedWithALease() *leasehold.LockOptions {
	var once sync.Once
	suspend := func(_ context.Context, e leasehold.TraceAcquireDone) {
		if e.Err == nil {
			once.Do(func() { slept.Store(int64(time.Hour)) })
		}
	}
	return &leasehold.LockOptions{Layout: leasehold.LayoutObject, Trace: &leasehold.Trace{AcquireDone: suspend}}
}

// TestAcquireAnyLosesWhatItHadAtOnce: the machine is suspended while it is handed a lock that was free, and what it
// had is lost: it says so, as where it has waited.
func TestAcquireAnyLosesWhatItHadAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		locks := locksOf(t, memstore.New(), suspendedWithALease(), "jobs/a")
		lease, err := leasehold.AcquireAny(t.Context(), locks)
		if lease != nil || !errors.Is(err, leasehold.ErrLost) || errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "the lock ") {
			t.Fatalf("%v, %v", lease, err)
		}
		synctest.Wait()
		release(t, acquire(t, locks[0]))
	})
}
