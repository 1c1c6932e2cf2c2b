// Package cleanup has contexts for what is done last, when the context of the work may have ended.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// timeout is how long a release may keep its caller waiting that cannot wait
// by a context of its own.
const timeout = 5 * time.Second

// errTimeout says so where no context of the caller's has ended.
var errTimeout = fmt.Errorf("timed out after %v", timeout)

// Context gives a context that has ended some time after all.
func Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// Last is for a release that its caller has given no time: the work's context says
// nothing about it, whether or not it has ended.
// An end that came from a shutdown would leave the lock held by nobody for a TTL, for want of
// one write.
func Last(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), timeout, errTimeout)
}

// Wait waits for done, or returns why ctx ended first. Where own has ended and ctx with it, as the context of
// a lease does by its own release, done has some time after all.
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
	// They are the very same error: the end of another context may look like it.
	if own.Err() == nil || context.Cause(ctx) != context.Cause(own) { //nolint:errorlint // see above
		return result, Why(ctx)
	}
	last, cancel := Last(ctx)
	defer cancel()
	select {
	case result = <-done:
		return result, nil
	case <-last.Done():
		return result, Why(last)
	}
}

// Why is why such a context has ended.
func Why(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return errTimeout
	}
	return ctx.Err()
}
