package filestore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/leasehold/leasehold/store"
)

// PutLarge creates or replaces the object, in the same way as Put: see [store.Large].
func (s *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := check(ctx, "put", key); err != nil {
		return 0, err
	}
	src := &source{ctx: ctx, r: r}
	if _, err := s.write(ctx, key, src, store.Condition{}); err != nil {
		return 0, err
	}
	return src.size, nil
}

// A source is a PutLarge body. Its errors have kinds, so they are not taken for errors of the
// file.
type source struct {
	ctx  context.Context
	r    io.Reader
	size int64 // bytes read
}

func (s *source) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.r.Read(p)
	s.size += int64(n)
	if err != nil && err != io.EOF { //nolint:errorlint // what wraps it is no end
		err = problemf(store.ErrInvalid, "reading the body, after %d bytes: %w", s.size, err)
	}
	return n, err
}

// GetLarge opens the object without a lock: see [store.Large]. On Windows, an object cannot be
// deleted while it is open.
func (s *Store) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if err := check(ctx, "get", key); err != nil {
		return nil, 0, err
	}
	path, err := s.path(key)
	if err != nil {
		return nil, 0, failed("get", key, err)
	}
	f, info, err := openObject(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, s.absent(key, err)
	case err != nil:
		return nil, 0, failed("get", key, err)
	}
	return &opened{f: f, key: key, left: info.Size()}, info.Size(), nil
}

// An opened is an object's open file. If another program truncates it, Read fails.
type opened struct {
	f    *os.File
	key  string
	left int64
}

func (o *opened) Read(p []byte) (int, error) {
	n, err := o.f.Read(p)
	o.left -= int64(n)
	if err == io.EOF && o.left > 0 { //nolint:errorlint // only EOF itself is the end
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF { //nolint:errorlint // only EOF itself is the end
		err = failed("get", o.key, err)
	}
	return n, err
}

func (o *opened) Close() error { return o.f.Close() }
