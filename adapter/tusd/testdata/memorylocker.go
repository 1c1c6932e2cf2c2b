// Package memorylocker is this adapter in the place of tusd's package of that name: one locker.
package memorylocker

import (
	"context"
	"errors"

	"github.com/tus/tusd/v2/pkg/handler"

	leasetusd "github.com/leasehold/leasehold/adapter/tusd"
	"github.com/leasehold/leasehold/store/memstore"
)

type MemoryLocker struct{ locker *leasetusd.Locker }

func New() *MemoryLocker {
	locker, err := leasetusd.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	return &MemoryLocker{locker}
}

func (l *MemoryLocker) UseIn(composer *handler.StoreComposer) { composer.UseLocker(l) }

func (l *MemoryLocker) NewLock(id string) (handler.Lock, error) {
	mine, err := l.locker.NewLock(id)
	return lock{mine}, err
}

// lock takes the cause off a timeout, since the tests compare by ==, where tusd uses errors.As.
type lock struct{ inner }

type inner = handler.Lock

func (l lock) Lock(ctx context.Context, requestUnlock func()) error {
	err := l.inner.Lock(ctx, requestUnlock)
	if errors.Is(err, handler.ErrLockTimeout) {
		return handler.ErrLockTimeout
	}
	return err
}
