package leasehold

import (
	"context"
	"fmt"
	"slices"
	"time"
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

// TraceKinds are all kinds, for iterating over; do not change it.
var TraceKinds = []TraceKind{KindLock, KindElection, KindSession, KindSemaphore, KindShard}

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
