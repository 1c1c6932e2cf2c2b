package leasehold_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// hints asks everybody who says of a lock whether its holder looks to be gone. The lock is
// held under a session if there is one; plain and under are candidates that know nothing.
func hints(t *testing.T, st store.Store, key string, under *process) map[string]leasehold.Info {
	t.Helper()
	said := map[string]leasehold.Info{}
	var mu sync.Mutex
	say := func(who string, i leasehold.Info) {
		mu.Lock()
		defer mu.Unlock()
		said[who] = i
	}
	held := func(who string, err error) {
		var h *leasehold.HeldError
		if !errors.As(err, &h) {
			t.Errorf("%s: %v", who, err)
			return
		}
		say(who, h.Info)
	}
	fresh := func(opts *leasehold.LockOptions) *leasehold.Lock { return locksOf(t, st, opts, key)[0] }
	_, err := fresh(nil).TryAcquire(t.Context())
	held("TryAcquire", err)
	inSession, err := leasehold.NewLock(under.st, key, &leasehold.LockOptions{Session: under.session})
	if err != nil {
		t.Fatal(err)
	}
	_, err = inSession.TryAcquire(t.Context())
	held("TryAcquire under a session", err)
	info, err := fresh(nil).Inspect(t.Context())
	if err != nil {
		t.Error(err)
	}
	say("Inspect", info)
	for e, err := range admin.List(t.Context(), st, key) {
		if err != nil {
			t.Error(err)
		}
		if e.Key == key {
			say("List", e.Info)
		}
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	waiter := fresh(&leasehold.LockOptions{OnWait: func(i leasehold.Info) { say("OnWait of "+i.Key, i) }})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, waited := waiter.Acquire(limited)
		held("Acquire", waited)
	}()
	time.Sleep(900 * time.Millisecond)
	_, err = waiter.TryAcquire(limited)
	held("TryAcquire beside an Acquire", err)
	<-ended
	synctest.Wait()
	return said
}

// OnWait was told of the holder's session as if that was a lock, by its key; and a holder under
// a session, whose record nobody renews, looked abandoned when that was older than a TTL. Who
// breaks such a lock ends a healthy session, with all its leases.
func TestHintsUnderASession(t *testing.T) {
	for _, c := range []struct {
		what string
		dead bool
		age  time.Duration
	}{
		{"a session that has just begun", false, time.Second},
		{"a session that goes on", false, 2 * time.Hour},
		{"a session whose process has just died", true, 5 * time.Second},
		{"a session whose process has died", true, time.Hour},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				inner := memstore.New()
				a, b := startProcess(t, inner, "a"), startProcess(t, inner, "b")
				const key = "shards/1"
				a.acquire(key)
				time.Sleep(c.age)
				if c.dead {
					time.Sleep(time.Hour)
					a.st.Partition(true)
					time.Sleep(c.age)
				}
				gone := c.dead && c.age > 20*time.Second
				said := hints(t, inner, key, b)
				for who, i := range said {
					if who == "OnWait of "+key {
						continue // when it began to wait it knew of no session
					}
					if i.Abandoned != gone || i.Key != key || i.Session != a.session.Key() {
						t.Errorf("%s says %+v", who, i)
					}
				}
				if len(said) != 7 {
					t.Errorf("of 7 these have said anything: %v", said)
				}
				own, err := a.lock(key).TryAcquire(t.Context())
				var held *leasehold.HeldError
				tells := errors.As(err, &held) && !held.Info.Abandoned && held.Info.Key == key
				if over := errors.Is(err, leasehold.ErrSessionOver); own != nil || over != gone || !over && !tells {
					t.Errorf("beside the holder in its own process: %v", err)
				}
				a.st.Partition(false)
				time.Sleep(time.Minute)
				a.end()
				b.end()
			})
		})
	}
}

// A follower of a leader under a session took it for abandoned.
func TestChangesUnderASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		opts := &leasehold.ElectionOptions{}
		leader, err := leasehold.NewElection(a.st, "leader", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Session: a.session}})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := leader.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		follower, err := leasehold.NewElection(inner, "leader", opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		seen := 0
		for c := range follower.Observe(ctx) {
			if seen++; c.Info.Abandoned {
				t.Errorf("%v: %+v", c.Kind, c.Info)
			}
		}
		if s := follower.Status(); seen == 0 || s.Leader.Abandoned || s.Leader.Session != a.session.Key() {
			t.Errorf("%d changes, and the leader is %+v", seen, s.Leader)
		}
		release(t, lease)
		a.end()
	})
}

// The age of a record was forgotten when a look found it unchanged, and then the wall clock of
// its holder said how old it was.
func TestAgeOfWhatHasNotChanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		other := newLock(t, st, nil)
		began := time.Now()
		for range 3 {
			var held *leasehold.HeldError
			if _, err := other.TryAcquire(t.Context()); !errors.As(err, &held) {
				t.Fatal(err)
			}
			if i := held.Info; i.Age != time.Since(began) || i.Version == "" {
				t.Errorf("after %v: %+v", time.Since(began), i)
			}
			time.Sleep(time.Second)
		}
		release(t, lease)
	})
}
