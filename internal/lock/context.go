package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// grace is how long a release may take if its caller's context has ended.
const grace = 5 * time.Second

// errTimeout is the reason for the end of a context that only this package limits.
var errTimeout = fmt.Errorf("timed out after %v", grace)

// Grace returns ctx, or, if ctx has ended, a context that lasts five more seconds.
func Grace(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), grace)
}

// Last returns a context that lasts five seconds, whatever happens to ctx. It is for a release
// that its caller gave no time of its own: without it, a shutdown would end the release with the
// work, and nobody could take the lock until the lease expires.
func Last(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), grace, errTimeout)
}

// Wait waits for done, or returns the reason why ctx ended first. If ctx ended because own did, as
// the context of a lease ends by the lease's own release, Wait waits up to five seconds longer.
func Wait[T any](ctx, own context.Context, done <-chan T) (result T, err error) {
	select {
	case result = <-done: // even if ctx has ended
		return result, nil
	default:
	}
	select {
	case result = <-done:
		return result, nil
	case <-ctx.Done():
	}
	// The two causes must be the very same error: another context may end with an equal one.
	if own.Err() == nil || context.Cause(ctx) != context.Cause(own) { //nolint:errorlint // see above
		return result, whyEnded(ctx)
	}
	last, cancel := Last(ctx)
	defer cancel()
	select {
	case result = <-done:
		return result, nil
	case <-last.Done():
		return result, whyEnded(last)
	}
}

func whyEnded(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return errTimeout
	}
	return ctx.Err()
}
