package leasehold_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// inOneObject are the options of locks that lie in one object each.
var inOneObject = &leasehold.LockOptions{Layout: leasehold.LayoutObject}

// denyRelease makes a store refuse to free the lock under a key.
func denyRelease(st *faultstore.Store, key string) {
	st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: key, When: func(c faultstore.Call) bool {
		return strings.Contains(string(c.Body), `"state":"free"`)
	}})
}

// TestAcquireAllOfOneTwice: a lock that is named twice would wait for itself.
func TestAcquireAllOfOneTwice(t *testing.T) {
	st := newStore()
	for _, keys := range [][]string{{"a", "a"}, {"a", "b", "a"}, {"b", "b", "a"}, {"a", "b", "b"}} {
		leases, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, nil, keys...))
		if leases != nil || err == nil || !strings.Contains(err.Error(), "would wait for itself") {
			t.Errorf("%q: %v, %v", keys, leases, err)
		}
	}
	if c := st.Counts(); c != (faultstore.Counts{}) {
		t.Errorf("%+v requests were made", c)
	}
}

// TestAcquireAllFailsAtOnce: where one of the locks cannot be had, another that is held is not waited for.
func TestAcquireAllFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		plant(t, st, "jobs/c", "no lock")
		others := locksOf(t, st, inOneObject, "jobs/a")
		held := acquire(t, others[0])
		began := time.Now()
		_, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, inOneObject, "jobs/a", "jobs/b", "jobs/c"))
		if !errors.Is(err, leasehold.ErrForeignObject) || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		release(t, acquire(t, locksOf(t, st, inOneObject, "jobs/b")[0])) // it was given back
		release(t, held)
	})
}

// TestAcquireAllThatCannotGiveBack: a lock that was to be given back, and is not free, is told of, once.
func TestAcquireAllThatCannotGiveBack(t *testing.T) {
	told := func(t *testing.T, what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrDenied) || strings.Count(err.Error(), "may still be taken for held") != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	bubble(t, func(t *testing.T) { // as it begins to wait for another one
		st := newStore()
		held := acquire(t, locksOf(t, st, inOneObject, "jobs/a")[0])
		denyRelease(st, "jobs/b")
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err := leasehold.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
		told(t, "of one that comes after one that is held", err)
		st.Clear()
		release(t, held)
	})
	bubble(t, func(t *testing.T) { // as another one was lost meanwhile
		st := newStore()
		others := locksOf(t, st, inOneObject, "jobs/a", "jobs/c")
		held := acquire(t, others[1])
		time.AfterFunc(time.Minute, func() {
			breakLock(t, others[0])
			time.Sleep(10 * time.Second)
			denyRelease(st, "jobs/b")
			release(t, held)
		})
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		_, err := leasehold.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b", "jobs/c"))
		told(t, "of one that comes after one that was lost", err)
	})
	bubble(t, func(t *testing.T) { // as the caller gives up
		st := newStore()
		ctx, stop := context.WithCancel(t.Context())
		denyRelease(st, "jobs/b")
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Key: "jobs/a", Delay: time.Second})
		time.AfterFunc(500*time.Millisecond, stop)
		_, err := leasehold.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
		told(t, "of one that the caller has no use for", err)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it was given up: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// TestReleaseAllSkipsNone: there need not be a lease in each place.
func TestReleaseAllSkipsNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease := acquire(t, newLock(t, newStore(), nil))
		if err := leasehold.ReleaseAll(t.Context(), []*leasehold.Lease{nil, lease, nil}); err != nil || lease.Valid() {
			t.Errorf("valid %v: %v", lease.Valid(), err)
		}
	})
}

// TestAcquireAnySaysWhy: who gives up while it tries the first lock is told why the store failed.
func TestAcquireAnySaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Partition(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		lease, err := leasehold.AcquireAny(ctx, locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if lease != nil || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("%v, %v", lease, err)
		}
	})
}

// TestAcquireAnyOfTheOthers: a lock that cannot be waited for keeps nobody from waiting for the others; only
// where none can be, it fails.
func TestAcquireAnyOfTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		plant(t, st, "jobs/a", "no lock")
		held := acquire(t, locksOf(t, st, inOneObject, "jobs/b")[0])
		time.AfterFunc(time.Minute, func() { _ = held.Release(context.Background()) })
		lease, err := leasehold.AcquireAny(t.Context(), locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
		if err != nil || lease.Key() != "jobs/b" {
			t.Fatalf("%v, %v", lease, err)
		}
		if _, err = leasehold.AcquireAny(t.Context(), locksOf(t, st, inOneObject, "jobs/a")); !errors.Is(err, leasehold.ErrForeignObject) {
			t.Error(err)
		}
		release(t, lease)
	})
}

// TestAcquireAnyOfMany: of many locks that are free at one moment one is had, and the others go back, also
// those that came before the first one was known.
func TestAcquireAnyOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		defer clock.Set(func() time.Duration {
			runtime.Gosched() // each looks at its new lease before any goes on
			return time.Since(start) + time.Hour
		})()
		for range 3 {
			st := memstore.New()
			a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
			var locks []*leasehold.Lock
			for _, key := range keys(20) {
				a.acquire(key)
				locks = append(locks, b.lock(key))
			}
			got := make(chan *leasehold.Lease)
			go func() {
				lease, err := leasehold.AcquireAny(t.Context(), locks)
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
			time.Sleep(time.Minute)
			a.close()
			lease := <-got
			synctest.Wait()
			if held := b.session.Leases(); len(held) != 1 || held[0] != lease {
				t.Errorf("%d are held by one that wanted one", len(held))
			}
			b.end()
		}
	})
}

// TestAcquireAnyLosesWhatItWon: the machine is suspended before the other locks have been given up, and what
// was won is lost: it says so, and leaves the lock for the next call.
func TestAcquireAnyLosesWhatItWon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		others := locksOf(t, st, inOneObject, "jobs/a", "jobs/b")
		a, b := acquire(t, others[0]), acquire(t, others[1])
		locks := locksOf(t, st, suspendedWithALease(), "jobs/a", "jobs/b")
		time.AfterFunc(time.Minute, func() { release(t, a) })
		lease, err := leasehold.AcquireAny(t.Context(), locks)
		if lease != nil || !errors.Is(err, leasehold.ErrLost) || !strings.HasPrefix(err.Error(), "the lock ") {
			t.Fatalf("%v, %v", lease, err)
		}
		_ = b.Release(t.Context())
		synctest.Wait()
		for _, lock := range locks {
			release(t, acquire(t, lock))
		}
	})
}
