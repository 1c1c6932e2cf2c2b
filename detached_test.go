package leasehold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// detachable leaves out the layouts without tokens.
func detachable(t *testing.T) {
	t.Helper()
	needs(t, here().Tokens(), withoutProof)
}

func newLockOf(t *testing.T, st store.Store, holder string) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{Holder: holder, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// detach acquires a lock, and leaves the lease to whoever has what is returned.
func detach(t *testing.T, lock *leasehold.Lock) detached.Lease {
	t.Helper()
	lease := acquire(t, lock)
	d, err := detached.From(t.Context(), lease)
	if err != nil {
		t.Fatal(err)
	}
	d.Store = "" // it is told anew with each fault
	return d
}

// copied is what another process reads.
func copied(t *testing.T, d detached.Lease) detached.Lease {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	again, err := detached.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return again
}

// TestDetach: the lease ends here at once and stays held in the store; nobody else gets the lock,
// the Lock that had it no more than others; another Lock goes on with the same token, and its
// release frees the lock.
func TestDetach(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		first := newLockOf(t, st, "first")
		lease := acquire(t, first)
		st.Reset()
		d, err := detached.From(t.Context(), lease)
		if err != nil || len(st.Log()) > 0 {
			t.Fatalf("%v, %v", err, st.Log())
		}
		if lease.Valid() || !errors.Is(lease.Err(), detached.ErrDetached) || !errors.Is(context.Cause(lease.Context()), detached.ErrDetached) {
			t.Errorf("the lease goes on: %v", lease.Err())
		}
		if err = lease.Release(t.Context()); err != nil || len(st.Log()) > 0 {
			t.Errorf("its release: %v, %v", err, st.Log())
		}
		if _, err = detached.From(t.Context(), lease); !errors.Is(err, detached.ErrDetached) {
			t.Errorf("detached twice: %v", err)
		}
		if d.Token != lease.Token() || d.Holder != "first" || d.Key != "l" || d.TTL != time.Minute || d.Store != st.String() || d.ExpiresAt.Sub(d.AcquiredAt) >= time.Minute {
			t.Errorf("%+v", d)
		}
		for _, lock := range []*leasehold.Lock{first, newLockOf(t, st, "other")} {
			if _, err = lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("it was acquired: %v", err)
			}
		}
		second, err := detached.Attach(t.Context(), newLockOf(t, st, "second"), copied(t, d))
		if err != nil || !second.Valid() || second.Token() != d.Token {
			t.Fatalf("%v", err)
		}
		time.Sleep(10 * time.Minute)
		if second.Err() != nil {
			t.Errorf("it is not renewed: %v", second.Err())
		}
		release(t, second)
		if next := acquire(t, first); next.Token() <= d.Token {
			t.Errorf("token %v after %v", next.Token(), d.Token)
		} else {
			release(t, next)
		}
	})
}

// TestDetachedAlone: nobody renews a lease that is detached, so others take it over at the end of its
// TTL and margin, and whoever comes later with what proved it is told, and writes nothing.
func TestDetachedAlone(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		d := detach(t, newLockOf(t, st, "gone"))
		began := time.Now()
		next := acquire(t, newLockOf(t, st, "next"))
		if waited := time.Since(began); waited < 65*time.Second || waited > 73*time.Second {
			t.Errorf("taken over after %v", waited)
		}
		late := newLockOf(t, st, "late")
		st.Reset()
		_, err := detached.Attach(t.Context(), late, d)
		if !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("attached: %v", err)
		}
		if _, err = detached.Renew(t.Context(), late, d, nil); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("renewed: %v", err)
		}
		if err = detached.Release(t.Context(), late, d); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("released: %v", err)
		}
		if n := count(st, "put"); n > 0 {
			t.Errorf("%d writes", n)
		}
		release(t, next)
	})
}

func count(st *faultstore.Store, op string) (n int) {
	for _, e := range st.Log() {
		if e.Op == op {
			n++
		}
	}
	return n
}

// TestDetachedTooOld: a lease that is over and that nobody has taken is not revived, by the wall
// clock where the store does not tell the age of the record; and a release frees it, and says so.
func TestDetachedTooOld(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		d := detach(t, newLockOf(t, st, "first"))
		time.Sleep(time.Until(d.ExpiresAt) + time.Second)
		lock := newLockOf(t, st, "late")
		st.Reset()
		if _, err := detached.Attach(t.Context(), lock, d); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("attached: %v", err)
		}
		if _, err := detached.Renew(t.Context(), lock, d, nil); !errors.Is(err, leasehold.ErrLost) || count(st, "put") > 0 {
			t.Errorf("renewed: %v", err)
		}
		if err := detached.Release(t.Context(), lock, d); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("released: %v", err)
		}
		lease, err := newLockOf(t, st, "next").TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("it was not freed: %v", err)
		}
		release(t, lease)
	})
}

// TestDetachedOnce: of many with copies of one lease, at the same moment and at different ones, one
// goes on with it, and the others are told, whatever they want of it.
func TestDetachedOnce(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		for round := range 60 {
			st := newStoreOver(inner)
			if round%7 > 0 {
				st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Jitter: time.Duration(round%7) * 50 * time.Millisecond})
			}
			d := detach(t, newLockOf(t, st, "first"))
			var won atomic.Int64
			var last atomic.Pointer[detached.Lease]
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() {
					time.Sleep(time.Duration(i*(round%4)) * 20 * time.Millisecond)
					lock := newLockOf(t, st, fmt.Sprintf("copy-%d", i))
					next, err := detached.Renew(t.Context(), lock, copied(t, d), nil)
					switch {
					case err == nil:
						won.Add(1)
						last.Store(&next)
					case !errors.Is(err, leasehold.ErrLost):
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Fatalf("round %d: %d have won", round, won.Load())
			}
			if err := detached.Release(t.Context(), newLockOf(t, st, "end"), *last.Load()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	})
}

// TestRenewDetachedCutShort: a process that renews a detached lease may end at any moment. The proof that it kept
// before it sent anything still works: whether its write has landed, lands later, or never.
func TestRenewDetachedCutShort(t *testing.T) {
	detachable(t)
	for name, put := range map[string]faultstore.Fault{
		"its write is lost":       {Kind: faultstore.LostRequest},
		"its write lands":         {Kind: faultstore.LostAnswer},
		"its write lands late":    {Kind: faultstore.LateLanding, Delay: 2 * time.Second},
		"its write lands later":   {Kind: faultstore.LateLanding, Delay: 3*time.Second + time.Millisecond},
		"its write lands in vain": {Kind: faultstore.LateLanding, Delay: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				defer st.Close()
				d := detach(t, newLockOf(t, st, "first"))
				sent := false
				put.Op, put.When = "put", func(faultstore.Call) (first bool) { first, sent = !sent, true; return first }
				st.Inject(put, faultstore.Fault{Kind: faultstore.Hang, When: func(faultstore.Call) bool { return sent }})
				var kept detached.Lease
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := detached.Renew(ctx, newLockOf(t, st, "cut"), d, func(d detached.Lease) error {
					kept = copied(t, d)
					return nil
				})
				unsettled, ok := errors.AsType[*detached.UnsettledError](err)
				if !ok || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%v", err)
				}
				st.Clear()
				if name == "its write lands later" {
					st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Delay: 10 * time.Millisecond})
				}
				next, err := detached.Renew(t.Context(), newLockOf(t, st, "next"), kept, nil)
				if err != nil {
					t.Fatalf("what was kept does not go on: %v", err)
				}
				if _, err := detached.Renew(t.Context(), newLockOf(t, st, "error"), unsettled.Lease, nil); !errors.Is(err, leasehold.ErrLost) {
					t.Errorf("and so does another copy: %v", err)
				}
				if err := detached.Release(t.Context(), newLockOf(t, st, "end"), next); err != nil {
					t.Error(err)
				}
				if lease, err := newLockOf(t, st, "free").TryAcquire(t.Context()); err != nil {
					t.Error(err)
				} else {
					release(t, lease)
				}
			})
		})
	}
}

// TestDetachRefused: what cannot be detached goes on, and what cannot be attached sends nothing.
func TestDetachRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLockOf(t, st, "first")
		lease := acquire(t, lock)
		if !here().Tokens() {
			if _, err := detached.From(t.Context(), lease); err == nil || !lease.Valid() {
				t.Errorf("a marker's lease: %v", err)
			}
			release(t, lease)
			return
		}
		d, err := detached.From(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		st.Reset()
		for name, change := range map[string]func(*detached.Lease){
			"key":      func(d *detached.Lease) { d.Key = "other" },
			"layout":   func(d *detached.Lease) { d.Layout = leasehold.LayoutMarker },
			"if-match": func(d *detached.Lease) { d.NoIfMatch = !d.NoIfMatch },
			"store":    func(d *detached.Lease) { d.Store = "mem://other" },
			"nothing":  func(d *detached.Lease) { *d = detached.Lease{Key: d.Key, Layout: d.Layout} },
			"released": func(d *detached.Lease) { d.Released = true },
		} {
			other := d
			change(&other)
			if _, err = detached.Attach(t.Context(), lock, other); err == nil || errors.Is(err, detached.ErrForeign) == (name == "released") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(st.Log()) > 0 {
			t.Errorf("%v", st.Log())
		}
		election, err := leasehold.NewElection(st, "e", nil)
		if err != nil {
			t.Fatal(err)
		}
		lead, err := election.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = detached.From(t.Context(), lead); err == nil || !lead.Valid() {
			t.Errorf("an election's lease: %v", err)
		}
		release(t, lead)
		session, err := leasehold.NewSession(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		under, err := leasehold.NewLock(st, "u", &leasehold.LockOptions{Session: session})
		if err != nil {
			t.Fatal(err)
		}
		lease = acquire(t, under)
		if _, err := detached.From(t.Context(), lease); err == nil || !lease.Valid() {
			t.Errorf("a lease under a session: %v", err)
		}
		d.Key = "u"
		if _, err := detached.Attach(t.Context(), under, d); err == nil {
			t.Error("attached under a session")
		}
		release(t, lease)
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDetachLost: a lease that was lost, or is lost while it is detached, is not detached and needs
// no release.
func TestDetachLost(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLockOf(t, st, "first")
		lease := acquire(t, lock)
		slept.Store(int64(2 * time.Minute)) // no timer has noticed
		if _, err := detached.From(t.Context(), lease); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("%v", err)
		}
		if err := lock.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		lease = acquire(t, lock)
		st.Inject(faultstore.Fault{Kind: faultstore.LostRequest})
		time.Sleep(25 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := detached.From(ctx, lease); !errors.Is(err, context.DeadlineExceeded) || lease.Valid() {
			t.Errorf("%v", err)
		}
		st.Clear()
		if err := lock.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		other, err := newLockOf(t, st, "other").TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("it was not freed: %v", err)
		}
		release(t, other)
	})
}

// TestDetachAfterItsContext: a process that ends because its context did still detaches its lease, even
// while a renewal is in flight.
func TestDetachAfterItsContext(t *testing.T) {
	detachable(t)
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		first := newLockOf(t, st, "first")
		lease := acquire(t, first)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Delay: 3 * time.Second})
		time.Sleep(21 * time.Second) // it is renewed every 20 s
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d, err := detached.From(ctx, lease)
		if err != nil {
			t.Fatal(err)
		}
		if err = detached.Release(t.Context(), newLockOf(t, st, "second"), d); err != nil {
			t.Error(err)
		}
	})
}

// TestDetachInDo: work that detaches its lease has not lost it.
func TestDetachInDo(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		lock := newLockOf(t, memstore.New(), "first")
		var d detached.Lease
		err := lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) (err error) {
			d, err = detached.From(ctx, lease)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err = detached.Release(t.Context(), lock, d); err != nil {
			t.Error(err)
		}
	})
}

// TestAttachIsHeld: a Lock that holds a lease takes no other, and says so.
func TestAttachIsHeld(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		lock := newLockOf(t, st, "first")
		d := detach(t, lock)
		lease, err := detached.Attach(t.Context(), lock, d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = detached.Attach(t.Context(), lock, d); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("%v", err)
		}
		release(t, lease)
		if _, err = detached.Attach(t.Context(), lock, d); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("%v", err)
		}
	})
}

// TestDetachedIsDocumented: docs/requests.md says what is counted.
func TestDetachedIsDocumented(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		columns, rows := documented(t, "docs/requests.md", "## Detached leases")
		st := newStore()
		release(t, acquire(t, newLockOf(t, st, "before")))
		var d detached.Lease
		var err error
		counted := 0
		for _, c := range []struct {
			what string
			f    func()
		}{
			{"acquire and detach", func() { d = detach(t, newLockOf(t, st, "first")) }},
			{"renew", func() { d, err = detached.Renew(t.Context(), newLockOf(t, st, "second"), d, nil) }},
			{"renew after another copy has renewed", func() {
				stale := d
				stale.Token++
				if _, e := detached.Renew(t.Context(), newLockOf(t, st, "copy"), stale, nil); !errors.Is(e, leasehold.ErrLost) {
					t.Error(e)
				}
			}},
			{"attach", func() {
				var lease *leasehold.Lease
				if lease, err = detached.Attach(t.Context(), newLockOf(t, st, "third"), d); err == nil {
					d, err = detached.From(t.Context(), lease)
				}
			}},
			{"release", func() { err = detached.Release(t.Context(), newLockOf(t, st, "fourth"), d) }},
		} {
			got := cost(st, c.f)
			if err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			for i, layout := range columns {
				if leasetest.ParseWay(layout) != here() {
					continue
				}
				counted++
				if want := letters(t, rows[c.what][i]); got != want {
					t.Errorf("%s, %s: the document says %v, and it took %v", c.what, layout, want, got)
				}
			}
		}
		if counted != len(rows) {
			t.Errorf("%d of %d rows were counted", counted, len(rows))
		}
	})
}

// TestRenewDetachedForLess: a renewal for a shorter TTL may have landed from the moment in which it is
// sent, so what is kept before it says no more than that (rule A7).
func TestRenewDetachedForLess(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		d := detach(t, newLockOf(t, st, "first"))
		short, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var kept detached.Lease
		next, err := detached.Renew(t.Context(), short, d, func(d detached.Lease) error { kept = d; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if !kept.ExpiresAt.Equal(next.ExpiresAt) || !kept.ExpiresAt.Before(d.ExpiresAt) || next.TTL != 10*time.Second || next.Holder != "first" {
			t.Errorf("kept until %v, renewed until %v, before that %v, %+v", kept.ExpiresAt, next.ExpiresAt, d.ExpiresAt, next)
		}
		if _, err = detached.Renew(t.Context(), short, next, func(detached.Lease) error { return errors.New("no room") }); err == nil || err.Error() != "no room" {
			t.Errorf("it was sent though it could not be kept: %v", err)
		}
		if err = detached.Release(t.Context(), short, next); err != nil {
			t.Error(err)
		}
	})
}
