package leasehold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// A Trace is a set of functions to call when acquisitions, leases and requests make progress:
// for metrics, for the spans of a tracing system, for tests. Any of them may be nil. Locks,
// elections, sessions, semaphores and the workers of package shard take a Trace as an option,
// and may share one; [JoinTraces] combines several. Packages metrics and adapter/otel have
// ready-made ones. The model is net/http/httptrace.
//
// AcquireStart is called on the caller's goroutine, which it delays. For each Lock, Election,
// Session or Semaphore, the other functions are called one at a time on a separate goroutine,
// in the order of the events; each event has its time. AcquireStart runs concurrently with the
// others, and so do the functions for different locks, so synchronize shared data. There is no
// order between these functions and the callbacks in the options, which have another goroutine.
//
// The functions must be quick. They must not call Acquire, Release, Resign, Close and the like
// on the subject of the event, because those wait for the functions. A slow function delays the
// next events of its lock, but never a renewal or the end of a lease. [Lock.Acquire] returns
// after AcquireDone, and [Lease.Release] after Released, but they wait at most a second for
// these and the functions queued before. Up to 1,024 events wait for a slow function. Further
// ones are dropped and reported to the Logger.
//
// An event's context has the values from AcquireStart's context for its acquisition. It does
// not end.
type Trace struct {
	// AcquireStart is called when an acquisition begins: by Acquire, TryAcquire, Do, Campaign,
	// Run, NewSession and Attach, and by AcquireAll and AcquireAny for each lock they try. It
	// returns the acquisition's context, which must be ctx or derived from it; nil means ctx.
	// The acquisition's requests and the lease's context have its values. AcquireStart is not
	// called if the acquisition's options are invalid.
	AcquireStart func(ctx context.Context, e TraceAcquireStart) context.Context

	// Waiting is called when an acquisition begins to wait, and again when the holder or, in a
	// semaphore, the place in the queue changes.
	Waiting func(ctx context.Context, e TraceWaiting)

	// AcquireDone is called once for each AcquireStart.
	AcquireDone func(ctx context.Context, e TraceAcquireDone)

	// Renewed is called when a renewal of a lease has been confirmed. For leases under a
	// session, it is called when the session's heartbeat has been confirmed, with the session
	// as the subject.
	Renewed func(ctx context.Context, e TraceRenewed)

	// Lost is called once for a lease that ends before it is released, after its context has
	// ended. Released follows when the lease has been released.
	Lost func(ctx context.Context, e TraceLost)

	// Released is called once for each acquired lease, when its release is settled or it was
	// detached. For a session, it is called when the session was closed.
	Released func(ctx context.Context, e TraceReleased)

	// Trouble is called when the store has failed three times in a row, and then once a minute
	// until it recovers, as OnTrouble is.
	Trouble func(ctx context.Context, e TraceTrouble)

	// Leader is called, for elections, when the candidate sees a new leader, which may be
	// itself, and when no leader is known any longer. The candidate must campaign or observe to
	// see this.
	Leader func(ctx context.Context, e TraceLeader)

	// Request is called when a candidate's request has been answered, has failed or was given
	// up. It is not called for requests from package admin or from garbage collection of
	// epochs. To see all requests, wrap the store: see metrics.Store.
	Request func(ctx context.Context, e TraceRequest)
}

// A TraceKind is the kind of subject of an event.
type TraceKind uint8

// The kinds of subjects.
const (
	KindLock TraceKind = iota
	KindElection
	KindSession   // its heartbeat, which is a lease too
	KindSemaphore // also a fair lock and a reader/writer lock
	KindShard     // the lock of a shard
)

func (k TraceKind) String() string {
	names := [...]string{"lock", "election", "session", "semaphore", "shard"}
	if int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// A TraceSubject is what an event is about.
type TraceSubject struct {
	Kind   TraceKind
	Store  string // the store's name for itself
	Key    string // in the store
	Holder string // name of this candidate, or for this lease: see WithHolder
}

// TraceAcquireStart describes the start of an acquisition.
type TraceAcquireStart struct {
	TraceSubject
	Time time.Time
}

// TraceWaiting describes an acquisition's wait.
type TraceWaiting struct {
	TraceSubject
	Time time.Time
	// Info is the holder it waits for, as last seen. For a semaphore, Holder, Session and Token
	// are the first holder's, and of the other fields only Key, Exists and Held are set.
	Info  Info
	Local bool // another goroutine of this process has the Lock, or is acquiring it
	Ahead int  // for a semaphore: the number of waiters before it
}

// TraceAcquireDone describes the end of an acquisition.
type TraceAcquireDone struct {
	TraceSubject
	Time time.Time
	// Err is the error that the caller gets, or nil if there is a lease. If the caller gives up
	// at that very moment, it gets an error even if Err is nil; Released follows at once.
	Err    error
	Token  Token         // NoToken with an error, and in layouts without tokens
	Took   time.Duration // since the acquisition began
	Waited bool          // for a holder, or for another goroutine of this process
	// TookOver reports that the claim replaced another holder's record, after that holder had
	// died or its session had ended. For a semaphore, the write that gave the slots took some
	// from such a holder.
	TookOver bool
	Attached bool // the lease was detached before: see [Lock.Attach]
}

// TraceRenewed describes a renewal.
type TraceRenewed struct {
	TraceSubject
	Time  time.Time
	Token Token
	// Took is the time from the first write of the renewal until it was known to have landed.
	// Requests is how many requests that took: one, unless an answer was lost, refused or late.
	Took     time.Duration
	Requests int
	// Left is how much longer the lease would have been valid without the renewal, and TTL is
	// the record's. If the first request succeeds at once, Left is a little over half of TTL.
	Left, TTL time.Duration
}

// TraceLost describes the loss of a lease before its release.
type TraceLost struct {
	TraceSubject
	Time  time.Time
	Token Token
	Cause error         // the cause of its context's end, which matches [ErrLost]
	Held  time.Duration // since it was acquired
}

// TraceReleased describes a release.
type TraceReleased struct {
	TraceSubject
	Time  time.Time
	Token Token
	Held  time.Duration // from the acquisition until the release began or the lease was lost
	Took  time.Duration // duration of the release
	Err   error         // why the lock may still be held
	Lost  bool          // a [TraceLost] came before
	// Detached reports that the lease was detached, not freed. See [Lease.Detach].
	Detached bool
}

// TraceTrouble describes a store outage that has lasted for several requests.
type TraceTrouble struct {
	TraceSubject
	Time time.Time
	Err  error // the last error
	// Failures is how many requests of this candidate have failed in a row. It is 0 if only the
	// watch of a holder's session fails.
	Failures int
}

// TraceLeader describes a change of leader.
type TraceLeader struct {
	TraceSubject
	Time     time.Time
	Known    bool // this candidate knows a leader
	WasKnown bool // it knew one before this event
	New      bool // first event of this leader; if false, it is known again or no longer
	Info     Info // the leader, or the last one if none is known
}

// TraceRequest describes a finished request.
type TraceRequest struct {
	TraceSubject
	Time time.Time
	// Op is "read", "check" (a holder's session), "claim", "renew" or "free"; for a semaphore,
	// it is "read" or "write". It is one store request, except with epochs and during
	// cooldowns, where the layout may need more. With KindSession, reads and frees include
	// those for watching another candidate's session; the subject's key is then the key of that
	// session.
	Op   string
	Took time.Duration
	// Err is the store's error. Its kind is one of the sentinels of package store, unless the
	// object is not a lock. A missing object and an unchanged one are not errors.
	Err error
}

// JoinTraces combines traces. Each function of the result calls those of the traces in order,
// and AcquireStart passes the context of one to the next. JoinTraces ignores nil traces; if
// there are no others, it returns nil.
func JoinTraces(traces ...*Trace) *Trace {
	all := slices.DeleteFunc(slices.Clone(traces), func(t *Trace) bool { return t == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &Trace{
		AcquireStart: joinStarts(all),
		Waiting:      join(all, func(t *Trace) func(context.Context, TraceWaiting) { return t.Waiting }),
		AcquireDone:  join(all, func(t *Trace) func(context.Context, TraceAcquireDone) { return t.AcquireDone }),
		Renewed:      join(all, func(t *Trace) func(context.Context, TraceRenewed) { return t.Renewed }),
		Lost:         join(all, func(t *Trace) func(context.Context, TraceLost) { return t.Lost }),
		Released:     join(all, func(t *Trace) func(context.Context, TraceReleased) { return t.Released }),
		Trouble:      join(all, func(t *Trace) func(context.Context, TraceTrouble) { return t.Trouble }),
		Leader:       join(all, func(t *Trace) func(context.Context, TraceLeader) { return t.Leader }),
		Request:      join(all, func(t *Trace) func(context.Context, TraceRequest) { return t.Request }),
	}
}

func join[E any](traces []*Trace, of func(*Trace) func(context.Context, E)) func(context.Context, E) {
	var all []func(context.Context, E)
	for _, t := range traces {
		if f := of(t); f != nil {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil // so that no events are queued
	}
	return func(ctx context.Context, e E) {
		for _, f := range all {
			f(ctx, e)
		}
	}
}

func joinStarts(traces []*Trace) func(context.Context, TraceAcquireStart) context.Context {
	return func(ctx context.Context, e TraceAcquireStart) context.Context {
		for _, t := range traces {
			ctx = t.start(ctx, e) //nolint:fatcontext // each is to see what those before it have added
		}
		return ctx
	}
}

// start calls AcquireStart if it is set.
func (t *Trace) start(ctx context.Context, e TraceAcquireStart) context.Context {
	if t.AcquireStart == nil {
		return ctx
	}
	if with := t.AcquireStart(ctx, e); with != nil {
		return with
	}
	return ctx
}

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
