package leasehold_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// deletes counts what was sent.
func deletes(st *faultstore.Store) int { return st.Counts().Delete }

// collecting acquires a lock with epochs until its holder collects the past, which takes a
// second for each of about a hundred epochs.
func collecting(t *testing.T, l leasehold.Layout, session bool) (*faultstore.Store, *leasehold.Lock, *leasehold.Lease) {
	t.Helper()
	st := newStore()
	opts := &leasehold.LockOptions{Layout: l}
	if session {
		s, err := leasehold.NewSession(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		opts.Session = s
		t.Cleanup(func() { _ = s.Close(context.Background()) })
	}
	before := newLock(t, st, &leasehold.LockOptions{Layout: l})
	for range 150 {
		release(t, acquire(t, before))
	}
	time.Sleep(25 * time.Hour)
	st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "delete", Delay: time.Second})
	lock := newLock(t, st, opts)
	for range 200 {
		lease, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if deletes(st) > 0 {
			return st, lock, lease
		}
		release(t, lease)
	}
	t.Fatal("nobody has collected anything")
	return nil, nil, nil
}

// A holder's collection of the past went on for up to a minute after Release and Settle had
// returned, in a process that took itself for done.
func TestCollectionEndsWithTheLease(t *testing.T) {
	for _, l := range []leasehold.Layout{leasehold.LayoutEpochs, leasehold.LayoutEpochsIfMatch} {
		for end, f := range map[string]func(*testing.T, *leasehold.Lock, *leasehold.Lease){
			"released": func(t *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) { release(t, lease) },
			"given up": func(_ *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) { lease.Abandon(context.Canceled) },
			"settled": func(t *testing.T, lock *leasehold.Lock, lease *leasehold.Lease) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				go func() { _ = lease.Release(ctx) }()
				<-lease.Done()
				if err := lock.Settle(t.Context()); err != nil {
					t.Error(err)
				}
			},
		} {
			for _, session := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, session %t", l, end, session), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						st, lock, lease := collecting(t, l, session)
						before := deletes(st)
						time.Sleep(5 * time.Second)
						if now := deletes(st); now <= before {
							t.Fatalf("this shows nothing: %d deletes, then %d", before, now)
						}
						f(t, lock, lease)
						before = deletes(st)
						time.Sleep(2 * time.Minute)
						if now := deletes(st); now != before {
							t.Errorf("%d deletes, and two minutes later %d", before, now)
						}
						_ = lease.Release(t.Context())
					})
				})
			}
		}
	}
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
		for c, err := range leasehold.Collect(t.Context(), st, "", &leasehold.CollectOptions{DryRun: dry}) {
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
	if !alive.Valid() {
		t.Error(alive.Err())
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
		for c, err := range leasehold.Collect(t.Context(), st, "sessions/gone", nil) {
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
		for c, err := range leasehold.Collect(t.Context(), st, "", &leasehold.CollectOptions{DryRun: true}) {
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
		for c, err := range leasehold.Collect(t.Context(), st, "", nil) {
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
