package leasehold

import (
	"context"
	"errors"
	"sync"
)

// A Group runs functions concurrently, each under the lock of its key, and ends all of them
// when the first one fails or loses its lease. It works like an errgroup with locks. Create it
// with [Locks.Group].
type Group struct {
	locks   *Locks
	ctx     context.Context
	cancel  context.CancelCauseFunc
	members sync.WaitGroup
	failed  sync.Once
	err     error
}

// Group returns a Group and its context. The context ends with ctx, when Wait returns, and when
// the first function fails or loses its lease. A loss ends it at once, even before that
// function returns. [context.Cause] returns the reason.
func (l *Locks) Group(ctx context.Context) (*Group, context.Context) {
	g := &Group{locks: l}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g, g.ctx
}

// Go calls f on a separate goroutine under the lock of the key, as [Locks.Do] does. The context
// of f ends with the Group's context and with the lease. Functions of one key run one after the
// other. Once the Group's context has ended, no further function is called. After Wait was
// called, only functions of the Group may call Go.
func (g *Group) Go(key string, f func(ctx context.Context, lease *Lease) error, opts ...AcquireOption) {
	g.members.Go(func() {
		g.fail(g.locks.Do(g.ctx, key, func(ctx context.Context, lease *Lease) error {
			defer context.AfterFunc(lease.Context(), func() { //nolint:contextcheck // it is the lease that ends
				if err := lease.Err(); errors.Is(err, ErrLost) { // otherwise f has released it itself
					g.fail(err)
				}
			})()
			return f(ctx, lease)
		}, opts...))
	})
}

// fail keeps the first error. Later callers wait until it is kept. So the error is set when all
// members have ended, even if a loss is told on a goroutine of its own as well as returned by
// Do.
func (g *Group) fail(err error) {
	if err != nil {
		g.failed.Do(func() { g.err = err; g.cancel(err) })
	}
}

// Wait waits until all functions have returned and their locks are released. It returns the
// first error of Locks.Do, or the first loss of a lease if that came earlier.
func (g *Group) Wait() error {
	g.members.Wait()
	g.cancel(nil)
	return g.err
}
