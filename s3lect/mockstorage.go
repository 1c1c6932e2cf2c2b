package s3lect

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// MockStorage is a [Storage] in a local directory, for tests: each key is the path of
// a file in it. It is safe for concurrent use, also with others on the same directory,
// in this process and in others.
type MockStorage struct {
	files     *filestore.Store
	temporary string // the directory, if it is this storage's own
}

var _ Storage = (*MockStorage)(nil)

// NewMock returns a storage in a new temporary directory, which Cleanup removes. It
// panics if it cannot make one.
func NewMock() *MockStorage {
	dir, err := os.MkdirTemp("", "s3lect-")
	if err != nil {
		panic(fmt.Sprintf("s3lect: mock storage: %v", err))
	}
	m, err := NewMockStorage(dir)
	if err != nil {
		panic(err.Error())
	}
	m.temporary = dir
	return m
}

// NewMockStorage returns the storage in the directory baseDir, which it makes if there
// is none.
func NewMockStorage(baseDir string) (*MockStorage, error) {
	files, err := filestore.New(baseDir, nil)
	if err != nil {
		return nil, fmt.Errorf("s3lect: mock storage: %w", err)
	}
	return &MockStorage{files: files}, nil
}

// Get reads an object: see [Storage].
func (m *MockStorage) Get(ctx context.Context, key string) ([]byte, string, error) {
	o, err := m.files.Get(ctx, clean(key), "")
	if err != nil {
		return nil, "", translate(err)
	}
	return o.Body, string(o.Version), nil
}

// PutIfMatch writes an object on a condition: see [Storage].
func (m *MockStorage) PutIfMatch(ctx context.Context, key string, data []byte, etag string) error {
	only := store.IfAbsent()
	if etag != "" {
		only = store.IfMatch(store.Version(etag))
	}
	_, err := m.files.Put(ctx, clean(key), data, only)
	return translate(err)
}

// translate makes the errors of a store those of a Storage.
func translate(err error) error {
	switch {
	case errors.Is(err, store.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrStorageNotFound, err)
	case errors.Is(err, store.ErrPrecondition):
		return fmt.Errorf("%w: %w", ErrStoragePrecondition, err)
	}
	return err
}

// Cleanup removes all objects; the storage can be used again. Directories that were
// there before it stay, with the files by which writers lock each other out.
func (m *MockStorage) Cleanup() error {
	if m.temporary != "" {
		return os.RemoveAll(m.temporary)
	}
	ctx := context.Background()
	for entry, err := range m.files.List(ctx, "", "") {
		if err != nil {
			return err
		}
		if err := m.files.Delete(ctx, entry.Key); err != nil {
			return err
		}
	}
	return nil
}
