package leasehold_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
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

// A gate is a store that is told of each write before it is sent.
type gate struct {
	store.Store
	put func(key string, body []byte)
}

func (g *gate) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	g.put(key, body)
	return g.Store.Put(ctx, key, body, only)
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
		if said, err := e.Attend(t.Context(), leasehold.Question{Lock: l.Key()}); err != nil || !said.Leading {
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
			if leader, ok := e.Leader(); !ok || leader.Token != lease.Token() || !e.IsLeader() {
				t.Errorf("with the token %v it leads: %v, and the leader is %+v", lease.Token(), e.IsLeader(), leader)
			}
			if err := e.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			if leader, ok := e.Leader(); ok || e.IsLeader() {
				t.Errorf("it has resigned, and the leader is %+v", leader)
			}
		}
		a.end()
	})
}

// Resign returned, and Leader said for a moment that this candidate led: its release was told before
// the election had seen it.
func TestResignReturnsWhenItHasSeenThat(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it holds up one write: the same in every layout")
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
		if leader, ok := e.Leader(); ok {
			t.Errorf("it has resigned, and the leader is %+v", leader)
		}
	})
}
