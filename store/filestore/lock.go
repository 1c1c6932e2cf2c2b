package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold/leasehold/store"
)

const lockName = reserved + ".lock"

// A place is the state of a directory in this store.
type place struct {
	queue chan struct{} // has one element while a goroutine waits for or holds the lock
	swept atomic.Pointer[time.Time]
}

func (s *Store) place(dir string) *place {
	p, ok := s.places.Load(dir)
	if !ok {
		p, _ = s.places.LoadOrStore(dir, &place{queue: make(chan struct{}, 1)})
	}
	return p.(*place) //nolint:errcheck // nothing else is put there
}

// lock takes a directory's lock, on a file in it. Goroutines of this store queue up before they
// try; processes retry.
func (s *Store) lock(ctx context.Context, dir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockName)
	queue := s.place(dir).queue
	select {
	case queue <- struct{}{}:
	case <-ctx.Done():
		return nil, held(ctx, path)
	}
	l, err := s.flock(ctx, path)
	if err != nil {
		<-queue
		return nil, err
	}
	return func() {
		_ = l.Unlock() // if this fails, the lock ends when the file is garbage-collected
		<-queue
	}, nil
}

// flock takes the lock on the file at path, and waits while another process holds it.
func (s *Store) flock(ctx context.Context, path string) (*flock.Flock, error) {
	const shortest, longest = 200 * time.Microsecond, 20 * time.Millisecond
	for wait := shortest; ; wait = min(2*wait, longest) {
		switch l, err := tryLock(path); {
		case l != nil || err != nil:
			return l, err
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

// tryLock takes the lock on the file at path, which it creates if necessary. It returns nil if
// another process holds the lock.
func tryLock(path string) (*flock.Flock, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeLock(path); err != nil {
			return nil, err
		}
		info, err = os.Lstat(path)
	}
	if err != nil {
		return nil, err
	}
	if err = lockable(path, info); err != nil {
		return nil, err
	}
	restrict(path, info)
	// Some systems, including NFS, require a file that is open for writing.
	l := flock.New(path, flock.SetFlag(os.O_RDWR|openFlags))
	ok, err := l.TryLock()
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: only %s may lock here; a directory that several users write needs one group of theirs and the mode 2770", err, ownerOf(info))
	case err != nil:
		return nil, lockless(path, err)
	case !ok:
		return nil, nil //nolint:nilnil // another has it, which is no error
	}
	return confirmed(path, l)
}

// confirmed returns a lock that excludes others, and otherwise releases it.
func confirmed(path string, l *flock.Flock) (*flock.Flock, error) {
	if ok, err := keepsOut(path, l); !ok {
		return nil, errors.Join(err, l.Unlock())
	}
	return l, nil
}

// keepsOut reports whether the lock is on the file that others lock. The file may have been
// replaced before it was opened, and a lock on a deleted file excludes nobody.
func keepsOut(path string, l *flock.Flock) (bool, error) {
	held, err := l.Stat()
	if err != nil {
		return false, err
	}
	if err = lockable(path, held); err != nil {
		return false, err
	}
	now, _ := os.Lstat(path) // if there is none, it is not the same file
	return os.SameFile(held, now), nil
}

// lockable returns an error if a lock file is not a regular file. Opening a FIFO may block
// forever, opening a device may have any effect, and a link may lead to a file that all can
// lock.
func lockable(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return problemf(store.ErrRefused, "%s is %s, not a file: remove it, and find out who put it there", path, kindOfFile(info.Mode()))
}

// makeLock creates the lock file atomically with its permissions: in between, another writer
// would be refused. It is not an error if another process has created it.
func makeLock(path string) error {
	temp := filepath.Join(filepath.Dir(path), tempName())
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	shareLock(f, filepath.Dir(path))
	err = f.Close()
	if err == nil {
		err = os.Link(temp, path)
	}
	if err != nil { // perhaps because it exists
		err = makeLockUnlinked(path)
	}
	_ = os.Remove(temp) // if this fails, a later writer removes it
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// makeLockUnlinked is for file systems without hard links.
func makeLockUnlinked(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	shareLock(f, filepath.Dir(path))
	return f.Close()
}
