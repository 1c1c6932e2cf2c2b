package leasehold

import (
	"context"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/locktrace"
)

// tracer returns the Tracer for the Trace, or nil without one. The engine is locked.
func (d *driver) tracer() *lock.Tracer {
	if d.opts.Trace == nil {
		return nil
	}
	if d.trace == nil {
		of := locktrace.Subject{Kind: d.opts.kind, Key: d.key, Holder: d.opts.Holder}
		d.trace = lock.NewTracer(d.opts.Trace, d.st, of, lock.NewEvents(d.at.String(), d.opts.TTL, d.opts.Logger), d.Context)
	}
	return d.trace
}

// traced calls AcquireStart, and returns the context for the acquisition. The engine is not locked.
func (d *driver) traced(ctx context.Context, holder string, attached bool) (context.Context, *lock.Acquisition) {
	if d.opts.Trace == nil {
		return ctx, nil
	}
	var t *lock.Tracer
	d.Locked(func() { t = d.tracer() })
	return t.Begin(ctx, holder, attached)
}

// enterQueue waits for the turn, and traces the wait if there is one.
func (d *driver) enterQueue(ctx context.Context, a *lock.Acquisition) error {
	if a == nil {
		return d.queue.Enter(ctx)
	}
	if d.queue.TryEnter() {
		return nil
	}
	held := d.heldError(nil)
	d.Locked(func() { a.Waits(held, true, 0) })
	return d.queue.Enter(ctx)
}
