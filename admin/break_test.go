package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/semaphore"
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
	for l, want := range map[leasetest.Way]requests{
		leasetest.Object: {get: 1, put: 1},
		leasetest.Epochs: {get: 1, put: 1, list: 1},
	} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			lock := newLock(t, st, l.Options())
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

// TestBreakOfARest: a lock that rests is free at once, if the write has landed.
func TestBreakOfARest(t *testing.T) {
	needs(t, here().Tokens(), "a marker that is released is gone, and cannot rest")
	bubble(t, func(t *testing.T) {
		for _, c := range []struct {
			faults []faultstore.Fault
			works  bool
		}{
			{nil, true},
			{[]faultstore.Fault{{Kind: faultstore.LostAnswer, Op: "put", Nth: 1}}, true},
			{[]faultstore.Fault{{Kind: faultstore.LostRequest, Op: "put", Nth: 1}}, false},
		} {
			st := newStore()
			lease, err := newLock(t, st, nil).Acquire(t.Context(), leasehold.WithHoldAtLeast(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			release(t, lease)
			st.Inject(c.faults...)
			other := newLock(t, st, nil)
			info, err := admin.Break(t.Context(), other, lease.Token())
			if (err == nil) != c.works || info.Rest != 0 || c.works != (info.Token == lease.Token()) {
				t.Errorf("%v: %+v, %v", c.faults, info, err)
			}
			next, err := other.TryAcquire(t.Context())
			if (err == nil) != c.works {
				t.Errorf("%v: whoever comes next gets %v", c.faults, err)
			}
			if err == nil {
				release(t, next)
			}
		}
	})
}

// TestBreakWithoutToken: there is none to break a marker by, nor a lock that is named without one.
func TestBreakWithoutToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, l := range leasetest.Ways {
			st := newStore()
			lock := newLock(t, st, l.Options())
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

// A user is a process that takes slots in the semaphore jobs/s, of three.
type user struct {
	*semaphore.Semaphore
	net *faultstore.Store
}

func newUser(t *testing.T, st store.Store, name string) *user {
	t.Helper()
	return newPatient(t, st, name, leasehold.DefaultTTL)
}

// newPatient is one with another TTL: see startPatient.
func newPatient(t *testing.T, st store.Store, name string, ttl time.Duration) *user {
	t.Helper()
	net := newStoreOver(st)
	s, err := semaphore.New(net, "jobs/s", 3, &semaphore.Options{Holder: name, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return &user{s, net}
}

func (u *user) take(t *testing.T, weight int) *leasehold.Lease {
	t.Helper()
	l, err := u.Acquire(t.Context(), weight)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// end ends a user in order.
func (u *user) end(t *testing.T, leases ...*leasehold.Lease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Release(t.Context()); err != nil && !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
	}
	if err := u.Close(t.Context()); err != nil && !errors.Is(err, leasehold.ErrLost) {
		t.Error(err)
	}
}

// entriesOf names the holders and the waiters, in order, each that looks to be gone with a mark.
func entriesOf(e admin.Entry) (holders, waiters []string) {
	names := func(entries []leasehold.Entry) (all []string) {
		for _, s := range entries {
			text := fmt.Sprintf("%s %d", s.Holder, s.Weight)
			if s.Abandoned {
				text += " gone"
			}
			all = append(all, text)
		}
		return all
	}
	return names(e.Holders), names(e.Waiters)
}

// A semaphore is found as one, by Inspect and by List, with who holds slots, who waits, and who of them
// looks to be gone. It used to be shown as an object that is not understood.
func TestSemaphores(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a, b, c := newUser(t, st, "a"), newUser(t, st, "b"), newUser(t, st, "c")
		check := func(held, abandoned bool, holders, waiters []string) {
			t.Helper()
			e, err := admin.Inspect(t.Context(), st, "jobs/s")
			if err != nil || e.Layout != admin.LayoutTable || e.Size != 3 {
				t.Fatalf("it is said %+v, %v", e, err)
			}
			if !e.Exists || e.Held != held || e.Abandoned != abandoned || e.Token == leasehold.NoToken || e.Version == "" {
				t.Errorf("it is said %+v", e)
			}
			if h, w := entriesOf(e); !slices.Equal(h, holders) || !slices.Equal(w, waiters) {
				t.Errorf("held by %q, and %q wait; want %q and %q", h, w, holders, waiters)
			}
			for listed, err := range admin.List(t.Context(), st, "jobs/") {
				if h, w := entriesOf(listed); err != nil || listed.Key != "jobs/s" || !slices.Equal(h, holders) || !slices.Equal(w, waiters) || listed.Abandoned != abandoned {
					t.Errorf("listed: %+v, %v", listed, err)
				}
			}
		}
		held, other := a.take(t, 1), b.take(t, 1)
		told := make(chan error, 1)
		waiting, giveUp := context.WithCancel(t.Context())
		go func() {
			_, err := c.Acquire(waiting, 2)
			told <- err
		}()
		time.Sleep(time.Second)
		check(true, false, []string{"a 1", "b 1"}, []string{"c 2"})
		if spent := cost(st, func() { _, _ = admin.Inspect(t.Context(), st, "jobs/s") }); spent != (requests{get: 1 + 3, list: 1}) {
			t.Errorf("it took %+v", spent)
		}
		c.net.Partition(true) // nobody takes out what is dead
		b.net.Partition(true)
		time.Sleep(time.Minute)
		check(true, false, []string{"a 1", "b 1 gone"}, []string{"c 2 gone"})
		a.net.Partition(true)
		time.Sleep(time.Minute)
		check(true, true, []string{"a 1 gone", "b 1 gone"}, []string{"c 2 gone"})
		giveUp()
		if err := <-told; !errors.Is(err, context.Canceled) {
			t.Errorf("who waited is told %v", err)
		}
		for _, u := range []*user{a, b, c} {
			u.net.Partition(false)
		}
		c.end(t)
		a.end(t, held)
		b.end(t, other)
		last := newUser(t, st, "d")
		last.end(t, last.take(t, 3))
		check(false, false, nil, nil)
	})
}

// BreakHolder frees the slots of the one holder that it names, and they go to whoever waits by the same
// write. The others keep theirs, but for those under the same session.
func TestBreakHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		if _, err := admin.BreakHolder(t.Context(), st, "jobs/s", 1); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("of none: %v", err)
		}
		a, b, c := newUser(t, st, "a"), newUser(t, st, "b"), newUser(t, st, "c")
		one := a.take(t, 1)
		if e, err := admin.BreakHolder(t.Context(), st, "jobs/s", one.Token()+1); !errors.Is(err, admin.ErrTokenChanged) || !e.Held {
			t.Errorf("of another token than the only one: %+v, %v", e, err)
		}
		two, other := a.take(t, 1), b.take(t, 1)
		waited := make(chan *leasehold.Lease, 1)
		go func() {
			l, err := c.Acquire(t.Context(), 2)
			if err != nil {
				t.Error(err)
			}
			waited <- l
		}()
		time.Sleep(time.Second)
		if e, err := admin.BreakHolder(t.Context(), st, "jobs/s", other.Token()+1); !errors.Is(err, admin.ErrTokenChanged) || e.Size == 0 || len(e.Holders) != 3 {
			t.Errorf("of another token: %+v, %v", e, err)
		}
		a.net.Partition(true) // a does not know, until its session has run out
		var e admin.Entry
		spent := cost(st, func() {
			var err error
			e, err = admin.BreakHolder(t.Context(), st, "jobs/s", one.Token())
			if h, w := entriesOf(e); err != nil || !slices.Equal(h, []string{"b 1", "c 2"}) || w != nil || !e.Held {
				t.Errorf("held by %q, and %q wait: %v", h, w, err)
			}
		})
		if spent != (requests{get: 2, put: 2}) {
			t.Errorf("it took %+v", spent)
		}
		if o, err := st.Get(t.Context(), "jobs/s", ""); err != nil || !e.Exists || e.Version != o.Version {
			t.Errorf("it returns %+v, and there is %v, %v", e, o, err)
		}
		l := <-waited
		if !other.Valid() || !l.Valid() {
			t.Error("the others have lost theirs")
		}
		a.net.Partition(false)
		time.Sleep(leasehold.DefaultTTL) // a heartbeat of a's is due by then
		if !errors.Is(one.Err(), leasehold.ErrLost) || !errors.Is(two.Err(), leasehold.ErrLost) {
			t.Errorf("%v, %v", one.Err(), two.Err())
		}
		b.end(t, other)
		c.end(t, l)
		if e, err := admin.BreakHolder(t.Context(), st, "jobs/s", one.Token()); err != nil || e.Held {
			t.Errorf("of one that nobody holds: %+v, %v", e, err)
		}
		a.end(t, one, two)
	})
}

// A write of others that comes first does not keep BreakHolder from it.
func TestBreakHolderIsOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := memstore.New()
		a, b := newUser(t, mem, "a"), newUser(t, mem, "b")
		held := a.take(t, 1)
		joined := make(chan *leasehold.Lease)
		st := faultstore.Wrap(mem, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: time.Second, Op: "put", Key: "jobs/s", Nth: 1}}})
		go func() {
			time.Sleep(500 * time.Millisecond)
			joined <- b.take(t, 1)
		}()
		e, err := admin.BreakHolder(t.Context(), st, "jobs/s", held.Token())
		if h, _ := entriesOf(e); err != nil || !slices.Equal(h, []string{"b 1"}) {
			t.Errorf("held by %q: %v", h, err)
		}
		b.end(t, <-joined)
		a.end(t, held)
	})
}

// BreakHolder tries three times, since others write the object too, and ends the session once.
func TestBreakHolderAgainstWrites(t *testing.T) {
	for faster := range 4 {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			a := newUser(t, inner, "a")
			held := a.take(t, 1)
			tries := 0
			st := newStoreOver(&told{Store: inner, put: func(key string) {
				if key != "jobs/s" {
					return
				}
				if tries++; tries > faster {
					return
				}
				o, err := inner.Get(t.Context(), key, "")
				if err == nil {
					_, err = inner.Put(t.Context(), key, o.Body, store.IfMatch(o.Version))
				}
				if err != nil {
					t.Error(err)
				}
			}})
			e, err := admin.BreakHolder(t.Context(), st, "jobs/s", held.Token())
			if wants := min(faster+1, 3); tries != wants || (err == nil) != (faster < 3) || e.Held != (faster == 3) || st.Counts() != (faultstore.Counts{Get: wants + 1, Put: wants + 1}) {
				t.Errorf("others were faster %d times: %d writes, want %d, and %+v, %v: %v", faster, tries, wants, e, err, st.Log())
			}
			a.end(t, held)
		})
	}
}

// BreakHolder has nothing left to do if somebody else removes the slots that it was to free.
func TestBreakHolderTwiceAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a, b := newUser(t, inner, "a"), newUser(t, inner, "b")
		held, other := a.take(t, 1), b.take(t, 1)
		st := &told{Store: inner}
		st.put = func(key string) {
			if key != "jobs/s" {
				return
			}
			st.put = nil
			if _, err := admin.BreakHolder(t.Context(), inner, "jobs/s", held.Token()); err != nil {
				t.Error(err)
			}
		}
		e, err := admin.BreakHolder(t.Context(), st, "jobs/s", held.Token())
		if h, _ := entriesOf(e); err != nil || !slices.Equal(h, []string{"b 1"}) {
			t.Errorf("held by %q: %v", h, err)
		}
		a.end(t, held)
		b.end(t, other)
	})
}

// BreakHolder leaves the slots alone if it cannot end their session: the holder still works.
func TestBreakHolderWhoseSessionGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := newUser(t, inner, "a")
		held := a.take(t, 1)
		st := newStoreOver(inner)
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Key: "sessions/*", Op: "put"})
		before := versionsIn(t, inner)
		e, err := admin.BreakHolder(t.Context(), st, "jobs/s", held.Token())
		if !errors.Is(err, store.ErrDenied) || !e.Held || !held.Valid() || !slices.Equal(versionsIn(t, inner), before) {
			t.Errorf("%+v, %v: %v", e, err, st.Log())
		}
		a.end(t, held)
	})
}

// Sessions that a semaphore names are not collected while they go on, and those that were over for a day are:
// "not there" means over too, so its slots go to whoever waits.
func TestCollectSessionsOfSemaphores(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a, b, dead := newPatient(t, st, "a", 10*time.Minute), newPatient(t, st, "b", 10*time.Minute), newUser(t, st, "dead")
		held, lost := a.take(t, 1), dead.take(t, 2)
		dead.net.Partition(true)
		collected := func() (keys []string) {
			for c, err := range admin.Collect(t.Context(), st, "", nil) {
				if err != nil {
					t.Error(err)
				}
				keys = append(keys, c.Key)
			}
			return keys
		}
		if got := collected(); got != nil {
			t.Errorf("collected %q", got)
		}
		time.Sleep(25 * time.Hour)
		if got := collected(); got != nil { // the dead one is ended
			t.Errorf("collected %q", got)
		}
		time.Sleep(25 * time.Hour)
		if got := collected(); len(got) != 1 {
			t.Errorf("collected %q", got)
		}
		e, err := admin.Inspect(t.Context(), st, "jobs/s")
		if h, _ := entriesOf(e); err != nil || !slices.Equal(h, []string{"a 1", "dead 2 gone"}) || !held.Valid() {
			t.Errorf("held by %q: %v", h, err)
		}
		began := time.Now()
		l := b.take(t, 2)
		if took := time.Since(began); took > 2*time.Second || !held.Valid() {
			t.Errorf("it took %v to get the slots of one that is over", took)
		}
		b.end(t, l)
		a.end(t, held)
		dead.net.Partition(false)
		dead.end(t, lost)
		synctest.Wait()
	})
}

// TestBreakSession: all the leases under it end, by a read and a write, and others need not wait; what is
// over already, or is no session, is told apart.
func TestBreakSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := newStoreOver(inner)
		a, b := startProcess(t, inner, "a"), startProcess(t, inner, "b")
		leases := []*leasehold.Lease{a.acquire("shards/1"), a.acquire("shards/2")}
		end := func() {
			t.Helper()
			if err := admin.BreakSession(t.Context(), st, a.session.Key()); err != nil {
				t.Error(err)
			}
		}
		if got := cost(st, end); got != (requests{get: 1, put: 1}) {
			t.Errorf("it made %v", got)
		}
		began := time.Now()
		if next := b.acquire("shards/1"); time.Since(began) > 0 || next.Token() <= leases[0].Token() {
			t.Errorf("token %v after %v, and a wait of %v", next.Token(), leases[0].Token(), time.Since(began))
		}
		<-a.session.Done()
		for _, lease := range leases {
			if !errors.Is(lease.Err(), leasehold.ErrBroken) {
				t.Errorf("%s: %v", lease.Key(), lease.Err())
			}
		}
		if got := cost(st, end); got != (requests{get: 1}) {
			t.Errorf("a second time it made %v", got)
		}
		if err := admin.BreakSession(t.Context(), st, "sessions/none"); err != nil {
			t.Errorf("one that is not there: %v", err)
		}
		lock, err := leasehold.NewLock(inner, "other", &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := admin.Init(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		if err := admin.BreakSession(t.Context(), st, "other"); !errors.Is(err, leasehold.ErrForeignObject) {
			t.Errorf("a lock: %v", err)
		}
		a.end()
		b.end()
	})
}

// TestCollectIsGivenUp: when its context ends while it watches sessions, nothing of it goes on.
func TestCollectIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		a.st.Partition(true)
		time.Sleep(25 * time.Hour)
		st := newStoreOver(inner)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		for c, err := range admin.Collect(ctx, st, "", nil) {
			t.Errorf("%+v, %v", c, err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		st.Reset()
		time.Sleep(time.Hour)
		if c := st.Counts(); c.Get+c.Put+c.Delete+c.List > 0 || !recordIn(t, inner, a.session.Key()).Held {
			t.Errorf("it goes on: %+v", c)
		}
		a.st.Partition(false)
		a.end()
	})
}

// TestWhatCannotBeReadIsNotWritten: it may be anything, and the error says why.
func TestWhatCannotBeReadIsNotWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get"})
		_, made, inited := admin.Init(t.Context(), lock)
		_, broken := admin.Break(t.Context(), lock, 1)
		for what, err := range map[string]error{"Init": inited, "Break": broken, "BreakSession": admin.BreakSession(t.Context(), st, "sessions/1")} {
			if !errors.Is(err, store.ErrDenied) || errors.Is(err, store.ErrNotExist) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if c := st.Counts(); made || c.Put+c.Delete > 0 {
			t.Errorf("it has written: made %v, %+v", made, c)
		}
	})
}
