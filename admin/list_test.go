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
	"github.com/leasehold/leasehold/store"
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
		if err := leasehold.ReleaseAll(t.Context(), b.session.Leases()[:1]); err != nil {
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
	if here() != leasehold.LayoutObject {
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
	if here() != leasehold.LayoutObject {
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
