package leasehold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/store"
)

// Locks are a process's locks when their keys are known only at run time: one per user, order
// or file. They behave like one shared [Lock] per key, which is created when it is first used
// and dropped when it has been idle for some TTLs. Keys have no goroutines.
//
// Locks are safe for concurrent use. Close them before the process exits if it may hold leases;
// otherwise they need no closing.
type Locks struct {
	st   store.Store
	opts LockOptions

	over  context.Context // ends with Close
	close context.CancelFunc

	mu     engine.Mutex
	keys   map[string]*keyed
	most   int           // largest size of the map since it was made
	calls  int           // calls in progress
	quiet  chan struct{} // closed when the Locks are closed and no call is in progress
	hushed bool          // quiet is closed
	ticker *time.Timer
}

// keyed is the lock of a key, with the number of calls that use it.
type keyed struct {
	*Lock
	calls int
}

// NewLocks returns the locks stored in st, which all have the same options. It sends nothing.
// It fails as [NewLock] does, except that each call checks its own key.
func NewLocks(st store.Store, opts *LockOptions) (*Locks, error) {
	trial, err := NewLock(st, "key", opts)
	if err != nil {
		return nil, err
	}
	l := &Locks{st: st, opts: *trial.d.opts, keys: map[string]*keyed{}, quiet: make(chan struct{})}
	l.over, l.close = context.WithCancel(context.Background())
	l.mu.Rank(engine.RankKeys)
	l.ticker = time.AfterFunc(time.Hour, l.sweep)
	l.ticker.Stop()
	return l, nil
}

// Acquire waits until it holds the key's lock: see [Lock.Acquire]. Close makes it fail with
// [ErrClosed], even if it is already waiting.
func (l *Locks) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return using(ctx, l, key, func(lock *Lock, ctx context.Context) (*Lease, error) { return lock.Acquire(ctx, opts...) })
}

// TryAcquire is Acquire without waiting: see [Lock.TryAcquire]. Repeat it within four TTLs to
// take over from a dead holder.
func (l *Locks) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return using(ctx, l, key, func(lock *Lock, ctx context.Context) (*Lease, error) { return lock.TryAcquire(ctx, opts...) })
}

// Do acquires the key's lock, calls f and releases the lock: see [Lock.Do]. Close waits for f
// and does not end its context.
func (l *Locks) Do(ctx context.Context, key string, f func(ctx context.Context, lease *Lease) error, opts ...AcquireOption) error {
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, l.opts.Logger, f)
}

// Inspect reads the key's lock without taking it: see [Lock.Inspect]. As there, the result
// counts towards a takeover.
func (l *Locks) Inspect(ctx context.Context, key string) (Info, error) {
	return using(ctx, l, key, (*Lock).Inspect)
}

// using runs call with the key's lock. Close cancels the context of the call.
func using[T any](ctx context.Context, l *Locks, key string, call func(*Lock, context.Context) (T, error)) (result T, err error) {
	lock, err := l.enter(key)
	if err != nil {
		return result, err
	}
	defer l.leave(lock)
	open, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.over, cancel)() //nolint:contextcheck // Close ends it, and that is no context of the caller's
	if l.over.Err() != nil {
		return result, l.closed() // closed meanwhile, and cancel may follow a moment later
	}
	result, err = call(lock.Lock, open)
	if err != nil && open.Err() != nil && ctx.Err() == nil {
		err = l.closed() // Close canceled the context, not the caller
	}
	return result, err
}

// Close rejects new calls, ends those in progress with [ErrClosed], and waits until every lease
// has been released and every abandoned acquisition has ended. It does not release leases, and
// closes neither the store nor the session.
//
// If ctx ends first, Close returns an error that matches ctx.Err(); you may call it again. If
// ctx ended before the call, Close waits up to 5 s anyway.
func (l *Locks) Close(ctx context.Context) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	l.mu.Lock()
	l.close()
	l.hush()
	l.mu.Unlock()
	// A call that entered earlier may not know about Close yet and may still begin an
	// acquisition.
	select {
	case <-l.quiet:
	case <-ctx.Done():
		return fmt.Errorf("the locks in %v are in use: %w", l.st, ctx.Err())
	}
	l.mu.Lock()
	keys := maps.Clone(l.keys) // complete: no call adds a key now
	l.mu.Unlock()
	for key, lock := range keys {
		if err := lock.finish(ctx); err != nil {
			return fmt.Errorf("a lease of %s in %v has not been released, or is not settled; so with %d other keys at most: %w", key, l.st, len(keys)-1, err)
		}
		delete(keys, key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.keys)
	l.ticker.Stop()
	return nil
}

// finish waits until this process neither holds the lock nor has a request for it in flight.
func (l *Lock) finish(ctx context.Context) error {
	err := l.d.queue.Enter(ctx)
	if err == nil || errors.Is(err, lock.ErrCrossed) {
		l.leave()
	}
	if err == nil {
		err = l.Settle(ctx)
	}
	if err != nil {
		return ctx.Err()
	}
	return nil
}

func (l *Locks) closed() error { return fmt.Errorf("the locks in %v: %w", l.st, ErrClosed) }

// enter returns the key's lock, which is kept until the call leaves it.
//
// It may create a lock that find then discards: NewLock asks a Proof, which is foreign code and
// must not run under the mutex.
func (l *Locks) enter(key string) (*keyed, error) {
	if lock, err := l.find(key, nil); lock != nil || err != nil {
		return lock, err
	}
	made, err := NewLock(l.st, key, &l.opts)
	if err != nil {
		return nil, err
	}
	return l.find(key, made)
}

// find returns the key's existing lock, or adds the one in made.
func (l *Locks) find(key string, made *Lock) (*keyed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Err() != nil {
		return nil, l.closed()
	}
	lock := l.keys[key]
	if lock == nil && made != nil {
		if len(l.keys) == 0 {
			l.ticker.Reset(l.interval())
		}
		lock = &keyed{Lock: made}
		l.keys[key] = lock
		l.most = max(l.most, len(l.keys))
	}
	if lock != nil {
		lock.calls++
		l.calls++
	}
	return lock, nil
}

func (l *Locks) leave(lock *keyed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock.calls--
	l.calls--
	l.hush()
}

// hush tells Close once that no call is in progress. The mutex is locked.
func (l *Locks) hush() {
	if l.over.Err() == nil || l.calls > 0 || l.hushed {
		return
	}
	l.hushed = true
	close(l.quiet)
}

// interval returns the time between two sweeps. A timer starts them because a sweep after each
// lease would run constantly for a busy key, and a sweep at the next call might never run.
func (l *Locks) interval() time.Duration { return min(l.opts.TTL, time.Minute) }

// sweep drops idle locks.
//
// No call can enter a lock while the mutex is locked. So a lock with no calls, an empty queue
// and a forgettable engine is unused when it is dropped.
func (l *Locks) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, lock := range l.keys {
		if lock.calls == 0 && !lock.d.queue.Taken() && lock.d.Forgettable() {
			delete(l.keys, key)
		}
	}
	if len(l.keys) < l.most/4 { // a map never shrinks
		l.keys, l.most = maps.Collect(maps.All(l.keys)), len(l.keys)
	}
	if len(l.keys) > 0 {
		l.ticker.Reset(l.interval())
	}
}
