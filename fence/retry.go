package fence

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/leasehold/leasehold/internal/retry"
	"github.com/leasehold/leasehold/store"
)

// transient reports that to try again makes sense.
func transient(err error) bool {
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

// pauses yields the tries that an operation has, for as long as its patience lasts. To
// call what is yielded waits, longer each time, and reports false if the context has
// ended.
func pauses(ctx context.Context) iter.Seq[func() bool] {
	return func(yield func(func() bool) bool) {
		failures, begin := 0, time.Now()
		pause := func() bool {
			failures++
			d := min(retry.Pause(failures, []time.Duration{retry.Min}), longestPause)
			timer := time.NewTimer(d + rand.N(d))
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

// get reads a small object.
func get(ctx context.Context, st store.Store, key string, unless store.Version) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return st.Get(ctx, key, unless)
}

// put writes one.
func put(ctx context.Context, st store.Store, key string, body []byte, only store.Condition) (*store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return st.Put(ctx, key, body, only)
}
