// Package certmagic, as far as this file goes, is what stands in the place of certmagic's filestorage.go while its own
// tests are compiled: its storage in a directory is one of leasehold's there.
package certmagic

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// OpenStorage is set by the file that is added to the tests of the package, which may import what imports it.
var OpenStorage func(path string) LeaseStorage

type LeaseStorage interface {
	Storage
	TryLocker
	LockLeaseRenewer
}

type FileStorage struct {
	Path string

	once sync.Once
	s    LeaseStorage
}

func (s *FileStorage) storage() LeaseStorage {
	s.once.Do(func() { s.s = OpenStorage(s.Path) })
	return s.s
}

func (s *FileStorage) Exists(ctx context.Context, key string) bool {
	return s.storage().Exists(ctx, key)
}

func (s *FileStorage) Store(ctx context.Context, key string, value []byte) error {
	return s.storage().Store(ctx, key, value)
}

func (s *FileStorage) Load(ctx context.Context, key string) ([]byte, error) {
	return s.storage().Load(ctx, key)
}

func (s *FileStorage) Delete(ctx context.Context, key string) error {
	return s.storage().Delete(ctx, key)
}

func (s *FileStorage) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	return s.storage().List(ctx, path, recursive)
}

func (s *FileStorage) Stat(ctx context.Context, key string) (KeyInfo, error) {
	return s.storage().Stat(ctx, key)
}

func (s *FileStorage) Lock(ctx context.Context, name string) error {
	return s.storage().Lock(ctx, name)
}

func (s *FileStorage) TryLock(ctx context.Context, name string) (bool, error) {
	return s.storage().TryLock(ctx, name)
}

func (s *FileStorage) Unlock(ctx context.Context, name string) error {
	return s.storage().Unlock(ctx, name)
}

func (s *FileStorage) RenewLockLease(ctx context.Context, name string, d time.Duration) error {
	return s.storage().RenewLockLease(ctx, name, d)
}

func dataDir() string { return filepath.Join(os.TempDir(), "certmagic") }
