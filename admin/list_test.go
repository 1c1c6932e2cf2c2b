package admin_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/multilock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func TestList(t *testing.T) {
	st := memstore.New()
	for _, name := range []string{"jobs/b", "jobs/a", "other"} {
		lock, err := leasehold.NewLock(st, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, lock)
		if name == "jobs/b" && here().Tokens() {
			release(t, lease) // a free marker is no object
			continue
		}
		defer func() { _ = lease.Release(t.Context()) }()
	}
	if _, err := st.Put(t.Context(), "jobs/aa", []byte("no lock"), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for info, err := range admin.List(t.Context(), st, "jobs/") {
		text := info.Key
		if errors.Is(err, leasehold.ErrForeignObject) {
			text += " foreign"
		} else if err != nil || !info.Exists || info.Held != (info.Key == "jobs/a" || !here().Tokens()) {
			t.Errorf("%+v, %v", info, err)
		}
		got = append(got, text)
	}
	if want := []string{"jobs/a", "jobs/aa foreign", "jobs/b"}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

// TestListUnderSessions: the locks are listed and not the sessions; a lock of a session that
// is over is abandoned; and each session is read once.
func TestListUnderSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
		for i := range 20 {
			[]*process{a, b}[i%2].acquire(fmt.Sprintf("shards/%05d", i))
		}
		if err := multilock.ReleaseAll(t.Context(), b.session.Leases()[:1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		a.close()
		listed := 0
		gets := cost(st, func() {
			for info, err := range admin.List(t.Context(), st, "") {
				if err != nil {
					t.Fatal(err)
				}
				listed++
				if gone := info.Session == a.session.Key(); info.Abandoned != (info.Held && gone) {
					t.Errorf("%s: held %t, abandoned %t, under a session that is over %t", info.Key, info.Held, info.Abandoned, gone)
				}
			}
		}).get
		if listed != 20 || gets != 20+2+2 {
			t.Errorf("%d locks listed by %d reads; want 20 by 24", listed, gets)
		}
		b.end()
	})
}

// A distant store takes its time for each answer, unless its caller gives up.
type distant struct {
	store.Store
	away time.Duration

	gets, lists, ended, busy, most atomic.Int64 // most: of those that were busy at once
}

func (d *distant) travel(ctx context.Context) error {
	busy := d.busy.Add(1)
	defer d.busy.Add(-1)
	for most := d.most.Load(); busy > most && !d.most.CompareAndSwap(most, busy); most = d.most.Load() {
	}
	select {
	case <-time.After(d.away):
		return nil
	case <-ctx.Done():
		d.ended.Add(1)
		return &store.Error{Op: "get", Kind: store.ErrUnavailable, Cause: ctx.Err()}
	}
}

func (d *distant) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	d.gets.Add(1)
	if err := d.travel(ctx); err != nil {
		return nil, err
	}
	return d.Store.Get(ctx, key, unless)
}

func (d *distant) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		d.lists.Add(1)
		if err := d.travel(ctx); err != nil {
			yield(store.Entry{}, err)
			return
		}
		for entry, err := range d.Store.List(ctx, prefix, after) {
			if !yield(entry, err) {
				return
			}
		}
	}
}

// manyLocks are so many objects of locks, each of which is free.
func manyLocks(t *testing.T, st store.Store, n int) (keys []string) {
	t.Helper()
	for i := range n {
		key := fmt.Sprintf("jobs/%03d", i)
		lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = admin.Init(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// Locks are read many at a time, in order: 56 of them, 50 ms away, used to take 2.85 s, a
// read after the other.
func TestListReadsAbreast(t *testing.T) {
	if here() != leasetest.Object {
		t.Skip("the same in every layout")
	}
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		keys := manyLocks(t, st, 56)
		far := &distant{Store: st, away: 50 * time.Millisecond}
		var got []string
		began := time.Now()
		for info, err := range admin.List(t.Context(), far, "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Key)
		}
		// A listing, 32 locks, and 24.
		if took := time.Since(began); took != 3*far.away {
			t.Errorf("it took %v, want %v", took, 3*far.away)
		}
		if !slices.Equal(got, keys) {
			t.Errorf("listed %v", got)
		}
		if g, l, m := far.gets.Load(), far.lists.Load(), far.most.Load(); g != 56 || l != 1 || m != 32 {
			t.Errorf("%d reads and %d listings, %d at once at most; want 56, 1 and 32", g, l, m)
		}
	})
}

// When the iteration ends early, nothing is under way any more, and nothing more is sent:
// where the caller has seen enough, where a lock cannot be read, and where ctx ends.
func TestListEndsEarly(t *testing.T) {
	if here() != leasetest.Object {
		t.Skip("the same in every layout")
	}
	for _, why := range []string{"enough", "panic", "cancelled"} {
		t.Run(why, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := memstore.New()
				manyLocks(t, st, 200)
				far := &distant{Store: st, away: 50 * time.Millisecond}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				seen := 0
				look := func() (err error) {
					defer func() {
						if r := recover(); r != nil && r != why {
							t.Errorf("it goes on: %v", r)
						}
					}()
					for _, err = range admin.List(ctx, far, "") {
						if err != nil {
							return err
						}
						switch seen++; why {
						case "enough":
							return nil
						case "panic":
							panic(why)
						case "cancelled":
							cancel()
						}
					}
					return err
				}
				err := look()
				if why == "cancelled" && !errors.Is(err, context.Canceled) {
					t.Errorf("after cancel: %v", err)
				}
				if n := far.busy.Load(); n != 0 {
					t.Errorf("%d requests are under way after the end", n)
				}
				if n := far.gets.Load(); n > 2*32 || n < 32 {
					t.Errorf("%d reads for %d locks that were looked at", n, seen)
				}
				before := far.gets.Load() + far.lists.Load()
				time.Sleep(time.Minute)
				if after := far.gets.Load() + far.lists.Load(); after != before {
					t.Errorf("%d requests after the end", after-before)
				}
			})
		})
	}
}

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
