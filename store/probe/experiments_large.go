package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/leasehold/leasehold/store"
)

// A large value is a body that the stores of leasehold send in two parts, since their first
// part has 8 MiB. A server may lose what is in the second.
const (
	largeValue = 8<<20 + 64<<10
	largeTries = 2
	largeAsked = 8  // requests: four of the upload, two reads, one to remove it, and one more
	mostLarge  = 60 // requests of one upload: each of a quorum's members takes four
)

// largeBody is a large value. No part of it is like another.
func largeBody(seed uint64) io.Reader {
	var s [32]byte
	binary.LittleEndian.PutUint64(s[:], seed)
	return io.LimitReader(rand.NewChaCha8(s), largeValue)
}

// largeValues writes a value of several parts, as a fence.Object and a checkpoint of a fencelog.Log do,
// and reads it over other connections.
func (s *survey) largeValues() (Result, string, error) {
	if _, ok := s.a.Store.(store.Large); !ok {
		return Note, fmt.Sprintf("the store keeps no values over %d bytes", store.MaxBody), nil
	}
	s.setRacing(true)
	defer s.setRacing(false)
	var err error
	for n := range largeTries {
		key, seed := fmt.Sprintf("large-%d", n), rand.Uint64()
		if err = s.a.putLarge(s.path(key), largeBody(seed)); transient(err) {
			continue
		}
		if err != nil {
			return denied(err, "upload in parts")
		}
		result, detail, wrong := s.isLarge(key, seed)
		if result != OK {
			return result, detail, wrong
		}
		if err = s.remove(s.a, key); err != nil {
			return Unknown, "", err
		}
		return OK, fmt.Sprintf("%d bytes in parts came back as they were written", largeValue), nil
	}
	return Unknown, "", err
}

// isLarge compares the large value with what was written.
func (s *survey) isLarge(key string, seed uint64) (result Result, detail string, err error) {
	for n := range 2 {
		err = s.again(func() error {
			result, detail, err = s.either(n+1).isLarge(s.path(key), largeBody(seed))
			return err
		})
		if result != OK {
			return result, detail, err
		}
	}
	return OK, "", nil
}

// putLarge is PutLarge of a large value.
func (c *counted) putLarge(key string, body io.Reader) error {
	n := &c.s.report.Requests.Put
	if err := c.s.count(n, 1, largeValue); err != nil {
		return err
	}
	ctx, cancel := c.s.boundedLarge(n)
	defer cancel()
	size, err := c.Store.(store.Large).PutLarge(ctx, key, body) //nolint:errcheck,forcetypeassert // it is one
	err = cutOff(ctx, "put", key, err)
	c.s.expect(key, err)
	if err == nil && size != largeValue {
		err = &store.Error{Op: "put", Key: key, Kind: store.ErrRefused, Cause: fmt.Errorf("it says that it wrote %d bytes of %d", size, largeValue)}
	}
	return err
}

// isLarge is GetLarge, compared with the body.
func (c *counted) isLarge(key string, want io.Reader) (Result, string, error) {
	n := &c.s.report.Requests.Get
	if err := c.s.count(n, 1, 0); err != nil {
		return Unknown, "", err
	}
	ctx, cancel := c.s.boundedLarge(n)
	defer cancel()
	r, size, err := c.Store.(store.Large).GetLarge(ctx, key) //nolint:errcheck,forcetypeassert // as above
	switch {
	case errors.Is(err, store.ErrNotExist):
		return Bad, "it was told to have landed, and there was no object after it", nil
	case err != nil:
		return Unknown, "", cutOff(ctx, "get", key, err)
	}
	defer r.Close()
	if size != largeValue {
		return Bad, fmt.Sprintf("of %d bytes that were written there are %d", largeValue, size), nil
	}
	at, same, err := compare(r, want)
	switch {
	case err != nil:
		return Unknown, "", err
	case !same:
		return Bad, fmt.Sprintf("of %d bytes that were written, those after the first %d are others, or missing", largeValue, at), nil
	}
	return OK, "", nil
}

// compare reports whether two bodies are the same, and up to where at least.
func compare(got, want io.Reader) (at int, same bool, err error) {
	var a, b [32 << 10]byte
	for {
		n, err := io.ReadFull(got, a[:])
		m, wantErr := io.ReadFull(want, b[:])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return at, false, err
		}
		switch {
		case n != m || !bytes.Equal(a[:n], b[:m]):
			return at, false, nil
		case wantErr != nil:
			return at + n, true, nil
		}
		at += n
	}
}

// boundedLarge is bounded for a call that may take several requests, and four times as long.
func (s *survey) boundedLarge(n *int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 4*limit)
	ctx, stop := s.metered(ctx, n, 1, mostLarge)
	return ctx, func() { stop(); cancel() }
}
