package leasehold

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/leasehold/leasehold/internal/protocol"
)

// SetMeta changes the meta data in the record of this lease, in place of [LockOptions.Meta] and
// [WithMeta]: the progress of a job, for one. It holds until the lease ends, so all later renewals carry
// it too, and for no other lease of the Lock. The map is copied; an empty one is none.
//
// SetMeta returns nil when a record that carries the change, or one that was asked for later, has
// landed. The next renewal carries it, and comes early for that; under a [Session], with
// [WithoutRenewal] and at the end of [WithMaxHold], where none follows, one write of the lock's
// record does, which makes the lease valid for no longer. The record is written for this once a
// second at most, from the last write that landed: of changes that come faster the last one counts, and a
// call may take a second for it. One that changes nothing sends nothing.
//
// While the store fails the change is tried for with growing pauses, for as long as the lease
// lasts. If ctx ends first, SetMeta returns an error that matches ctx.Err(), and that goes on in the
// background: the change may still land. If the lease ends first, the error matches what
// [Lease.Err] does, [ErrLost] or [ErrReleased] for two, and the change may have landed or not. Under
// a session a write that finds the lock in another's hands ends the lease, which would not have
// noticed otherwise.
//
// Meta data that makes the record too large is an error, and so is a lease in [LayoutMarker], whose
// object cannot be written over: then nothing has changed. [Lease.Detach] leaves the record with what has landed.
func (l *Lease) SetMeta(ctx context.Context, meta map[string]string) error {
	if err := l.d.metaFits(l, meta); err != nil {
		return fmt.Errorf("the meta data of the lock %v: %w", l.d.at, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	call := l.d.setMeta(l, meta)
	select {
	case <-call.landed:
	case <-ctx.Done():
	case <-l.Done():
	}
	if l.d.forgetMeta(call) {
		return nil
	}
	if err := l.Err(); err != nil {
		return fmt.Errorf("the lease of the lock %v ended before its meta data was known to have landed: %w", l.d.at, err)
	}
	return fmt.Errorf("the meta data of the lock %v may still land: %w", l.d.at, ctx.Err())
}

// metaFits says why the record of a lease cannot carry that.
func (d *driver) metaFits(l *Lease, meta map[string]string) error {
	if d.opts.Layout == LayoutMarker {
		return fmt.Errorf("it cannot change in the layout %s, whose object is not written over", d.opts.Layout)
	}
	with := *d.opts
	with.Holder, with.Meta = l.Holder(), meta
	return with.encodable()
}

// metaCalls are the calls of SetMeta that are not answered. They are numbered in the order in which
// the candidate was told.
type metaCalls struct {
	last    int
	waiting []*metaCall
}

// A metaCall is one of them.
type metaCall struct {
	lease  *Lease
	number int
	landed chan struct{} // closed when a record with it has landed
}

// setMeta tells the candidate. If the lease has ended by then, nobody answers.
func (d *driver) setMeta(l *Lease, meta map[string]string) *metaCall {
	d.Enter()
	defer d.Leave()
	calls := &d.now.metaCalls
	calls.last++
	call := &metaCall{lease: l, number: calls.last, landed: make(chan struct{})}
	if d.lease != l || l.ctx.Err() != nil {
		return call
	}
	calls.waiting = append(calls.waiting, call)
	if meta = maps.Clone(meta); meta == nil {
		meta = map[string]string{}
	}
	d.Step(protocol.SetMeta{Number: call.number, Meta: meta})
	return call
}

// metaSet answers the calls up to this number. Those of an earlier lease, whose callers have not
// noticed yet that it has ended, are none of them.
func (d *driver) metaSet(number int) {
	calls := &d.now.metaCalls
	calls.waiting = slices.DeleteFunc(calls.waiting, func(call *metaCall) bool {
		landed := call.lease == d.lease && call.number <= number
		if landed {
			close(call.landed)
		}
		return landed
	})
}

// forgetMeta ends a call, and reports whether its change has landed. An engine that rests has none.
func (d *driver) forgetMeta(call *metaCall) (landed bool) {
	d.Locked(func() {
		select {
		case <-call.landed:
			landed = true
			return
		default:
		}
		if d.now != nil {
			d.now.metaCalls.waiting = slices.DeleteFunc(d.now.metaCalls.waiting, func(other *metaCall) bool { return other == call })
		}
	})
	return landed
}
