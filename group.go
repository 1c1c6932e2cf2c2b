package leasehold

import (
	"context"
	"errors"
	"sync"
)

// A Group runs functions at the same time, each under the lock of its key, and ends all of them when the first one
// fails or loses its lease: it is an errgroup whose members hold locks. Make it with [Locks.Group].
type Group struct {
	locks   *Locks
	ctx     context.Context
	cancel  context.CancelCauseFunc
	members sync.WaitGroup
	failed  sync.Once
	err     error
}

// Group makes a Group and its context, which ends with ctx, when Wait returns, and when the first function has failed
// or lost its lease: then at the loss, and not only when that function returns. [context.Cause] says which.
func (l *Locks) Group(ctx context.Context) (*Group, context.Context) {
	g := &Group{locks: l}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g, g.ctx
}

// Go calls f under the lock of the key, on a goroutine of its own, as [Locks.Do] does. The context of f ends with that
// of the Group and with the lease. Functions of one key are called one after the other; once the Group's context has
// ended, none is called that has not been yet. After Wait was called only functions of the Group may call Go.
func (g *Group) Go(key string, f func(ctx context.Context, lease *Lease) error, opts ...AcquireOption) {
	g.members.Go(func() {
		g.fail(g.locks.Do(g.ctx, key, func(ctx context.Context, lease *Lease) error {
			defer context.AfterFunc(lease.Context(), func() { //nolint:contextcheck // it is the lease that ends
				if err := lease.Err(); errors.Is(err, ErrLost) { // else f has released it itself
					g.fail(err)
				}
			})()
			return f(ctx, lease)
		}, opts...))
	})
}

// fail keeps the first error. Whoever comes later waits until that is kept: so a loss, which is told on a goroutine of
// its own and returned by Do too, is there when all members have ended.
func (g *Group) fail(err error) {
	if err != nil {
		g.failed.Do(func() { g.err = err; g.cancel(err) })
	}
}

// Wait waits until all functions have returned and their locks are released, and returns the first error of
// Locks.Do, or of a lease that was lost before that.
func (g *Group) Wait() error {
	g.members.Wait()
	g.cancel(nil)
	return g.err
}
