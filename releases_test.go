package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/faultstore"
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

// TestReleaseWithItsOwnContext: the release ends the context of its lease, and with it a context that was made from
// that. It used to give up at once because of that.
func TestReleaseWithItsOwnContext(t *testing.T) {
	slow := func(st *faultstore.Store) {
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Second})
	}
	for title, end := range map[string]func(t *testing.T, st *faultstore.Store) error{
		"its context": func(t *testing.T, st *faultstore.Store) error {
			lease := acquire(t, newLock(t, st, nil))
			slow(st)
			return lease.Release(lease.Context())
		},
		"one made from it": func(t *testing.T, st *faultstore.Store) error {
			lease := acquire(t, newLock(t, st, nil))
			slow(st)
			ctx, cancel := context.WithTimeout(lease.Context(), time.Minute)
			defer cancel()
			return lease.Release(ctx)
		},
		"that of Do": func(t *testing.T, st *faultstore.Store) error {
			return newLock(t, st, nil).Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
				slow(st)
				return lease.Release(ctx)
			})
		},
		"a campaign": func(t *testing.T, st *faultstore.Store) error {
			e := newElection(t, st, leasehold.ElectionOptions{})
			lease, err := e.Campaign(t.Context())
			if err != nil {
				return err
			}
			slow(st)
			return e.Resign(lease.Context())
		},
		"a leader": func(t *testing.T, st *faultstore.Store) error {
			e := newElection(t, st, leasehold.ElectionOptions{})
			ctx, stop := context.WithCancel(t.Context())
			resigned, over := make(chan error, 1), make(chan struct{})
			go func() {
				defer close(over)
				_ = e.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
					slow(st)
					go func() { resigned <- e.Resign(lease.Context()) }() //nolint:contextcheck // it is the point
					<-ctx.Done()
					stop()
					return nil
				})
			}()
			err := <-resigned
			<-over
			return err
		},
	} {
		t.Run(title, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				if err := end(t, st); err != nil {
					t.Errorf("released: %v", err)
				}
				synctest.Wait()
				st.Clear()
				if info, err := newLock(t, st, nil).Inspect(t.Context()); err != nil || info.Held {
					t.Errorf("it is %+v, %v", info, err)
				}
			})
		})
	}
	bubble(t, func(t *testing.T) { // and not for ever
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		st.Partition(true)
		began := time.Now()
		err := lease.Release(lease.Context())
		if took := time.Since(began); err == nil || took != 5*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestDetachWithItsOwnContext: to detach a lease ends its context too, which used to free the lock where a renewal was
// under way.
func TestDetachWithItsOwnContext(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		lease := acquire(t, lock)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: 2 * time.Second})
		time.Sleep(6 * time.Second) // a renewal is under way
		d, err := lease.Detach(lease.Context())
		if err != nil || d.Token != lease.Token() {
			t.Fatalf("detached: %+v, %v", d, err)
		}
		st.Clear()
		if info, err := lock.Inspect(t.Context()); err != nil || !info.Held {
			t.Errorf("it is %+v, %v", info, err)
		}
	})
}

// TestDoReleasedWithin: a function that releases its own lease has done its work. It used to fail, and to end all
// others of its Group.
func TestDoReleasedWithin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		locks := newLocks(t, st, nil)
		f := func(_ context.Context, lease *leasehold.Lease) error {
			defer time.Sleep(time.Second)
			return lease.Release(t.Context()) //nolint:contextcheck // that of f would end with the lease
		}
		if err := newLock(t, st, nil).Do(t.Context(), f); err != nil {
			t.Errorf("Lock.Do: %v", err)
		}
		if err := locks.Do(t.Context(), "a", f); err != nil {
			t.Errorf("Locks.Do: %v", err)
		}
		group, _ := locks.Group(t.Context())
		group.Go("a", f)
		group.Go("b", func(ctx context.Context, _ *leasehold.Lease) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(10 * time.Second):
				return nil
			}
		})
		if err := group.Wait(); err != nil {
			t.Errorf("the group: %v", err)
		}
		broken := errors.New("broken")
		if err := locks.Do(t.Context(), "a", func(ctx context.Context, lease *leasehold.Lease) error {
			return errors.Join(f(ctx, lease), broken)
		}); !errors.Is(err, broken) || errors.Is(err, leasehold.ErrReleased) {
			t.Errorf("which fails: %v", err)
		}
	})
}
