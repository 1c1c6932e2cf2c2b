package leasehold

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store"
)

// Detach is detached.From. It returns the lock's store, and its record as last written.
func (internal) Detach(ctx context.Context, l *Lease) (store.Store, layout.Snapshot, error) {
	d, ok := l.core.Of().(*driver)
	if !ok {
		return nil, layout.Snapshot{}, fmt.Errorf("a lease of %s cannot be detached: it ends with its session", l.core.Of().Where())
	}
	if err := d.detachable(); err != nil {
		return nil, layout.Snapshot{}, fmt.Errorf("lock %q: %w", d.key, err)
	}
	var done <-chan result
	l.core.Once(func() { done = d.detach(l) })
	if done == nil {
		return nil, layout.Snapshot{}, fmt.Errorf("the lease of the lock %v cannot be detached: %w", d.at, l.Err())
	}
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	r, err := lock.Wait(ctx, l.Context(), done)
	if err != nil {
		d.Cancel()
		r = <-done // there is an answer soon, because Cancel sends nothing
	}
	switch {
	case r.err == nil:
		return d.st, layout.Snapshot{Record: *r.record}, nil
	case errors.Is(r.err, protocol.ErrCancelled):
		return nil, layout.Snapshot{}, fmt.Errorf("the lease of the lock %v is not detached, and is being released: %w", d.at, err)
	}
	return nil, layout.Snapshot{}, r.err
}

// detachable returns why leases of this candidate cannot be detached.
func (d *driver) detachable() (err error) {
	switch {
	case d.opts.Session != nil:
		return errors.New("a lease under a session cannot be detached: it ends with the session")
	case !d.opts.Layout.Tokens():
		return fmt.Errorf("a lease in the layout %s cannot be detached: it has no token by which to prove it", d.opts.Layout)
	}
	d.Enter()
	defer d.Leave()
	if d.now.changed != nil {
		return errors.New("a lease of an election cannot be detached: resign, and acquire the lock by NewLock")
	}
	return nil
}

// detach begins to detach the lease. The channel receives one answer.
func (d *driver) detach(l *Lease) <-chan result {
	waiter := make(chan result, 1)
	d.Detach(func() protocol.Event {
		if lost := context.Cause(l.Context()); lost != nil { // lost in the meantime: nothing is left to hand over
			waiter <- result{err: lost}
			return candidate.Release{}
		}
		d.now.waiter = waiter
		d.tracer().Releasing(d.tracer().Times())
		l.core.Finish(lock.ErrDetached) // before another process can get the proof of the lease
		return candidate.Detach{}
	})
	return waiter
}

// detached processes the end of a Detach, or of a call for a lease that no process holds. It reports
// whether a lease has ended by it and nobody in this process waits for the lock.
func (d *driver) detached(a candidate.Detached) (unused bool) {
	r := result{record: &a.Record, err: a.Err}
	lease := d.lease
	if lease == nil {
		d.answer(r)
		return false
	}
	if a.Err != nil && !errors.Is(a.Err, protocol.ErrCancelled) {
		r.err = fmt.Errorf("the lease of the lock %v was lost before it was detached: %w: %w", d.at, ErrLost, a.Err)
	}
	if errors.Is(r.err, ErrLost) {
		d.tracer().Lost(&lease.core, d.tracer().Times(), r.err)
	}
	told := d.tracer().Released(&lease.core, d.tracer().Times(), r.err, r.err == nil)
	d.lease = nil
	unused = !d.queue.Leave()
	lease.core.Settle(r.err, d.Past(), told)
	d.answer(r)
	return unused
}

// Attach is what package detached does with a lease that no process holds. It returns the lease or
// the new record, depending on the use. Before anything is sent, it calls prepare, which may be nil,
// with the incarnation of the write. If it is not known whether the write landed, open is an incarnation
// that may have written.
func (internal) Attach(
	ctx context.Context, l *Lock, ev candidate.Attach, prepare func(incarnation string) error,
) (lease *Lease, s layout.Snapshot, open string, err error) {
	if err = ctx.Err(); err != nil {
		return nil, layout.Snapshot{}, "", err
	}
	var a *lock.Acquisition
	if ev.Use == candidate.ToHold {
		ctx, a = l.d.traced(ctx, "", true)
	}
	r, err := l.attach(ctx, ev, prepare, a)
	a.End(l.d.Locked, err)
	if r.record != nil {
		s.Record = *r.record
	}
	return r.lease, s, r.open, err // even if ctx has ended meanwhile: nothing else proves the lease now
}

func (l *Lock) attach(ctx context.Context, ev candidate.Attach, prepare func(string) error, a *lock.Acquisition) (result, error) {
	if !l.d.queue.TryEnter() {
		return result{}, l.d.heldError(nil)
	}
	r, err := l.d.attach(ctx, ev, prepare, a)
	if r.lease == nil {
		l.leave()
	}
	return r, err
}

// attach is for the goroutine that has the turn.
func (d *driver) attach(ctx context.Context, ev candidate.Attach, prepare func(string) error, a *lock.Acquisition) (result, error) {
	// An abandoned acquisition may still be in progress, and a candidate does one thing at a
	// time.
	select {
	case <-d.Settled():
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	if prepare != nil {
		if err := prepare(d.nextIncarnation()); err != nil {
			return result{}, err
		}
	}
	r := d.await(ctx, d.beginAttach(ctx, ev, a))
	switch err := r.err; {
	case err == nil:
		return r, nil
	case endsLease(err):
		return result{}, fmt.Errorf("the detached lease of the lock %v, token %v: %w: %w", d.at, ev.Proof.Token, ErrLost, err)
	case errors.Is(err, protocol.ErrCancelled):
		if err = ctx.Err(); r.trouble != nil {
			err = fmt.Errorf("%w; the store fails: %w", err, r.trouble)
		}
		return result{open: r.open}, err
	default:
		return result{open: r.open}, d.explain(err)
	}
}

// endsLease reports whether err means that a detached lease has ended.
func endsLease(err error) bool {
	return slices.ContainsFunc([]error{
		protocol.ErrTaken, protocol.ErrBroken, protocol.ErrFreed, protocol.ErrVanished, protocol.ErrCopied, protocol.ErrExpired,
	}, func(kind error) bool { return errors.Is(err, kind) })
}

func (d *driver) nextIncarnation() string {
	d.Enter()
	defer d.Leave()
	return d.Candidate().NextIncarnation()
}

// beginAttach begins to use a detached lease. The channel receives one answer.
func (d *driver) beginAttach(ctx context.Context, ev candidate.Attach, a *lock.Acquisition) <-chan result {
	waiter := make(chan result, 1)
	d.Attach(ctx, ev, func() { d.asks(ctx, waiter, asked{trace: a}) })
	return waiter
}
