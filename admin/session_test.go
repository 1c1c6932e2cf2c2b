package admin_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

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
