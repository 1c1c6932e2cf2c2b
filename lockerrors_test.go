package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
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
			var log lines
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

// TestBreakCosts: one read and one write, over what is there, and no write if it is free already.
func TestBreakCosts(t *testing.T) {
	for l, want := range map[leasehold.Layout]requests{
		leasehold.LayoutObject:        {get: 1, put: 1},
		leasehold.LayoutEpochsIfMatch: {get: 1, put: 1, list: 1},
	} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l})
			lease := acquire(t, lock)
			before := objects(t, st)
			do := func() {
				t.Helper()
				if info, err := lock.Break(t.Context(), lease.Token()); err != nil || info.Held || info.Token != lease.Token() || info.Key != lock.Key() {
					t.Errorf("%s: %+v, %v", l, info, err)
				}
			}
			if got := cost(st, do); got != want || len(objects(t, st)) != len(before) {
				t.Errorf("%s: it made %v, want %v, and left %q of %q", l, got, want, objects(t, st), before)
			}
			want.put = 0
			if got := cost(st, do); got != want {
				t.Errorf("%s, again: it made %v, want %v", l, got, want)
			}
			_ = lease.Release(t.Context())
		})
	}
}

// TestBreakWhoseAnswerIsLost: it looks what became of its write, and says so.
func TestBreakWhoseAnswerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, landed := range []bool{true, false} {
			for _, seen := range []bool{true, false} {
				st := newStore()
				lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
				lease := acquire(t, lock)
				kind := faultstore.LostAnswer
				if !landed {
					kind = faultstore.LostRequest
				}
				st.Inject(faultstore.Fault{Kind: kind, Op: "put", Nth: 1})
				if !seen {
					st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Nth: 2})
				}
				info, err := lock.Break(t.Context(), lease.Token())
				if works := landed && seen; works != (err == nil) || works != (info.Token == lease.Token()) || info.Held {
					t.Errorf("landed %v, seen %v: %+v, %v", landed, seen, info, err)
				}
				st.Clear()
				_ = lease.Release(t.Context())
			}
		}
	})
}

// TestBreakWithoutToken: there is none to break a marker by, nor a lock that is named without one.
func TestBreakWithoutToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, l := range leasehold.Layouts {
			st := newStore()
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l})
			lease := acquire(t, lock)
			for _, token := range []leasehold.Token{leasehold.NoToken, 7} {
				want := leasehold.ErrNoTokens
				if l.Tokens() && token != leasehold.NoToken {
					want = leasehold.ErrTokenChanged
				}
				if _, err := lock.Break(t.Context(), token); !errors.Is(err, want) {
					t.Errorf("%s by the token %v: want %v, got %v", l, token, want, err)
				}
			}
			release(t, lease)
		}
	})
}

// TestInit: it costs a read and a write, says what it has made, and does not say that it has made what it
// could not make.
func TestInit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		absent, err := lock.Inspect(t.Context())
		if want := (leasehold.Info{Key: "jobs/backup", Age: -1}); err != nil || fmt.Sprint(absent) != fmt.Sprint(want) {
			t.Errorf("of no lock: %+v, %v", absent, err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Nth: 1}, faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 4})
		if info, made, err := lock.Init(t.Context()); !errors.Is(err, store.ErrDenied) || made || info.Exists {
			t.Errorf("a write that was denied: %+v, %v, %v", info, made, err)
		}
		got := cost(st, func() {
			if info, made, err := lock.Init(t.Context()); err != nil || !made || !info.Exists || info.Held || info.Key != "jobs/backup" || info.Token == 0 {
				t.Errorf("%+v, %v, %v", info, made, err)
			}
		})
		if want := (requests{get: 1, put: 1}); got != want {
			t.Errorf("it made %v, want %v", got, want)
		}
	})
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
