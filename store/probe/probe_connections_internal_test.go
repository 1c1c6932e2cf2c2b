package probe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A view is a store as one of two connections shows it: what the other one wrote or deleted last, it does not show yet.
type view struct {
	*brokenstore.Store
	last *sync.Map // by key
}

type change struct {
	by     *view
	before *store.Object
}

func views() (a, b store.Store) {
	shared, last := memstore.New(), new(sync.Map)
	newView := func() store.Store {
		v := &view{&brokenstore.Store{Store: shared}, last}
		v.OnGet, v.OnPut, v.OnDelete, v.OnList = v.get, v.put, v.remove, v.list
		return brokenstore.Bare{Store: v}
	}
	return newView(), newView()
}

func (v *view) get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	c, known := v.last.Load(key)
	if !known || c.(change).by == v { //nolint:errcheck,forcetypeassert // it is one
		return v.Store.Store.Get(ctx, key, unless)
	}
	switch o := c.(change).before; { //nolint:errcheck,forcetypeassert // it is one
	case o == nil:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
	case o.Version == unless:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
	default:
		return o, nil
	}
}

func (v *view) put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	before, _ := v.Store.Store.Get(ctx, key, "")
	o, err := v.Store.Store.Put(ctx, key, body, only)
	if err == nil {
		v.last.Store(key, change{v, before})
	}
	return o, err
}

func (v *view) remove(ctx context.Context, key string) error {
	before, _ := v.Store.Store.Get(ctx, key, "")
	v.last.Store(key, change{v, before})
	return v.Store.Store.Delete(ctx, key)
}

func (v *view) list(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range v.Store.Store.List(ctx, prefix, after) {
			if c, known := v.last.Load(e.Key); known && c.(change).by != v { //nolint:errcheck,forcetypeassert // it is one
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestOverOtherConnections: what one connection has done is looked for over the other one, which a store may tell of it later.
func TestOverOtherConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		run    func(s *survey) (Result, string, error)
		detail string
	}{
		{canCreate, (*survey).creating, "what one connection has written does not exist for another: do they lead to two copies?"},
		{canDelete, (*survey).deleting, "a read showed what had just been deleted"},
		{readsCurrent, (*survey).freshReads, "read 1 of 200 showed an older version"},
		{readsDeleted, (*survey).deletedReads, "a read showed what had just been deleted"},
		{afterRebirth, (*survey).afterRebirth, "a create after a delete was told that it had landed, and there was no object after it"},
		{listsCurrent, (*survey).freshListings, "a listing did not show what had just been written"},
		{oddKeys, func(s *survey) (Result, string, error) {
			s.family("keys-1", "numbers", []string{"7"}, 0)
			return s.keyed.said(&s.keyed.creates)
		}, `numbers: of "7": there is no object after it was written, or after one of another key was deleted`},
		{raceCreate, func(s *survey) (Result, string, error) {
			_, result, detail, err := s.racingCreates("race", smallBody, 1, 0)
			return result, detail, err
		}, "1 of 1 races went wrong: a write was told that it had landed, and there was no object after it"},
		{crowdCreate, func(s *survey) (Result, string, error) {
			r := new(races)
			s.race(r, map[string]*store.Object{"crowd": nil}, 2)
			return r.result("races")
		}, "1 of 1 races went wrong: a write was told that it had landed, and there was no object after it"},
		{raceCreate + " of 2 KiB", sizes[0].racingCreates, "a body of 2048 bytes was told to have landed, and there was no object after it"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := views()
			s, err := newSurvey(t.Context(), a, &Options{Races: 20, Open: func(context.Context) (store.Store, error) { return b, nil }})
			if err != nil {
				t.Fatal(err)
			}
			f, err := s.try(experiment{run: c.run})
			if f.Result != Bad || f.Detail != c.detail || err != nil {
				t.Errorf("%s: %+v, %v", c.name, f, err)
			}
		})
	}
}

// TestDeletedReadsOverBoth: what is shown of a deleted object is found out over whichever connections it is shown, and
// with whichever version they ask for.
func TestDeletedReadsOverBoth(t *testing.T) {
	t.Parallel()
	for n := range ends {
		for connection := range 2 {
			shared := memstore.New()
			open := func(at int) store.Store {
				b := &brokenstore.Store{Store: shared}
				b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
					o, err := shared.Get(ctx, key, unless)
					if errors.Is(err, store.ErrNotExist) && at == connection && strings.HasSuffix(key, fmt.Sprintf("/ends-%d-0", n)) {
						return &store.Object{Key: key, Version: "ghost"}, nil
					}
					return o, err
				}
				return brokenstore.Bare{Store: b}
			}
			s, err := newSurvey(t.Context(), open(0), &Options{Races: 20, Open: func(context.Context) (store.Store, error) { return open(1), nil }})
			if err != nil {
				t.Fatal(err)
			}
			if result, detail, err := s.deletedReads(); result != Bad || detail != "a read showed what had just been deleted" || err != nil {
				t.Errorf("number %d, over connection %d: %s, %s, %v", n, connection, result, detail, err)
			}
		}
	}
}

// TestDeletedVersions: a store that says of a deleted object that it is unchanged, to those who know its last version or the one before, is found out.
func TestDeletedVersions(t *testing.T) {
	t.Parallel()
	for before := range 2 {
		b := &brokenstore.Store{Store: memstore.New()}
		past := map[string][]store.Version{}
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			if err == nil {
				past[key] = append(past[key], o.Version)
			}
			return o, err
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			if all := past[key]; errors.Is(err, store.ErrNotExist) && len(all) > before && unless == all[len(all)-1-before] {
				return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
			}
			return o, err
		}
		s, err := newSurvey(t.Context(), brokenstore.Bare{Store: b}, few)
		if err != nil {
			t.Fatal(err)
		}
		if result, detail, err := s.deletedReads(); result != Bad || detail != "what had just been deleted was said to be unchanged" || err != nil {
			t.Errorf("the version %d before the last: %s, %s, %v", before, result, detail, err)
		}
	}
}
