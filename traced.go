package leasehold

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// traces is what a driver with a Trace keeps about its lease and the request in flight. Events
// are queued where they arise, while the engine is locked, so they are in the order of the
// candidate's steps.
type traces struct {
	events   *lock.Events
	requests lock.Requests

	// Clock readings for the lease, from its grant until its release is settled.
	granted, ended, releasing time.Duration
	lost                      bool
	over                      bool // the last claim replaced another holder's record

	renewing time.Duration // when the current renewal was first sent; 0: none
	sent     int           // requests since then
	until    time.Duration // when the lease ceases to be valid, since the last event
	left     time.Duration // remaining validity before the last event
}

// traces returns the driver's traces, or nil without a Trace. The engine is locked.
func (d *driver) traces() *traces {
	if d.opts.Trace == nil {
		return nil
	}
	c := d.callbacks()
	if c.traces == nil {
		c.traces = &traces{events: lock.NewEvents(d.at.String(), d.opts.TTL, d.opts.Logger)}
	}
	return c.traces
}

// subject returns the subject of events about a lease with this holder's name.
func (d *driver) subject(holder string) TraceSubject {
	if holder == "" {
		holder = d.opts.Holder
	}
	return TraceSubject{Kind: d.opts.kind, Store: d.st.String(), Key: d.key, Holder: holder}
}

// An acquiring tells a Trace about an acquisition. On nil, its methods trace nothing.
type acquiring struct {
	d        *driver
	ctx      context.Context // has the values of AcquireStart's context, and does not end
	of       TraceSubject
	began    time.Duration
	attached bool

	// Guarded by the engine's mutex.
	waited bool
	told   <-chan struct{} // closed when AcquireDone has returned; nil: the acquisition is in progress
}

// begins calls AcquireStart, and returns the context for the acquisition.
func (d *driver) begins(ctx context.Context, holder string, attached bool) (context.Context, *acquiring) {
	if d.opts.Trace == nil {
		return ctx, nil
	}
	a := &acquiring{d: d, of: d.subject(holder), began: clock.Now(), attached: attached}
	ctx = d.opts.Trace.start(ctx, TraceAcquireStart{a.of, time.Now()})
	a.ctx = context.WithoutCancel(ctx)
	return ctx, a
}

// enterQueue waits for the turn, and traces the wait if there is one.
func (a *acquiring) enterQueue(ctx context.Context, d *driver) error {
	if a == nil {
		return d.queue.Enter(ctx)
	}
	if d.queue.TryEnter() {
		return nil
	}
	if held, ok := errors.AsType[*HeldError](d.heldError(nil)); ok {
		d.Locked(func() { a.waits(held.Info, true) })
	}
	return d.queue.Enter(ctx)
}

// waits traces a wait for a holder. The engine is locked.
func (a *acquiring) waits(info Info, local bool) {
	if a == nil {
		return
	}
	a.waited = true
	lock.Tell(a.ctx, a.d.traces().events, "Waiting", a.d.opts.Trace.Waiting, TraceWaiting{
		TraceSubject: a.of, Time: time.Now(), Info: info, Local: local,
	})
}

// done traces the end of the acquisition, once. The engine is locked.
func (a *acquiring) done(token Token, over bool, err error) {
	if a == nil || a.told != nil {
		return
	}
	a.told = lock.TellLast(a.ctx, a.d.traces().events, "AcquireDone", a.d.opts.Trace.AcquireDone, TraceAcquireDone{
		TraceSubject: a.of, Time: time.Now(), Err: err, Token: token, Took: clock.Now() - a.began,
		Waited: a.waited, TookOver: over, Attached: a.attached,
	})
}

// ends waits until the Trace knows the end of the acquisition, which is the granted lease or
// else this error.
func (a *acquiring) ends(err error) {
	if a == nil {
		return
	}
	if err != nil {
		a.d.Locked(func() { a.done(NoToken, false, err) })
	}
	<-a.told
}

// traceReport notes an action of the candidate before it is carried out.
func (d *driver) traceReport(action protocol.Action) {
	t := d.traces()
	if t == nil {
		return
	}
	now := clock.Now()
	if w, ok := action.(candidate.Write); ok {
		switch w.Op {
		case candidate.Claim:
			t.over = w.Expect != "" && w.Over.Held && w.Over.Incarnation() != w.Record.Incarnation()
		case candidate.Renew:
			if t.renewing == 0 {
				t.renewing, t.sent = now, 0
			}
		case candidate.Free:
		}
	}
	if t.requests.Sent(action, now) {
		t.sent++
	}
}

// traceTaken notes an event.
func (d *driver) traceTaken(ev protocol.Event) {
	t := d.traces()
	if t == nil {
		return
	}
	now := clock.Now()
	t.left, t.until = t.until-now, d.Until()
	if answer, ok := t.requests.Answered(ev, now); ok {
		t.request(d.Context(), d.opts.Trace, d.subject(""), answer)
	}
}

func (t *traces) request(ctx context.Context, trace *Trace, of TraceSubject, a lock.Answer) {
	lock.Tell(ctx, t.events, "Request", trace.Request, TraceRequest{
		TraceSubject: of, Time: time.Now(), Op: a.Op, Took: a.Took, Err: a.Err,
	})
}

// traceLook traces a read that was not requested by a candidate.
func (d *driver) traceLook(ctx context.Context, sent time.Duration, err error) {
	if d.opts.Trace == nil {
		return
	}
	answer := lock.Answer{Op: "read", Took: clock.Now() - sent, Err: err}
	d.Locked(func() { d.traces().request(context.WithoutCancel(ctx), d.opts.Trace, d.subject(""), answer) })
}

// traceGranted traces a lease before the caller gets it.
func (d *driver) traceGranted() {
	if t := d.traces(); t != nil {
		t.granted, t.ended, t.releasing, t.lost, t.renewing = clock.Now(), 0, 0, false, 0
		d.now.trace.done(d.lease.Token(), t.over, nil)
	}
}

func (d *driver) traceRenewed() {
	t := d.traces()
	if t == nil {
		return
	}
	lock.Tell(d.Context(), t.events, "Renewed", d.opts.Trace.Renewed, TraceRenewed{
		TraceSubject: d.subject(d.lease.Holder()), Time: time.Now(), Token: d.lease.Token(),
		Took: clock.Now() - t.renewing, Requests: t.sent, Left: t.left, TTL: d.Candidate().Lease().TTL,
	})
	t.renewing = 0
}

func (d *driver) traceLost(l *Lease, cause error) {
	t := d.traces()
	if t == nil || t.lost {
		return
	}
	t.ended, t.lost, t.renewing = clock.Now(), true, 0
	lock.Tell(l.core.Values(), t.events, "Lost", d.opts.Trace.Lost, TraceLost{
		TraceSubject: d.subject(l.Holder()), Time: time.Now(), Token: l.Token(), Cause: cause, Held: t.ended - t.granted,
	})
}

// traceReleasing notes when the user ends the lease.
func (d *driver) traceReleasing() {
	t := d.traces()
	if t == nil {
		return
	}
	if t.releasing, t.renewing = clock.Now(), 0; !t.lost {
		t.ended = t.releasing
	}
}

// traceReleased traces a settled release or a Detach. The channel is closed when the Trace
// knows.
func (d *driver) traceReleased(l *Lease, err error, detached bool) (told <-chan struct{}) {
	t := d.traces()
	if t == nil {
		return nil
	}
	return lock.TellLast(l.core.Values(), t.events, "Released", d.opts.Trace.Released, TraceReleased{
		TraceSubject: d.subject(l.Holder()), Time: time.Now(), Token: l.Token(), Held: t.ended - t.granted,
		Took: clock.Now() - t.releasing, Err: err, Lost: t.lost, Detached: detached,
	})
}

func (d *driver) traceTrouble(err error) {
	if t := d.traces(); t != nil {
		lock.Tell(d.Context(), t.events, "Trouble", d.opts.Trace.Trouble, TraceTrouble{
			TraceSubject: d.subject(""), Time: time.Now(), Err: err, Failures: d.now.failures,
		})
	}
}

// traceLeader traces a change that concerns the leader.
func (d *driver) traceLeader(known, was, fresh bool, leader Info) {
	if t := d.traces(); t != nil {
		lock.Tell(d.Context(), t.events, "Leader", d.opts.Trace.Leader, TraceLeader{
			TraceSubject: d.subject(""), Time: time.Now(), Known: known, WasKnown: was, New: fresh, Info: leader,
		})
	}
}

// traceWatcher wraps the watcher of another holder's session so that its requests are traced.
// They have no caller's context, because one watcher serves many acquisitions.
func (d *driver) traceWatcher(w engine.Owner) engine.Owner {
	if d.opts.Trace == nil {
		return w
	}
	place := w.Place()
	t := &traces{events: lock.NewEvents(place.String(), d.opts.TTL, d.opts.Logger)}
	of := TraceSubject{Kind: KindSession, Store: place.Store.String(), Key: place.Key, Holder: d.opts.Holder}
	return lock.Watch(w, func(a lock.Answer) { t.request(context.Background(), d.opts.Trace, of, a) })
}
