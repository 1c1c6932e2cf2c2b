package leasehold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
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
func detach(t *testing.T, lock *leasehold.Lock) leasehold.Detached {
	t.Helper()
	lease := acquire(t, lock)
	d, err := lease.Detach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.Store = "" // it is told anew with each fault
	return d
}

// copied is what another process reads.
func copied(t *testing.T, d leasehold.Detached) leasehold.Detached {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	again, err := leasehold.ParseDetached(text)
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
		d, err := lease.Detach(t.Context())
		if err != nil || len(st.Log()) > 0 {
			t.Fatalf("%v, %v", err, st.Log())
		}
		if lease.Valid() || !errors.Is(lease.Err(), leasehold.ErrDetached) || !errors.Is(context.Cause(lease.Context()), leasehold.ErrDetached) {
			t.Errorf("the lease goes on: %v", lease.Err())
		}
		if err = lease.Release(t.Context()); err != nil || len(st.Log()) > 0 {
			t.Errorf("its release: %v, %v", err, st.Log())
		}
		if _, err = lease.Detach(t.Context()); !errors.Is(err, leasehold.ErrDetached) {
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
		second, err := newLockOf(t, st, "second").Attach(t.Context(), copied(t, d))
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
		_, err := late.Attach(t.Context(), d)
		if !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("attached: %v", err)
		}
		if _, err = late.RenewDetached(t.Context(), d, nil); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("renewed: %v", err)
		}
		if err = late.ReleaseDetached(t.Context(), d); !errors.Is(err, leasehold.ErrLost) {
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
		if _, err := lock.Attach(t.Context(), d); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("attached: %v", err)
		}
		if _, err := lock.RenewDetached(t.Context(), d, nil); !errors.Is(err, leasehold.ErrLost) || count(st, "put") > 0 {
			t.Errorf("renewed: %v", err)
		}
		if err := lock.ReleaseDetached(t.Context(), d); !errors.Is(err, leasehold.ErrLost) {
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
			var last atomic.Pointer[leasehold.Detached]
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() {
					time.Sleep(time.Duration(i*(round%4)) * 20 * time.Millisecond)
					lock := newLockOf(t, st, fmt.Sprintf("copy-%d", i))
					next, err := lock.RenewDetached(t.Context(), copied(t, d), nil)
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
			if err := newLockOf(t, st, "end").ReleaseDetached(t.Context(), *last.Load()); err != nil {
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
				var kept leasehold.Detached
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := newLockOf(t, st, "cut").RenewDetached(ctx, d, func(d leasehold.Detached) error {
					kept = copied(t, d)
					return nil
				})
				unsettled, ok := errors.AsType[*leasehold.UnsettledError](err)
				if !ok || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%v", err)
				}
				st.Clear()
				if name == "its write lands later" {
					st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Delay: 10 * time.Millisecond})
				}
				next, err := newLockOf(t, st, "next").RenewDetached(t.Context(), kept, nil)
				if err != nil {
					t.Fatalf("what was kept does not go on: %v", err)
				}
				if _, err := newLockOf(t, st, "error").RenewDetached(t.Context(), unsettled.Detached, nil); !errors.Is(err, leasehold.ErrLost) {
					t.Errorf("and so does another copy: %v", err)
				}
				if err := newLockOf(t, st, "end").ReleaseDetached(t.Context(), next); err != nil {
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
			if _, err := lease.Detach(t.Context()); err == nil || !lease.Valid() {
				t.Errorf("a marker's lease: %v", err)
			}
			release(t, lease)
			return
		}
		d, err := lease.Detach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.Reset()
		for name, change := range map[string]func(*leasehold.Detached){
			"key":      func(d *leasehold.Detached) { d.Key = "other" },
			"layout":   func(d *leasehold.Detached) { d.Layout = leasehold.LayoutMarker },
			"if-match": func(d *leasehold.Detached) { d.NoIfMatch = !d.NoIfMatch },
			"store":    func(d *leasehold.Detached) { d.Store = "mem://other" },
			"nothing":  func(d *leasehold.Detached) { *d = leasehold.Detached{Key: d.Key, Layout: d.Layout} },
			"released": func(d *leasehold.Detached) { d.Released = true },
		} {
			other := d
			change(&other)
			if _, err = lock.Attach(t.Context(), other); err == nil || errors.Is(err, leasehold.ErrForeignLease) == (name == "released") {
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
		if _, err = lead.Detach(t.Context()); err == nil || !lead.Valid() {
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
		if _, err := lease.Detach(t.Context()); err == nil || !lease.Valid() {
			t.Errorf("a lease under a session: %v", err)
		}
		d.Key = "u"
		if _, err := under.Attach(t.Context(), d); err == nil {
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
		if _, err := lease.Detach(t.Context()); !errors.Is(err, leasehold.ErrLost) {
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
		if _, err := lease.Detach(ctx); !errors.Is(err, context.DeadlineExceeded) || lease.Valid() {
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
		d, err := lease.Detach(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err = newLockOf(t, st, "second").ReleaseDetached(t.Context(), d); err != nil {
			t.Error(err)
		}
	})
}

// TestDetachInDo: work that detaches its lease has not lost it.
func TestDetachInDo(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		lock := newLockOf(t, memstore.New(), "first")
		var d leasehold.Detached
		err := lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) (err error) {
			d, err = lease.Detach(ctx)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err = lock.ReleaseDetached(t.Context(), d); err != nil {
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
		lease, err := lock.Attach(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = lock.Attach(t.Context(), d); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("%v", err)
		}
		release(t, lease)
		if _, err = lock.Attach(t.Context(), d); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("%v", err)
		}
	})
}

// TestDetachedJSON: what is read is what was written, and anything else says what is wrong with it.
func TestDetachedJSON(t *testing.T) {
	t.Parallel()
	const plain = `{"format":1,"key":"jobs/backup","holder":"ci","token":42,"ttl_ms":60000,` +
		`"acquired_at":"2026-11-20T10:30:45Z","expires_at":"2026-11-20T10:31:40Z","store":"mem://","layout":"epochs","no_if_match":true,"write_id":"0f9c.7","pending":["0f9c-1"]}`
	d, err := leasehold.ParseDetached([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	if text, err = json.Marshal(d); err != nil || string(text) != plain {
		t.Errorf("%s, %v", text, err)
	}
	if _, err = leasehold.ParseDetached([]byte(strings.TrimSuffix(plain, "}") + `,"colour":"red","Token":7}`)); err != nil {
		t.Errorf("a field of a later version: %v", err)
	}
	for _, c := range []struct{ from, to, says string }{
		{plain, "", "not a JSON object"},
		{plain, plain + plain, "something follows"},
		{`"format":1`, `"format":2`, "made by a later version, and this one knows formats up to 1: upgrade"},
		{`"format":1`, `"format":0`, "does not exist"},
		{`"format":1,`, ``, "no format"},
		{`"token":42`, `"token":42,"token":43`, "twice"},
		{`"token":42`, `"Token":42`, "no token"},
		{`"token":42`, `"token":"42"`, "token"},
		{`"token":42`, `"token":0`, "token 0"},
		{`"ttl_ms":60000`, `"ttl_ms":1`, "TTL"},
		{`"key":"jobs/backup"`, `"key":""`, "key is empty"},
		{`"layout":"epochs"`, `"layout":"marker"`, `layout is "marker"`},
		{`"layout":"epochs"`, `"layout":"other"`, `layout is "other"`},
		{`"layout":"epochs"`, `"layout":"object"`, `layout is "object", which needs If-Match`},
		{`"no_if_match":true`, `"no_if_match":"yes"`, "no_if_match"},
		{`"write_id":"0f9c.7"`, `"write_id":""`, "write ID"},
		{`["0f9c-1"]`, `[""]`, "write ID"},
		{`["0f9c-1"]`, `["1","2","3","4","5","6","7","8","9"]`, "9 pending"},
		{`"expires_at":"2026-11-20T10:31:40Z",`, ``, "no expires_at"},
		{`"expires_at":"2026-11-20T10:31:40Z"`, `"expires_at":"tomorrow"`, "tomorrow"},
	} {
		text := strings.Replace(plain, c.from, c.to, 1)
		if text == plain {
			t.Fatalf("no %s", c.from)
		}
		if _, err := leasehold.ParseDetached([]byte(text)); !errors.Is(err, leasehold.ErrForeignLease) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDetachedIsDocumented: docs/requests.md says what is counted.
func TestDetachedIsDocumented(t *testing.T) {
	detachable(t)
	bubble(t, func(t *testing.T) {
		columns, rows := documented(t, "docs/requests.md", "## Detached leases")
		st := newStore()
		release(t, acquire(t, newLockOf(t, st, "before")))
		var d leasehold.Detached
		var err error
		counted := 0
		for _, c := range []struct {
			what string
			f    func()
		}{
			{"acquire and detach", func() { d = detach(t, newLockOf(t, st, "first")) }},
			{"renew", func() { d, err = newLockOf(t, st, "second").RenewDetached(t.Context(), d, nil) }},
			{"renew after another copy has renewed", func() {
				stale := d
				stale.Token++
				if _, e := newLockOf(t, st, "copy").RenewDetached(t.Context(), stale, nil); !errors.Is(e, leasehold.ErrLost) {
					t.Error(e)
				}
			}},
			{"attach", func() {
				var lease *leasehold.Lease
				if lease, err = newLockOf(t, st, "third").Attach(t.Context(), d); err == nil {
					d, err = lease.Detach(t.Context())
				}
			}},
			{"release", func() { err = newLockOf(t, st, "fourth").ReleaseDetached(t.Context(), d) }},
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
		var kept leasehold.Detached
		next, err := short.RenewDetached(t.Context(), d, func(d leasehold.Detached) error { kept = d; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if !kept.ExpiresAt.Equal(next.ExpiresAt) || !kept.ExpiresAt.Before(d.ExpiresAt) || next.TTL != 10*time.Second || next.Holder != "first" {
			t.Errorf("kept until %v, renewed until %v, before that %v, %+v", kept.ExpiresAt, next.ExpiresAt, d.ExpiresAt, next)
		}
		if _, err = short.RenewDetached(t.Context(), next, func(leasehold.Detached) error { return errors.New("no room") }); err == nil || err.Error() != "no room" {
			t.Errorf("it was sent though it could not be kept: %v", err)
		}
		if err = short.ReleaseDetached(t.Context(), next); err != nil {
			t.Error(err)
		}
	})
}

// FuzzDetached: whatever a lease file has, it is refused as one, or it is a lease that is written and read again as it
// is.
func FuzzDetached(f *testing.F) {
	f.Add([]byte(`{"format":1,"key":"jobs/a","holder":"me","token":7,"ttl_ms":60000,"acquired_at":"2026-01-02T03:04:05Z","expires_at":"2026-01-02T03:05:05Z","store":"mem","layout":"object","write_id":"x"}`))
	f.Add([]byte(`{"format":1,"key":"a","token":1,"ttl_ms":1,"expires_at":"2026-01-02T03:05:05Z","layout":"epochs","write_id":"x","released":true,"pending":["y"],"url":"s3://b"}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"Token":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := leasehold.ParseDetached(text)
		if err != nil {
			if !errors.Is(err, leasehold.ErrForeignLease) || !reflect.DeepEqual(d, leasehold.Detached{}) {
				t.Errorf("%+v, %v", d, err)
			}
			return
		}
		if d.Token < 1 || d.TTL <= 0 || d.Key == "" {
			t.Errorf("accepted %+v", d)
		}
		again, err := d.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := leasehold.ParseDetached(again); err != nil || !reflect.DeepEqual(back, d) {
			t.Errorf("%+v is written as %s and read as %+v, %v", d, again, back, err)
		}
	})
}
