package leasehold_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A gate is a store that is told of each write before it is sent.
type gate struct {
	store.Store
	put func(key string, body []byte)
}

func (g *gate) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	g.put(key, body)
	return g.Store.Put(ctx, key, body, only)
}

// TestEarlierLeaseStaysInvalid: a lease that was released, or lost, is not valid again while the Lock has another.
func TestEarlierLeaseStaysInvalid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		lock := newLock(t, st, patient(leasehold.LockOptions{}))
		released := acquire(t, lock)
		release(t, released)
		lost := acquire(t, lock)
		if released.Valid() || !released.Deadline().IsZero() || !errors.Is(released.Err(), leasehold.ErrReleased) || !lost.Valid() {
			t.Errorf("the released one: %t, %v, %v", released.Valid(), released.Deadline(), released.Err())
		}
		st.Partition(true)
		<-lost.Done()
		st.Partition(false)
		_ = lost.Release(t.Context())
		last := acquire(t, lock)
		if lost.Valid() || !lost.Deadline().IsZero() || !errors.Is(lost.Err(), leasehold.ErrLost) || !last.Valid() {
			t.Errorf("the lost one: %t, %v, %v", lost.Valid(), lost.Deadline(), lost.Err())
		}
		release(t, last)
	})
}

// A lease has ended before its release is sent (rule A10). Each reading of the clock lets the
// other goroutines go first, so that the write is sent at the first moment at which it can be;
// and a peer has asked, so the clock is read once more after the write was begun.
func TestReleaseEndsTheLeaseFirst(t *testing.T) {
	needs(t, here().Tokens(), "a marker is deleted")
	var lease atomic.Pointer[leasehold.Lease]
	st := &gate{Store: memstore.New(), put: func(_ string, body []byte) {
		if l := lease.Load(); l != nil && bytes.Contains(body, []byte(`"state":"free"`)) && l.Context().Err() == nil {
			t.Error("a release was sent while the lease went on")
		}
	}}
	opts := &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Hour}} // the clock is real
	e, err := leasehold.NewElection(st, "leaders/x", opts)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	defer clock.Set(func() time.Duration {
		for range 50 {
			runtime.Gosched()
		}
		return time.Since(start) + time.Hour
	})()
	for range 20 {
		l, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if said, err := peer.Attend(t.Context(), e, peer.Question{Lock: l.Key()}); err != nil || !said.Leading {
			t.Fatalf("%+v, %v", said, err)
		}
		lease.Store(l)
		release(t, l)
		lease.Store(nil)
	}
}

// The session runs out while the claim is under way, and no timer has run since: the lease is
// over before anybody can be handed it.
func TestLeaseOfASessionThatRanOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, try := range []bool{false, true} {
			slept.Store(0)
			inner := memstore.New()
			p := startProcess(t, inner, "a")
			st := &told{Store: p.st, after: func() { slept.Store(int64(protocol.Validity(leasehold.DefaultTTL))) }}
			lock := newLock(t, st, &leasehold.LockOptions{Session: p.session})
			f := lock.Acquire
			if try {
				f = lock.TryAcquire
			}
			lease, err := f(t.Context())
			if lease != nil || !errors.Is(err, leasehold.ErrSessionOver) {
				t.Errorf("under a session that has run out: %v, %v", lease, err)
			}
			synctest.Wait()
			if left := p.session.Leases(); len(left) > 0 {
				t.Errorf("nobody was handed a lease, and somebody is to release %v", left)
			}
			st.after = nil
			p.end()
		}
	})
}

// The candidate's own session ends while it finds out about that of the holder: it claims
// nothing for a session that is over, since nobody would free that.
func TestOwnSessionEndsWhileTheHoldersIsChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a, b := startProcess(t, inner, "a"), startProcess(t, inner, "b")
		a.acquire("shards/1")
		a.close()
		isA := func(c faultstore.Call) bool { return c.Key == a.session.Key() }
		b.st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", When: isA, Delay: time.Second})
		time.AfterFunc(500*time.Millisecond, func() { _ = b.session.Close(context.Background()) })
		b.st.Reset()
		lease, err := b.lock("shards/1").TryAcquire(t.Context())
		if lease != nil || !errors.Is(err, leasehold.ErrSessionOver) {
			t.Errorf("%v, %v", lease, err)
		}
		for _, e := range b.st.Log() {
			if e.Op == "put" && strings.HasPrefix(e.Key, "shards/") {
				t.Errorf("sent for a session that is over: %v", e)
			}
		}
		time.Sleep(time.Second) // the look comes back
		_ = b.session.Close(t.Context())
	})
}

// A lock that was only tried has no part in the session any more: one that kept its place would
// take room as long as the session lasts.
func TestTriedLocksLeaveTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a, b := startProcess(t, inner, "a"), startProcess(t, inner, "b")
		a.acquire("shards/1")
		for range 3 {
			if _, err := b.lock("shards/1").TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
				t.Error(err)
			}
			if n := leasehold.Members(b.session); n != 0 {
				t.Errorf("%d candidates have a part in a session under which nothing is", n)
			}
		}
		a.end()
		b.end()
	})
}

// A lock is released between two heartbeats: the next one comes a second after the last, and not
// when it would have come.
func TestReleaseBetweenHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		lease := a.acquire("shards/1")
		time.Sleep(500 * time.Millisecond)
		release(t, lease)
		time.Sleep(time.Second)
		if freed := recordIn(t, inner, a.session.Key()).Freed; freed == nil || freed.Count != 1 {
			t.Errorf("a second after the release the heartbeat tells of %+v", freed)
		}
		a.end()
	})
}

// A lock is released while a heartbeat is under way, which does not tell of that: the next one
// comes soon after it, and not when it would have come.
func TestReleaseDuringAHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		a.acquire("shards/1")
		lease := a.acquire("shards/2")
		isA := func(c faultstore.Call) bool { return c.Key == a.session.Key() }
		a.st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", When: isA, Delay: time.Second})
		time.Sleep(protocol.Renewal(leasehold.DefaultTTL) + 500*time.Millisecond) // one is under way
		release(t, lease)
		time.Sleep(2500 * time.Millisecond)
		obj, err := inner.Get(t.Context(), a.session.Key(), "")
		if err != nil || !bytes.Contains(obj.Body, []byte(`"freed":{"count":1`)) {
			t.Errorf("three seconds after the release no heartbeat tells of it: %s, %v", obj.Body, err)
		}
		a.end()
	})
}

// The session of a lease ends while the release is under way, which is not sent again then. The
// record is held until the session is over for others too, and Release had said nothing of that.
func TestReleaseCrossesTheEndOfItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		lease := a.acquire("shards/1")
		ours := func(c faultstore.Call) bool { return strings.HasPrefix(c.Key, "shards/") }
		a.st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", When: ours})
		closed := make(chan error, 1)
		time.AfterFunc(time.Second, func() { closed <- a.session.Close(context.Background()) })
		err := lease.Release(t.Context())
		if info, look := inspect(inner, "shards/1"); look != nil || !info.Held {
			t.Fatalf("this shows nothing: %+v, %v", info, look)
		}
		if !errors.Is(err, leasehold.ErrSessionOver) || errors.Is(err, leasehold.ErrLost) {
			t.Errorf("the lock is held, and the release said %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		a.st.Clear()
	})
}

// A release that is confirmed after the end of its session has freed the lock, and says nothing of that end.
func TestReleaseIsConfirmedAfterTheEndOfItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		lease := a.acquire("shards/1")
		ours := func(c faultstore.Call) bool { return strings.HasPrefix(c.Key, "shards/") }
		a.st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", When: ours, Delay: 2 * time.Second})
		closed := make(chan error, 1)
		time.AfterFunc(time.Second, func() { closed <- a.session.Close(context.Background()) })
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("the lock is free, and the release said %v", err)
		}
		if info, err := inspect(inner, "shards/1"); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// The answer to a release is lost, and another Lock of its session has the lock by the time of the look that
// tells so; meanwhile the session ends. The release says nothing of that: it is another's lease that is left.
func TestReleaseAndAnotherLeaseOfItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hooks := &told{Store: memstore.New()}
		a := startProcess(t, hooks, "a")
		lease := a.acquire("shards/1")
		other := newLockUnder(t, a.st, a.session)
		var next *leasehold.Lease
		closed := make(chan error, 1)
		a.st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put"})
		hooks.after = func() {
			hooks.after = nil
			a.st.Clear()
			next = acquire(t, other)
			hooks.read = func() {
				hooks.read = nil
				go func() { closed <- a.session.Close(context.Background()) }()
				<-a.session.Done()
			}
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("the lock is another's, and the release said %v", err)
		}
		<-a.session.Done()
		_ = next.Release(t.Context()) // it is lost
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// The release of a lease that was lost with its session says that, and no more: nobody has tried to free
// the lock, which others take over from the session.
func TestReleaseOfWhatWasLostWithItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := startProcess(t, memstore.New(), "a")
		lease := a.acquire("shards/1")
		closed := make(chan error, 1)
		go func() { closed <- a.session.Close(context.Background()) }()
		<-lease.Done()
		if err := lease.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) || strings.Contains(err.Error(), "may still be taken for held") {
			t.Errorf("the release said %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// An election under a session goes on to notice what happens, though its lease needs nothing:
// who leads, and who does not any more.
func TestElectionKeepsItsEyesOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		e, err := leasehold.NewElection(a.st, "leader", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Session: a.session}})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			lease, err := e.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if leader, ok := leaderOf(e); !ok || leader.Token != lease.Token() || !e.IsLeader() {
				t.Errorf("with the token %v it leads: %v, and the leader is %+v", lease.Token(), e.IsLeader(), leader)
			}
			if err := e.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			if leader, ok := leaderOf(e); ok || e.IsLeader() {
				t.Errorf("it has resigned, and the leader is %+v", leader)
			}
		}
		a.end()
	})
}

// Resign returned, and Leader said for a moment that this candidate led: its release was told before
// the election had seen it.
func TestResignReturnsWhenItHasSeenThat(t *testing.T) {
	needs(t, here() == leasetest.Object, "it holds up one write: the same in every layout")
	bubble(t, func(t *testing.T) {
		open := make(chan struct{})
		st := &gate{memstore.New(), func(_ string, body []byte) {
			if strings.Contains(string(body), `"state":"free"`) {
				<-open
			}
		}}
		e, err := leasehold.NewElection(st, "leader", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		resigned := make(chan error, 1)
		go func() { resigned <- e.Resign(t.Context()) }()
		synctest.Wait() // its release waits at the gate
		see := leasehold.Blind(e)
		close(open)
		for range 10_000 {
			runtime.Gosched()
		}
		select {
		case err := <-resigned:
			t.Errorf("it has resigned (%v), and has not seen that", err)
			resigned <- err
		default:
		}
		see()
		if err := <-resigned; err != nil {
			t.Error(err)
		}
		if leader, ok := leaderOf(e); ok {
			t.Errorf("it has resigned, and the leader is %+v", leader)
		}
	})
}

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
		d, err := detached.From(lease.Context(), lease)
		if err != nil || d.Token != lease.Token() {
			t.Fatalf("detached: %+v, %v", d, err)
		}
		st.Clear()
		if info, err := lock.Inspect(t.Context()); err != nil || !info.Held {
			t.Errorf("it is %+v, %v", info, err)
		}
	})
}

// TestDoReleasedWithin: a function that releases its own lease has done its work.
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
		broken := errors.New("broken")
		if err := locks.Do(t.Context(), "a", func(ctx context.Context, lease *leasehold.Lease) error {
			return errors.Join(f(ctx, lease), broken)
		}); !errors.Is(err, broken) || errors.Is(err, leasehold.ErrReleased) {
			t.Errorf("which fails: %v", err)
		}
	})
}

// step is the meta data of a job that has come so far.
func step(n int) map[string]string { return map[string]string{"step": strconv.Itoa(n)} }

// setMeta changes the meta data of a lease, which must succeed.
func setMeta(t *testing.T, lease *leasehold.Lease, meta map[string]string) {
	t.Helper()
	if err := lease.SetMeta(t.Context(), meta); err != nil {
		t.Fatal(err)
	}
}

// carries checks what the record of a lock carries.
func carries(t *testing.T, st store.Store, key string, want map[string]string) {
	t.Helper()
	info, err := inspect(st, key)
	if err != nil || !maps.Equal(info.Meta, want) {
		t.Errorf("%s carries %v, want %v, %v", key, info.Meta, want, err)
	}
}

// calledMeta calls SetMeta and gives what it returns, later.
func calledMeta(ctx context.Context, lease *leasehold.Lease, meta map[string]string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- lease.SetMeta(ctx, meta) }()
	synctest.Wait()
	return done
}

// TestSetMeta: the record carries it when the call returns, for one renewal that comes early; all
// later ones carry it, and the next lease of the Lock does not, whichever way it begins.
func TestSetMeta(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		columns, rows := documented(t, "docs/requests.md", "## Metadata of a held lease")
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Meta: map[string]string{"app": "shop"}})
		lease := acquire(t, lock)
		deadline := lease.Deadline()
		time.Sleep(2 * time.Second)
		began, meta := time.Now(), step(1)
		got := cost(st, func() { setMeta(t, lease, meta) })
		for i, layout := range columns {
			if want := letters(t, rows["change it"][i]); leasetest.ParseWay(layout) == here() && got != want {
				t.Errorf("it took %v, and the document says %v", got, want)
			}
		}
		if took, later := time.Since(began), lease.Deadline().Sub(deadline); took != 0 || later != 2*time.Second {
			t.Errorf("it took %v, and the lease lasts %v longer", took, later)
		}
		meta["step"] = "changed" // it is nobody's concern by now
		carries(t, st, lock.Key(), step(1))
		if got := cost(st, func() { setMeta(t, lease, step(1)) }); got != (requests{}) {
			t.Errorf("what changes nothing took %v", got)
		}
		time.Sleep(30 * time.Second)
		carries(t, st, lock.Key(), step(1))
		began = time.Now()
		setMeta(t, lease, nil)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		carries(t, st, lock.Key(), nil)
		setMeta(t, lease, step(2))

		next := make(chan *leasehold.Lease, 1)
		go func() { l, _ := lock.Acquire(t.Context()); next <- l }()
		synctest.Wait()
		release(t, lease) // it is passed on
		lease = <-next
		carries(t, st, lock.Key(), map[string]string{"app": "shop"})
		time.Sleep(10 * time.Second)
		carries(t, st, lock.Key(), map[string]string{"app": "shop"})
		setMeta(t, lease, step(3))
		release(t, lease)
		lease, err := lock.Acquire(t.Context(), leasehold.WithMeta(step(4)))
		if err != nil {
			t.Fatal(err)
		}
		carries(t, st, lock.Key(), step(4))
		setMeta(t, lease, step(5))
		carries(t, st, lock.Key(), step(5))
		release(t, lease)
	})
}

// TestSetMetaMerged: however often it is called, there is one write a second, of which each carries
// the last change before it, and every call returns.
func TestSetMetaMerged(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		lease := acquire(t, lock)
		var calls sync.WaitGroup
		got := cost(st, func() {
			for n := range 1000 { // for 10 s
				calls.Go(func() {
					began := time.Now()
					if err := lease.SetMeta(t.Context(), step(n)); err != nil || time.Since(began) > time.Second {
						t.Errorf("call %d returned after %v: %v", n, time.Since(began), err)
					}
				})
				time.Sleep(10 * time.Millisecond)
			}
			calls.Wait()
		})
		if most := budgets[here()].renew.times(11); !got.within(requests{}, most) {
			t.Errorf("it took %v, and not %v at most", got, most)
		}
		carries(t, st, lock.Key(), step(999))
		release(t, lease)
	})
}

// TestSetMetaUnderASession: it is one write of the lock's record, and none follows; others wait as
// before, and have the lock when it is released.
func TestSetMetaUnderASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		columns, rows := documented(t, "docs/requests.md", "## Metadata of a held lease")
		st := memstore.New()
		p, other := startProcess(t, st, "a"), startProcess(t, st, "b")
		lease := p.acquire("one")
		next := make(chan *leasehold.Lease, 1)
		go func() { l, _ := other.lock("one").Acquire(t.Context()); next <- l }()
		time.Sleep(4 * time.Second)
		got := cost(p.st, func() { setMeta(t, lease, step(1)) })
		for i, layout := range columns {
			if want := letters(t, rows["change it, under a session"][i]); leasetest.ParseWay(layout) == here() && got != want {
				t.Errorf("it took %v, and the document says %v", got, want)
			}
		}
		began, before := time.Now(), p.st.Counts()
		for n := range 10 {
			setMeta(t, lease, step(n))
		}
		// The heartbeat goes on: every 5 s.
		took, puts := time.Since(began), p.st.Counts().Put-before.Put
		if took < 9*time.Second || took > 10*time.Second || puts > 10+3 {
			t.Errorf("ten changes took %v and %d writes", took, puts)
		}
		carries(t, st, "one", step(9))
		got = cost(p.st, func() { time.Sleep(time.Hour) })
		if want := (requests{put: 720}); got != want || !lease.Valid() {
			t.Errorf("an hour after it took %v, want %v; %v", got, want, lease.Err())
		}
		carries(t, st, "one", step(9))
		release(t, lease)
		lease = <-next
		carries(t, st, "one", nil)
		release(t, lease)
		p.end()
		other.end()
	})
}

// TestSetMetaLostAnswer: a change whose answer is lost is found out by a look, with a session and
// without; one that has not landed is sent again.
func TestSetMetaLostAnswer(t *testing.T) {
	needsRenewals(t)
	for _, kind := range []faultstore.Kind{faultstore.LostAnswer, faultstore.LostRequest, faultstore.Unavailable, faultstore.Throttled, faultstore.Denied} {
		for name, start := range metaLeases(t) {
			t.Run(kind.String()+", "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					st, lease, end := start(t)
					time.Sleep(2 * time.Second)
					st.Inject(faultstore.Fault{Kind: kind, Op: "put", Nth: 1})
					setMeta(t, lease, step(1))
					carries(t, st, lease.Key(), step(1))
					if lease.Err() != nil {
						t.Error(lease.Err())
					}
					end()
				})
			})
		}
	}
}

// metaLeases are leases of all kinds that can carry other meta data: each starts one, in a store of
// its own, and gives what ends it.
func metaLeases(t *testing.T) map[string]func(t *testing.T) (*faultstore.Store, *leasehold.Lease, func()) {
	t.Helper()
	alone := func(options ...leasehold.AcquireOption) func(t *testing.T) (*faultstore.Store, *leasehold.Lease, func()) {
		return func(t *testing.T) (*faultstore.Store, *leasehold.Lease, func()) {
			t.Helper()
			st := newStore()
			lease, err := newLock(t, st, nil).Acquire(t.Context(), options...)
			if err != nil {
				t.Fatal(err)
			}
			return st, lease, func() { release(t, lease) }
		}
	}
	all := map[string]func(t *testing.T) (*faultstore.Store, *leasehold.Lease, func()){
		"alone": alone(), "without renewal": alone(leasehold.WithoutRenewal()), "for 12 s": alone(leasehold.WithMaxHold(12 * time.Second)),
	}
	if here().Tokens() {
		all["under a session"] = func(t *testing.T) (*faultstore.Store, *leasehold.Lease, func()) {
			t.Helper()
			p := startProcess(t, memstore.New(), "a")
			lease := p.acquire("one")
			return p.st, lease, p.end
		}
	}
	return all
}

// TestSetMetaLastsNoLonger: a lease that is not renewed any more carries it all the same, and ends
// when it was to end.
func TestSetMetaLastsNoLonger(t *testing.T) {
	needsRenewals(t)
	for name, option := range map[string]leasehold.AcquireOption{"without renewal": leasehold.WithoutRenewal(), "for 12 s": leasehold.WithMaxHold(12 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				lease, err := newLock(t, st, nil).Acquire(t.Context(), option)
				if err != nil {
					t.Fatal(err)
				}
				end := leasehold.Internal.Core(lease).End()
				time.Sleep(8 * time.Second)
				setMeta(t, lease, step(1))
				carries(t, st, lease.Key(), step(1))
				if again := leasehold.Internal.Core(lease).End(); !again.Equal(end) || !lease.Deadline().Equal(end) {
					t.Errorf("it was to end at %v, and now at %v, with the deadline %v", end, again, lease.Deadline())
				}
				<-lease.Done()
				if late := time.Since(end); late != 0 || !errors.Is(lease.Err(), leasehold.ErrTimeUp) {
					t.Errorf("it ended %v late: %v", late, lease.Err())
				}
				if err = lease.SetMeta(t.Context(), step(2)); !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrTimeUp) {
					t.Errorf("at its end: %v", err)
				}
				_ = lease.Release(t.Context())
			})
		})
	}
}

// TestSetMetaOfALeaseThatEnds: a call that waits learns the end of the lease, at once and whatever it was; and the
// next lease of the Lock neither has the change nor answers the call.
func TestSetMetaOfALeaseThatEnds(t *testing.T) {
	needsRenewals(t)
	for name, start := range metaLeases(t) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { // released
				st, lease, end := start(t)
				call := calledMeta(t.Context(), lease, step(1)) // for the end of its first second
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-call; !errors.Is(err, leasehold.ErrReleased) {
					t.Errorf("a call that waited returned %v", err)
				}
				carries(t, st, lease.Key(), nil)
				got := cost(st, func() {
					if err := lease.SetMeta(t.Context(), step(2)); !errors.Is(err, leasehold.ErrReleased) {
						t.Errorf("after the release: %v", err)
					}
				})
				if got != (requests{}) {
					t.Errorf("after the release it took %v", got)
				}
				_ = end
				if name == "under a session" {
					end()
				}
			})
			bubble(t, func(t *testing.T) { // lost
				st, lease, _ := start(t)
				time.Sleep(2 * time.Second)
				st.Partition(true)
				call := calledMeta(t.Context(), lease, step(1))
				<-lease.Done()
				if err := <-call; !errors.Is(err, leasehold.ErrLost) {
					t.Errorf("a call that waited returned %v", err)
				}
				if err := lease.SetMeta(t.Context(), step(1)); !errors.Is(err, leasehold.ErrLost) {
					t.Errorf("then: %v", err)
				}
				st.Partition(false)
				_ = lease.Release(t.Context())
				time.Sleep(time.Minute) // a session is closed by nobody
			})
		})
	}
}

// late is the context of a caller that does not come to wait until it is let.
type late struct {
	context.Context
	let <-chan struct{}
}

func (c late) Done() <-chan struct{} {
	<-c.let
	return c.Context.Done()
}

// TestSetMetaPassedOn: a call that waits when the lock is passed on to another goroutine of the process
// is answered by its own lease alone, although the next one has changes of its own.
func TestSetMetaPassedOn(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		lease := acquire(t, lock)
		let := make(chan struct{})
		first := calledMeta(late{t.Context(), let}, lease, step(1))
		next := make(chan *leasehold.Lease, 1)
		go func() { l, _ := lock.Acquire(t.Context()); next <- l }()
		synctest.Wait()
		go func() { _ = lease.Release(t.Context()) }()
		other := <-next
		setMeta(t, other, step(2))
		close(let)
		if err := <-first; !errors.Is(err, leasehold.ErrReleased) {
			t.Errorf("a call for the lease before returned %v", err)
		}
		carries(t, st, lock.Key(), step(2))
		release(t, other)
	})
}

// TestSetMetaGivenUp: a caller whose context ends has its error, and the change goes on.
func TestSetMetaGivenUp(t *testing.T) {
	needsRenewals(t)
	for name, start := range metaLeases(t) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st, lease, end := start(t)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if err := lease.SetMeta(ctx, step(1)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leasehold.ErrLost) || !strings.Contains(err.Error(), "may still land") {
					t.Errorf("the caller has %v", err)
				}
				carries(t, st, lease.Key(), nil)
				time.Sleep(time.Second)
				carries(t, st, lease.Key(), step(1))
				if err := lease.SetMeta(ctx, step(2)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("with a context that has ended: %v", err)
				}
				time.Sleep(2 * time.Second)
				carries(t, st, lease.Key(), step(1))
				end()
			})
		})
	}
}

// TestSetMetaRefused: what cannot be carried is an error that says so, and changes nothing.
func TestSetMetaRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease, err := newLock(t, st, nil).Acquire(t.Context(), leasehold.WithMeta(step(1)))
		if err != nil {
			t.Fatal(err)
		}
		for says, meta := range map[string]map[string]string{"more than": {"k": strings.Repeat("x", 1<<16)}, "UTF-8": {"k": "\xff"}, "not written over": step(2)} {
			if renews() && says == "not written over" {
				continue
			} else if !renews() {
				says = "not written over"
			}
			got := cost(st, func() {
				if err := lease.SetMeta(t.Context(), meta); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), lease.Key()) {
					t.Errorf("%.40v is refused with %v, which does not say %q", meta, err, says)
				}
				time.Sleep(time.Second)
			})
			if got != (requests{}) {
				t.Errorf("it took %v", got)
			}
			carries(t, st, lease.Key(), step(1))
		}
		release(t, lease)
	})
}

// TestSetMetaFindsTheLockTaken: under a session nobody looks at the lock, so a change is what shows that it
// has become another's.
func TestSetMetaFindsTheLockTaken(t *testing.T) {
	needs(t, here() == leasetest.Object, "it deletes the one object: the same in every layout that has one")
	bubble(t, func(t *testing.T) {
		p := startProcess(t, memstore.New(), "a")
		lease := p.acquire("one")
		time.Sleep(2 * time.Second)
		erase(t, p.st) // and the session, whose heartbeat has not noticed yet
		if err := lease.SetMeta(t.Context(), step(1)); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("it returned %v", err)
		}
		if lease.Valid() {
			t.Error("the lease is valid")
		}
		p.end()
	})
}

// TestSetMetaWhileTheSessionEnds: a call that waits is told of the end of the session.
func TestSetMetaWhileTheSessionEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startProcess(t, memstore.New(), "a")
		lease := p.acquire("one")
		call := calledMeta(t.Context(), lease, step(1))
		p.close()
		if err := <-call; !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrSessionOver) {
			t.Errorf("it returned %v", err)
		}
		carries(t, p.st, "one", nil)
	})
}

// TestSetMetaDetached: a lease that is detached leaves its record as it is, and who renews it keeps
// that.
func TestSetMetaDetached(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLockOf(t, st, "first"))
		setMeta(t, lease, step(1))
		d, err := detached.From(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		if err = lease.SetMeta(t.Context(), step(2)); !errors.Is(err, detached.ErrDetached) {
			t.Errorf("then: %v", err)
		}
		second := newLockOf(t, st, "second")
		if d, err = detached.Renew(t.Context(), second, d, nil); err != nil {
			t.Fatal(err)
		}
		carries(t, st, "l", step(1))
		if err = detached.Release(t.Context(), second, d); err != nil {
			t.Error(err)
		}
	})
}

// TestSetMetaOfALeader: it is of the leader's lease, and the next one's is its own.
func TestSetMetaOfALeader(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		e, err := leasehold.NewElection(st, "leaders/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		setMeta(t, lease, step(1))
		time.Sleep(time.Minute)
		carries(t, st, "leaders/x", step(1))
		if err = e.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err = e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		carries(t, st, "leaders/x", nil)
		if err = e.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// breakLock frees a lock by hand, and tries again as Break says when its holder renews it
// at that very moment.
func breakLock(t *testing.T, lock *leasehold.Lock) {
	t.Helper()
	var err error
	for range 3 {
		var info leasehold.Info
		if info, err = lock.Inspect(t.Context()); err == nil {
			_, err = admin.Break(t.Context(), lock, info.Token)
		}
		if err == nil {
			return
		}
	}
	t.Error(err)
}

// The former holder of a lock that was broken by hand was told that another candidate took the
// lock, and the name that it was told was its own.
func TestBrokenLeaseSaysSo(t *testing.T) {
	needs(t, here().Tokens(), admin.ErrNoTokens.Error())
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var told error
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Holder: "me", Trace: leasetest.OnLost(func(err error) { told = err })}))
		breakLock(t, newLock(t, st, nil))
		<-lease.Done()
		err := lease.Release(t.Context())
		synctest.Wait() // OnLost has a goroutine of its own
		for _, err := range []error{lease.Err(), context.Cause(lease.Context()), told, err} {
			if !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrBroken) || strings.Contains(err.Error(), "another") {
				t.Errorf("broken by hand: %v", err)
			}
		}
	})
}

// The same of a session and all that is under it; and a session that was waited out says by whom.
func TestBrokenSessionSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
		lease, other := a.acquire("shards/1"), a.acquire("shards/2")
		breakLock(t, b.lock("shards/1"))
		<-a.session.Done()
		for _, err := range []error{a.session.Err(), lease.Err(), other.Err()} {
			if !errors.Is(err, leasehold.ErrSessionOver) || !errors.Is(err, leasehold.ErrBroken) || strings.Contains(err.Error(), "another") {
				t.Errorf("broken by hand: %v", err)
			}
		}
		a.end()
		b.end()
	})
}
