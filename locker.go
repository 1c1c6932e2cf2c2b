package leasehold

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/leasehold/leasehold/store"
)

// Locker makes a [sync.Locker] of the lock of a key, for code that takes one. It sends nothing yet. Goroutines that
// share it, or these Locks, queue; it is safe for concurrent use, as a [sync.Mutex] is.
//
// A lease may be lost between Lock and Unlock, and a sync.Locker has no way to say so. So lost must not be nil: it is
// called once for each such lease, with an error that matches [ErrLost], at once and on a goroutine of its own, or at
// the latest by Unlock. It has to stop the work, or the process. Where a context can do that, use [Locks.Do].
//
// Lock waits as long as it takes. It panics with the error of [Locks.Acquire] if the lock cannot be had at all: access
// is denied, the Locks are closed. To return without the lock would be worse. Unlock panics if the Locker is not
// locked. It waits for the release for 5 s at most; that this is not confirmed is logged.
//
// Locker fails if lost is nil or the key cannot be used: see [store.CheckKey].
func (l *Locks) Locker(key string, lost func(error)) (sync.Locker, error) {
	if lost == nil {
		return nil, errors.New("a Locker needs a function to call when a lease is lost")
	}
	if err := store.CheckKey("lock", key); err != nil {
		return nil, err
	}
	return &locker{locks: l, key: key, lost: lost}, nil
}

type locker struct {
	locks  *Locks
	key    string
	lost   func(error)
	unlock atomic.Pointer[func()] // while it is locked
}

func (l *locker) Lock() {
	lease, err := l.locks.Acquire(context.Background(), l.key)
	if err != nil {
		panic(err)
	}
	stop := context.AfterFunc(lease.Context(), func() { l.lost(lease.Err()) })
	unlock := func() {
		unheard := stop()
		err := lease.do(context.Background(), func(context.Context, *Lease) error { return nil })
		if err != nil && unheard {
			l.lost(err)
		}
	}
	l.unlock.Store(&unlock)
}

func (l *locker) Unlock() {
	unlock := l.unlock.Swap(nil)
	if unlock == nil {
		panic("leasehold: Unlock of a Locker that is not locked")
	}
	(*unlock)()
}
