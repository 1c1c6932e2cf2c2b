package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestReleaseWaitsForSeconds: a release whose context has ended before waits for 5 s, and no longer, and
// so does what releases by itself.
func TestReleaseWaitsForSeconds(t *testing.T) {
	took := func(what string, want time.Duration, f func()) {
		t.Helper()
		began := time.Now()
		if f(); time.Since(began) != want {
			t.Errorf("%s waited for %v, and not for %v", what, time.Since(began), want)
		}
	}
	bubble(t, func(t *testing.T) {
		ended, stop := context.WithCancel(t.Context())
		stop()
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		st.Partition(true)
		took("Release", 5*time.Second, func() {
			if err := lease.Release(ended); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	})
	bubble(t, func(t *testing.T) {
		st := newStore()
		took("Do", 5*time.Second, func() {
			err := newLock(t, st, nil).Do(t.Context(), func(context.Context, *leasehold.Lease) error { st.Partition(true); return nil })
			if err != nil {
				t.Error(err)
			}
		})
	})
	bubble(t, func(t *testing.T) {
		st := newStore()
		ctx, stop := context.WithCancel(t.Context())
		took("Run", 5*time.Second, func() {
			_ = newElection(t, st, leasehold.ElectionOptions{}).Run(ctx, func(context.Context, *leasehold.Lease) error {
				st.Partition(true)
				stop()
				return nil
			})
		})
	})
}

// TestReleaseOfALostLease: the error says that the lease was lost, and that its release is not confirmed.
func TestReleaseOfALostLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject}))
		st.Partition(true)
		<-lease.Done()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := lease.Release(ctx); !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a release that is under way: %v", err)
		}
		st.Partition(false)
		if err := lease.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a release that was confirmed: %v", err)
		}
	})
}

// TestTurnThatCrossesTheEnd: the turn comes to a goroutine of the queue that gives up in that moment. It is
// passed on, and the caller is told of the end of its context.
func TestTurnThatCrossesTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lock := newLock(t, memstore.New(), nil)
		for range 50 { // few of them do not cross
			ctx, cancel := context.WithCancel(t.Context())
			lease := acquire(t, lock)
			ended := make(chan error)
			go func() {
				_, err := lock.Acquire(ctx)
				ended <- err
			}()
			synctest.Wait()
			cancel()
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			release(t, acquire(t, lock))
		}
	})
}

// TestNobodyQueuesForASessionThatIsOver: an acquisition under it fails at once, though another goroutine of
// the process has not released its lease yet.
func TestNobodyQueuesForASessionThatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := startProcess(t, memstore.New(), "a")
		lease := a.acquire("shards/1")
		go func() { _ = a.session.Close(context.Background()) }()
		<-lease.Done()
		for name, acquire := range map[string]func(context.Context, ...leasehold.AcquireOption) (*leasehold.Lease, error){"Acquire": a.lock("shards/1").Acquire, "TryAcquire": a.lock("shards/1").TryAcquire} {
			began := time.Now()
			if _, err := acquire(t.Context()); !errors.Is(err, leasehold.ErrSessionOver) || time.Since(began) > 0 {
				t.Errorf("%s after %v: %v", name, time.Since(began), err)
			}
		}
		_ = lease.Release(t.Context())
	})
}
