package semaphore

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
)

// traces is the state of a driver with a Trace. All but the events is guarded by the
// engine's mutex.
type traces struct {
	events   *lock.Events // nil: there is no Trace
	requests lock.Requests
	failures int  // of requests, in a row
	reaps    bool // the write in flight takes slots from a holder that has not released them
	over     bool // the write whose answer is being processed has done so
}

// times are clock readings of a lease. Guarded by the engine's mutex.
type times struct {
	granted, ended, releasing time.Duration
	lost                      bool
}

func (d *driver) subject(holder string) leasehold.TraceSubject {
	return leasehold.TraceSubject{Kind: leasehold.KindSemaphore, Store: d.st.String(), Key: d.key, Holder: holder}
}

// An acquiring is a traced acquisition. All methods of nil do nothing.
type acquiring struct {
	d     *driver
	ctx   context.Context // with the values that AcquireStart has added, and without an end
	of    leasehold.TraceSubject
	began time.Duration

	// Guarded by the engine's mutex.
	waited bool
	told   <-chan struct{} // closed when AcquireDone has returned; nil: the acquisition has not ended
}

// begins reports the beginning of an acquisition, and returns its context.
func (d *driver) begins(ctx context.Context, holder string) (context.Context, *acquiring) {
	trace := d.opts.Trace
	if trace == nil {
		return ctx, nil
	}
	a := &acquiring{d: d, of: d.subject(holder), began: engine.Process{}.Now().Clock}
	if trace.AcquireStart != nil {
		if with := trace.AcquireStart(ctx, leasehold.TraceAcquireStart{TraceSubject: a.of, Time: time.Now()}); with != nil {
			ctx = with
		}
	}
	a.ctx = context.WithoutCancel(ctx)
	return ctx, a
}

// waits reports the position in the queue. The engine is locked.
func (a *acquiring) waits(in queue.InLine) {
	if a == nil {
		return
	}
	a.waited = true
	info := leasehold.Info{Key: a.d.key, Exists: true, Age: -1, Token: leasehold.Token(in.Table.Token)}
	if len(in.Table.Holders) > 0 {
		h := in.Table.Holders[0]
		info.Held, info.Holder, info.Session, info.Token = true, h.Holder, h.Session, leasehold.Token(h.Token)
	}
	lock.Tell(a.ctx, a.d.traces.events, "Waiting", a.d.opts.Trace.Waiting, leasehold.TraceWaiting{
		TraceSubject: a.of, Time: time.Now(), Info: info, Ahead: in.Ahead,
	})
}

// done reports the acquisition's end, once. The engine is locked.
func (a *acquiring) done(token leasehold.Token, over bool, err error) {
	if a == nil || a.told != nil {
		return
	}
	a.told = lock.TellLast(a.ctx, a.d.traces.events, "AcquireDone", a.d.opts.Trace.AcquireDone, leasehold.TraceAcquireDone{
		TraceSubject: a.of, Time: time.Now(), Err: err, Token: token, Took: engine.Process{}.Now().Clock - a.began,
		Waited: a.waited, TookOver: over,
	})
}

// ended reports whether done has been called.
func (a *acquiring) ended() (ended bool) {
	if a != nil {
		a.d.Locked(func() { ended = a.told != nil })
	}
	return ended
}

// ends waits until the acquisition's end has been reported: by the lease it was granted, or
// else with err.
func (a *acquiring) ends(err error) {
	if a == nil {
		return
	}
	if err != nil {
		a.d.Locked(func() { a.done(leasehold.NoToken, false, err) })
	}
	<-a.told
}

// traceReport records an action of the table before it is carried out.
func (d *driver) traceReport(action protocol.Action) {
	if d.opts.Trace == nil {
		return
	}
	if w, ok := action.(queue.Write); ok {
		shown, _ := d.Machine().Shown()
		d.traces.reaps = slices.ContainsFunc(shown.Holders, func(h record.Seat) bool {
			stays := slices.ContainsFunc(w.Table.Holders, func(s record.Seat) bool { return s.ID == h.ID })
			return !stays && d.sessions[h.Session] == nil
		})
	}
	d.traces.requests.Sent(action, engine.Process{}.Now().Clock)
}

// traceTaken records an event.
func (d *driver) traceTaken(ev protocol.Event) {
	if d.opts.Trace == nil {
		return
	}
	t := &d.traces
	written, ok := ev.(queue.WriteDone)
	t.over = ok && written.Err == nil && t.reaps
	answer, ok := t.requests.Answered(ev, engine.Process{}.Now().Clock)
	if !ok {
		return
	}
	if t.failures++; answer.Err == nil {
		t.failures = 0
	}
	d.traceRequest(t.events, d.subject(d.opts.Holder), answer)
}

func (d *driver) traceRequest(events *lock.Events, of leasehold.TraceSubject, a lock.Answer) {
	lock.Tell(context.Background(), events, "Request", d.opts.Trace.Request, leasehold.TraceRequest{
		TraceSubject: of, Time: time.Now(), Op: a.Op, Took: a.Took, Err: a.Err,
	})
}

// traceWatcher traces the requests of a watcher of another process's session.
func (d *driver) traceWatcher(w engine.Owner) engine.Owner {
	if d.opts.Trace == nil {
		return w
	}
	place := w.Place()
	events := lock.NewEvents(place.String(), d.opts.TTL, d.opts.Logger)
	of := leasehold.TraceSubject{Kind: leasehold.KindSession, Store: place.Store.String(), Key: place.Key, Holder: d.opts.Holder}
	return lock.Watch(w, func(a lock.Answer) { d.traceRequest(events, of, a) })
}

func (d *driver) traceTrouble(err error) {
	if d.opts.Trace != nil {
		lock.Tell(context.Background(), d.traces.events, "Trouble", d.opts.Trace.Trouble, leasehold.TraceTrouble{
			TraceSubject: d.subject(d.opts.Holder), Time: time.Now(), Err: err, Failures: d.traces.failures,
		})
	}
}

// traceLost reports a lease's loss. The engine is locked.
func (d *driver) traceLost(c *caller, cause error) {
	if d.opts.Trace == nil {
		return
	}
	c.times.ended, c.times.lost = engine.Process{}.Now().Clock, true
	lock.Tell(c.ctx, d.traces.events, "Lost", d.opts.Trace.Lost, leasehold.TraceLost{
		TraceSubject: d.subject(c.holder), Time: time.Now(), Token: c.lease.Token(), Cause: cause, Held: c.times.ended - c.times.granted,
	})
}

// traceReleasing records the time at which the user ends the lease. The engine is locked.
func (c *caller) traceReleasing() {
	if c.times.releasing = (engine.Process{}).Now().Clock; !c.times.lost {
		c.times.ended = c.times.releasing
	}
}

// traceReleased reports that a lease's release is settled. The channel is closed when the trace
// has returned.
func (d *driver) traceReleased(c *caller, outcome error) (told <-chan struct{}) {
	if d.opts.Trace == nil {
		return nil
	}
	return lock.TellLast(c.ctx, d.traces.events, "Released", d.opts.Trace.Released, leasehold.TraceReleased{
		TraceSubject: d.subject(c.holder), Time: time.Now(), Token: c.lease.Token(), Held: c.times.ended - c.times.granted,
		Took: engine.Process{}.Now().Clock - c.times.releasing, Err: outcome, Lost: c.times.lost,
	})
}
