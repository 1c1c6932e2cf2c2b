package leasehold

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Trace is functions that are called as acquisitions, leases and requests go on: for metrics, for the
// spans of a tracing system, for tests. Any of them may be nil. It is an option of locks, elections,
// sessions, semaphores and the workers of package shard, which may all share one; [JoinTraces] makes one
// of several. Packages metrics and adapter/otel have some that are ready for use. The idea is that of
// net/http/httptrace.
//
// AcquireStart is called on the goroutine of the acquisition's caller, which it delays. All others are
// called one after the other for each Lock, Election, Session or Semaphore, on a goroutine of its own and
// in the order in which what they tell of happened; each event says when that was. Those of different
// ones, and AcquireStart, run at the same time, so functions that share something must lock it. The
// callbacks of the options have another goroutine, and no order with these.
//
// The functions must be quick, and must not call what they are told of: no Acquire, Release, Resign,
// Close and the like, which wait for them. One that hangs keeps the next events of its lock from being
// told, and never a renewal from being sent or a lease from ending. [Lock.Acquire] returns when AcquireDone
// has, and [Lease.Release] when Released has, or a second later if that or what is to be told before takes
// longer. Of events that wait for a function 1,024 are kept, and those beyond that are dropped, which the
// Logger is told.
//
// The context of an event has the values of the one that AcquireStart has returned for the acquisition
// that it belongs to, and does not end.
type Trace struct {
	// AcquireStart is called when an acquisition begins: by Acquire, TryAcquire, Do, Campaign, Run,
	// NewSession, AcquireAll and AcquireAny for each lock that they try for, and Attach. The context that
	// it returns, which must be ctx or made from it, is that of the acquisition: its requests have its
	// values, and so has the lease's context. If it is nil, ctx is. An acquisition whose options
	// cannot be had does not begin.
	AcquireStart func(ctx context.Context, e TraceAcquireStart) context.Context

	// Waiting is called when an acquisition begins to wait, and again when that is for another holder or,
	// in a semaphore, from another place in the line.
	Waiting func(ctx context.Context, e TraceWaiting)

	// AcquireDone is called once for each AcquireStart.
	AcquireDone func(ctx context.Context, e TraceAcquireDone)

	// Renewed is called when a renewal of a lease has been confirmed; for leases under a session, when the
	// session's heartbeat has been, with the session as the subject.
	Renewed func(ctx context.Context, e TraceRenewed)

	// Lost is called once for a lease that ends before it is released, after its context has ended. Its
	// Released follows when it has been released.
	Lost func(ctx context.Context, e TraceLost)

	// Released is called once for each lease that was acquired, when its release is settled, or when it
	// was detached; for a session, when it was closed.
	Released func(ctx context.Context, e TraceReleased)

	// Trouble is called when the store has failed three times in a row, and then once a minute while that
	// goes on, as OnTrouble is.
	Trouble func(ctx context.Context, e TraceTrouble)

	// Leader is called, for elections, when a new leader is seen, this candidate included, and when none
	// is known any more. Only a candidate that campaigns or observes sees that.
	Leader func(ctx context.Context, e TraceLeader)

	// Request is called when the store has answered a request of a candidate, or the request has failed or
	// was given up. Those that collect the past of a lock with epochs are not among them, nor those of
	// package admin. A wrapper of the store sees them all: see metrics.Store.
	Request func(ctx context.Context, e TraceRequest)
}

// A TraceKind is the kind of thing that an event is about.
type TraceKind uint8

// The kinds of thing.
const (
	KindLock TraceKind = iota
	KindElection
	KindSession   // its heartbeat, which is a lease too
	KindSemaphore // also a fair lock and a reader/writer lock
	KindShard     // the lock of a shard
)

// TraceKinds are all that there are. It is for iterating over; do not change it.
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
	Store  string // what the store calls itself
	Key    string // in the store
	Holder string // the name of this candidate, or of the one lease: see WithHolder
}

// TraceAcquireStart: an acquisition begins.
type TraceAcquireStart struct {
	TraceSubject
	Time time.Time
}

// TraceWaiting: an acquisition waits.
type TraceWaiting struct {
	TraceSubject
	Time time.Time
	// Info is the holder that it waits for, as last seen. Of a semaphore it has the first holder, by
	// Holder, Session and Token, and no more than Key, Exists and Held besides.
	Info  Info
	Local bool // another goroutine of this process has the Lock, or is acquiring it
	Ahead int  // of a semaphore: how many wait before it
}

// TraceAcquireDone: an acquisition has ended.
type TraceAcquireDone struct {
	TraceSubject
	Time time.Time
	// Err is what the caller gets, and nil if there is a lease. If the caller gives up at that very
	// moment, it gets an error all the same, and Released follows at once.
	Err    error
	Token  Token         // NoToken with an error, and in layouts that have none
	Took   time.Duration // since it began
	Waited bool          // for a holder, or for another goroutine of this process
	// TookOver: the claim replaced a record that said that another holds the lock: one that is gone, or
	// whose session is over. Of a semaphore: the write that gave the seats took some from such a one.
	TookOver bool
	Attached bool // it was a detached lease, by [Lock.Attach]
}

// TraceRenewed: a lease goes on.
type TraceRenewed struct {
	TraceSubject
	Time  time.Time
	Token Token
	// Took is the time from when the renewal was first sent until it was known to have landed, and
	// Requests how many that took: one, unless an answer was lost, refused or late.
	Took     time.Duration
	Requests int
	// Left is for how much longer the lease would have been valid without it, and TTL that of the record.
	// A renewal that comes through at once leaves a little over half of it.
	Left, TTL time.Duration
}

// TraceLost: a lease has ended before it was released.
type TraceLost struct {
	TraceSubject
	Time  time.Time
	Token Token
	Cause error         // that its context has ended with: matches [ErrLost]
	Held  time.Duration // since it was acquired
}

// TraceReleased: a lease has been released.
type TraceReleased struct {
	TraceSubject
	Time  time.Time
	Token Token
	Held  time.Duration // from when it was acquired until it ended: when the release began, or when it was lost
	Took  time.Duration // of the release
	Err   error         // why the lock may not be free, if it may not
	Lost  bool          // there was a [TraceLost] before
	// Detached: the lease goes on elsewhere. See [Lease.Detach].
	Detached bool
}

// TraceTrouble: the store fails, and is tried again.
type TraceTrouble struct {
	TraceSubject
	Time time.Time
	Err  error // the last one
	// Failures is how many requests of this candidate have failed in a row. It is 0 where nothing but
	// the watch of a holder's session fails.
	Failures int
}

// TraceLeader: the leader of an election has changed.
type TraceLeader struct {
	TraceSubject
	Time     time.Time
	Known    bool // there is one, as far as this candidate has seen
	WasKnown bool // before this event
	New      bool // it was not seen before; if not, it is known again, or it is none any more
	Info     Info // the leader; if there is none, the last one
}

// TraceRequest: a request has ended.
type TraceRequest struct {
	TraceSubject
	Time time.Time
	// Op is "read", "check" (the session of a holder), "claim", "renew" or "free", and of a semaphore
	// "read" or "write". The layout says how many requests of the store it is, which is one but for
	// epochs and for locks at rest. Reads and frees of KindSession are also those by which the
	// session of another is watched, whose key is the subject's then.
	Op   string
	Took time.Duration
	// Err is as the store has returned it; its kind is one of the sentinels of package store, unless what
	// was read is not a lock. That there is no object, and that it has not changed, are no errors.
	Err error
}

// JoinTraces makes one Trace of several: each function calls those that they have, in their order, and
// AcquireStart hands the context of one to the next. Those that are nil are left out; of none it is nil.
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
		return nil // nothing is queued for it
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

// start calls AcquireStart, if there is one.
func (t *Trace) start(ctx context.Context, e TraceAcquireStart) context.Context {
	if t.AcquireStart == nil {
		return ctx
	}
	if with := t.AcquireStart(ctx, e); with != nil {
		return with
	}
	return ctx
}
