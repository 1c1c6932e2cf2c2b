package faultstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/leasehold/leasehold/store"
)

var errNotLarge = errors.New("the store behind the faults is no store.Large")

// PutLarge writes through the faults, as one request whatever its number of parts. It reads the
// whole body first, because a late delivery cannot read r.
func (s *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	c := Call{Op: "put", Key: key}
	if err := c.refused(ctx); err != nil {
		return 0, err
	}
	inner, ok := s.inner.(store.Large)
	if !ok {
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid, Cause: errNotLarge}
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid, Cause: fmt.Errorf("reading the body, after %d bytes: %w", len(body), err)}
	}
	return carry(ctx, s, c, func(ctx context.Context) (int64, error) {
		return inner.PutLarge(ctx, key, bytes.NewReader(body))
	})
}

// GetLarge opens the object through the faults. If the answer is lost, the body breaks off in
// the middle.
func (s *Store) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	c := Call{Op: "get", Key: key}
	if err := c.refused(ctx); err != nil {
		return nil, 0, err
	}
	inner, ok := s.inner.(store.Large)
	if !ok {
		return nil, 0, &store.Error{Op: "get", Key: key, Kind: store.ErrInvalid, Cause: errNotLarge}
	}
	l, err := carry(ctx, s, c, func(ctx context.Context) (*large, error) {
		body, size, err := inner.GetLarge(ctx, key)
		if err != nil {
			return nil, err
		}
		return &large{Reader: body, Closer: body, size: size}, nil
	})
	if l == nil {
		return nil, 0, err
	}
	if err != nil {
		l.Reader = io.MultiReader(io.LimitReader(l.Reader, l.size/2), failing{err})
	}
	return l, l.size, nil
}

// A large is an open object.
type large struct {
	io.Reader
	io.Closer
	size int64
}

// failing is the reader at the point where a body breaks off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
