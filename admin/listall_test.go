package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// listed is all that List yields, a line for each.
func listed(t *testing.T, st store.Store) (lines []string) {
	t.Helper()
	for info, err := range admin.List(t.Context(), st, "") {
		text := fmt.Sprintf("%s held=%v abandoned=%v", info.Key, info.Held, info.Abandoned)
		switch {
		case errors.Is(err, leasehold.ErrForeignObject):
			text = fmt.Sprintf("%s foreign, age %d", info.Key, info.Age)
		case err != nil:
			text = fmt.Sprintf("%s error %v", info.Key, errors.Is(err, store.ErrDenied))
		}
		if err != nil && info.Abandoned {
			t.Errorf("%s looks abandoned, which is not known: %v", info.Key, err)
		}
		lines = append(lines, text)
	}
	return lines
}

// TestListTellsLocksApart: each lock has its own hint, with a session or without one, and what is no lock
// says so; a session is no lock.
func TestListTellsLocksApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := startProcess(t, st, "a")
		hold := func(key string) {
			lease := acquire(t, lockOf(t, st, key, &leasehold.LockOptions{Layout: leasehold.LayoutObject}))
			lease.Abandon(nil) // nobody renews it
			t.Cleanup(func() { _ = lease.Release(context.Background()) })
		}
		free := fmt.Sprintf(`{"format":1,"token":1,"state":"free","holder":"x","ttl_ms":1000,"write_id":"x.1","session":"../%s"}`, a.session.Key())
		for key, body := range map[string]string{"jobs/1-free": free, "jobs/7-foreign": "no lock"} {
			if _, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		hold("jobs/2-gone")
		a.acquire("jobs/5-under")
		a.acquire("jobs/6-under")
		a.st.Partition(true)
		time.Sleep(time.Hour)
		hold("jobs/3-held")
		release(t, acquire(t, lockOf(t, st, "jobs/4-free", &leasehold.LockOptions{Layout: leasehold.LayoutObject})))
		want := []string{
			"jobs/1-free held=false abandoned=false", "jobs/2-gone held=true abandoned=true", "jobs/3-held held=true abandoned=false",
			"jobs/4-free held=false abandoned=false", "jobs/5-under held=true abandoned=true", "jobs/6-under held=true abandoned=true",
			"jobs/7-foreign foreign, age -1",
		}
		if got := listed(t, st); !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
		a.st.Partition(false)
		a.end()
	})
}

// gone is a store in which an object has gone when it is read, after it was listed.
type gone struct {
	store.Store
	key string
}

func (s gone) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if key == s.key {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
	}
	return s.Store.Get(ctx, key, unless)
}

// TestListMeetsErrors: what has gone since it was listed is left out, and an error is told once and is the
// last.
func TestListMeetsErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		keys := manyLocks(t, st, 3)
		line := func(key string) string { return key + " held=false abandoned=false" }
		if got := listed(t, gone{st, keys[1]}); !slices.Equal(got, []string{line(keys[0]), line(keys[2])}) {
			t.Errorf("without %s: %q", keys[1], got)
		}
		for name, c := range map[string]struct {
			fault faultstore.Fault
			want  []string
		}{
			"a listing": {faultstore.Fault{Op: "list"}, []string{" error true"}},
			"a read":    {faultstore.Fault{Op: "get", Key: keys[1]}, []string{line(keys[0]), keys[1] + " error true"}},
		} {
			c.fault.Kind = faultstore.Denied
			st.Inject(c.fault)
			if got := listed(t, st); !slices.Equal(got, c.want) {
				t.Errorf("%s is denied: %q, want %q", name, got, c.want)
			}
			st.Clear()
		}
	})
}

// TestListOfASessionThatCannotBeRead: whether a holder is there is not known then, and that is said, with
// the lock.
func TestListOfASessionThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		a.acquire("jobs/1")
		st := newStoreOver(inner)
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Key: a.session.Key()})
		if got := listed(t, st); !slices.Equal(got, []string{"jobs/1 error true"}) {
			t.Errorf("listed %q", got)
		}
		a.end()
	})
}

// silent is a store that answers one read and no other.
type silent struct {
	store.Store
	key string
}

func (s silent) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if key != s.key {
		<-ctx.Done()
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
	}
	return s.Store.Get(ctx, key, unless)
}

// TestListGivesUpItsReads: a consumer that has seen enough does not wait for reads that are not answered.
func TestListGivesUpItsReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		keys := manyLocks(t, st, 3)
		for info, err := range admin.List(t.Context(), silent{st, keys[0]}, "") {
			if info.Key != keys[0] || err != nil {
				t.Errorf("%+v, %v", info, err)
			}
			break
		}
	})
}

// ListAll yields the sessions too, at the same cost; and each entry has what its record tells of the past.
func TestListAll(t *testing.T) {
	needs(t, here().Tokens(), "a marker has no record that can name a session")
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		session, err := leasehold.NewSession(t.Context(), st, &leasehold.SessionOptions{Holder: "one"})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{Session: session, Holder: "one"})
		if err != nil {
			t.Fatal(err)
		}
		first := leasetest.Acquire(t, lock)
		leasetest.Release(t, first)
		second := leasetest.Acquire(t, lock)
		before := st.Counts()
		var locks []admin.Entry
		for e, err := range admin.List(t.Context(), st, "") {
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, e)
		}
		between := st.Counts()
		var all []admin.Entry
		for e, err := range admin.ListAll(t.Context(), st, "") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		after := st.Counts()
		if len(locks) != 1 || len(all) != 2 || all[0].Key != "k" || all[1].Key != session.Key() || all[1].Layout != admin.LayoutSession || !all[1].Held {
			t.Fatalf("List has %+v, ListAll %+v", locks, all)
		}
		if past := all[0].Past; len(past) != 1 || past[0].Token != first.Token() || past[0].Holder != "one" {
			t.Errorf("the past is %+v, want the lease with token %v", past, first.Token())
		}
		if a, b := between.Get+between.List-before.Get-before.List, after.Get+after.List-between.Get-between.List; a != b {
			t.Errorf("List took %d requests, ListAll %d", a, b)
		}
		leasetest.Release(t, second)
		if err := session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
