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
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// collected is all that a collection yields: the keys, and the errors with the key that they are about.
func collected(t *testing.T, st store.Store, o *admin.CollectOptions) (keys, errs []string) {
	t.Helper()
	for c, err := range admin.Collect(t.Context(), st, "", o) {
		if err != nil {
			errs = append(errs, fmt.Sprintf("%q %v %v", c.Key, c.Age, errors.Is(err, store.ErrDenied)))
		} else {
			keys = append(keys, c.Key)
		}
	}
	return keys, errs
}

// terms makes a lock with epochs that has been held so many times.
func terms(t *testing.T, st store.Store, key string, n int) {
	t.Helper()
	lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutEpochsIfMatch})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		release(t, acquire(t, lock))
	}
}

// TestCollectKeeps: as many terms of the past stay as the options say, and a hundred by default, of each
// lock, and what is younger than the age, which is a day at least.
func TestCollectKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		opts *admin.CollectOptions
		age  time.Duration
		want int // that go of each lock
	}{
		"nothing said":         {nil, 25 * time.Hour, 19},
		"the default":          {&admin.CollectOptions{}, 25 * time.Hour, 19},
		"three":                {&admin.CollectOptions{Keep: 3}, 25 * time.Hour, 116},
		"more than there are":  {&admin.CollectOptions{Keep: 500}, 25 * time.Hour, 0},
		"of an hour":           {&admin.CollectOptions{Keep: 3, Age: time.Hour}, 23 * time.Hour, 0},
		"of a year":            {&admin.CollectOptions{Keep: 3, Age: 365 * 24 * time.Hour}, 25 * time.Hour, 0},
		"of a year, and older": {&admin.CollectOptions{Keep: 3, Age: 365 * 24 * time.Hour}, 366 * 24 * time.Hour, 116},
	} {
		bubble(t, func(t *testing.T) {
			st := memstore.New()
			terms(t, st, "jobs/a", 120)
			terms(t, st, "jobs/b", 120)
			time.Sleep(c.age)
			if keys, errs := collected(t, st, c.opts); len(keys) != 2*c.want || errs != nil {
				t.Errorf("%s: %d were collected, want %d; %v", name, len(keys), 2*c.want, errs)
			}
		})
	}
}

// TestCollectEndsEarly: the collection ends when its consumer has seen enough, whatever it has seen last.
func TestCollectEndsEarly(t *testing.T) {
	const old = 25 * time.Hour
	for what, prepare := range map[string]func(*testing.T, *faultstore.Store){
		"past epochs": func(t *testing.T, st *faultstore.Store) {
			terms(t, st, "jobs/a", 10)
			terms(t, st, "jobs/b", 10)
		},
		"expired markers": func(t *testing.T, st *faultstore.Store) {
			for _, key := range []string{"a", "b"} {
				lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutMarker})
				if err != nil {
					t.Fatal(err)
				}
				lease := acquire(t, lock)
				<-lease.Done()
				_ = lease.Release(t.Context())
			}
		},
		"sessions": func(t *testing.T, st *faultstore.Store) {
			for range 2 {
				overSession(t, st)
			}
		},
	} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			prepare(t, st)
			time.Sleep(old)
			all, _ := collected(t, st, &admin.CollectOptions{Keep: 1, DryRun: true})
			if len(all) < 2 {
				t.Fatalf("this shows nothing: %q", all)
			}
			for c, err := range admin.Collect(t.Context(), st, "", &admin.CollectOptions{Keep: 1}) {
				if c.Key != all[0] || err != nil {
					t.Errorf("%s: %q, %v, and not %q", what, c.Key, err, all[0])
				}
				break
			}
			if left, _ := collected(t, st, &admin.CollectOptions{Keep: 1, DryRun: true}); !slices.Equal(left, all[1:]) {
				t.Errorf("%s: %q is left of %q", what, left, all)
			}
		})
	}
}

// timeless is a store that does not tell its time by what is there, as a directory does not.
type timeless struct{ store.Store }

func (s timeless) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := s.Store.Get(ctx, key, unless)
	if o != nil {
		o.Date = time.Time{}
	}
	return o, err
}

// TestCollectMeetsErrors: an error about one session is told with its key, and the next one follows; one of
// the listing, and one of a lock that cannot be read, is the last.
func TestCollectMeetsErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		var sessions []string
		for range 3 {
			sessions = append(sessions, overSession(t, st))
		}
		slices.Sort(sessions)
		time.Sleep(24*time.Hour - time.Millisecond)
		if keys, errs := collected(t, st, nil); keys != nil || errs != nil {
			t.Errorf("a moment too young: %q, %q", keys, errs)
		}
		time.Sleep(time.Millisecond)
		if keys, errs := collected(t, st, &admin.CollectOptions{DryRun: true}); !slices.Equal(keys, sessions) || errs != nil {
			t.Errorf("just old enough: %q, %q", keys, errs)
		}
		deny := func(f faultstore.Fault) {
			st.Clear()
			f.Kind = faultstore.Denied
			st.Inject(f)
		}
		deny(faultstore.Fault{Op: "list"})
		if keys, errs := collected(t, st, nil); keys != nil || !slices.Equal(errs, []string{`"" 0s true`}) {
			t.Errorf("of the listing: %q, %q", keys, errs)
		}
		deny(faultstore.Fault{Op: "get", Key: sessions[1]})
		if keys, errs := collected(t, st, &admin.CollectOptions{DryRun: true}); !slices.Equal(keys, sessions[:1]) || !slices.Equal(errs, []string{`"" 0s true`}) {
			t.Errorf("of a read: %q, %q", keys, errs)
		}
		// The listing and its reads are in order, and what is asked then about one of them is not.
		deny(faultstore.Fault{Op: "get", Key: sessions[1] + ".clock"})
		if keys, errs := collected(t, timeless{st}, nil); !slices.Equal(keys, []string{sessions[0], sessions[2]}) || !slices.Equal(errs, []string{fmt.Sprintf("%q -1ns true", sessions[1])}) {
			t.Errorf("of one session: %q, %q", keys, errs)
		}
		deny(faultstore.Fault{Op: "delete"})
		if keys, errs := collected(t, st, nil); keys != nil || !slices.Equal(errs, []string{fmt.Sprintf("%q 24h0m0s true", sessions[1])}) {
			t.Errorf("of the delete: %q, %q", keys, errs)
		}
		st.Clear()
		if keys, errs := collected(t, st, nil); !slices.Equal(keys, sessions[1:2]) || errs != nil {
			t.Errorf("when all is well: %q, %q", keys, errs)
		}
	})
}

// TestCollectCosts: to look at sessions costs a listing and a read of each, where a read tells the store's
// time, however young they are.
func TestCollectCosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		for range 3 {
			overSession(t, st)
		}
		for range 2 {
			got := cost(st, func() { collected(t, st, &admin.CollectOptions{DryRun: true}) })
			if want := (requests{get: 3, list: 1}); got != want {
				t.Errorf("it made %v, want %v", got, want)
			}
			time.Sleep(25 * time.Hour)
		}
	})
}

// TestCollectThatFailsEndsNoSession: after an error nothing more is done.
func TestCollectThatFailsEndsNoSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a := startProcess(t, st, "a")
		a.st.Partition(true)
		manyLocks(t, st, 1)
		if _, err := st.Put(t.Context(), "z", []byte("no lock"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "z"})
		if keys, errs := collected(t, st, nil); keys != nil || len(errs) != 1 {
			t.Errorf("%q, %q", keys, errs)
		}
		if !recordIn(t, st, a.session.Key()).Held {
			t.Error("a session was ended")
		}
		st.Clear()
		a.st.Partition(false)
		a.end()
	})
}
