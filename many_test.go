package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// locksOf makes a lock for each key.
func locksOf(t *testing.T, st store.Store, opts *leasehold.LockOptions, keys ...string) (locks []*leasehold.Lock) {
	t.Helper()
	for _, key := range keys {
		lock, err := leasehold.NewLock(st, key, opts)
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
	}
	return locks
}

// breakLock frees a lock by hand, and tries again as Break says when its holder renews it
// at that very moment.
func breakLock(t *testing.T, lock *leasehold.Lock) leasehold.Token {
	t.Helper()
	var info leasehold.Info
	var err error
	for range 3 {
		if info, err = lock.Inspect(t.Context()); err == nil {
			_, err = admin.Break(t.Context(), lock, info.Token)
		}
		if err == nil {
			return info.Token
		}
	}
	t.Error(err)
	return info.Token
}

// AcquireAll returned a lease without an error that was lost while it waited for another lock.
func TestAcquireAllLosesALease(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		others := locksOf(t, inner, nil, "jobs/a", "jobs/b", "jobs/c")
		held := acquire(t, others[1])
		var broken leasehold.Token
		go func() {
			time.Sleep(time.Minute)
			broken = breakLock(t, others[0])
			time.Sleep(time.Minute)
			release(t, held)
		}()
		leases, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b", "jobs/c"))
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range leases {
			if err := lease.Err(); err != nil {
				t.Errorf("acquired, and the lease of %s: %v", lease.Key(), err)
			}
		}
		if leases[0].Token() <= broken {
			t.Errorf("token %v, and %v was broken", leases[0].Token(), broken)
		}
		if err := leasehold.ReleaseAll(t.Context(), leases); err != nil {
			t.Error(err)
		}
	})
}

// A lease that was to be given back, because another lock was held, was lost before that: the
// whole call failed with ErrLost.
func TestAcquireAllGivesBackWhatIsLost(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		others := locksOf(t, inner, nil, "jobs/a", "jobs/b")
		held := acquire(t, others[0])
		go func() {
			time.Sleep(time.Second)
			breakLock(t, others[1])
			time.Sleep(time.Minute)
			release(t, held)
		}()
		st := faultstore.Wrap(inner, nil)
		isA := func(c faultstore.Call) bool { return len(c.Key) > 5 && c.Key[:6] == "jobs/a" }
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, When: isA, Nth: 1, Delay: 5 * time.Second})
		leases, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, &leasehold.LockOptions{TTL: 3 * time.Second}, "jobs/a", "jobs/b"))
		if err != nil {
			t.Fatal(err)
		}
		if err := leasehold.ReleaseAll(t.Context(), leases); err != nil {
			t.Error(err)
		}
	})
}

// An acquisition that was given up while one of its leases had been lost said ErrLost besides:
// the caller never had that lease.
func TestAcquireAllGivenUp(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		others := locksOf(t, st, nil, "jobs/a", "jobs/b")
		held := acquire(t, others[1])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			time.Sleep(30 * time.Second)
			breakLock(t, others[0])
		}()
		_, err := leasehold.AcquireAll(ctx, locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leasehold.ErrLost) {
			t.Errorf("given up: %v", err)
		}
		release(t, held)
	})
}

// A store that is away is waited out, as by Acquire: AcquireAll tries its locks before it waits,
// and a try fails.
func TestAcquireAllWaitsOutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Partition(true)
		go func() {
			time.Sleep(10 * time.Minute)
			st.Partition(false)
		}()
		leases, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if err != nil {
			t.Fatal(err)
		}
		if err = leasehold.ReleaseAll(t.Context(), leases); err != nil {
			t.Error(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		began := time.Now()
		_, err = leasehold.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if !errors.Is(err, store.ErrDenied) || time.Since(began) > time.Second {
			t.Errorf("denied: after %v %v", time.Since(began), err)
		}
	})
}
