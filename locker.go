package leasehold

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/leasehold/leasehold/store"
)

// Locker returns a [sync.Locker] for the key's lock, for code that takes one. It sends nothing.
// Goroutines that share the Locker or these Locks queue. A Locker is safe for concurrent use,
// as a [sync.Mutex] is.
//
// A lease may be lost between Lock and Unlock, which a sync.Locker cannot report. So lost is
// called once for each lost lease, with an error that matches [ErrLost]: at once on a separate
// goroutine, or at the latest by Unlock. It must stop the work, or the process. If a context
// can stop the work, use [Locks.Do] instead.
//
// Lock waits as long as it takes. It panics with the error of [Locks.Acquire] if it cannot get
// the lock at all, because access is denied or the Locks are closed, for example. Unlock panics
// if the Locker is not locked. It waits at most 5 s for the release, and logs if that is not
// confirmed.
//
// Locker fails if lost is nil or the key is invalid: see [store.CheckKey].
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
	unlock atomic.Pointer[func()] // set while it is locked
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
