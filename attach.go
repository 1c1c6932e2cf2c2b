package leasehold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// Detach ends the lease in this process without freeing the lock. The lock stays held until the
// lease's TTL and margin have passed, and another process can take over the lease with the
// result: see [Detached]. As for Release, all work under the lease in this process must have
// stopped.
//
// The lease is invalid from the call on, and its context ends with [ErrDetached]. Detach waits
// until no write of the lease is in flight or may still land. That takes one or two requests if
// a renewal has just failed, and none otherwise. After Detach, Release does nothing and returns
// nil.
//
// If the lease was lost, the error matches [ErrLost]; if ctx ends first, it matches ctx.Err().
// In both cases the lease is being freed, as by Release, and there is no Detached. A lease of
// an [Election], under a [Session], or in a layout without tokens cannot be detached: Detach
// returns an error, and the lease stays valid.
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
		r = <-done // there is an answer soon, because Cancel sends nothing
	}
	switch {
	case r.err == nil:
		return l.d.detachedOf(*r.record), nil
	case errors.Is(r.err, protocol.ErrCancelled):
		return Detached{}, fmt.Errorf("the lease of the lock %v is not detached, and is being released: %w", l.d.at, err)
	}
	return Detached{}, r.err
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
		if lost := context.Cause(l.ctx); lost != nil { // lost in the meantime: nothing is left to hand over
			waiter <- result{err: lost}
			return candidate.Release{}
		}
		d.now.waiter = waiter
		d.traceReleasing()
		l.end(ErrDetached) // before another process can get the proof of the lease
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
		d.traceLost(lease, r.err)
	}
	told := d.traceReleased(lease, r.err, r.err == nil)
	lease.outcome = r.err
	lease.settled.Store(true)
	d.lease = nil
	unused = !d.queue.Leave()
	closeAfter(lease.released, d.Past(), told)
	d.answer(r)
	return unused
}

// Attach takes over a detached lease, which is renewed in this process from now on. It costs
// one read and one conditional write. The lease keeps its token, and its holder is this Lock's.
//
// If the lease has ended, the error matches [ErrLost] and says why, and nothing was written:
// another candidate has the lock, the lease was released or force-released, another copy of the
// Detached was used, or the lease has expired. An expired lease has ended even if the lock is
// free, because the work under it was not covered by a valid lease. If the store does not say
// whether the write landed, the error is an [*UnsettledError]. If this Lock is already held, it
// is a [*HeldError].
//
// Attach does not wait for other holders. If the store fails three times in a row or does not
// answer within a TTL, Attach returns the last reason. If ctx ends first, the error matches
// ctx.Err().
func (l *Lock) Attach(ctx context.Context, d Detached) (*Lease, error) {
	r, err := l.use(ctx, d, candidate.ToHold, nil)
	return r.lease, err // even if ctx has ended meanwhile: nothing else proves the lease now
}

// RenewDetached renews a detached lease once, for this Lock's TTL, with one read and one
// conditional write. The lease stays detached and is never valid in this process. RenewDetached
// returns the Detached to use next; errors are as for [Lock.Attach].
//
// Before it sends anything, RenewDetached calls keep with the Detached to use if this process
// ends before RenewDetached returns. It is usable whether or not the renewal lands. Without
// keep, the lease may be lost if the process ends. If keep fails, RenewDetached sends nothing
// and returns its error. keep may be nil.
func (l *Lock) RenewDetached(ctx context.Context, d Detached, keep func(Detached) error) (Detached, error) {
	r, err := l.use(ctx, d, candidate.ToRenew, keep)
	if err != nil {
		return Detached{}, err
	}
	next := l.d.detachedOf(*r.record)
	next.URL = d.URL
	return next, nil
}

// ReleaseDetached frees the lock held by a detached lease, with one read and one conditional
// write. It returns nil once the lease certainly no longer holds the lock. Errors are as for
// [Lock.Attach], with one exception: if the lease has expired but its record is still the
// current one, ReleaseDetached frees the lock and returns an error that matches [ErrLost].
func (l *Lock) ReleaseDetached(ctx context.Context, d Detached) error {
	_, err := l.use(ctx, d, candidate.ToRelease, nil)
	return err
}

// use is the common part of the calls for a detached lease.
func (l *Lock) use(ctx context.Context, d Detached, use candidate.Use, keep func(Detached) error) (result, error) {
	if err := l.d.suits(&d); err != nil {
		return result{}, err
	}
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	var a *acquiring
	if use == candidate.ToHold {
		ctx, a = l.d.begins(ctx, "", true)
	}
	r, err := l.useTraced(ctx, d, candidate.Attach{Proof: d.proof(), Use: use}, keep, a)
	a.ends(err)
	return r, err
}

func (l *Lock) useTraced(ctx context.Context, d Detached, ev candidate.Attach, keep func(Detached) error, a *acquiring) (result, error) {
	if !l.d.queue.TryEnter() {
		return result{}, l.d.heldError(nil)
	}
	r, err := l.d.attach(ctx, d, ev, keep, a)
	if r.lease == nil {
		l.leave()
	}
	return r, err
}

// attach is for the goroutine that has the turn.
func (d *driver) attach(ctx context.Context, of Detached, ev candidate.Attach, keep func(Detached) error, a *acquiring) (result, error) {
	// An abandoned acquisition may still be in progress, and a candidate does one thing at a
	// time.
	select {
	case <-d.Settled():
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	pending := of
	if ev.Use == candidate.ToRenew {
		pending = of.with(d.nextIncarnation())
		// A renewal may last less long than the current record (rule A7).
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
func (d *driver) beginAttach(ctx context.Context, ev candidate.Attach, a *acquiring) <-chan result {
	waiter := make(chan result, 1)
	d.Enter()
	defer d.Leave()
	d.asks(ctx, waiter, asked{trace: a})
	d.AttachEntered(ev)
	return waiter
}
