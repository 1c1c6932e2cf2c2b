// Package request is what fences share of their requests to a store: how long one may take,
// when it is sent again, and the mark by which what it wrote is known.
package request

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"iter"
	mathrand "math/rand/v2"
	"time"

	"github.com/leasehold/leasehold/internal/retry"
	"github.com/leasehold/leasehold/store"
)

// An ID is that of one attempt to write.
type ID [16]byte

// NewID returns random bits.
func NewID() (i ID) {
	_, _ = rand.Read(i[:]) // it never fails, see crypto/rand
	return i
}

func (i ID) String() string { return hex.EncodeToString(i[:]) }

// Transient reports that to try again makes sense.
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
	// requestTimeout bounds one small request: some servers never answer one that came
	// at a bad moment, and answer the next.
	requestTimeout = 10 * time.Second
	// patience bounds all tries of one operation.
	patience = 30 * time.Second
)

// longestPause bounds the pause between two tries of one operation, which is mostly a race with
// another writer.
const longestPause = time.Second

// Pauses yields the tries that an operation has, for as long as its patience lasts. To
// call what is yielded waits, longer each time, and reports false if the context has
// ended.
func Pauses(ctx context.Context) iter.Seq[func() bool] {
	return func(yield func(func() bool) bool) {
		failures, begin := 0, time.Now()
		pause := func() bool {
			failures++
			d := min(retry.Pause(failures, []time.Duration{retry.Min}), longestPause)
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

// Put writes one.
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
