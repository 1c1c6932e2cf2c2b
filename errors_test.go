package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/multilock"
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
		lock := newLock(t, &told{Store: memstore.New(), read: count, after: count}, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
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

// refusing is a store that answers some operations, or all, with one kind of error for as long as
// that is set, and takes its time. It counts the requests.
type refusing struct {
	store.Store
	ops  string // "put", "get" (and list), or "all"
	kind atomic.Pointer[error]
	sent atomic.Int64
}

func (s *refusing) fails(op, key string) error {
	s.sent.Add(1)
	time.Sleep(time.Millisecond)
	if kind := s.kind.Load(); kind != nil && (s.ops == "all" || s.ops == op) {
		return &store.Error{Op: op, Key: key, Kind: *kind, Cause: errors.New("it is out of order")}
	}
	return nil
}

func (s *refusing) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := s.fails("get", key); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key, unless)
}

func (s *refusing) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := s.fails("put", key); err != nil {
		return nil, err
	}
	return s.Store.Put(ctx, key, body, only)
}

func (s *refusing) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if err := s.fails("get", prefix); err != nil {
			yield(store.Entry{}, err)
			return
		}
		for e, err := range s.Store.List(ctx, prefix, after) {
			if !yield(e, err) {
				return
			}
		}
	}
}

func (s *refusing) set(kind error) { s.kind.Store(&kind) }
func (s *refusing) mend()          { s.kind.Store(nil) }

// passing are the failures that may pass by themselves.
var passing = []error{store.ErrPrecondition, store.ErrConflict, store.ErrThrottled, store.ErrUnknownOutcome, store.ErrUnavailable}

// final are those that the same request meets again.
var final = []error{store.ErrDenied, store.ErrNoBucket, store.ErrInvalid}

// allowed is how many requests a candidate may send in that time to a store that fails: a try a
// second after the first few, each a write and the look after it, or with epochs two listings more.
func allowed(d time.Duration) int64 {
	try := int64(2)
	if hasEpochs() {
		try = 4
	}
	return try * (6 + int64(d/time.Second))
}

// TestTroubleIsBounded: whatever kind of failure lasts, of writes, of reads or of all, nobody
// floods the store, neither while somebody waits nor after it has given up. An object that was
// absent and could not be created was tried some 1,700 times a second.
func TestTroubleIsBounded(t *testing.T) {
	for _, kind := range passing {
		for _, ops := range []string{"put", "get", "all"} {
			for _, ttl := range []time.Duration{time.Second, 15 * time.Second, 24 * time.Hour} {
				t.Run(fmt.Sprintf("%v %s %v", kind, ops, ttl), func(t *testing.T) {
					for name, try := range map[string]func(context.Context, store.Store, time.Duration) error{
						"Acquire": tryLock, "TryAcquire": tryOnce, "Run": tryElection, "NewSession": trySession,
					} {
						bubble(t, func(t *testing.T) {
							st := &refusing{Store: memstore.New(), ops: ops}
							st.set(kind)
							began, lasts := time.Now(), min(10*ttl, 3*time.Minute)
							ctx, cancel := context.WithTimeout(t.Context(), lasts)
							defer cancel()
							err := try(ctx, st, ttl)
							if err == nil || !errors.Is(err, kind) && ctx.Err() == nil {
								t.Errorf("%s: %v", name, err)
							}
							if ctx.Err() != nil && !strings.Contains(err.Error(), "out of order") && name != "Run" {
								t.Errorf("%s does not say why: %v", name, err)
							}
							time.Sleep(min(2*ttl, 3*time.Minute)) // it is settled meanwhile
							if sent, most := st.sent.Load(), allowed(time.Since(began)); sent > most {
								t.Errorf("%s sent %d requests in %v, more than %d", name, sent, time.Since(began), most)
							}
							st.mend()
							err = try(context.WithoutCancel(ctx), st, ttl)
							if errors.Is(err, leasehold.ErrHeld) { // by the write, sent a moment ago, that settles what was given up
								time.Sleep(time.Second)
								err = try(context.WithoutCancel(ctx), st, ttl)
							}
							if err != nil {
								t.Errorf("%s, when the store is well again: %v", name, err)
							}
							time.Sleep(time.Minute) // what was given up is settled, too
						})
					}
				})
			}
		}
	}
}

// TestFinalRefusals: what will be refused again is not tried again.
func TestFinalRefusals(t *testing.T) {
	for _, kind := range final {
		for name, try := range map[string]func(context.Context, store.Store, time.Duration) error{
			"Acquire": tryLock, "TryAcquire": tryOnce, "Run": tryElection, "NewSession": trySession,
		} {
			t.Run(fmt.Sprintf("%v %s", kind, name), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					st := &refusing{Store: memstore.New(), ops: "put"}
					st.set(kind)
					began := time.Now()
					if err := try(t.Context(), st, 15*time.Second); !errors.Is(err, kind) {
						t.Error(err)
					}
					if d, sent := time.Since(began), st.sent.Load(); d > 100*time.Millisecond || sent > allowed(0) {
						t.Errorf("it took %v and %d requests", d, sent)
					}
				})
			})
		}
	}
}

func tryLock(ctx context.Context, st store.Store, ttl time.Duration) error {
	return useLock(ctx, st, ttl, (*leasehold.Lock).Acquire)
}

func tryOnce(ctx context.Context, st store.Store, ttl time.Duration) error {
	return useLock(ctx, st, ttl, (*leasehold.Lock).TryAcquire)
}

func useLock(ctx context.Context, st store.Store, ttl time.Duration, acquire func(*leasehold.Lock, context.Context, ...leasehold.AcquireOption) (*leasehold.Lease, error)) error {
	lock, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{TTL: ttl})
	if err != nil {
		return err
	}
	lease, err := acquire(lock, ctx)
	if err != nil {
		return err
	}
	return lease.Release(context.WithoutCancel(ctx))
}

func tryElection(ctx context.Context, st store.Store, ttl time.Duration) error {
	el, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl}})
	if err != nil {
		return err
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	led := false
	err = el.Run(ctx, func(context.Context, *leasehold.Lease) error {
		led = true
		done()
		return nil
	})
	if led {
		return nil
	}
	return err
}

func trySession(ctx context.Context, st store.Store, ttl time.Duration) error {
	s, err := leasehold.NewSession(ctx, st, &leasehold.SessionOptions{TTL: ttl})
	if err != nil {
		return err
	}
	return s.Close(context.WithoutCancel(ctx))
}

// TestTroubleIsTold: a store that fails is reported at its third failure in a row and then once a
// minute, and an acquisition that is given up says why it did not get the lock. All of that was silent.
func TestTroubleIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &refusing{Store: memstore.New(), ops: "put"}
		st.set(store.ErrThrottled)
		var mu sync.Mutex
		var told []time.Duration
		var log leasetest.Log
		began := time.Now()
		lock := newLock(t, st, &leasehold.LockOptions{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Trace: leasetest.OnTrouble(func(err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, time.Since(began))
				if !errors.Is(err, store.ErrThrottled) {
					t.Errorf("told of %v", err)
				}
			}),
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+30*time.Second)
		defer cancel()
		_, err := lock.Acquire(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrThrottled) {
			t.Error(err)
		}
		synctest.Wait()
		mu.Lock()
		at := slices.Clone(told) // what was given up is settled, and may be told of yet
		mu.Unlock()
		if len(at) < 10 || len(at) > 11 || at[0] > 2*time.Second || at[1]-at[0] < time.Minute {
			t.Errorf("told at %v", at)
		}
		if n := strings.Count(log.String(), locktrace.TroubleMessage); n != len(at) {
			t.Errorf("%d lines in the log, and told %d times: %s", n, len(at), &log)
		}
		time.Sleep(time.Minute) // what was given up is settled
	})
}

// holdUnderSession begins a session and holds the lock under it.
func holdUnderSession(t *testing.T, st store.Store) (*leasehold.Session, *leasehold.Lease) {
	t.Helper()
	s, err := leasehold.NewSession(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := newLock(t, st, &leasehold.LockOptions{Session: s}).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, lease
}

// TestTroubleOfASession: a waiter sends nothing while the holder's session goes on; that the store does
// not say whether it does is reported all the same.
func TestTroubleOfASession(t *testing.T) {
	needsSuccessors(t)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		s, lease := holdUnderSession(t, inner)
		st := &refusing{Store: inner, ops: "get"}
		told := make(chan error, 10)
		var log leasetest.Log
		lock := newLock(t, st, &leasehold.LockOptions{Trace: leasetest.OnTrouble(func(err error) { told <- err }), Logger: debugLog(&log)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := lock.Acquire(ctx)
			done <- err
		}()
		time.Sleep(time.Minute)
		st.set(store.ErrUnavailable)
		select {
		case err := <-told:
			if !errors.Is(err, store.ErrUnavailable) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("nobody is told")
		}
		cancel()
		if err := <-done; !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("it does not say why it waited: %v", err)
		}
		if n := strings.Count(log.String(), locktrace.TroubleMessage); n != 1 {
			t.Errorf("%d lines in the log: %s", n, &log)
		}

		// Nobody knows whether the session goes on that nobody has looked at.
		limited, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		st.mend()
		cut := newStoreOver(inner)
		cut.Inject(faultstore.Fault{Kind: faultstore.Unavailable, When: func(c faultstore.Call) bool { return c.Key == s.Key() }})
		blind := newLock(t, cut, nil)
		go func() { _, _ = blind.Acquire(limited) }()
		time.Sleep(time.Minute)
		var held *leasehold.HeldError
		if _, err := blind.TryAcquire(t.Context()); !errors.As(err, &held) || held.Info.Abandoned {
			t.Errorf("of a session that was never seen: %v", err)
		}

		// Trouble that is over is no reason.
		go func() {
			_, err := lock.Acquire(limited)
			done <- err
		}()
		time.Sleep(time.Minute)
		st.set(store.ErrUnavailable)
		time.Sleep(time.Minute)
		st.mend()
		if err := <-done; errors.Is(err, store.ErrUnavailable) || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("after the store has come back: %v", err)
		}
		release(t, lease)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestBackInSeconds: a store that was away for two seconds keeps nobody waiting for longer than
// seconds, whatever the TTL. At a TTL of 24 h a waiter got a free lock after 8 h and led after 13.6 h.
func TestBackInSeconds(t *testing.T) {
	for name, try := range map[string]func(context.Context, store.Store, time.Duration) error{
		"Acquire": tryLock, "Run": tryElection, "NewSession": trySession,
	} {
		for _, ops := range []string{"get", "put", "all"} {
			t.Run(name+" "+ops, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					st := &refusing{Store: memstore.New(), ops: ops}
					st.set(store.ErrUnavailable)
					time.AfterFunc(2*time.Second, st.mend)
					began := time.Now()
					if err := try(t.Context(), st, 24*time.Hour); err != nil {
						t.Error(err)
					}
					if d := time.Since(began); d > 8*time.Second {
						t.Errorf("it came after %v", d)
					}
				})
			})
		}
	}
}

// TestBackInSecondsForASession: the same for a waiter whose holder's session ended while the store was away.
func TestBackInSecondsForASession(t *testing.T) {
	needsSuccessors(t)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		s, lease := holdUnderSession(t, inner)
		st := &refusing{Store: inner, ops: "all"}
		lock := newLock(t, st, &leasehold.LockOptions{TTL: 24 * time.Hour})
		got := make(chan time.Time)
		go func() {
			defer close(got)
			next, err := lock.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			got <- time.Now()
			_ = next.Release(t.Context())
		}()
		time.Sleep(10 * time.Second)
		st.set(store.ErrUnavailable)
		go s.Close(t.Context()) // its lease is released below
		synctest.Wait()
		_ = lease.Release(t.Context()) // it was lost with the session
		time.Sleep(time.Minute)
		st.mend()
		mended := time.Now()
		if d := (<-got).Sub(mended); d > 15*time.Second {
			t.Errorf("it came after %v", d)
		}
		<-got
	})
}

// TestTryAcquireEnds: it ends within a TTL, though the store hangs or refuses each write. It used to go
// on for ever.
func TestTryAcquireEnds(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 15 * time.Second, time.Hour} {
		bubble(t, func(t *testing.T) {
			st := &refusing{Store: memstore.New(), ops: "put"}
			st.set(store.ErrUnavailable)
			began := time.Now()
			lock := newLock(t, st, &leasehold.LockOptions{TTL: ttl})
			if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, store.ErrUnavailable) {
				t.Error(err)
			}
			if d := time.Since(began); d > min(ttl, 3*time.Second) {
				t.Errorf("TTL %v: a store that refuses is waited for %v", ttl, d)
			}
			began = time.Now()
			if _, err := newLock(t, hanging{memstore.New()}, &leasehold.LockOptions{TTL: ttl}).TryAcquire(t.Context()); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("from a store that says nothing: %v", err) // it used to be an error of no kind
			}
			if d := time.Since(began); d > min(ttl, time.Minute) {
				t.Errorf("TTL %v: a store that hangs is waited for %v", ttl, d)
			}
			st.mend()
			if err := lock.Settle(t.Context()); err != nil { // or a look for that might be under way at the end
				t.Error(err)
			}
			time.Sleep(time.Minute) // requests end
		})
	}
}

// hanging answers nothing.
type hanging struct{ store.Store }

func (hanging) Get(ctx context.Context, key string, _ store.Version) (*store.Object, error) {
	<-ctx.Done()
	return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
}

func (hanging) List(ctx context.Context, prefix, _ string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		<-ctx.Done()
		yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrUnavailable, Cause: ctx.Err()})
	}
}

// TestTroubleIsLogged: a program that says nothing of a Logger learns why it waits for a store that cannot be reached,
// and how to bound that. It used to hang in silence.
func TestTroubleIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var text leasetest.Log
		leasetest.LogByDefault(t, &text)
		st := newStore()
		lock, err := leasehold.NewLock(st, "report", leasetest.Patient(leasehold.LockOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		st.Partition(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := lock.Do(ctx, func(context.Context, *leasehold.Lease) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it returned %v", err)
		}
		if n := strings.Count(text.String(), "the store fails, and is tried again"); n < 4 || n > 6 {
			t.Errorf("in five minutes it was said %d times: %s", n, &text)
		}
		for _, part := range []string{"level=WARN", "mem://", "report", "store unavailable", "goes on until its context ends: give it a deadline"} {
			if !strings.Contains(text.String(), part) {
				t.Errorf("the log does not say %q: %s", part, &text)
			}
		}
	})
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

// seenAs is what a record looks like after some time, in a store that tells its time or in one that
// does not.
func seenAs(t *testing.T, l leasehold.Layout, body string, tells bool, after time.Duration) leasehold.Info {
	t.Helper()
	st := memstore.New()
	if _, err := st.Put(t.Context(), "jobs/backup", []byte(body), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	var look store.Store = st
	if !tells {
		look = timeless{st}
	}
	info, err := newLock(t, look, &leasehold.LockOptions{Layout: l}).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestAgeOfAnotherRecord: what a Lock has read of one holder says nothing of the next one, which
// it knows by a look of its user.
func TestAgeOfAnotherRecord(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		first, second, third := newLock(t, st, nil), newLock(t, st, nil), newLock(t, st, nil)
		tried := func() leasehold.Info {
			var held *leasehold.HeldError
			if _, err := third.TryAcquire(t.Context()); !errors.As(err, &held) {
				t.Fatal(err)
			}
			return held.Info
		}
		lease := acquire(t, first)
		tried()
		time.Sleep(7 * time.Second)
		release(t, lease)
		defer release(t, acquire(t, second))
		if _, err := third.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i := tried(); i.Holder == "" || i.Age > 0 {
			t.Errorf("the record was written just now, and is said to be %v old", i.Age)
		}
	})
}

// TestHintOfAge: a holder looks abandoned when its record is older than TTL, margin and what clocks that
// show whole seconds may be off: by the store's clock if that tells, else by the wall clocks, and where
// neither tells it does not.
func TestHintOfAge(t *testing.T) {
	const ttl = 15 * time.Second
	limit := protocol.Patience(ttl) + 3*time.Second
	text := func(state string, renewed time.Time) string {
		at := ""
		if !renewed.IsZero() {
			at = fmt.Sprintf(`,"renewed_at":%q`, renewed.UTC().Format(time.RFC3339Nano))
		}
		return fmt.Sprintf(`{"format":1,"token":7,"state":%q,"holder":"x","ttl_ms":15000,"write_id":"x.1"%s}`, state, at)
	}
	for name, c := range map[string]struct {
		state   string
		renewed time.Duration // this long before the record was written, by the wall clock of the holder; negative: it does not say
		tells   bool
		after   time.Duration
		gone    bool
	}{
		"at the limit":                         {"held", 0, true, limit, false},
		"just over the limit":                  {"held", 0, true, limit + 1, true},
		"free":                                 {"free", 0, true, time.Hour, false},
		"a holder whose clock is slow":         {"held", time.Hour, true, time.Second, false},
		"no time of renewal":                   {"held", -1, true, time.Hour, true},
		"by the wall clock, at the limit":      {"held", 0, false, limit, false},
		"by the wall clock, over it":           {"held", 0, false, limit + time.Second, true},
		"by the wall clock, that was slow":     {"held", time.Hour, false, time.Second, true},
		"no time at all":                       {"held", -1, false, time.Hour, false},
		"a free one, by the wall clock, is so": {"free", 0, false, time.Hour, false},
	} {
		bubble(t, func(t *testing.T) {
			var renewed time.Time
			if c.renewed >= 0 {
				renewed = time.Now().Add(-c.renewed).Truncate(time.Millisecond)
			}
			info := seenAs(t, leasehold.LayoutObject, text(c.state, renewed), c.tells, c.after)
			age := c.after
			if !c.tells {
				age = -1
			}
			if info.Abandoned != c.gone || info.Age != age || !info.RenewedAt.Equal(renewed) || info.TTL != ttl {
				t.Errorf("%s: %+v", name, info)
			}
		})
	}
	bubble(t, func(t *testing.T) {
		info := seenAs(t, leasehold.LayoutMarker, "another tool's", true, time.Hour)
		if info.TTL != 0 || info.Abandoned || info.Age != time.Hour || !info.Held {
			t.Errorf("another tool's marker: %+v", info)
		}
	})
}

// TestTimesOfAnInfo: the times that a holder writes are those that are told.
func TestTimesOfAnInfo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		began := time.Now()
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject}))
		time.Sleep(6 * time.Second)
		info, err := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutObject}).Inspect(t.Context())
		renewed := began.Add(protocol.Renewal(leasehold.DefaultTTL))
		if err != nil || !near(info.AcquiredAt, began) || !near(info.RenewedAt, renewed) || !near(info.ExpiresAt, renewed.Add(leasehold.DefaultTTL)) {
			t.Errorf("%+v, %v", info, err)
		}
		release(t, lease)
	})
}

// TestSessionIsWatchedAsASession: whatever the options of the lock are, the session of its holder is
// waited out for its TTL and margin, and one that is not there is over.
func TestSessionIsWatchedAsASession(t *testing.T) {
	for name, opts := range map[string]leasehold.LockOptions{
		"fast start": {FastStart: true, Layout: leasehold.LayoutObject},
		"existing":   {Existing: true, Layout: leasehold.LayoutObject},
		"epochs":     *leasetest.EpochsNoIfMatch.Options(),
		"if-match":   *leasetest.Epochs.Options(),
	} {
		for _, deleted := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				inner := memstore.New()
				a := startProcess(t, inner, "a")
				held, err := leasehold.NewLock(a.st, "jobs/backup", &leasehold.LockOptions{Layout: opts.Layout, NoIfMatch: opts.NoIfMatch, Session: a.session})
				if err != nil {
					t.Fatal(err)
				}
				acquire(t, held)
				a.st.Partition(true)
				time.Sleep(time.Hour)
				other := newLock(t, inner, &opts)
				began := time.Now()
				if deleted {
					time.AfterFunc(5*time.Second, func() {
						if err := inner.Delete(t.Context(), a.session.Key()); err != nil {
							t.Error(err)
						}
					})
				}
				lease := acquire(t, other)
				took, patience := time.Since(began), protocol.Patience(leasehold.DefaultTTL)
				if !deleted && (took < patience || took > patience+5*time.Second) || deleted && (took < 5*time.Second || took > patience) {
					t.Errorf("%s, deleted %v: taken over after %v", name, deleted, took)
				}
				if !deleted && recordIn(t, inner, a.session.Key()).Held {
					t.Errorf("%s: the session was waited out, and not ended", name)
				}
				release(t, lease)
				a.st.Partition(false)
				a.end()
			})
		}
	}
}

// A look asks for the session of the holder if there is one, and for nothing else.
func TestInspectAsksForTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		lease := a.acquire("shards/1")
		other := acquire(t, newLock(t, inner, nil))
		st := newStoreOver(inner)
		for key, want := range map[string]int{"shards/1": 2, "jobs/backup": 1} {
			st.Reset()
			if info, err := locksOf(t, st, nil, key)[0].Inspect(t.Context()); err != nil || !info.Held || info.Abandoned {
				t.Errorf("%s: %+v, %v", key, info, err)
			}
			lists := st.Counts().List // of epochs
			if sent := st.Log(); len(sent)-lists != want {
				t.Errorf("%s: %v, want %d reads", key, sent, want)
			}
		}
		release(t, other)
		release(t, lease)
		a.close()
	})
}

// A lock that is free is under no session, whatever its record says; and where the session cannot be read,
// that is said, with the lock.
func TestInspectBesideASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		plantRecord := func(key, state string) {
			body := fmt.Sprintf(`{"format":1,"token":1,"state":%q,"holder":"x","ttl_ms":1000,"write_id":"x.1","session":"../%s"}`, state, a.session.Key())
			if _, err := inner.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		plantRecord("jobs/free", "free")
		plantRecord("jobs/held", "held")
		st := newStoreOver(inner)
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Key: a.session.Key()})
		object := &leasehold.LockOptions{Layout: leasehold.LayoutObject}
		if info, err := locksOf(t, st, object, "jobs/free")[0].Inspect(t.Context()); err != nil || info.Held || info.Abandoned {
			t.Errorf("free: %+v, %v", info, err)
		}
		info, err := locksOf(t, st, object, "jobs/held")[0].Inspect(t.Context())
		if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), a.session.Key()) || !info.Held || info.Abandoned {
			t.Errorf("held: %+v, %v", info, err)
		}
		a.end()
	})
}

// Anything may lie in the place of a session: its holder is then taken for one that is
// there, and to look at the lock is no error.
func TestInspectUnderAForeignSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		a.acquire("shards/1")
		o, err := inner.Get(t.Context(), a.session.Key(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = inner.Put(t.Context(), a.session.Key(), []byte("rubbish"), store.IfMatch(o.Version)); err != nil {
			t.Fatal(err)
		}
		if info, err := locksOf(t, inner, nil, "shards/1")[0].Inspect(t.Context()); err != nil || !info.Held || info.Abandoned {
			t.Errorf("%+v, %v", info, err)
		}
		_ = multilock.ReleaseAll(t.Context(), a.session.Leases()) // nobody knows what is there
		_ = a.session.Close(t.Context())
	})
}

// TestLayoutInAnInfo: whoever tells of a lock says in which layout it lies; the process that holds it too,
// which has not read that anywhere.
func TestLayoutInAnInfo(t *testing.T) {
	for _, l := range leasetest.Ways {
		bubble(t, func(t *testing.T) {
			st := newStore()
			var log leasetest.Log
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if warned := strings.Contains(log.String(), "has no tokens"); warned == l.Tokens() {
				t.Errorf("%s: the log says %q", l, &log)
			}
			if warned := strings.Contains(log.String(), "without If-Match"); warned != (l == leasetest.MarkerNoIfMatch) {
				t.Errorf("%s: the log says %q", l, &log)
			}
			lease := acquire(t, lock)
			want := l
			if !l.Tokens() {
				want = leasetest.MarkerNoIfMatch // their records do not say
			}
			for _, lock := range []*leasehold.Lock{lock, newLock(t, st, l.Options())} {
				_, err := lock.TryAcquire(t.Context())
				var held *leasehold.HeldError
				if !errors.As(err, &held) || (leasetest.Way{Layout: held.Info.Layout, NoIfMatch: held.Info.NoIfMatch}) != want {
					t.Errorf("%s: %+v", l, held)
				}
			}
			release(t, lease)
		})
	}
}

// TestAnotherToolsMarkerIsSeldomLookedAt: a marker that says nothing of a TTL is looked at as often as one
// with the TTL of the candidate would be.
func TestAnotherToolsMarkerIsSeldomLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		plant(t, st, "jobs/backup", "another tool's")
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutMarker, NoIfMatch: true, TTL: time.Minute})
		if _, err := lock.Acquire(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		if c := st.Counts(); c.Get > 1520 { // 1446 on average, and 2596 at a TTL of 3 s and less
			t.Errorf("%d looks in an hour, where TTL/3 is 20 s", c.Get)
		}
	})
}

// TestTexts: what people read of a token and of a holder.
func TestTexts(t *testing.T) {
	info := leasehold.Info{Key: "jobs/backup", Holder: "db-1", Token: 1234567890, TTL: 15 * time.Second}
	gone := info
	gone.Abandoned = true
	fair := leasehold.Info{Key: "jobs/fair", Size: 1, Holders: []leasehold.Entry{{Holder: "db-1", Weight: 1}}, Waiters: []leasehold.Entry{{}}}
	for want, got := range map[string]string{
		"1234567890": leasehold.Token(1234567890).String(),
		"none":       leasehold.NoToken.String(),
		"the lock jobs/backup is held by db-1 (token 1234567890)":                                                                       (&leasehold.HeldError{Info: info}).Error(),
		"the lock jobs/backup is held by db-1 (token 1234567890); it looks abandoned, and a wait of a little over 15s can take it over": (&leasehold.HeldError{Info: gone}).Error(),
		"1 of 1 slots of the semaphore jobs/fair are taken, by db-1, and 1 wait":                                                        (&leasehold.HeldError{Info: fair}).Error(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
