package memstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/leasehold/leasehold/store"
)

// PutLarge creates or replaces the object: see [store.Large]. The whole body is kept in memory,
// like all objects of this store.
func (s *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := check(ctx, "put", key); err != nil {
		return 0, err
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid, Cause: fmt.Errorf("reading the body, after %d bytes: %w", len(body), err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(key, body, time.Now())
	return int64(len(body)), nil
}

// GetLarge opens the object: see [store.Large]. The reader returns the body as it was at the
// time of the call.
func (s *Store) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if err := check(ctx, "get", key); err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	if !ok {
		return nil, 0, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist, Date: time.Now()}
	}
	// A stored body is never changed: a Put replaces it.
	return io.NopCloser(bytes.NewReader(o.Body)), int64(len(o.Body)), nil
}
