package admin_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestBreak(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		lock := newLock(t, st, nil)
		if !here().Tokens() {
			lease := acquire(t, lock)
			if _, err := admin.Break(t.Context(), lock, lease.Token()); !errors.Is(err, admin.ErrNoTokens) || !lease.Valid() {
				t.Errorf("broken without a token: %v", err)
			}
			release(t, lease)
			return
		}
		if _, err := admin.Break(t.Context(), lock, 1); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		lease := acquire(t, lock)
		other := newLock(t, st, nil)
		if _, err := admin.Break(t.Context(), other, lease.Token()+1); !errors.Is(err, admin.ErrTokenChanged) {
			t.Errorf("got %v", err)
		}
		info, err := admin.Break(t.Context(), other, lease.Token())
		if err != nil || info.Held || info.Token != lease.Token() {
			t.Fatalf("%+v, %v", info, err)
		}
		if _, err := admin.Break(t.Context(), other, lease.Token()); err != nil {
			t.Errorf("broken twice: %v", err)
		}
		next := acquire(t, other)
		<-lease.Done() // it notices at its next renewal
		if !errors.Is(lease.Err(), leasehold.ErrLost) || !next.Valid() {
			t.Errorf("the former holder: %v; the next: %v", lease.Err(), next.Err())
		}
		_ = lease.Release(t.Context())
		release(t, next)
	})
}

// What Break writes is an attempt of its own (rule A2), and keeps the token (rule A3).
func TestBreakWritesAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		lease := acquire(t, lock)
		before := recordIn(t, st, lock.Key())
		breakLock(t, lock)
		after := recordIn(t, st, lock.Key())
		if after.WriteID == before.WriteID || after.WriteID == "" || after.Token != before.Token || after.Held || after.Ended != "broken" {
			t.Errorf("from %+v it made %+v", before, after)
		}
		_ = lease.Release(t.Context())
	})
}

// A lock that has changed hands while Break was at work is not the one that it was to free,
// even if it is free.
func TestBreakOfAnother(t *testing.T) {
	needs(t, here().Tokens(), admin.ErrNoTokens.Error())
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		lock := newLock(t, inner, nil)
		lease := acquire(t, lock)
		once := true
		st := &told{Store: inner, read: func() {
			if once {
				once = false
				release(t, lease)
				release(t, acquire(t, lock))
			}
		}}
		info, err := admin.Break(t.Context(), newLock(t, st, nil), lease.Token())
		if err == nil {
			t.Errorf("it has broken %+v", info)
		}
	})
}

// A lock whose token is another is left as it is.
func TestBreakLooksAtTheToken(t *testing.T) {
	needs(t, here().Tokens(), admin.ErrNoTokens.Error())
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		lease := acquire(t, lock)
		for _, token := range []leasehold.Token{lease.Token() - 1, lease.Token() + 1, leasehold.NoToken} {
			got := cost(st, func() {
				if _, err := admin.Break(t.Context(), lock, token); err == nil {
					t.Errorf("broken by the token %v: %v", token, err)
				}
			})
			if got.put > 0 {
				t.Errorf("by the token %v: %v", token, got)
			}
		}
		time.Sleep(time.Minute)
		if !lease.Valid() {
			t.Errorf("the lease is over: %v", lease.Err())
		}
		release(t, lease)
	})
}

// Between the look and the write of who breaks a lock, another has broken and taken it.
func TestBreakIsOvertaken(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no token to break it by")
	bubble(t, func(t *testing.T) {
		mem := memstore.New()
		st := &told{Store: mem}
		first := acquire(t, newLock(t, mem, nil))
		breaker := newLock(t, st, nil)
		var next *leasehold.Lease
		st.read = func() {
			st.read = nil
			if _, err := admin.Break(t.Context(), newLock(t, mem, nil), first.Token()); err != nil {
				t.Error(err)
			}
			next = acquire(t, newLock(t, mem, nil))
		}
		if info, err := admin.Break(t.Context(), breaker, first.Token()); err == nil {
			t.Errorf("broken: %+v", info)
		}
		if info, _ := breaker.Inspect(t.Context()); !info.Held || info.Token != next.Token() {
			t.Errorf("%+v", info)
		}
		_ = first.Release(t.Context())
		release(t, next)
	})
}

// TestBreakCosts: one read and one write, over what is there, and no write if it is free already.
func TestBreakCosts(t *testing.T) {
	for l, want := range map[leasehold.Layout]requests{
		leasehold.LayoutObject:        {get: 1, put: 1},
		leasehold.LayoutEpochsIfMatch: {get: 1, put: 1, list: 1},
	} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l})
			lease := acquire(t, lock)
			before := objects(t, st)
			do := func() {
				t.Helper()
				if info, err := admin.Break(t.Context(), lock, lease.Token()); err != nil || info.Held || info.Token != lease.Token() || info.Key != lock.Key() {
					t.Errorf("%s: %+v, %v", l, info, err)
				}
			}
			if got := cost(st, do); got != want || len(objects(t, st)) != len(before) {
				t.Errorf("%s: it made %v, want %v, and left %q of %q", l, got, want, objects(t, st), before)
			}
			want.put = 0
			if got := cost(st, do); got != want {
				t.Errorf("%s, again: it made %v, want %v", l, got, want)
			}
			_ = lease.Release(t.Context())
		})
	}
}

// TestBreakWhoseAnswerIsLost: it looks what became of its write, and says so.
func TestBreakWhoseAnswerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, landed := range []bool{true, false} {
			for _, seen := range []bool{true, false} {
				st := newStore()
				lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
				lease := acquire(t, lock)
				kind := faultstore.LostAnswer
				if !landed {
					kind = faultstore.LostRequest
				}
				st.Inject(faultstore.Fault{Kind: kind, Op: "put", Nth: 1})
				if !seen {
					st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Nth: 2})
				}
				info, err := admin.Break(t.Context(), lock, lease.Token())
				if works := landed && seen; works != (err == nil) || works != (info.Token == lease.Token()) || info.Held {
					t.Errorf("landed %v, seen %v: %+v, %v", landed, seen, info, err)
				}
				st.Clear()
				_ = lease.Release(t.Context())
			}
		}
	})
}

// TestBreakWithoutToken: there is none to break a marker by, nor a lock that is named without one.
func TestBreakWithoutToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, l := range leasehold.Layouts {
			st := newStore()
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l})
			lease := acquire(t, lock)
			for _, token := range []leasehold.Token{leasehold.NoToken, 7} {
				want := admin.ErrNoTokens
				if l.Tokens() && token != leasehold.NoToken {
					want = admin.ErrTokenChanged
				}
				if _, err := admin.Break(t.Context(), lock, token); !errors.Is(err, want) {
					t.Errorf("%s by the token %v: want %v, got %v", l, token, want, err)
				}
			}
			release(t, lease)
		}
	})
}

// TestBreakUnderASession: a lock under a session is broken by ending that, so that its holder
// learns of it.
func TestBreakUnderASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
		lease, other := a.acquire("shards/1"), a.acquire("shards/2")
		if _, err := admin.Break(t.Context(), b.lock("shards/1"), lease.Token()+1); !errors.Is(err, admin.ErrTokenChanged) {
			t.Errorf("Break with another token: %v", err)
		}
		info, err := admin.Break(t.Context(), b.lock("shards/1"), lease.Token())
		if err != nil || info.Held || info.Session != "" {
			t.Errorf("Break: %+v, %v", info, err)
		}
		time.Sleep(protocol.Renewal(15*time.Second) + time.Second)
		if lease.Valid() || other.Valid() || !errors.Is(a.session.Err(), leasehold.ErrSessionOver) {
			t.Errorf("a renewal later the holder goes on: %v, %v", lease.Err(), a.session.Err())
		}
		if next := b.acquire("shards/1"); next.Token() <= lease.Token() {
			t.Errorf("token %v after %v", next.Token(), lease.Token())
		}
		a.end()
		b.end()
	})
}

// A session that is to be ended by hand is tried three times, since its holder may be faster with a
// heartbeat, and no more often.
func TestBreakAgainstHeartbeats(t *testing.T) {
	for faster := range 4 {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			a := startProcess(t, inner, "a")
			lease := a.acquire("shards/1")
			tries := 0
			st := newStoreOver(&told{Store: inner, put: func(key string) {
				if key != a.session.Key() {
					return
				}
				if tries++; tries > faster {
					return
				}
				obj, err := inner.Get(t.Context(), key, "")
				if err == nil {
					_, err = inner.Put(t.Context(), key, obj.Body, store.IfMatch(obj.Version))
				}
				if err != nil {
					t.Error(err)
				}
			}})
			_, err := admin.Break(t.Context(), lockOf(t, st, "shards/1", nil), lease.Token())
			if wants := min(faster+1, 3); tries != wants || requestsFor(st, a.session.Key()) != 2*wants || (err == nil) != (faster < 3) {
				t.Errorf("its holder was faster %d times: %d writes, want %d, and %v: %v", faster, tries, wants, err, st.Log())
			}
			a.close()
		})
	}
}

// A lock whose session is over, deleted or not, is broken without a write to that. If nobody knows whether
// it is over, the lock is left as it is.
func TestBreakUnderASessionThatIsOver(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			a := startProcess(t, inner, "a")
			lease := a.acquire("shards/1")
			key := a.session.Key()
			a.close()
			if deleted {
				if err := inner.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			st := newStoreOver(inner)
			lock := lockOf(t, st, "shards/1", nil)
			st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, When: func(c faultstore.Call) bool { return c.Key == key }})
			if info, err := admin.Break(t.Context(), lock, lease.Token()); !errors.Is(err, store.ErrUnavailable) || !info.Held {
				t.Errorf("not knowing: %+v, %v", info, err)
			}
			st.Clear()
			st.Reset()
			if info, err := admin.Break(t.Context(), lock, lease.Token()); err != nil || info.Held {
				t.Errorf("%+v, %v", info, err)
			}
			if n := requestsFor(st, key); n != 1 {
				t.Errorf("%d requests about a session that is over: %v", n, st.Log())
			}
		})
	}
}
