package memstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/leasehold/leasehold/store"
)

// PutLarge writes the object, whether there is one or not: see [store.Large]. All of
// the body lies in memory, as everything does here.
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

// GetLarge opens the object: see [store.Large]. It goes on yielding the body that was
// there when it was called.
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
	// Nobody writes to a body that is kept: a Put replaces it.
	return io.NopCloser(bytes.NewReader(o.Body)), int64(len(o.Body)), nil
}
