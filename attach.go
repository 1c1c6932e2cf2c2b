package leasehold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
)

// Detach ends the lease in this process without freeing the lock, which stays held until the
// lease's TTL and margin are over. All work under the lease in this process must have stopped, as for
// Release. Another process goes on with what Detach returns: see [Detached].
//
// The lease is not valid from the call on, and its context ends with [ErrDetached]. Detach
// waits until none of the lease's writes is under way or may yet land, which takes a request or
// two if a renewal has just failed, and none otherwise. After it Release does nothing, and
// returns nil.
//
// If the lease was lost, the error matches [ErrLost]; if ctx ends first, ctx.Err(). In both
// cases what is left of the lease is being freed, as by Release, and there is nothing to go on
// with. A lease of an [Election], under a [Session], or in a layout without tokens cannot be
// detached: then the error says so, and the lease goes on.
func (l *Lease) Detach(ctx context.Context) (Detached, error) {
	if err := l.d.detachable(); err != nil {
		return Detached{}, fmt.Errorf("lock %q: %w", l.d.key, err)
	}
	var done <-chan result
	l.release.Do(func() {
		l.released = make(chan struct{})
		done = l.d.detach(l)
	})
	if done == nil {
		return Detached{}, fmt.Errorf("the lease of the lock %v cannot be detached: %w", l.d.at, l.Err())
	}
	r, err := lock.Wait(ctx, l.ctx, done)
	if err != nil {
		l.d.Cancel()
		r = <-done // there is always an answer, and soon, since Cancel sends nothing
	}
	switch {
	case r.err == nil:
		return l.d.detachedOf(*r.record), nil
	case errors.Is(r.err, protocol.ErrCancelled):
		return Detached{}, fmt.Errorf("the lease of the lock %v is not detached, and is being released: %w", l.d.at, err)
	}
	return Detached{}, r.err
}

// detachable says why leases of this candidate cannot be detached.
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

// detach begins to detach the lease. Its one answer comes on the channel.
func (d *driver) detach(l *Lease) <-chan result {
	waiter := make(chan result, 1)
	d.Detach(func() protocol.Event {
		if lost := context.Cause(l.ctx); lost != nil { // by now: there is nothing to leave to anybody
			waiter <- result{err: lost}
			return protocol.Release{}
		}
		d.now.waiter = waiter
		d.traceReleasing()
		l.end(ErrDetached) // before anybody else is given what proves the lease
		return protocol.Detach{}
	})
	return waiter
}

// detached takes in that a lease is detached, or is not and is being freed; or that one was renewed
// or freed that no process holds.
func (d *driver) detached(a protocol.Detached) {
	r := result{record: &a.Record, err: a.Err}
	lease := d.lease
	if lease == nil {
		d.answer(r)
		return
	}
	if a.Err != nil && !errors.Is(a.Err, protocol.ErrCancelled) {
		r.err = fmt.Errorf("the lease of the lock %v was lost before it was detached: %w: %w", d.at, ErrLost, a.Err)
	}
	if errors.Is(r.err, ErrLost) {
		d.traceLost(lease, r.err)
	}
	told := d.traceReleased(lease, r.err, r.err == nil)
	lease.outcome = r.err
	lease.settled.Store(true)
	d.lease = nil
	if !d.queue.Leave() {
		d.Step(protocol.Drop{})
	}
	closeAfter(lease.released, d.Past(), told)
	d.answer(r)
}

// Attach goes on with a detached lease in this process, where it is renewed from now on: by one
// read and one conditional write. It is the same lease, with the same token, and its holder is
// this Lock's.
//
// If the lease does not stand any more, the error matches [ErrLost] and says why, and nothing
// was written: another has the lock, it was released or broken, or another copy of what Detach
// returned was used; or the lease is over, even if nobody has taken the lock since, because
// the work under it has gone on without a valid lease. If the store does not say whether the write
// landed, the error is an [*UnsettledError]. A Lock that is held already gives a [*HeldError].
//
// Attach does not wait for others. If the store fails three times in a row, or has not answered
// within a TTL, Attach fails with the last reason. If ctx ends first, the error matches ctx.Err().
func (l *Lock) Attach(ctx context.Context, d Detached) (*Lease, error) {
	r, err := l.use(ctx, d, protocol.ToHold, nil)
	return r.lease, err // also if ctx has ended as it came: nothing else proves the lease any more
}

// RenewDetached renews a detached lease once, for the TTL of this Lock, by one read and one
// conditional write. The lease stays detached, and is never valid in this process. It
// returns what to go on with; errors are as for [Lock.Attach].
//
// Before anything is sent, keep is called with what to go on with should this process end before
// RenewDetached returns: it covers that the renewal lands and that it does not. Without it such an end
// may lose the lease. If keep fails, RenewDetached sends nothing and returns its error. It may be nil.
func (l *Lock) RenewDetached(ctx context.Context, d Detached, keep func(Detached) error) (Detached, error) {
	r, err := l.use(ctx, d, protocol.ToRenew, keep)
	if err != nil {
		return Detached{}, err
	}
	next := l.d.detachedOf(*r.record)
	next.URL = d.URL
	return next, nil
}

// ReleaseDetached frees the lock that a detached lease holds, by one read and one conditional
// write. It returns nil when the lock is certainly not that lease's any more. Errors are as
// for [Lock.Attach]; a lease that is over is released if its record still stands, and the error
// matches [ErrLost] all the same.
func (l *Lock) ReleaseDetached(ctx context.Context, d Detached) error {
	_, err := l.use(ctx, d, protocol.ToRelease, nil)
	return err
}

// use is what the calls for a detached lease have in common.
func (l *Lock) use(ctx context.Context, d Detached, use protocol.Use, keep func(Detached) error) (result, error) {
	if err := l.d.suits(&d); err != nil {
		return result{}, err
	}
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	var a *acquiring
	if use == protocol.ToHold {
		ctx, a = l.d.begins(ctx, "", true)
	}
	r, err := l.useTraced(ctx, d, protocol.Attach{Proof: d.proof(), Use: use}, keep, a)
	a.ends(err)
	return r, err
}

func (l *Lock) useTraced(ctx context.Context, d Detached, ev protocol.Attach, keep func(Detached) error, a *acquiring) (result, error) {
	if !l.d.queue.TryEnter() {
		return result{}, l.d.heldError(nil)
	}
	r, err := l.d.attach(ctx, d, ev, keep, a)
	if r.lease == nil {
		l.leave()
	}
	return r, err
}

// attach is for the goroutine whose turn it is.
func (d *driver) attach(ctx context.Context, of Detached, ev protocol.Attach, keep func(Detached) error, a *acquiring) (result, error) {
	// An acquisition that was given up may still be under way. It comes first, since a candidate does
	// one thing at a time.
	select {
	case <-d.Settled():
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	pending := of
	if ev.Use == protocol.ToRenew {
		pending = of.with(d.nextIncarnation())
		// A renewal may promise less than what stands (rule A7).
		if less := time.Now().Add(protocol.Validity(d.opts.TTL)); less.Before(pending.ExpiresAt) {
			pending.ExpiresAt = less
		}
	}
	if keep != nil {
		if err := keep(pending); err != nil {
			return result{}, err
		}
	}
	r := d.await(ctx, d.beginAttach(ctx, ev, a))
	err := r.err
	switch {
	case err == nil:
		return r, nil
	case endsLease(err):
		return result{}, fmt.Errorf("the detached lease of the lock %v, token %v: %w: %w", d.at, of.Token, ErrLost, err)
	case errors.Is(err, protocol.ErrCancelled):
		if err = ctx.Err(); r.trouble != nil {
			err = fmt.Errorf("%w; the store fails: %w", err, r.trouble)
		}
	default:
		err = d.explain(err)
	}
	if r.open != "" {
		err = &UnsettledError{pending.with(r.open), err}
	}
	return result{}, err
}

// endsLease reports that a detached lease is over, for the reason that an error names.
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

// beginAttach begins to use a detached lease. Its one answer comes on the channel.
func (d *driver) beginAttach(ctx context.Context, ev protocol.Attach, a *acquiring) <-chan result {
	waiter := make(chan result, 1)
	d.Enter()
	defer d.Leave()
	d.asks(ctx, waiter, asked{trace: a})
	d.AttachEntered(ev)
	return waiter
}
