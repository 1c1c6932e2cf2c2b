package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/memstore"
)

// A semaphore is dropped when it has not been used for long enough, and never while somebody uses it.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used, idle, fresh := semaphoreKey{"used", 2}, semaphoreKey{"idle", 2}, semaphoreKey{"fresh", 2}
		now := time.Now()
		g := &generation{semaphores: map[semaphoreKey]*part{used: {users: 1, used: now}, idle: {used: now}, fresh: {used: now.Add(time.Second)}}}
		time.Sleep(time.Minute - 1)
		if g.sweep(time.Minute); len(g.semaphores) != 3 {
			t.Errorf("%d are kept before it is time", len(g.semaphores))
		}
		time.Sleep(time.Nanosecond)
		if g.sweep(time.Minute); len(g.semaphores) != 2 || g.semaphores[idle] != nil {
			t.Errorf("%v are kept", g.semaphores)
		}
		g.leave(g.semaphores[used])
		if g.sweep(time.Minute); g.semaphores[used] == nil {
			t.Error("one that was used just now is dropped")
		}
		if g.sweep(0); len(g.semaphores) != 0 {
			t.Errorf("%v are kept of which none is used", g.semaphores)
		}
	})
}

// Of what lies in the store a lease is this server's own if its token is that of the lease, and its session this server's.
func TestIsOurs(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s, err := New(memstore.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		lock := func(held bool, token leasehold.Token, session string) admin.Entry {
			return admin.Entry{Info: leasehold.Info{Held: held, Token: token, Session: session, Holder: "me"}}
		}
		entry := func(token leasehold.Token, session string) admin.Entry {
			return admin.Entry{Info: leasehold.Info{Size: 2, Holders: []leasehold.Entry{{Token: 3, Session: "other", Holder: "first"}, {Token: token, Session: session, Holder: "me"}}}}
		}
		if s.isOurs(lock(true, 7, ""), 7) {
			t.Error("a lock is its own, and there is no session")
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		here := s.current.session.Key()
		for _, tc := range []struct {
			what       string
			e          admin.Entry
			ours, held bool
		}{
			{"a lock", lock(true, 7, here), true, true},
			{"a free one", lock(false, 7, here), false, false},
			{"with another token", lock(true, 8, here), false, false},
			{"of another session", lock(true, 7, "other"), false, true},
			{"a holder", entry(7, here), true, true},
			{"with another token", entry(8, here), false, false},
			{"of another session", entry(7, "other"), false, true},
		} {
			holder, held := holderOf(tc.e, 7)
			if ours := s.isOurs(tc.e, 7); ours != tc.ours || held != tc.held || held && holder != "me" {
				t.Errorf("%s: ours %t, held %t by %q", tc.what, ours, held, holder)
			}
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
