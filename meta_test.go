package leasehold_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

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
			if want := letters(t, rows["change it"][i]); leasehold.Layout(layout) == here() && got != want {
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
			if want := letters(t, rows["change it, under a session"][i]); leasehold.Layout(layout) == here() && got != want {
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
				end := lease.End()
				time.Sleep(8 * time.Second)
				setMeta(t, lease, step(1))
				carries(t, st, lease.Key(), step(1))
				if again := lease.End(); !again.Equal(end) || !lease.Deadline().Equal(end) {
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
	needs(t, here() == leasehold.LayoutObject, "it deletes the one object: the same in every layout that has one")
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
		d, err := lease.Detach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err = lease.SetMeta(t.Context(), step(2)); !errors.Is(err, leasehold.ErrDetached) {
			t.Errorf("then: %v", err)
		}
		second := newLockOf(t, st, "second")
		if d, err = second.RenewDetached(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
		carries(t, st, "l", step(1))
		if err = second.ReleaseDetached(t.Context(), d); err != nil {
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
