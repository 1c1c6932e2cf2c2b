package leasehold_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// neverLost fails the test if a lease is lost.
func neverLost(t *testing.T) func(error) {
	t.Helper()
	return func(err error) { t.Errorf("lost: %v", err) }
}

func newLocker(t *testing.T, locks *leasehold.Locks, key string, lost func(error)) sync.Locker {
	t.Helper()
	locker, err := locks.Locker(key, lost)
	if err != nil {
		t.Fatal(err)
	}
	return locker
}

// turn takes a lock and gives it back.
func turn(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
}

// panics is what f panics with, as an error or a text.
func panics(f func()) (with any) {
	defer func() { with = recover() }()
	f()
	return nil
}

// TestLocker: goroutines of two processes exclude each other, and code that knows a sync.Locker only can use it.
func TestLocker(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		var inside, turns atomic.Int32
		var all sync.WaitGroup
		for range 2 {
			locks := newLocks(t, st, nil)
			locker := newLocker(t, locks, "k", neverLost(t))
			for range 3 {
				all.Go(func() {
					for range 2 {
						locker.Lock()
						if inside.Add(1) > 1 {
							t.Error("two are inside")
						}
						time.Sleep(20 * time.Second) // longer than the TTL
						inside.Add(-1)
						turns.Add(1)
						locker.Unlock()
					}
				})
			}
			defer locks.Close(t.Context())
		}
		all.Wait()
		if turns.Load() != 12 {
			t.Errorf("%d turns, want 12", turns.Load())
		}
		locks := newLocks(t, st, nil)
		cond := sync.NewCond(newLocker(t, locks, "cond", neverLost(t)))
		ready := false
		all.Go(func() {
			cond.L.Lock()
			defer cond.L.Unlock()
			for !ready {
				cond.Wait()
			}
		})
		synctest.Wait()
		cond.L.Lock()
		ready = true
		cond.L.Unlock()
		cond.Broadcast()
		all.Wait()
	})
}

// TestLockerLost: a loss is told once, as it happens, or by Unlock if the lock was lost in between; afterwards the
// lock can be had again.
func TestLockerLost(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		told := make(chan error, 10)
		locker := newLocker(t, newLocks(t, st, nil), "k", func(err error) { told <- err })
		for _, late := range []bool{false, true} {
			locker.Lock()
			st.Partition(true)
			if late {
				slept.Add(int64(time.Minute)) // the machine was suspended: no timer has seen the end of the lease yet
			} else if err := <-told; !errors.Is(err, leasehold.ErrLost) {
				t.Errorf("told %v", err)
			}
			began := time.Now()
			locker.Unlock()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("Unlock took %v", took)
			}
			if late {
				if err := <-told; !errors.Is(err, leasehold.ErrLost) {
					t.Errorf("told %v", err)
				}
			}
			st.Partition(false)
		}
		turn(locker)
		time.Sleep(time.Minute)
		if len(told) != 0 {
			t.Errorf("told again: %v", <-told)
		}
	})
}

// TestLockerRefused: what a sync.Locker cannot return is an error when it is made, or a panic.
func TestLockerRefused(t *testing.T) {
	locks := newLocks(t, newStore(), nil)
	if _, err := locks.Locker("k", nil); err == nil {
		t.Error("nobody is told of a loss, and there is no error")
	}
	for _, key := range []string{"", "/", "a/../b", "a\x00"} {
		if _, err := locks.Locker(key, neverLost(t)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", key, err)
		}
	}
	locker := newLocker(t, locks, "k", neverLost(t))
	if panics(locker.Unlock) == nil {
		t.Error("Unlock of a Locker that is not locked")
	}
	turn(locker)
	if panics(locker.Unlock) == nil {
		t.Error("Unlock twice")
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err, ok := panics(locker.Lock).(error); !ok || !errors.Is(err, leasehold.ErrClosed) {
		t.Errorf("Lock after Close: %v", err)
	}
}

// TestGroup: functions of different keys run at once and those of one key in turn; all have returned, and their locks
// are free, when Wait returns.
func TestGroup(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		locks := newLocks(t, st, nil)
		began := time.Now()
		group, ctx := locks.Group(t.Context())
		var calls atomic.Int32
		for _, key := range []string{"a", "b", "b"} {
			group.Go(key, func(_ context.Context, lease *leasehold.Lease) error {
				if lease.Key() != key || !lease.Valid() {
					t.Errorf("%s has a lease of %s, which is valid: %t", key, lease.Key(), lease.Valid())
				}
				calls.Add(1)
				time.Sleep(time.Minute)
				return nil
			})
		}
		if err := group.Wait(); err != nil || calls.Load() != 3 {
			t.Errorf("%d calls, %v", calls.Load(), err)
		}
		if took := time.Since(began); took < 2*time.Minute || took > 2*time.Minute+5*time.Second {
			t.Errorf("it took %v", took)
		}
		if ctx.Err() == nil {
			t.Error("the context goes on after Wait")
		}
		for _, key := range []string{"a", "b"} {
			if info, err := locks.Inspect(t.Context(), key); err != nil || info.Held {
				t.Errorf("%s is held: %t, %v", key, info.Held, err)
			}
		}
	})
}

// TestGroupFails: the first error ends the context of all, and Wait returns it and no other; a function that has not
// been called yet is not called.
func TestGroupFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		locks := newLocks(t, newStore(), nil)
		group, ctx := locks.Group(t.Context())
		first := errors.New("the first")
		waits := func(ctx context.Context, _ *leasehold.Lease) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), first) {
				t.Errorf("it ends with %v", context.Cause(ctx))
			}
			return errors.New("another")
		}
		group.Go("a", waits)
		synctest.Wait()
		group.Go("a", func(context.Context, *leasehold.Lease) error {
			t.Error("a function is called when the group has failed")
			return nil
		})
		group.Go("b", func(context.Context, *leasehold.Lease) error {
			time.Sleep(time.Second)
			return first
		})
		if err := group.Wait(); !errors.Is(err, first) || !errors.Is(context.Cause(ctx), first) {
			t.Errorf("%v, and the context ends with %v", err, context.Cause(ctx))
		}
	})
}

// TestGroupLoses: a lease that is lost ends the context of all at that moment, whatever its own function does.
func TestGroupLoses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		group, ctx := newLocks(t, st, nil).Group(t.Context())
		began := time.Now()
		group.Go("a", func(context.Context, *leasehold.Lease) error {
			time.Sleep(time.Hour) // it does not look at its context
			return nil
		})
		synctest.Wait()
		st.Partition(true)
		<-ctx.Done()
		if took := time.Since(began); took > 15*time.Second || !errors.Is(context.Cause(ctx), leasehold.ErrLost) {
			t.Errorf("after %v it ends with %v", took, context.Cause(ctx))
		}
		st.Partition(false)
		if err := group.Wait(); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("Wait returns %v", err)
		}
	})
}

// TestGroupIsCancelled: the caller's context ends all, and Wait says so.
func TestGroupIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		locks := newLocks(t, newStore(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		group, _ := locks.Group(ctx)
		group.Go("a", func(ctx context.Context, _ *leasehold.Lease) error {
			group.Go("b", func(ctx context.Context, _ *leasehold.Lease) error { // from within
				<-ctx.Done()
				return ctx.Err()
			})
			<-ctx.Done()
			return nil
		})
		synctest.Wait()
		cancel()
		if err := group.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait returns %v", err)
		}
	})
}
