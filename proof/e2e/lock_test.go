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
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

func newLock(t *testing.T, st store.Store, opts *leasehold.LockOptions) *leasehold.Lock {
	t.Helper()
	return newLockAt(t, st, "jobs/backup", opts)
}

func newLockAt(t *testing.T, st store.Store, key string, opts *leasehold.LockOptions) *leasehold.Lock {
	t.Helper()
	if opts == nil {
		opts = &leasehold.LockOptions{}
	}
	opts.Layout, opts.NoIfMatch, opts.Sweep = underTest.Layout, underTest.NoIfMatch, !renewals()
	lock, err := leasehold.NewLock(st, key, opts)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// later reports that a token is one of a later lease, or that there are none.
func later(token, than leasehold.Token) bool {
	if underTest.Tokens() {
		return token > than
	}
	return token == leasehold.NoToken && than == leasehold.NoToken
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

// TestCostInRequests: each call of the store is one request to the server, and no
// more. The library's own tests count the calls in the other layouts.
func TestCostInRequests(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p place) {
		st := faultstore.Wrap(p.open(t), nil)
		renewed := make(chan struct{}, 100)
		lock := newLock(t, st, &leasehold.LockOptions{
			TTL: 3 * time.Second, Trace: leasetest.OnRenew(func() { renewed <- struct{}{} }),
		})
		var lease *leasehold.Lease
		for _, c := range []struct {
			what       string
			do         func()
			gets, puts int // in the layout object
		}{
			{"acquire, nothing known", func() { lease = acquire(t, lock) }, 1, 1},
			{"two renewals", func() {
				if renewals() {
					<-renewed
					<-renewed
				}
			}, 0, 2},
			{"release", func() { release(t, lease) }, 0, 1},
			{"acquire, version known", func() { lease = acquire(t, lock) }, 0, 1},
			{"release again", func() { release(t, lease) }, 0, 1},
			{"acquire a free lock, nothing known", func() { lease = acquire(t, newLock(t, st, nil)) }, 1, 1},
			{"look", func() { _, _ = lock.Inspect(t.Context()) }, 1, 0},
			{"release at last", func() { release(t, lease) }, 0, 1},
		} {
			calls, requests := st.Counts(), p.counts()
			c.do()
			sent := p.counts()
			for method := range sent {
				sent[method] -= requests[method]
			}
			n := st.Counts()
			get, put, list, del := n.Get-calls.Get, n.Put-calls.Put, n.List-calls.List, n.Delete-calls.Delete
			if underTest == leasetest.Object && [4]int{get, put, list, del} != [4]int{c.gets, c.puts, 0, 0} {
				t.Errorf("%s: %d GETs, %d PUTs, %d LISTs and %d DELETEs; want %d GETs and %d PUTs", c.what, get, put, list, del, c.gets, c.puts)
			}
			if want := (map[string]int{"GET": get + list, "PUT": put, "DELETE": del}); p.requests != nil && !same(sent, want) {
				t.Errorf("%s: %v over HTTP for %v calls", c.what, sent, want)
			}
		}
	})
}

// same compares counts, of which one that is not there is 0.
func same(a, b map[string]int) bool {
	for _, method := range []string{"GET", "PUT", "DELETE", "HEAD", "POST"} {
		if a[method] != b[method] {
			return false
		}
	}
	return true
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
			if !later(tokens[i+1], tokens[i]) {
				t.Errorf("token %v after %v", tokens[i+1], tokens[i])
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
		if !later(next.Token(), gone.Token()) {
			t.Errorf("token %v after %v", next.Token(), gone.Token())
		}
		release(t, next)
	})
}

// TestObjectsThatAreNotLocks: a foreign object is left as it is. In the layout of
// markers it is another tool's, so that the lock is held.
func TestObjectsThatAreNotLocks(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p place) {
		st := p.open(t)
		for name, body := range map[string][]byte{
			"garbage": []byte("\x00not a lock"), "one MiB": make([]byte, store.MaxBody), "empty": {},
			"higher format": []byte(`{"format":2,"token":1,"state":"free","ttl_ms":1,"write_id":"x"}`),
		} {
			key := name
			if underTest.Layout == leasehold.LayoutEpochs {
				key = layout.EpochKey(name, 1)
			}
			if _, err := st.Put(t.Context(), key, body, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
			lock := newLockAt(t, st, name, nil)
			if underTest.Tokens() {
				if _, err := lock.Acquire(t.Context()); !errors.Is(err, leasehold.ErrForeignObject) {
					t.Errorf("%s: %v", name, err)
				}
			} else if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
			if obj, err := st.Get(t.Context(), key, ""); err != nil || string(obj.Body) != string(body) {
				t.Errorf("%s: the object is not what it was: %v", name, err)
			}
		}
	})
}
