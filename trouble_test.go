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
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

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
			OnTrouble: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, time.Since(began))
				if !errors.Is(err, store.ErrThrottled) {
					t.Errorf("told of %v", err)
				}
			},
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
		if strings.Contains(log.String(), "the store fails") {
			t.Errorf("what a callback tells is logged too: %s", &log)
		}
		lock = newLock(t, st, &leasehold.LockOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, store.ErrThrottled) {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "the store fails"); n != 1 {
			t.Errorf("%d lines in the log, where no callback tells it: %s", n, &log)
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
		lock := newLock(t, st, &leasehold.LockOptions{OnTrouble: func(err error) { told <- err }, Logger: debugLog(&log)})
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
		if strings.Contains(log.String(), "the store fails") {
			t.Errorf("what a callback tells is logged too: %s", &log)
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
