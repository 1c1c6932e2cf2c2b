package lock

import (
	"context"
	"log/slog"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// A Tracer tells a Trace about the acquisitions, leases and requests of a lock or a semaphore. On
// nil, which is the Tracer without a Trace, its methods do nothing. Events are queued where they
// arise, while the engine is locked, so they are in the order of the machine's steps.
type Tracer struct {
	trace    *locktrace.Trace
	of       locktrace.Subject // without the store
	store    store.Store
	events   *Events
	context  func() context.Context // for events that are of no acquisition
	requests Requests
	lease    Times // see Times

	tookOver bool          // the last claim replaced another holder's record
	renewing time.Duration // when the current renewal was first sent; 0: none
	sent     int           // requests since then
	until    time.Duration // when the lease ceases to be valid, since the last event
	left     time.Duration // remaining validity before the last event
}

// NewTracer returns a Tracer for events about a subject in this store, whose Holder is the usual
// one. Events get the context of their acquisition or lease, and others one that ctx returns.
func NewTracer(trace *locktrace.Trace, st store.Store, of locktrace.Subject, events *Events, ctx func() context.Context) *Tracer {
	return &Tracer{trace: trace, store: st, of: of, events: events, context: ctx}
}

// subject returns the subject of events about a lease with this holder's name.
func (t *Tracer) subject(holder string) locktrace.Subject {
	of := t.of
	of.Store = t.store.String()
	if holder != "" {
		of.Holder = holder
	}
	return of
}

// An Acquisition is one that a Trace is told about. On nil, its methods do nothing.
type Acquisition struct {
	t        *Tracer
	ctx      context.Context // has the values of AcquireStart's context, and does not end
	of       locktrace.Subject
	began    time.Duration
	attached bool

	// Guarded by the engine's mutex.
	waited bool
	told   <-chan struct{} // closed when AcquireDone has returned; nil: the acquisition is in progress
}

// Begin calls AcquireStart, and returns the context for the acquisition. The engine is not locked.
func (t *Tracer) Begin(ctx context.Context, holder string, attached bool) (context.Context, *Acquisition) {
	if t == nil {
		return ctx, nil
	}
	a := &Acquisition{t: t, of: t.subject(holder), began: clock.Now(), attached: attached}
	if start := t.trace.AcquireStart; start != nil {
		if with := start(ctx, locktrace.AcquireStart{Subject: a.of, Time: time.Now()}); with != nil {
			ctx = with
		}
	}
	a.ctx = context.WithoutCancel(ctx)
	return ctx, a
}

// Waits tells about a wait for what held names. The engine is locked.
func (a *Acquisition) Waits(held error, local bool, ahead int) {
	if a == nil {
		return
	}
	a.waited = true
	Tell(a.ctx, a.t.events, "Waiting", a.t.trace.Waiting, locktrace.Waiting{
		Subject: a.of, Time: time.Now(), Held: held, Local: local, Ahead: ahead,
	})
}

// Done tells about the end of the acquisition, once. The engine is locked.
func (a *Acquisition) Done(token int64, tookOver bool, err error) {
	if a == nil || a.told != nil {
		return
	}
	a.told = TellLast(a.ctx, a.t.events, "AcquireDone", a.t.trace.AcquireDone, locktrace.AcquireDone{
		Subject: a.of, Time: time.Now(), Err: err, Token: token, Took: clock.Now() - a.began,
		Waited: a.waited, TookOver: tookOver, Attached: a.attached,
	})
}

// Ended reports whether Done has been called. The engine is locked.
func (a *Acquisition) Ended() bool { return a != nil && a.told != nil }

// End waits until the Trace knows the end of the acquisition, which is the granted lease or else
// this error. The engine is not locked, except in locked.
func (a *Acquisition) End(locked func(func()), err error) {
	if a == nil {
		return
	}
	if err != nil {
		locked(func() { a.Done(0, false, err) })
	}
	<-a.told
}

// Sent notes an action of the machine before it is carried out.
func (t *Tracer) Sent(action protocol.Action) {
	if t == nil {
		return
	}
	now := clock.Now()
	if w, ok := action.(candidate.Write); ok {
		switch w.Op {
		case candidate.Claim:
			t.tookOver = w.Expect != "" && w.Over.Held && w.Over.Incarnation() != w.Record.Incarnation()
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

// TookOver reports whether the last claim replaced another holder's record.
func (t *Tracer) TookOver() bool { return t != nil && t.tookOver }

// Taken notes an event, after which the lease is valid until then, and tells about a request's
// answer. It returns the answer, if the event is one.
func (t *Tracer) Taken(ev protocol.Event, until time.Duration) (Answer, bool) {
	if t == nil {
		return Answer{}, false
	}
	now := clock.Now()
	t.left, t.until = t.until-now, until
	answer, ok := t.requests.Answered(ev, now)
	if ok {
		t.request(t.context(), answer)
	}
	return answer, ok
}

func (t *Tracer) request(ctx context.Context, a Answer) {
	Tell(ctx, t.events, "Request", t.trace.Request, locktrace.Request{Subject: t.subject(""), Time: time.Now(), Op: a.Op, Took: a.Took, Err: a.Err})
}

// Looked tells about a read that no machine requested.
func (t *Tracer) Looked(ctx context.Context, sent time.Duration, err error) {
	if t != nil {
		t.request(context.WithoutCancel(ctx), Answer{Op: "read", Took: clock.Now() - sent, Err: err})
	}
}

// Times are clock readings of a lease, from its grant until its release is settled.
type Times struct {
	granted, ended, releasing time.Duration
	lost                      bool
}

// Times returns those of the lease of a lock, which has one at a time.
func (t *Tracer) Times() *Times {
	if t == nil {
		return nil
	}
	return &t.lease
}

// Granted begins the times of a lease.
func (t *Tracer) Granted(times *Times) {
	if t != nil {
		*times, t.renewing = Times{granted: clock.Now()}, 0
	}
}

// Renewed tells about a renewal.
func (t *Tracer) Renewed(holder string, token int64, ttl time.Duration) {
	if t == nil {
		return
	}
	Tell(t.context(), t.events, "Renewed", t.trace.Renewed, locktrace.Renewed{
		Subject: t.subject(holder), Time: time.Now(), Token: token,
		Took: clock.Now() - t.renewing, Requests: t.sent, Left: t.left, TTL: ttl,
	})
	t.renewing = 0
}

// Lost tells about the loss of a lease, once.
func (t *Tracer) Lost(l *Lease, times *Times, cause error) {
	if t == nil || times.lost {
		return
	}
	times.ended, times.lost, t.renewing = clock.Now(), true, 0
	Tell(l.Values(), t.events, "Lost", t.trace.Lost, locktrace.Lost{
		Subject: t.subject(l.Holder()), Time: time.Now(), Token: l.Token, Cause: cause, Held: times.ended - times.granted,
	})
}

// Releasing notes when the user ends the lease.
func (t *Tracer) Releasing(times *Times) {
	if t == nil {
		return
	}
	if times.releasing, t.renewing = clock.Now(), 0; !times.lost {
		times.ended = times.releasing
	}
}

// Released tells about a settled release or a Detach. The channel is closed when the Trace knows.
func (t *Tracer) Released(l *Lease, times *Times, err error, detached bool) (told <-chan struct{}) {
	if t == nil {
		return nil
	}
	return TellLast(l.Values(), t.events, "Released", t.trace.Released, locktrace.Released{
		Subject: t.subject(l.Holder()), Time: time.Now(), Token: l.Token, Held: times.ended - times.granted,
		Took: clock.Now() - times.releasing, Err: err, Lost: times.lost, Detached: detached,
	})
}

// Trouble tells about a store that keeps failing.
func (t *Tracer) Trouble(err error, failures int) {
	if t != nil {
		Tell(t.context(), t.events, "Trouble", t.trace.Trouble, locktrace.Trouble{Subject: t.subject(""), Time: time.Now(), Err: err, Failures: failures})
	}
}

// Leader tells about a change that concerns the leader. The subject and the time are filled in.
func (t *Tracer) Leader(e locktrace.Leader) {
	if t != nil {
		e.Subject, e.Time = t.subject(""), time.Now()
		Tell(t.context(), t.events, "Leader", t.trace.Leader, e)
	}
}

// Watcher wraps the watcher of another holder's session so that its requests are traced. They
// have no caller's context, because one watcher serves many acquisitions.
func (t *Tracer) Watcher(w engine.Owner) engine.Owner {
	if t == nil {
		return w
	}
	place := w.Place()
	session := *t
	session.of.Kind, session.of.Key, session.store = locktrace.Session, place.Key, place.Store
	session.events = NewEvents(place.String(), t.events.patience, t.events.log)
	session.context, session.requests = context.Background, Requests{}
	return &watched{Owner: w, t: &session}
}

type watched struct {
	engine.Owner
	t *Tracer
}

// Stepped passes on the answer to a request, and notes when the next one is sent.
func (w *watched) Stepped(ev protocol.Event, actions []protocol.Action) protocol.Event {
	w.t.Taken(ev, 0)
	for _, action := range actions {
		w.t.Sent(action)
	}
	return w.Owner.Stepped(ev, actions)
}

// Requests remembers the engine's request in flight; there is at most one. The zero Requests has
// none. The engine's mutex guards it.
type Requests struct {
	op   string
	sent time.Duration
}

// An Answer is the result of a request.
type Answer struct {
	Op   string
	Took time.Duration
	Err  error
}

// Sent notes an action at a reading of the clock, and reports whether it is a request.
func (r *Requests) Sent(action protocol.Action, now time.Duration) bool {
	var op string
	switch a := action.(type) {
	case candidate.Read, queue.Read:
		op = "read"
	case candidate.Check:
		op = "check"
	case candidate.Write:
		op = a.Op.String()
	case queue.Write:
		op = "write"
	default:
		return false
	}
	r.op, r.sent = op, now
	return true
}

// Answered notes an event at a reading of the clock, and reports whether it answers the request.
func (r *Requests) Answered(ev protocol.Event, now time.Duration) (Answer, bool) {
	var err error
	switch ev := ev.(type) {
	case candidate.ReadDone:
		err = ev.Err
	case candidate.WriteDone:
		err = ev.Err
	case candidate.Checked:
		err = ev.Err
	case queue.ReadDone:
		err = ev.Err
	case queue.WriteDone:
		err = ev.Err
	default:
		return Answer{}, false
	}
	return Answer{r.op, now - r.sent, err}, true
}

// Untroubled returns a Logger without the warnings about a store that keeps failing, for those who
// report the Trouble of a Trace.
func Untroubled(log *slog.Logger) *slog.Logger { return slog.New(untroubled{log.Handler()}) }

type untroubled struct{ slog.Handler }

func (h untroubled) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == locktrace.TroubleMessage {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h untroubled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return untroubled{h.Handler.WithAttrs(attrs)}
}

func (h untroubled) WithGroup(name string) slog.Handler {
	return untroubled{h.Handler.WithGroup(name)}
}
