package leasehold_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// told is a store that tells when a request was answered.
type told struct {
	store.Store
	after func()
	read  func()
}

func (s *told) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := s.Store.Get(ctx, key, unless)
	if s.read != nil {
		s.read()
	}
	return o, err
}

func (s *told) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, only)
	if s.after != nil {
		s.after()
	}
	return o, err
}

// The answer to the claim takes a while: the lease ends as if it had not (rule A4).
func TestSlowClaimCountsFromItsSending(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: 3 * time.Second})
		sent := time.Now()
		lease := acquire(t, newLock(t, st, nil))
		if d := lease.Deadline().Sub(sent); d > protocol.Validity(leasehold.DefaultTTL) {
			t.Errorf("the lease ends %v after its claim was sent", d)
		}
		release(t, lease)
	})
}

// The record has whole milliseconds, so the holder must not count on more (rule A7).
func TestTTLIsWholeMilliseconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began := time.Now()
		lock := newLock(t, newStore(), &leasehold.LockOptions{TTL: 2*time.Second + 999*time.Microsecond})
		lease := acquire(t, lock)
		info, err := lock.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := lease.Deadline().Sub(began); d > protocol.Validity(info.TTL) {
			t.Errorf("the lease counts on %v, its record promises %v", d, protocol.Validity(info.TTL))
		}
		release(t, lease)
	})
}

// The caller gives up in the moment in which its claim lands: nobody keeps the lock.
func TestLeaseThatCrossesTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			st := &told{Store: memstore.New(), after: cancel}
			lock := newLock(t, st, nil)
			if _, err := lock.Acquire(ctx); err == nil {
				t.Fatal("acquired")
			}
			if err := lock.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Fatalf("%+v, %v", info, err)
			}
		}
	})
}

// Whom a lease was passed on to gives up in that moment: nobody keeps the lock.
func TestPassedOnToNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 200 {
			lock := newLock(t, memstore.New(), nil)
			lease := acquire(t, lock)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				if l, err := lock.Acquire(ctx); err == nil {
					release(t, l)
				}
			})
			synctest.Wait()
			release(t, lease) // its turn has come,
			cancel()          // and it may not have noticed yet
			all.Wait()
			synctest.Wait()
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Fatalf("%+v, %v", info, err)
			}
		}
	})
}

// A waiter gives up while the lease is being passed on to it, at any one reading of the clock: nobody
// keeps the lock.
func TestPassedOnAsTheWaiterLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for n := range int64(6) {
			lock := newLock(t, memstore.New(), nil)
			lease := acquire(t, lock)
			ctx, cancel := context.WithCancel(t.Context())
			waiter := make(chan error, 1)
			go func() {
				next, err := lock.Acquire(ctx)
				if err == nil {
					err = next.Release(t.Context()) //nolint:contextcheck // ctx may have ended
				}
				waiter <- err
			}()
			synctest.Wait()
			var readings atomic.Int64
			began, at := clock.Now(), time.Now()
			undo := clock.Set(func() time.Duration {
				if readings.Add(1) == n+1 {
					cancel()
					for range 1000 { // it leaves the queue
						runtime.Gosched()
					}
				}
				return began + time.Since(at)
			})
			release(t, lease)
			undo()
			cancel()
			if err := <-waiter; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, leasehold.ErrHeld) {
				t.Error(err)
			}
			if err := lock.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Errorf("%d: %+v, %v", n, info, err)
			}
		}
	})
}

// TestReleasedIsFree: when Release has returned, the next attempt of the same Lock is not kept out by
// what is left of the lease.
func TestReleasedIsFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lock := newLock(t, memstore.New(), &leasehold.LockOptions{Layout: leasehold.LayoutObject}) // others keep all that was
		for n := range 10_000 {
			lease, err := lock.TryAcquire(t.Context())
			if err != nil {
				t.Fatalf("after %d releases: %v", n, err)
			}
			release(t, lease)
		}
	})
}
