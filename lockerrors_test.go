package leasehold_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestNothingIsAskedForACallThatHasEnded: a call whose context has ended before says so, and asks the store
// nothing.
func TestNothingIsAskedForACallThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asks atomic.Int64
		count := func() { asks.Add(1) }
		lock := newLock(t, &told{Store: memstore.New(), read: count, after: count}, inOneObject)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		for name, f := range map[string]func() error{
			"Acquire":    func() error { _, err := lock.Acquire(ctx); return err },
			"TryAcquire": func() error { _, err := lock.TryAcquire(ctx); return err },
			"Do": func() error {
				return lock.Do(ctx, func(context.Context, *leasehold.Lease) error {
					t.Error("Do has called its function")
					return nil
				})
			},
		} {
			if err := f(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait() // a request has a goroutine of its own
			if n := asks.Load(); n > 0 {
				t.Errorf("%s: the store was asked %d times", name, n)
			}
		}
		release(t, acquire(t, lock))
	})
}

// TestDoTells: what Do returns and logs, whatever became of the work, of the lease and of its release; the
// context of the work has ended by then, and not because of the release.
func TestDoTells(t *testing.T) {
	failed := errors.New("the work failed")
	for name, c := range map[string]struct {
		work, lost, stuck bool // the work fails, the lease is lost, the release is not confirmed
		logs              string
	}{
		"all is well":                    {},
		"the work fails":                 {work: true},
		"the lease is lost":              {lost: true},
		"both":                           {work: true, lost: true},
		"the release is not confirmed":   {stuck: true, logs: "lock not released"},
		"nor that of a lost lease":       {lost: true, stuck: true}, // the error says that it was lost
		"nor that after work that fails": {work: true, stuck: true, logs: "lock not released"},
	} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			var log leasetest.Log
			lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			var ended func() error
			err := lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
				ended = func() error { return context.Cause(ctx) }
				if c.lost {
					lease.Abandon(nil)
					<-ctx.Done()
				}
				st.Partition(c.stuck)
				if c.work {
					return failed
				}
				return nil
			})
			if errors.Is(err, failed) != c.work || errors.Is(err, leasehold.ErrLost) != c.lost || err != nil != (c.work || c.lost) {
				t.Errorf("%s: Do returned %v", name, err)
			}
			if cause := ended(); errors.Is(cause, leasehold.ErrLost) != c.lost || errors.Is(cause, context.Canceled) == c.lost {
				t.Errorf("%s: the context of the work ended with %v", name, cause)
			}
			if text := log.String(); !strings.Contains(text, c.logs) || c.logs == "" && strings.Contains(text, "not released") {
				t.Errorf("%s: the log says %q", name, text)
			}
		})
	}
}

// TestErrorsSayWhatToDo: what an acquisition meets that it cannot change is explained to its caller.
func TestErrorsSayWhatToDo(t *testing.T) {
	bubble(t, func(t *testing.T) { // an object that was deleted
		st := memstore.New()
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject}))
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		erase(t, st)
		if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, store.ErrNotExist) || !strings.Contains(err.Error(), "its last holder may not know; wait a little over its TTL") {
			t.Errorf("deleted: %v", err)
		}
		_ = lease.Release(t.Context())
	})
	bubble(t, func(t *testing.T) { // a store that is slow
		var claimed time.Time
		st := newStore()
		st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, When: func(c faultstore.Call) bool {
			if strings.Contains(string(c.Body), `"state":"held"`) {
				claimed = time.Now()
			}
			return time.Since(claimed) < 8*time.Second
		}})
		_, err := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject}).Acquire(t.Context())
		if err == nil || !strings.Contains(err.Error(), "choose a longer TTL") {
			t.Errorf("slow: %v", err)
		}
		time.Sleep(time.Minute) // what has landed is freed
	})
	st := newStore()
	plant(t, st, "jobs/backup", "not a lock")
	_, err := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject}).Acquire(t.Context())
	if !errors.Is(err, leasehold.ErrForeignObject) || !strings.Contains(err.Error(), "it was left as it is: look at it, and move it away") {
		t.Errorf("foreign: %v", err)
	}
}

// TestInspectIsTheLatestLook: what an Inspect shows is looked at from then on, though an earlier one has
// shown another record.
func TestInspectIsTheLatestLook(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		gone := newStoreOver(inner)
		lease := acquire(t, newLock(t, gone, nil))
		lock := newLock(t, inner, nil)
		for range 2 {
			if _, err := lock.Inspect(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(6 * time.Second) // it renews, and the second time it does not
			gone.Partition(true)
		}
		time.Sleep(leasehold.DefaultTTL)
		got, err := lock.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release(t, got)
		_ = lease.Release(t.Context())
	})
}
