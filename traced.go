package leasehold

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
)

// traces are what a driver with a Trace keeps of its lease, and of the request under way. Events are
// queued where they arise, while the engine is locked, so their order is that of the candidate's steps.
type traces struct {
	events   *lock.Events
	requests lock.Requests

	// Of the lease, from its grant until its release is settled: readings of the clock.
	granted, ended, releasing time.Duration
	lost                      bool
	over                      bool // the last claim was sent over the record of another holder

	renewing time.Duration // when the renewal under way was first sent; 0: none is
	sent     int           // requests since then
	left     time.Duration // of the lease, before the event that the candidate has taken in last
}

// traces makes what the events of this driver need, and is nil if nobody wants any. The engine is
// locked.
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

// subject is what the events of a lease are about, by the name of its holder.
func (d *driver) subject(holder string) TraceSubject {
	if holder == "" {
		holder = d.opts.Holder
	}
	return TraceSubject{Kind: d.opts.kind, Store: d.st.String(), Key: d.key, Holder: holder}
}

// An acquiring is an acquisition that a Trace is told of. All methods of nil do nothing.
type acquiring struct {
	d        *driver
	ctx      context.Context // with the values that AcquireStart has added, and without an end
	of       TraceSubject
	began    time.Duration
	attached bool

	// Guarded by the engine's mutex.
	waited bool
	told   <-chan struct{} // closed when AcquireDone has returned; nil: the acquisition goes on
}

// begins tells that an acquisition begins, and gives it its context.
func (d *driver) begins(ctx context.Context, holder string, attached bool) (context.Context, *acquiring) {
	if d.opts.Trace == nil {
		return ctx, nil
	}
	a := &acquiring{d: d, of: d.subject(holder), began: clock.Now(), attached: attached}
	ctx = d.opts.Trace.start(ctx, TraceAcquireStart{a.of, time.Now()})
	a.ctx = context.WithoutCancel(ctx)
	return ctx, a
}

// enterQueue waits for the turn, and tells if that takes a wait.
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

// waits tells that it waits for a holder. The engine is locked.
func (a *acquiring) waits(info Info, local bool) {
	if a == nil {
		return
	}
	a.waited = true
	lock.Tell(a.ctx, a.d.traces().events, "Waiting", a.d.opts.Trace.Waiting, TraceWaiting{
		TraceSubject: a.of, Time: time.Now(), Info: info, Local: local,
	})
}

// done tells that it has ended, once. The engine is locked.
func (a *acquiring) done(token Token, over bool, err error) {
	if a == nil || a.told != nil {
		return
	}
	a.told = lock.TellLast(a.ctx, a.d.traces().events, "AcquireDone", a.d.opts.Trace.AcquireDone, TraceAcquireDone{
		TraceSubject: a.of, Time: time.Now(), Err: err, Token: token, Took: clock.Now() - a.began,
		Waited: a.waited, TookOver: over, Attached: a.attached,
	})
}

// ends waits until it has been told how the acquisition has ended: by the lease that it was granted, or
// else with this error.
func (a *acquiring) ends(err error) {
	if a == nil {
		return
	}
	if err != nil {
		a.d.Locked(func() { a.done(NoToken, false, err) })
	}
	<-a.told
}

// traceReport takes in an action of the candidate before it is carried out.
func (d *driver) traceReport(action protocol.Action) {
	t := d.traces()
	if t == nil {
		return
	}
	now := clock.Now()
	if w, ok := action.(protocol.Write); ok {
		switch w.Op {
		case protocol.Claim:
			t.over = w.Expect != "" && w.Over.Held && w.Over.Incarnation() != w.Record.Incarnation()
		case protocol.Renew:
			if t.renewing == 0 {
				t.renewing, t.sent = now, 0
			}
		case protocol.Free:
		}
	}
	if t.requests.Sent(action, now) {
		t.sent++
	}
}

// traceTaken takes in an event before the lease's deadline moves.
func (d *driver) traceTaken(ev protocol.Event) {
	t := d.traces()
	if t == nil {
		return
	}
	now := clock.Now()
	if d.lease != nil {
		t.left = time.Duration(d.lease.deadline.Load()) - now
	}
	if answer, ok := t.requests.Answered(ev, now); ok {
		t.request(d.Context(), d.opts.Trace, d.subject(""), answer)
	}
}

func (t *traces) request(ctx context.Context, trace *Trace, of TraceSubject, a lock.Answer) {
	lock.Tell(ctx, t.events, "Request", trace.Request, TraceRequest{
		TraceSubject: of, Time: time.Now(), Op: a.Op, Took: a.Took, Err: a.Err,
	})
}

// traceLook tells of a look that no candidate has asked for.
func (d *driver) traceLook(ctx context.Context, sent time.Duration, err error) {
	if d.opts.Trace == nil {
		return
	}
	answer := lock.Answer{Op: "read", Took: clock.Now() - sent, Err: err}
	d.Locked(func() { d.traces().request(context.WithoutCancel(ctx), d.opts.Trace, d.subject(""), answer) })
}

// traceGranted tells of a lease before anybody has it.
func (d *driver) traceGranted() {
	if t := d.traces(); t != nil {
		t.granted, t.ended, t.releasing, t.lost, t.renewing = clock.Now(), 0, 0, false, 0
		d.now.trace.done(d.lease.token, t.over, nil)
	}
}

func (d *driver) traceRenewed() {
	t := d.traces()
	if t == nil {
		return
	}
	lock.Tell(d.Context(), t.events, "Renewed", d.opts.Trace.Renewed, TraceRenewed{
		TraceSubject: d.subject(d.lease.Holder()), Time: time.Now(), Token: d.lease.token,
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
	lock.Tell(l.traceContext(), t.events, "Lost", d.opts.Trace.Lost, TraceLost{
		TraceSubject: d.subject(l.Holder()), Time: time.Now(), Token: l.token, Cause: cause, Held: t.ended - t.granted,
	})
}

// traceReleasing notes when the lease ends at its user's word.
func (d *driver) traceReleasing() {
	t := d.traces()
	if t == nil {
		return
	}
	if t.releasing, t.renewing = clock.Now(), 0; !t.lost {
		t.ended = t.releasing
	}
}

// traceReleased tells that the release of a lease is settled, or that it was detached. The channel is
// closed when it has been told.
func (d *driver) traceReleased(l *Lease, err error, detached bool) (told <-chan struct{}) {
	t := d.traces()
	if t == nil {
		return nil
	}
	return lock.TellLast(l.traceContext(), t.events, "Released", d.opts.Trace.Released, TraceReleased{
		TraceSubject: d.subject(l.Holder()), Time: time.Now(), Token: l.token, Held: t.ended - t.granted,
		Took: clock.Now() - t.releasing, Err: err, Lost: t.lost, Detached: detached,
	})
}

// traceContext has the values of the lease's context.
func (l *Lease) traceContext() context.Context { return context.WithoutCancel(l.ctx) }

func (d *driver) traceTrouble(err error) {
	if t := d.traces(); t != nil {
		lock.Tell(d.Context(), t.events, "Trouble", d.opts.Trace.Trouble, TraceTrouble{
			TraceSubject: d.subject(""), Time: time.Now(), Err: err, Failures: d.now.failures,
		})
	}
}

// traceLeader tells of a change that concerns the leader.
func (d *driver) traceLeader(known, was, fresh bool, leader Info) {
	if t := d.traces(); t != nil {
		lock.Tell(d.Context(), t.events, "Leader", d.opts.Trace.Leader, TraceLeader{
			TraceSubject: d.subject(""), Time: time.Now(), Known: known, WasKnown: was, New: fresh, Info: leader,
		})
	}
}

// traceWatcher has a Trace told of what a watcher of somebody's session asks. No context of a caller belongs
// to that: one watcher serves many acquisitions.
func (d *driver) traceWatcher(w engine.Owner) engine.Owner {
	if d.opts.Trace == nil {
		return w
	}
	place := w.Place()
	t := &traces{events: lock.NewEvents(place.String(), d.opts.TTL, d.opts.Logger)}
	of := TraceSubject{Kind: KindSession, Store: place.Store.String(), Key: place.Key, Holder: d.opts.Holder}
	return lock.Watch(w, func(a lock.Answer) { t.request(context.Background(), d.opts.Trace, of, a) })
}
