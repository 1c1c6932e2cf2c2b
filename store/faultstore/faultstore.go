// Package faultstore simulates a bad network in front of a store. Some faults come before the
// request arrives, so nothing lands. Others come after it, so the write lands but its answer is
// lost: for a lock, this is the worst behaviour of an object store. Requests can also arrive
// late or twice.
//
// Faults are scripted ("the third put of this key") or drawn from a seed. All of them follow
// the contract of errors: a write that may have landed is reported as
// [store.ErrUnknownOutcome]. The same seed causes the same faults for the same sequence of
// calls, so print the store and its log when a test fails:
//
//	t.Logf("%v\n%v", st, st.Log())
//
// All waiting uses timers of package time, and works inside a testing/synctest bubble.
package faultstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// Options are the seed and the initial faults.
type Options struct {
	Seed   uint64 // of all random numbers
	Faults []Fault
}

// A Call is one request to the store.
type Call struct {
	Op     string          // "get", "put", "delete", "list"
	Key    string          // or the prefix of a list
	Body   []byte          // of a Put; nil for a PutLarge, which has no condition either
	Only   store.Condition // also of a DeleteIf
	Unless store.Version
}

// Counts are the numbers of requests by method. They do not include late deliveries and calls a
// store must reject before it sends anything.
type Counts struct{ Get, Put, Delete, List int }

// Store is a [store.Store] that applies faults to calls of another store. It is safe for
// concurrent use.
type Store struct {
	inner  store.Store
	seed   uint64
	closed chan struct{}
	close  func()
	late   sync.WaitGroup

	mu     sync.Mutex
	rand   *rand.Rand
	rules  []*rule
	cut    chan struct{} // closed during a partition
	counts Counts
	calls  int
	events []*Event
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Large = (*Store)(nil)

	_ store.Conditional = (*Store)(nil)
)

// Wrap puts faults in front of st. If opts is nil, there are none yet. Wrap panics if a fault
// can never happen, such as a conflict of a get.
func Wrap(st store.Store, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{
		inner:  st,
		seed:   opts.Seed,
		closed: make(chan struct{}),
		rand:   rand.New(rand.NewPCG(opts.Seed, 0)),
		cut:    make(chan struct{}),
	}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	s.Inject(opts.Faults...)
	return s
}

// Inject adds faults after the existing ones. It panics like [Wrap]. Only calls from now on
// count for Nth.
func (s *Store) Inject(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		if err := f.check(); err != nil {
			panic(fmt.Sprintf("faultstore: %v: %v", f, err))
		}
		s.rules = append(s.rules, &rule{Fault: f})
	}
}

// Clear removes all faults. Requests in flight are still delivered.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// Partition begins or ends a partition. During a partition, calls fail at once with
// [store.ErrUnavailable], and calls in progress get no answer. Late deliveries still arrive.
func (s *Store) Partition(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on == ended(s.cut):
	case on:
		close(s.cut)
	default:
		s.cut = make(chan struct{})
	}
}

// Counts returns the numbers of requests since the beginning or the last Reset.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Log returns the calls since the beginning or the last Reset, in the order in which they
// began, and the late deliveries as they arrived.
func (s *Store) Log() Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := make(Log, len(s.events))
	for i, e := range s.events {
		log[i] = *e
	}
	return log
}

// Reset sets the counts to zero and empties the log. Faults continue unchanged, including their
// counts and random numbers.
func (s *Store) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts, s.events = Counts{}, nil
}

// Wait waits for all late deliveries. Like Close, it is for use when no more calls begin.
func (s *Store) Wait() { s.late.Wait() }

// Close drops late deliveries that have not begun, and waits for the others. Calls still work,
// but without late deliveries.
func (s *Store) Close() {
	s.close()
	s.late.Wait()
}

// VersionOf returns the version by the wrapped store, or an empty one.
func (s *Store) VersionOf(body []byte) store.Version {
	if h, ok := s.inner.(store.Hashed); ok {
		return h.VersionOf(body)
	}
	return ""
}

func (s *Store) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%v behind faults of seed %d", s.inner, s.seed)
	for _, r := range s.rules {
		text += "; " + r.String()
	}
	return text
}

// Get reads through the faults.
func (s *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	c := Call{Op: "get", Key: key, Unless: unless}
	if err := c.refused(ctx); err != nil {
		return nil, err
	}
	return carry(ctx, s, c, func(ctx context.Context) (*store.Object, error) {
		return s.inner.Get(ctx, key, unless)
	})
}

// Put writes through the faults.
func (s *Store) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := store.CheckPut(ctx, key, body, only); err != nil {
		return nil, err
	}
	body = bytes.Clone(body) // the caller may have reused its slice at the time of a late delivery
	c := Call{Op: "put", Key: key, Body: body, Only: only}
	return carry(ctx, s, c, func(ctx context.Context) (*store.Object, error) {
		return s.inner.Put(ctx, key, body, only)
	})
}

// Delete deletes through the faults.
func (s *Store) Delete(ctx context.Context, key string) error {
	c := Call{Op: "delete", Key: key}
	if err := c.refused(ctx); err != nil {
		return err
	}
	_, err := carry(ctx, s, c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.inner.Delete(ctx, key)
	})
	return err
}

// Proves asks the wrapped store, if it says what it is good for: see store.Proof.
func (s *Store) Proves(storeName, use string) error {
	return store.Proves(s.inner, storeName, use)
}

// DeleteIf deletes on a condition through the faults, as a "delete".
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := store.CheckDeleteIf(ctx, key, v); err != nil {
		return err
	}
	inner, ok := s.inner.(store.Conditional)
	if !ok {
		return &store.Error{Op: "delete", Key: key, Kind: store.ErrInvalid, Cause: errNotConditional}
	}
	_, err := carry(ctx, s, Call{Op: "delete", Key: key, Only: store.IfMatch(v)}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inner.DeleteIf(ctx, key, v)
	})
	return err
}

var errNotConditional = errors.New("the store behind the faults is no store.Conditional")

// List lists through the faults, as one request whatever its number of pages. If its answer is
// lost, it breaks off in the middle.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		c := Call{Op: "list", Key: prefix}
		if err := c.refused(ctx); err != nil {
			yield(store.Entry{}, err)
			return
		}
		entries, err := carry(ctx, s, c, func(ctx context.Context) ([]store.Entry, error) {
			var entries []store.Entry
			for e, err := range s.inner.List(ctx, prefix, after) {
				if err != nil {
					return entries, err
				}
				entries = append(entries, e)
			}
			return entries, nil
		})
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Entry{}, err)
		}
	}
}

// refused returns an error if the call must not be sent.
func (c Call) refused(ctx context.Context) error {
	if c.Op != "list" { // whose prefix need not be a key
		if err := store.CheckKey(c.Op, c.Key); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return &store.Error{Op: c.Op, Key: c.Key, Kind: store.ErrUnavailable, Cause: err}
	}
	return nil
}

// fail returns the error of a request the store reports as not done.
func (c Call) fail(kind error, why string) error {
	return &store.Error{Op: c.Op, Key: c.Key, Kind: kind, Cause: errors.New("faultstore: " + why)}
}

// lost returns the error of a request without an answer. For reads it does not matter whether
// they arrived.
func (c Call) lost(ctx context.Context, why string) error {
	kind := store.ErrUnavailable
	if c.Op == "put" || c.Op == "delete" {
		kind = store.ErrUnknownOutcome
	}
	cause := errors.New("faultstore: " + why)
	if err := ctx.Err(); err != nil {
		cause = fmt.Errorf("%w: %w", cause, err)
	}
	return &store.Error{Op: c.Op, Key: c.Key, Kind: kind, Cause: cause}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pause waits for d, and reports false if the context ends or the store is cut off first.
func pause(ctx context.Context, d time.Duration, cut <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-cut:
	}
	return false
}
