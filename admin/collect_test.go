package admin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestCollect: what is left of the past goes, and no lock changes by that.
func TestCollect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		plant(t, st, "jobs/other", "another tool's")
		busy := newLock(t, st, nil)
		for range 30 {
			release(t, acquire(t, busy))
		}
		idle, err := leasehold.NewLock(st, "jobs/idle", patient(leasehold.LockOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		cut := faultstore.Wrap(st, nil)
		gone, err := leasehold.NewLock(cut, "jobs/idle", nil)
		if err != nil {
			t.Fatal(err)
		}
		left := acquire(t, gone)
		cut.Partition(true)
		collect := func(o admin.CollectOptions) (keys []string) {
			t.Helper()
			for c, err := range admin.Collect(t.Context(), st, "jobs/", &o) {
				if err != nil || c.Age <= 0 || c.Why == "" {
					t.Errorf("%+v, %v", c, err)
				}
				keys = append(keys, c.Key)
			}
			return keys
		}
		if keys := collect(admin.CollectOptions{Keep: 3}); len(keys) != 0 {
			t.Errorf("what is young was collected: %q", keys)
		}
		time.Sleep(25 * time.Hour)
		lease := acquire(t, busy)
		before := objects(t, st)
		dry := collect(admin.CollectOptions{Keep: 3, DryRun: true})
		if after := objects(t, st); !slices.Equal(before, after) {
			t.Errorf("a dry run left %q of %q", after, before)
		}
		keys := collect(admin.CollectOptions{Keep: 3})
		after := objects(t, st)
		if !slices.Equal(keys, dry) || len(after) != len(before)-len(keys) {
			t.Errorf("collected %q, and the dry run told of %q", keys, dry)
		}
		switch {
		case hasEpochs() && len(keys) == 0:
			t.Errorf("nothing was collected of %q", before)
		case here().Tokens() == slices.Contains(keys, "jobs/idle"), here() == leasetest.Object && len(keys) > 0:
			t.Errorf("collected %q", keys)
		}
		time.Sleep(6 * time.Second)
		if !slices.Contains(after, "jobs/other") || !lease.Valid() {
			t.Errorf("another tool's object is gone, or the lease: %q, %v", after, lease.Err())
		}
		for _, lock := range []*leasehold.Lock{busy, idle} {
			if lock == busy {
				release(t, lease)
			}
			next := acquire(t, lock)
			if lock == busy && here().Tokens() && next.Token() <= lease.Token() {
				t.Errorf("token %v after %v", next.Token(), lease.Token())
			}
			release(t, next)
		}
		_ = left.Release(t.Context())
	})
}

// TestCollectSessions: those that are over, a day later, and no others; one whose holder is
// gone is ended first.
func TestCollectSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		over, gone, alive := startProcess(t, st, "over"), startProcess(t, st, "gone"), startPatient(t, st, "alive", 10*time.Minute)
		over.acquire("shards/1")
		gone.acquire("shards/2")
		lease := alive.acquire("shards/3")
		over.close()
		gone.st.Partition(true)
		collect := func() (keys []string) {
			for c, err := range admin.Collect(t.Context(), st, "", nil) {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, c.Key)
			}
			return keys
		}
		time.Sleep(23 * time.Hour)
		if deleted := collect(); len(deleted) > 0 {
			t.Errorf("within a day %q were deleted", deleted)
		}
		time.Sleep(2 * time.Hour)
		if deleted := collect(); !slices.Equal(deleted, []string{over.session.Key()}) {
			t.Errorf("after a day %q were deleted", deleted)
		}
		if recordIn(t, st, gone.session.Key()).Held {
			t.Error("it has returned, and the session of a holder that is gone goes on")
		}
		info, err := alive.lock("shards/2").Inspect(t.Context())
		if err != nil || !info.Abandoned {
			t.Errorf("a lock of a session that was ended: %+v, %v", info, err)
		}
		time.Sleep(25 * time.Hour)
		if deleted := collect(); !slices.Equal(deleted, []string{gone.session.Key()}) {
			t.Errorf("after two days %q were deleted", deleted)
		}
		if !lease.Valid() {
			t.Error(lease.Err())
		}
		for _, key := range []string{"shards/1", "shards/2"} {
			start := time.Now()
			if alive.acquire(key); time.Since(start) > 0 {
				t.Errorf("%s names a session that was deleted, and was acquired after %v", key, time.Since(start))
			}
		}
		gone.st.Partition(false)
		gone.end()
		alive.end()
	})
}

// age makes a file look as if it had been written so long ago.
func age(t *testing.T, dir, key string, d time.Duration) {
	t.Helper()
	then := time.Now().Add(-d)
	if err := os.Chtimes(filepath.Join(dir, filepath.FromSlash(key)), then, then); err != nil {
		t.Fatal(err)
	}
}

// In a directory a read does not tell the store's time, so no session there was ever old enough
// to be deleted.
func TestCollectSessionsInADirectory(t *testing.T) {
	dir := t.TempDir()
	st, err := filestore.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *leasehold.Session {
		s, err := leasehold.NewSession(t.Context(), st, &leasehold.SessionOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	old, young, alive := begin(), begin(), begin()
	for _, s := range []*leasehold.Session{old, young} {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	age(t, dir, old.Key(), 25*time.Hour)
	age(t, dir, young.Key(), 23*time.Hour)
	for _, dry := range []bool{true, false, false} {
		var keys []string
		for c, err := range admin.Collect(t.Context(), st, "", &admin.CollectOptions{DryRun: dry}) {
			if err != nil || c.Age < 24*time.Hour || c.Age > 26*time.Hour {
				t.Errorf("%+v, %v", c, err)
			}
			keys = append(keys, c.Key)
		}
		want := []string{old.Key()}
		if !dry {
			_, err := st.Get(t.Context(), old.Key(), "")
			if store.DateOf(err).IsZero() {
				t.Errorf("it is still there: %v", err)
			}
		}
		if dry || len(keys) > 0 {
			if !slices.Equal(keys, want) {
				t.Errorf("dry %t: collected %q, want %q", dry, keys, want)
			}
		}
	}
	if err := alive.Err(); err != nil {
		t.Error(err)
	}
	for _, s := range []*leasehold.Session{young, alive} {
		if _, err := st.Get(t.Context(), s.Key(), ""); err != nil {
			t.Errorf("%s is gone: %v", s.Key(), err)
		}
	}
	if err := alive.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// One whose holder is gone is watched and ended; it is as young as that then.
	const gone = "sessions/gone"
	body := `{"format":1,"token":1,"state":"held","holder":"x","ttl_ms":1000,"write_id":"x.1","session":"","layout":"session"}`
	if _, err := st.Put(t.Context(), gone, []byte(body), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	age(t, dir, gone, 25*time.Hour)
	for range 2 {
		for c, err := range admin.Collect(t.Context(), st, "sessions/gone", nil) {
			t.Errorf("%+v, %v", c, err)
		}
		obj, err := st.Get(t.Context(), gone, "")
		if err != nil || !strings.Contains(string(obj.Body), `"state":"free"`) {
			t.Errorf("it was not ended: %+v, %v", obj, err)
		}
	}
}

// A dry run tells what would go, and neither deletes nor ends a session.
func TestDryRunEndsNoSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		gone := startProcess(t, st, "gone")
		gone.acquire("shards/1")
		gone.st.Partition(true)
		time.Sleep(25 * time.Hour)
		before, err := st.Get(t.Context(), gone.session.Key(), "")
		if err != nil {
			t.Fatal(err)
		}
		for c, err := range admin.Collect(t.Context(), st, "", &admin.CollectOptions{DryRun: true}) {
			t.Errorf("%+v, %v", c, err)
		}
		time.Sleep(time.Minute)
		if after, err := st.Get(t.Context(), gone.session.Key(), ""); err != nil || after.Version != before.Version {
			t.Errorf("a dry run has written %s: %v", gone.session.Key(), err)
		}
		gone.st.Partition(false)
		gone.end()
	})
}

// TestCollectManySessions: more sessions that nobody has ended than are watched at a time.
func TestCollectManySessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		gone := startProcess(t, st, "gone")
		gone.st.Partition(true)
		obj, err := st.Get(t.Context(), gone.session.Key(), "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			if _, err = st.Put(t.Context(), fmt.Sprintf("sessions/%032x", i), obj.Body, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(25 * time.Hour)
		began := time.Now()
		for c, err := range admin.Collect(t.Context(), st, "", nil) {
			t.Errorf("it is too young: %+v, %v", c, err)
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("it took %v", took)
		}
		for _, key := range objects(t, st) {
			if recordIn(t, st, key).Held {
				t.Errorf("the session %s goes on", key)
			}
		}
		gone.st.Partition(false)
		gone.end()
	})
}

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
	lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs})
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
				lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutMarker, NoIfMatch: true})
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
