package leasehold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/lockorder"
	"github.com/leasehold/leasehold/store"
)

// Locks are the locks of a process whose keys are known only when they are needed: one for each
// user, order or file. They are what a [Lock] for each key would be that all of the process share:
// goroutines that want the same key queue, knowledge of a key saves its next acquisition a
// read, and the wait for a holder that is gone is counted once, over any number of calls.
//
// A Lock is made for a key when it is first used and dropped when it is of no use: when nobody
// holds, wants or looks at it, nothing of it is under way, and four TTLs have passed since its last
// request, or since a holder that was seen might have been taken over from. The TTL is the longer one
// of the options' and the record's. So memory is bounded by the keys that were used lately, and a
// TryAcquire that comes back within that time takes over from a holder that is gone. A timer looks
// through the keys once in a TTL, and at least once a minute, as long as there are any; there is
// no goroutine for a key.
//
// Locks are safe for concurrent use. Close them when leases may be held and the process ends;
// otherwise they need no closing.
type Locks struct {
	st   store.Store
	opts LockOptions

	over  context.Context // ends with Close
	close context.CancelFunc

	mu     lockorder.Mutex
	keys   map[string]*keyed
	most   int           // keys that the map has had at once, since it was made
	calls  int           // that are under way
	quiet  chan struct{} // closed when they are closed, and no call is under way
	hushed bool          // it is
	ticker *time.Timer
}

// keyed is the lock of a key, and how many calls use it now.
type keyed struct {
	*Lock
	calls int
}

// NewLocks makes the locks that lie in st, with the same options for all. It sends nothing. It fails
// as [NewLock] does, but for the key: that each call checks.
func NewLocks(st store.Store, opts *LockOptions) (*Locks, error) {
	trial, err := NewLock(st, "key", opts)
	if err != nil {
		return nil, err
	}
	l := &Locks{st: st, opts: *trial.d.opts, keys: map[string]*keyed{}, quiet: make(chan struct{})}
	l.over, l.close = context.WithCancel(context.Background())
	l.mu.Rank(lockorder.Keys)
	l.ticker = time.AfterFunc(time.Hour, l.sweep)
	l.ticker.Stop()
	return l, nil
}

// Acquire waits until it holds the lock of the key: see [Lock.Acquire]. It fails with [ErrClosed] after
// Close, also if it has begun before.
func (l *Locks) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return using(ctx, l, key, func(lock *Lock, ctx context.Context) (*Lease, error) { return lock.Acquire(ctx, opts...) })
}

// TryAcquire is Acquire that does not wait: see [Lock.TryAcquire].
//
// It takes over from a holder that is gone at the first call after these Locks have seen its record
// unchanged for its TTL and margin, so call it again within four TTLs of that. See [Locks] for what is
// kept for how long.
func (l *Locks) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return using(ctx, l, key, func(lock *Lock, ctx context.Context) (*Lease, error) { return lock.TryAcquire(ctx, opts...) })
}

// Do acquires the lock of the key, calls f and releases the lock: see [Lock.Do]. Close waits for f and
// does not end its context.
func (l *Locks) Do(ctx context.Context, key string, f func(ctx context.Context, lease *Lease) error, opts ...AcquireOption) error {
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// Inspect reads the lock of the key without taking it: see [Lock.Inspect]. The result counts as a look.
func (l *Locks) Inspect(ctx context.Context, key string) (Info, error) {
	return using(ctx, l, key, (*Lock).Inspect)
}

// using makes a call of the lock of a key, which Close ends.
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
		return result, l.closed() // it has ended meanwhile, and cancel may come a moment later
	}
	result, err = call(lock.Lock, open)
	if err != nil && open.Err() != nil && ctx.Err() == nil {
		err = l.closed() // and not that its context was canceled: the caller's was not
	}
	return result, err
}

// Close refuses all calls from now on, ends those that are under way, with [ErrClosed], and waits until every
// lease has been released and nothing is under way of acquisitions that were given up. It releases
// nothing itself: work under the leases goes on until they are released.
//
// If ctx ends first, Close returns an error that matches ctx.Err() and says how many keys are in use
// yet, and may be called again; if ctx has ended before the call, it waits up to 5 s all the same. It does
// not close the session of [LockOptions.Session], which comes after, nor the store.
func (l *Locks) Close(ctx context.Context) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	l.mu.Lock()
	l.close()
	l.hush()
	l.mu.Unlock()
	// A call that has entered before may not have heard of it, and begin an acquisition yet.
	select {
	case <-l.quiet:
	case <-ctx.Done():
		return fmt.Errorf("the locks in %v are in use: %w", l.st, ctx.Err())
	}
	l.mu.Lock()
	keys := maps.Clone(l.keys) // nothing is added any more
	l.mu.Unlock()
	for key, lock := range keys {
		if err := lock.finish(ctx); err != nil {
			return fmt.Errorf("a lease of %s in %v has not been released, or is not settled; so with %d other keys at most: %w", key, l.st, len(keys)-1, err)
		}
		delete(keys, key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.keys) // what is known is of no use any more
	l.ticker.Stop()
	return nil
}

// finish waits until the lock is not held by this process, and nothing of it is under way.
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

// enter gives the lock of a key, which stays until the call leaves it.
//
// A lock is made before the mutex is locked, though there may be one already: a Proof is asked then,
// and that is not ours.
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

// find gives the lock of a key that there is, or the one that was made.
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

// hush tells Close that no call is under way any more, once. The mutex is locked.
func (l *Locks) hush() {
	if l.over.Err() == nil || l.calls > 0 || l.hushed {
		return
	}
	l.hushed = true
	close(l.quiet)
}

// interval is that of the sweeps. They are not driven by the end of each lease, which would be at the
// mercy of a key that is used all the time, nor by calls, which may have ended for good.
func (l *Locks) interval() time.Duration { return min(l.opts.TTL, time.Minute) }

// sweep drops the locks that are of no use any more.
//
// Under the mutex nobody enters a lock. So one that no call uses, whose queue is empty and whose engine
// may be dropped, is used by nobody when it has gone, and the next one of its key knows nothing of it.
func (l *Locks) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, lock := range l.keys {
		if lock.calls == 0 && !lock.d.queue.Taken() && lock.d.Forgettable() {
			delete(l.keys, key)
		}
	}
	if len(l.keys) < l.most/4 { // a map keeps room for the most that it has had
		l.keys, l.most = maps.Collect(maps.All(l.keys)), len(l.keys)
	}
	if len(l.keys) > 0 {
		l.ticker.Reset(l.interval())
	}
}
