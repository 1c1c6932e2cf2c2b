// Package request has what fences share for requests to a store: timeouts, retries and the
// random IDs of writes.
package request

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"iter"
	mathrand "math/rand/v2"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// An ID identifies one attempt to write.
type ID [16]byte

// NewID returns random bits.
func NewID() (i ID) {
	_, _ = rand.Read(i[:]) // it never fails, see crypto/rand
	return i
}

func (i ID) String() string { return hex.EncodeToString(i[:]) }

// Transient reports whether a retry makes sense.
func Transient(err error) bool {
	for _, kind := range []error{
		store.ErrUnavailable, store.ErrThrottled, store.ErrConflict, store.ErrUnknownOutcome,
		store.ErrPrecondition, store.ErrNotExist, // a race was lost
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

const (
	// requestTimeout bounds one small request, because some servers never answer a request that
	// came at a bad moment, but answer the next one.
	requestTimeout = 10 * time.Second
	// patience bounds all tries of one operation.
	patience = 30 * time.Second
)

// longestPause bounds the backoff between tries. It is short because most retries follow a lost
// race with another writer.
const longestPause = time.Second

// Pauses yields once per try of an operation, until its patience has run out. The yielded
// function waits, longer each time, and reports false if the context has ended.
func Pauses(ctx context.Context) iter.Seq[func() bool] {
	return func(yield func(func() bool) bool) {
		failures, begin := 0, time.Now()
		pause := func() bool {
			failures++
			d := min(protocol.Pause(failures, []time.Duration{protocol.MinPause}), longestPause)
			timer := time.NewTimer(d + mathrand.N(d))
			defer timer.Stop()
			select {
			case <-timer.C:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for yield(pause) && time.Since(begin) < patience {
		}
	}
}

// Get reads a small object.
func Get(ctx context.Context, st store.Store, key string, unless store.Version) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return st.Get(ctx, key, unless)
}

// Put writes a small object.
func Put(ctx context.Context, st store.Store, key string, body []byte, only store.Condition) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return st.Put(ctx, key, body, only)
}

// Delete deletes an object.
func Delete(ctx context.Context, st store.Store, key string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return st.Delete(ctx, key)
}
