package fence

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

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

// pauses yields the tries that an operation has. To call what is yielded waits, longer
// each time and 6 s in all on average, and reports false if the context has ended.
func pauses(ctx context.Context) iter.Seq[func() bool] {
	return func(yield func(func() bool) bool) {
		longest := 100 * time.Millisecond
		for range 20 {
			pause := func() bool {
				timer := time.NewTimer(rand.N(longest))
				defer timer.Stop()
				longest = min(longest*2, time.Second)
				select {
				case <-timer.C:
					return true
				case <-ctx.Done():
					return false
				}
			}
			if !yield(pause) {
				return
			}
		}
	}
}
