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
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A user is a process that takes seats in the semaphore jobs/s, of three.
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

func (u *user) take(t *testing.T, weight int) *semaphore.Lease {
	t.Helper()
	l, err := u.Acquire(t.Context(), weight)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// end ends a user in order.
func (u *user) end(t *testing.T, leases ...*semaphore.Lease) {
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

// seatsOf names the holders and the waiters, in order, each that looks to be gone with a mark.
func seatsOf(e admin.Entry) (holders, waiters []string) {
	if e.Semaphore == nil {
		return nil, nil
	}
	names := func(seats []semaphore.Seat) (all []string) {
		for _, s := range seats {
			text := fmt.Sprintf("%s %d", s.Holder, s.Weight)
			if s.Abandoned {
				text += " gone"
			}
			all = append(all, text)
		}
		return all
	}
	return names(e.Semaphore.Holders), names(e.Semaphore.Waiters)
}

// A semaphore is found as one, by Inspect and by List, with who holds seats, who waits, and who of them
// looks to be gone. It used to be shown as an object that is not understood.
func TestSemaphores(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a, b, c := newUser(t, st, "a"), newUser(t, st, "b"), newUser(t, st, "c")
		check := func(held, abandoned bool, holders, waiters []string) {
			t.Helper()
			e, err := admin.Inspect(t.Context(), st, "jobs/s")
			if err != nil || e.Semaphore == nil || e.Layout != admin.LayoutTable || e.Semaphore.Size != 3 {
				t.Fatalf("it is said %+v, %v", e, err)
			}
			if !e.Exists || e.Held != held || e.Abandoned != abandoned || e.Token != e.Semaphore.Token || e.Version == "" || e.Version != e.Semaphore.Version {
				t.Errorf("it is said %+v", e)
			}
			if h, w := seatsOf(e); !slices.Equal(h, holders) || !slices.Equal(w, waiters) {
				t.Errorf("held by %q, and %q wait; want %q and %q", h, w, holders, waiters)
			}
			for listed, err := range admin.List(t.Context(), st, "jobs/") {
				if h, w := seatsOf(listed); err != nil || listed.Key != "jobs/s" || !slices.Equal(h, holders) || !slices.Equal(w, waiters) || listed.Abandoned != abandoned {
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

// BreakSeat frees the seats of the one holder that it names, and they go to whoever waits by the same
// write. The others keep theirs, but for those under the same session.
func TestBreakSeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		if _, err := admin.BreakSeat(t.Context(), st, "jobs/s", 1); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("of none: %v", err)
		}
		a, b, c := newUser(t, st, "a"), newUser(t, st, "b"), newUser(t, st, "c")
		one, two, other := a.take(t, 1), a.take(t, 1), b.take(t, 1)
		waited := make(chan *semaphore.Lease, 1)
		go func() {
			l, err := c.Acquire(t.Context(), 2)
			if err != nil {
				t.Error(err)
			}
			waited <- l
		}()
		time.Sleep(time.Second)
		if e, err := admin.BreakSeat(t.Context(), st, "jobs/s", other.Token()+1); !errors.Is(err, admin.ErrTokenChanged) || e.Semaphore == nil || len(e.Semaphore.Holders) != 3 {
			t.Errorf("of another token: %+v, %v", e, err)
		}
		a.net.Partition(true) // a does not know, until its session has run out
		spent := cost(st, func() {
			e, err := admin.BreakSeat(t.Context(), st, "jobs/s", one.Token())
			if h, w := seatsOf(e); err != nil || !slices.Equal(h, []string{"b 1", "c 2"}) || w != nil || !e.Held {
				t.Errorf("held by %q, and %q wait: %v", h, w, err)
			}
		})
		if spent != (requests{get: 2, put: 2}) {
			t.Errorf("it took %+v", spent)
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
		if e, err := admin.BreakSeat(t.Context(), st, "jobs/s", one.Token()); err != nil || e.Held {
			t.Errorf("of one that nobody holds: %+v, %v", e, err)
		}
		a.end(t, one, two)
	})
}

// A write of others that comes first does not keep BreakSeat from it.
func TestBreakSeatIsOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := memstore.New()
		a, b := newUser(t, mem, "a"), newUser(t, mem, "b")
		held := a.take(t, 1)
		joined := make(chan *semaphore.Lease)
		st := faultstore.Wrap(mem, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: time.Second, Op: "put", Key: "jobs/s", Nth: 1}}})
		go func() {
			time.Sleep(500 * time.Millisecond)
			joined <- b.take(t, 1)
		}()
		e, err := admin.BreakSeat(t.Context(), st, "jobs/s", held.Token())
		if h, _ := seatsOf(e); err != nil || !slices.Equal(h, []string{"b 1"}) {
			t.Errorf("held by %q: %v", h, err)
		}
		b.end(t, <-joined)
		a.end(t, held)
	})
}

// Sessions that a semaphore names are not collected while they go on, and those that were over for a day are:
// "not there" means over too, so its seats go to whoever waits.
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
		if h, _ := seatsOf(e); err != nil || !slices.Equal(h, []string{"a 1", "dead 2 gone"}) || !held.Valid() {
			t.Errorf("held by %q: %v", h, err)
		}
		began := time.Now()
		l := b.take(t, 2)
		if took := time.Since(began); took > 2*time.Second || !held.Valid() {
			t.Errorf("it took %v to get the seats of one that is over", took)
		}
		b.end(t, l)
		a.end(t, held)
		dead.net.Partition(false)
		dead.end(t, lost)
		synctest.Wait()
	})
}
