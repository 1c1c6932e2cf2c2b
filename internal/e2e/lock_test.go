package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

func newLock(t *testing.T, st store.Store, opts *leasehold.LockOptions) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(st, "jobs/backup", opts)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func acquire(t *testing.T, lock *leasehold.Lock) *leasehold.Lease {
	t.Helper()
	lease, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func release(t *testing.T, lease *leasehold.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCostInRequests(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p place) {
		st := faultstore.Wrap(p.open(t), nil)
		renewed := make(chan struct{}, 100)
		lock := newLock(t, st, &leasehold.LockOptions{
			TTL: 3 * time.Second, OnRenew: func(*leasehold.Lease) { renewed <- struct{}{} },
		})
		var lease *leasehold.Lease
		for _, c := range []struct {
			what       string
			do         func()
			gets, puts int
		}{
			{"acquire, nothing known", func() { lease = acquire(t, lock) }, 1, 1},
			{"two renewals", func() { <-renewed; <-renewed }, 0, 2},
			{"release", func() { release(t, lease) }, 0, 1},
			{"acquire, version known", func() { lease = acquire(t, lock) }, 0, 1},
			{"release again", func() { release(t, lease) }, 0, 1},
			{"acquire a free lock, nothing known", func() { lease = acquire(t, newLock(t, st, nil)) }, 1, 1},
			{"look", func() { _, _ = lock.Inspect(t.Context()) }, 1, 0},
			{"release at last", func() { release(t, lease) }, 0, 1},
		} {
			count := func() (n [4]int) {
				n[0], n[1] = st.Counts().Get, st.Counts().Put
				if p.requests != nil {
					n[2], n[3] = p.requests()["GET"], p.requests()["PUT"]
				}
				return n
			}
			before := count()
			c.do()
			after := count()
			for i := range after {
				after[i] -= before[i]
			}
			want := [4]int{c.gets, c.puts}
			if p.requests != nil {
				want[2], want[3] = c.gets, c.puts
			}
			if after != want {
				t.Errorf("%s: %d GETs and %d PUTs of the store, %d and %d over HTTP; want %v", c.what, after[0], after[1], after[2], after[3], want)
			}
		}
	})
}

// TestNobodyOverlaps: candidates that fight for one lock hold it one after the
// other, each gets its turns, and the tokens grow.
func TestNobodyOverlaps(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p place) {
		const candidates, turns = 8, 5
		var (
			all    sync.WaitGroup
			inside atomic.Int32
			mu     sync.Mutex
			tokens []leasehold.Token
		)
		for i := range candidates {
			lock := newLock(t, p.open(t), &leasehold.LockOptions{Holder: fmt.Sprint("candidate ", i)})
			all.Go(func() {
				for range turns {
					err := lock.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d hold the lock", n)
						}
						mu.Lock()
						tokens = append(tokens, lease.Token())
						mu.Unlock()
						if !lease.Valid() {
							t.Error("not valid under Do")
						}
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if len(tokens) != candidates*turns {
			t.Errorf("%d turns of %d", len(tokens), candidates*turns)
		}
		for i := range tokens[1:] {
			if tokens[i+1] <= tokens[i] {
				t.Errorf("token %d after %d", tokens[i+1], tokens[i])
			}
		}
	})
}

// TestTakeover: a holder that is gone is taken over from, and not before its lease
// has ended on its own clock.
func TestTakeover(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p place) {
		cut := faultstore.Wrap(p.open(t), nil)
		gone := acquire(t, newLock(t, cut, &leasehold.LockOptions{TTL: 2 * time.Second}))
		cut.Partition(true)
		next := acquire(t, newLock(t, p.open(t), nil))
		if gone.Valid() || !errors.Is(gone.Err(), leasehold.ErrLost) {
			t.Errorf("the former lease, after another began: %v", gone.Err())
		}
		if next.Token() != gone.Token()+1 {
			t.Errorf("token %d after %d", next.Token(), gone.Token())
		}
		release(t, next)
	})
}

func TestObjectsThatAreNotLocks(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p place) {
		st := p.open(t)
		for name, body := range map[string][]byte{
			"garbage": []byte("\x00not a lock"), "one MiB": make([]byte, store.MaxBody), "empty": {},
			"higher format": []byte(`{"format":2,"token":1,"state":"free","ttl_ms":1,"write_id":"x"}`),
		} {
			if _, err := st.Put(t.Context(), name, body, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			lock, err := leasehold.NewLock(st, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lock.Acquire(t.Context()); !errors.Is(err, leasehold.ErrForeignObject) {
				t.Errorf("%s: %v", name, err)
			}
			if obj, err := st.Get(t.Context(), name, ""); err != nil || string(obj.Body) != string(body) {
				t.Errorf("%s: the object is not what it was: %v", name, err)
			}
		}
	})
}
