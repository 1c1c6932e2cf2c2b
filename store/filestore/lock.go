package filestore

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
)

const lockName = reserved + ".lock"

// A place is what this store remembers of a directory.
type place struct {
	queue chan struct{} // holds one element while a goroutine is at the lock
	swept atomic.Pointer[time.Time]
}

func (s *Store) place(dir string) *place {
	p, ok := s.places.Load(dir)
	if !ok {
		p, _ = s.places.LoadOrStore(dir, &place{queue: make(chan struct{}, 1)})
	}
	return p.(*place) //nolint:errcheck // nothing else is put there
}

// A mode is how a lock is held: exclusive to write, shared to read names.
type mode func(*flock.Flock) (bool, error)

var (
	exclusive mode = (*flock.Flock).TryLock
	shared    mode = (*flock.Flock).TryRLock
)

// lock takes the lock of a directory, which is on a file in it. Goroutines of
// this store queue up before they try, processes try again and again.
func (s *Store) lock(ctx context.Context, dir string, hold mode) (unlock func(), err error) {
	path := filepath.Join(dir, lockName)
	queue := s.place(dir).queue
	select {
	case queue <- struct{}{}:
	case <-ctx.Done():
		return nil, held(ctx, path)
	}
	l, err := s.flock(ctx, path, hold)
	if err != nil {
		<-queue
		return nil, err
	}
	return func() {
		_ = l.Unlock() // if it fails, the lock goes when the file is collected
		<-queue
	}, nil
}

// flock takes the lock on the file at path, waiting for whoever holds it.
func (s *Store) flock(ctx context.Context, path string, hold mode) (*flock.Flock, error) {
	const shortest, longest = 200 * time.Microsecond, 20 * time.Millisecond
	// The file is made apart from being locked: then flock opens it with the
	// mode that it has, and for writing only where the system wants that.
	l := flock.New(path, flock.SetFlag(os.O_RDONLY))
	for wait := shortest; ; wait = min(2*wait, longest) {
		ok, err := hold(l)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = s.makeLock(path)
		case ok:
			return l, nil
		}
		if err != nil {
			return nil, err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, held(ctx, path)
		}
	}
}

func (s *Store) makeLock(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, s.fileMode)
	if err != nil {
		return err
	}
	return f.Close()
}
