package leasehold

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// SetMeta replaces the metadata in this lease's record, which came from [LockOptions.Meta] or
// [WithMeta]: to show a job's progress, for example. All later renewals of this lease carry it;
// other leases of the Lock do not. The map is copied; an empty map means no metadata.
//
// SetMeta returns nil when a record with this change, or a later one, has landed. The next
// renewal carries the change, and is sent early for that. If no renewal follows, under a
// [Session], with [WithoutRenewal] and at the end of [WithMaxHold], one write of the lock's
// record carries it, which does not extend the lease. The record is written for metadata at
// most once a second, counted from the last write that landed, so a call may take a second. If
// changes come faster, only the last one is written. A change to the same metadata sends
// nothing.
//
// If the store fails, SetMeta retries with a growing backoff for as long as the lease lasts. If
// ctx ends first, SetMeta returns an error that matches ctx.Err(), and the change may still
// land. If the lease ends first, the error matches that of [Lease.Err], such as [ErrLost] or
// [ErrReleased], and the change may or may not have landed. Under a session, the lease also
// ends if the write finds another holder.
//
// SetMeta returns an error and changes nothing if the record becomes too large, or in
// [LayoutMarker], whose object cannot be overwritten. [Lease.Detach] leaves the record as it
// was last written.
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

// metaFits returns why the lease's record cannot carry meta.
func (d *driver) metaFits(l *Lease, meta map[string]string) error {
	if d.opts.Layout == LayoutMarker {
		return fmt.Errorf("it cannot change in the layout %s, whose object is not written over", d.opts.Layout)
	}
	with := *d.opts
	with.Holder, with.Meta = l.Holder(), meta
	return with.encodable()
}

// metaCalls are the unanswered calls of SetMeta, numbered in the order in which the candidate
// gets them.
type metaCalls struct {
	last    int
	waiting []*metaCall
}

// A metaCall is one call of SetMeta.
type metaCall struct {
	lease  *Lease
	number int
	landed chan struct{} // closed when a record with it has landed
}

// setMeta passes the call to the candidate. If the lease has already ended, the call gets no
// answer.
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
	d.Step(candidate.SetMeta{Number: call.number, Meta: meta})
	return call
}

// metaSet answers the calls up to this number, but not those for an earlier lease, whose
// callers are about to notice its end.
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

// forgetMeta ends a call, and reports whether its change has landed. A resting engine has no
// calls.
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
