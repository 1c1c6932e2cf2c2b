// Package filelocker is this adapter in the place of tusd's package of that name: each lock is of another server.
// Their directory stays empty, as the tests want it, since the locks lie in a store in memory.
package filelocker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	leasetusd "github.com/leasehold/leasehold/adapter/tusd"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

var stores sync.Map // by the path of the lockers that share it

type FileLocker struct {
	Path                                     string
	HolderPollInterval, AcquirerPollInterval time.Duration
}

func New(path string) FileLocker {
	stores.Store(path, memstore.New())
	return FileLocker{Path: path}
}

func (l FileLocker) NewLock(id string) (handler.Lock, error) {
	st, _ := stores.Load(l.Path)
	locker, err := leasetusd.New(st.(store.Store), &leasetusd.Options{Look: l.HolderPollInterval})
	if err != nil {
		return nil, err
	}
	mine, err := locker.NewLock(id)
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
