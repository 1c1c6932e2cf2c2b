package shard_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestOwners: who owns what, seen from outside.
func TestOwners(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 30)
		if owners, err := shard.Owners(t.Context(), f.st, prefix); err != nil || len(owners) > 0 {
			t.Errorf("of nothing: %v, %v", owners, err)
		}
		for _, name := range []string{"a", "b", "c"} {
			f.start(name, nil)
		}
		f.settle()
		gone := f.other()
		session := gone.worker.Status().Session
		look := func() map[shard.State]int {
			t.Helper()
			st := faultstore.Wrap(f.st, nil)
			owners, err := shard.Owners(t.Context(), st, prefix)
			if err != nil || len(owners) != 30 {
				t.Fatalf("%d owners, %v", len(owners), err)
			}
			if c := st.Counts(); c.List != 1 || c.Put+c.Delete > 0 || c.Get > 30+1+1+4 {
				t.Errorf("it has taken %+v", c)
			}
			states := map[shard.State]int{}
			f.mu.Lock()
			defer f.mu.Unlock()
			for i, o := range owners {
				states[o.State]++
				if o.Shard != f.shards[i] || o.Token != f.tokens[o.Shard] || o.State == shard.Owned && (o.Holder != f.at[o.Shard].node.name || o.Planned != o.Holder) {
					t.Errorf("%+v, and in truth %v", o, f.at[o.Shard].node.name)
				}
				if o.State == shard.Gone && (o.Session != session || o.Holder != gone.name) {
					t.Errorf("%+v is gone, and not with %s", o, session)
				}
			}
			return states
		}
		if got := look(); got[shard.Owned] != 30 {
			t.Errorf("%v", got)
		}
		f.set(func() { f.drain = time.Minute })
		f.start("d", nil)
		time.Sleep(40 * time.Second)
		if got := look(); got[shard.Moving] != 8 && got[shard.Moving] != 7 {
			t.Errorf("%v", got)
		}
		time.Sleep(2 * time.Minute)
		f.settle()
		f.set(func() { f.drain = 0 })
		f.crash(gone)
		for got := look(); got[shard.Gone] == 0; got = look() {
			time.Sleep(time.Second)
		}
		f.settle()
		f.end()
	})
}

// TestOwnersRefused: an error of the store comes back from Owners, whichever look meets it.
func TestOwnersRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 70) // more than are looked at at a time
		f.start("a", nil)
		f.settle()
		for _, key := range []string{"/plan", "/lists/", "/shards/00001", "/sessions/"} {
			if owners, err := shard.Owners(t.Context(), broken{f.st, prefix + key}, prefix); owners != nil || !errors.Is(err, store.ErrDenied) {
				t.Errorf("where %s is denied: %v, %v", key, owners, err)
			}
		}
		if owners, err := shard.Owners(t.Context(), broken{f.st, "list"}, prefix); owners != nil || !errors.Is(err, store.ErrDenied) {
			t.Errorf("where nothing can be listed: %v, %v", owners, err)
		}
		if owners, err := shard.Owners(t.Context(), f.st, prefix); len(owners) != 70 || err != nil {
			t.Errorf("of 70 shards: %d, %v", len(owners), err)
		}
		f.end()
	})
}

// broken is a store that denies to read what begins with a key, or else to list.
type broken struct {
	store.Store
	key string
}

func (b broken) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if strings.HasPrefix(key, b.key) {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrDenied}
	}
	return b.Store.Get(ctx, key, unless)
}

func (b broken) List(ctx context.Context, under, after string) iter.Seq2[store.Entry, error] {
	if b.key == "list" {
		return func(yield func(store.Entry, error) bool) {
			yield(store.Entry{}, &store.Error{Op: "list", Key: under, Kind: store.ErrDenied})
		}
	}
	return b.Store.List(ctx, under, after)
}

// TestOwnersWithoutAPlan: Owners tells of shards that no plan has, and of names that are none.
func TestOwnersWithoutAPlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 3)
		a := f.start("a", nil)
		f.settle()
		session := a.worker.Status().Session
		if err := f.st.Delete(t.Context(), prefix+"/plan"); err != nil {
			t.Fatal(err)
		}
		look := func() (got string) {
			t.Helper()
			owners, err := shard.Owners(t.Context(), f.st, prefix)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range owners {
				got += fmt.Sprintln(o.Shard, o.State, o.Holder, o.Session == session, o.Token == f.token(o.Shard), o.Planned, o.PlannedSession == session)
			}
			return got
		}
		if got, want := look(), "00000 owned a true true  false\n00001 owned a true true  false\n00002 owned a true true  false\n"; got != want {
			t.Errorf("without a plan:\n%s, want\n%s", got, want)
		}
		f.settle()
		time.Sleep(ttl)
		if got, want := look(), "00000 owned a true true a true\n00001 owned a true true a true\n00002 owned a true true a true\n"; got != want {
			t.Errorf("with a plan:\n%s, want\n%s", got, want)
		}
		put(t, f.st, prefix+"/plan", "not a plan")
		if owners, err := shard.Owners(t.Context(), f.st, prefix); len(owners) != 3 || !errors.Is(err, shard.ErrForeign) {
			t.Errorf("with a plan that is none: %v, %v", owners, err)
		}
		if err := f.st.Delete(t.Context(), prefix+"/plan"); err != nil {
			t.Fatal(err)
		}
		f.settle()
		time.Sleep(ttl)
		f.stop(a)
		if got, want := look(), "00000 free a false true a true\n00001 free a false true a true\n00002 free a false true a true\n"; got != want {
			t.Errorf("when it has ended:\n%s, want\n%s", got, want)
		}
		if err := f.st.Delete(t.Context(), prefix+"/shards/00001"); err != nil {
			t.Fatal(err)
		}
		if got, want := look(), "00001 free  false false a true\n"; !strings.Contains(got, want) {
			t.Errorf("when a lock was deleted:\n%s, want in it\n%s", got, want)
		}
		f.end()
	})
}

// TestOwnersFromAbove: Owners finds the sessions also where the workers have opened the store
// further down, and their locks so begin with another key.
func TestOwnersFromAbove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 3)
		a := f.start("a", nil)
		f.settle()
		time.Sleep(time.Hour) // the locks are old, and only the session tells that they are held
		for _, want := range []shard.State{shard.Owned, shard.Gone} {
			owners, err := shard.Owners(t.Context(), above{f.st}, "above/"+prefix)
			if err != nil || len(owners) != 3 {
				t.Fatal(owners, err)
			}
			for _, o := range owners {
				if o.State != want || o.Holder != "a" {
					t.Errorf("%+v, want that it is %v", o, want)
				}
			}
			f.crash(a)
			time.Sleep(2 * ttl)
		}
		f.end()
	})
}

// above is a store in which another lies below "above/".
type above struct{ store.Store }

func (a above) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	below, found := strings.CutPrefix(key, "above/")
	if !found {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
	}
	obj, err := a.Store.Get(ctx, below, unless)
	if err == nil {
		obj.Key = key
	}
	return obj, err
}

func (a above) List(ctx context.Context, under, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range a.Store.List(ctx, strings.TrimPrefix(under, "above/"), strings.TrimPrefix(after, "above/")) {
			e.Key = "above/" + e.Key
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestOwnersOfNoName: a plan can name what no lock can be called, and that is said of it.
func TestOwnersOfNoName(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	const list = "[\"a//b\"]"
	sum := sha256.Sum256([]byte(list))
	name := hex.EncodeToString(sum[:16])
	put(t, st, prefix+"/lists/"+name, list)
	put(t, st, prefix+"/plan", `{"format": 1, "token": 1, "serial": 1, "lists": ["`+name+`"], "workers": [], "owners": [-1]}`)
	owners, err := shard.Owners(t.Context(), st, prefix)
	if err != nil || len(owners) != 1 || owners[0].Shard != "a//b" || owners[0].State != shard.Broken || !errors.Is(owners[0].Err, store.ErrInvalid) {
		t.Errorf("%+v, %v", owners, err)
	}
}
