// Package byname holds locks by their names, for callers that keep no lease: what locks a name and what unlocks it know
// of each other by the name alone.
package byname

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/turn"
	"github.com/leasehold/leasehold/store"
)

// ErrNotHeld is the error of calls for a lock that is not held here.
var ErrNotHeld = errors.New("the lock is not held here")

// Locks are safe for concurrent use.
type Locks struct {
	locks *leasehold.Locks
	st    store.Store
	key   func(name string) string

	mu   sync.Mutex
	held map[string]*holding
}

// New makes the locks of all names but "", which lie in st under the keys that key makes of them. It sends nothing, and
// fails as leasehold.NewLocks.
func New(st store.Store, key func(name string) string, opts *leasehold.LockOptions) (*Locks, error) {
	locks, err := leasehold.NewLocks(st, opts)
	if err != nil {
		return nil, err
	}
	return &Locks{locks: locks, st: st, key: key, held: map[string]*holding{}}, nil
}

// Close refuses all calls but Unlock and waits until nothing is locked, or ctx ends: see leasehold.Locks.Close.
func (l *Locks) Close(ctx context.Context) error { return l.locks.Close(ctx) }

// A holding is a lock's name in use in this process: from before it is acquired until it has been released. That the
// lease is lost does not end it, so an Unlock is always of whoever has called Lock.
type holding struct {
	lease *leasehold.Lease // nil: not yet, or no more
	over  chan struct{}    // closed with the end
}

// Lock waits until this process holds the lock, or ctx ends. Then it is renewed until Unlock.
//
// It takes a lock that is free even if ctx has ended before the call, for which it has 5 s; it does not wait for one that
// is held then. The error at the end of ctx matches ctx.Err(), and leasehold.ErrHeld if another was seen to hold the lock.
// Failures of the store are waited out, unless leasehold.Final says that it is of no use.
func (l *Locks) Lock(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		ok, err := l.TryLock(ctx, name)
		if err == nil && !ok {
			err = l.failed("lock", name, fmt.Errorf("%w: %w", ctx.Err(), leasehold.ErrHeld))
		}
		return err
	}
	for {
		h, mine := l.enter(name)
		if mine {
			return l.failed("lock", name, l.acquire(ctx, h, name, l.locks.Acquire))
		}
		select {
		case <-h.over:
		case <-ctx.Done():
			return l.failed("lock", name, fmt.Errorf("%w: %w by this process", ctx.Err(), leasehold.ErrHeld))
		}
	}
}

// TryLock is Lock that does not wait: it returns false and no error if the lock is held, in this process or
// elsewhere. If the holder seems to be gone, it watches the lock for that holder's TTL and a margin, and takes it
// over if it is; a call that never waited never could.
func (l *Locks) TryLock(ctx context.Context, name string) (bool, error) {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	h, mine := l.enter(name)
	if !mine {
		return false, nil
	}
	err := l.acquire(ctx, h, name, l.take)
	if errors.Is(err, leasehold.ErrHeld) {
		return false, nil
	}
	return err == nil, l.failed("try to lock", name, err)
}

// Unlock releases the lock, for which it has 5 s if ctx has ended. An error that matches leasehold.ErrLost says that the
// lease was lost before: others may have held the lock since. After any error this process does not hold it any more,
// and others may have to wait its lease out. ErrNotHeld: it was not held.
func (l *Locks) Unlock(ctx context.Context, name string) error {
	l.mu.Lock()
	h, ok := l.held[name]
	var lease *leasehold.Lease
	if ok {
		lease, h.lease = h.lease, nil
	}
	l.mu.Unlock()
	if lease == nil {
		return l.failed("unlock", name, ErrNotHeld)
	}
	defer l.leave(name, h)
	return l.failed("unlock", name, lease.Release(ctx))
}

// Renew reports that the lock is held. If its lease was lost it acquires the lock anew, as TryLock does; if another holds
// it by now, the error matches leasehold.ErrLost and leasehold.ErrHeld, and to call it again later makes sense.
func (l *Locks) Renew(ctx context.Context, name string) error {
	lease, err := l.Lease(name)
	if err != nil || lease.Valid() {
		return err
	}
	_ = lease.Release(ctx) // what it says is that the lease was lost
	again, err := l.take(ctx, lease.Key())
	if err != nil {
		return l.failed("renew the lease of", name, fmt.Errorf("%w: %w", lease.Err(), err))
	}
	l.mu.Lock()
	h, ok := l.held[name]
	ok = ok && h.lease == lease // no Unlock has come meanwhile
	if ok {
		h.lease = again
	}
	l.mu.Unlock()
	if !ok {
		return l.failed("renew the lease of", name, errors.Join(ErrNotHeld, again.Release(ctx)))
	}
	return nil
}

// Lease is the lease under which the lock is held. The error matches ErrNotHeld.
func (l *Locks) Lease(name string) (*leasehold.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.held[name]; ok && h.lease != nil {
		return h.lease, nil
	}
	return nil, l.failed("find", name, ErrNotHeld)
}

// All are the leases by the names of their locks, lost ones too.
func (l *Locks) All() iter.Seq2[string, *leasehold.Lease] {
	return func(yield func(string, *leasehold.Lease) bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for name, h := range l.held {
			if h.lease != nil && !yield(name, h.lease) {
				return
			}
		}
	}
}

// enter takes a name for the caller, or returns who has it.
func (l *Locks) enter(name string) (h *holding, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, taken := l.held[name]
	if !taken {
		h = &holding{over: make(chan struct{})}
		l.held[name] = h
	}
	return h, !taken
}

func (l *Locks) leave(name string, h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, name)
	close(h.over)
}

type acquire func(ctx context.Context, key string, opts ...leasehold.AcquireOption) (*leasehold.Lease, error)

// acquire gives the caller's holding its lease, or ends it.
func (l *Locks) acquire(ctx context.Context, h *holding, name string, how acquire) error {
	lease, err := (*leasehold.Lease)(nil), fmt.Errorf("%w: it has no name", store.ErrInvalid)
	if name != "" {
		lease, err = how(ctx, l.key(name))
	}
	if err != nil {
		l.leave(name, h)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.lease = lease
	return nil
}

// take acquires the lock unless it is held by one that is alive.
func (l *Locks) take(ctx context.Context, key string, _ ...leasehold.AcquireOption) (*leasehold.Lease, error) {
	return turn.Take(ctx, l.locks, key, 0)
}

// failed says of which lock an error is.
func (l *Locks) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s the lock %q in %v: %w", op, name, l.st, err)
}
