// Package locktrace traces locks, elections, sessions, semaphores and shards: for metrics, for the
// spans of a tracing system, for tests. The model is net/http/httptrace.
//
//	lock, err := leasehold.NewLock(st, "backup", &leasehold.LockOptions{Trace: &locktrace.Trace{
//		Lost: func(ctx context.Context, e locktrace.Lost) { alert(e.Key, e.Cause) },
//	}})
//
// Packages metrics and adapter/otel have ready-made traces.
package locktrace

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Trace is a set of functions to call when acquisitions, leases and requests make progress.
// Any of them may be nil. Several locks, elections, sessions, semaphores and workers of package
// shard may share a Trace, and [Join] combines several.
//
// AcquireStart is called on the caller's goroutine, which it delays. For each Lock, Election,
// Session or Semaphore, the other functions are called one at a time on a separate goroutine,
// in the order of the events; each event has its time. AcquireStart runs concurrently with the
// others, and so do the functions for different locks, so synchronize shared data.
//
// The functions must be quick. They must not call Acquire, Release, Resign, Close and the like
// on the subject of the event, because those wait for the functions. A slow function delays the
// next events of its lock, but never a renewal or the end of a lease. Acquire returns after
// AcquireDone, and Release after Released, but they wait at most a second for these and the
// functions queued before. Up to 1,024 events wait for a slow function. Further ones are dropped
// and reported to the Logger.
//
// An event's context has the values from AcquireStart's context for its acquisition. It does
// not end.
type Trace struct {
	// AcquireStart is called when an acquisition begins: by Acquire, TryAcquire, Do, Campaign,
	// Run, NewSession and Attach, and by package multilock for each lock that it tries. It
	// returns the acquisition's context, which must be ctx or derived from it; nil means ctx.
	// The acquisition's requests and the lease's context have its values. AcquireStart is not
	// called if the acquisition's options are invalid.
	AcquireStart func(ctx context.Context, e AcquireStart) context.Context

	// Waiting is called when an acquisition begins to wait, and again when the holder or, in a
	// semaphore, the place in the queue changes.
	Waiting func(ctx context.Context, e Waiting)

	// AcquireDone is called once for each AcquireStart.
	AcquireDone func(ctx context.Context, e AcquireDone)

	// Renewed is called when a renewal of a lease has been confirmed. For leases under a
	// session, it is called when the session's heartbeat has been confirmed, with the session
	// as the subject.
	Renewed func(ctx context.Context, e Renewed)

	// Lost is called once for a lease that ends before it is released, after its context has
	// ended. Released follows when the lease has been released.
	Lost func(ctx context.Context, e Lost)

	// Released is called once for each acquired lease, when its release is settled or it was
	// detached. For a session, it is called when the session was closed.
	Released func(ctx context.Context, e Released)

	// Trouble is called when the store has failed three times in a row, and then once a minute
	// until it recovers; for a semaphore, also when other processes have been faster than all
	// its writes for ten seconds. Requests are retried meanwhile, with a backoff of 100 ms to
	// 4 s. The Logger gets a warning at the same time.
	Trouble func(ctx context.Context, e Trouble)

	// Leader is called, for elections, when the candidate sees a new leader, which may be
	// itself, and when no leader is known any longer. The candidate must campaign or observe to
	// see this.
	Leader func(ctx context.Context, e Leader)

	// Request is called when a candidate's request has been answered, has failed or was given
	// up. It is not called for requests from package admin or from garbage collection of
	// epochs. To see all requests, wrap the store: see metrics.Store.
	Request func(ctx context.Context, e Request)
}

// A Kind is the kind of subject of an event.
type Kind uint8

// The kinds of subjects.
const (
	Lock Kind = iota
	Election
	Session   // its heartbeat, which is a lease too
	Semaphore // also a fair lock and a reader/writer lock
	Shard     // the lock of a shard
)

func (k Kind) String() string {
	names := [...]string{"lock", "election", "session", "semaphore", "shard"}
	if int(k) >= len(names) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return names[k]
}

// A Subject is what an event is about.
type Subject struct {
	Kind   Kind
	Store  string // the store's name for itself
	Key    string // in the store
	Holder string // name of this candidate, or for this lease
}

// AcquireStart describes the start of an acquisition.
type AcquireStart struct {
	Subject
	Time time.Time
}

// Waiting describes an acquisition's wait.
type Waiting struct {
	Subject
	Time time.Time
	// Held is the error that TryAcquire would return: a *leasehold.HeldError, which names the
	// holders.
	Held  error
	Local bool // another goroutine of this process has the Lock, or is acquiring it
	Ahead int  // for a semaphore: the number of waiters before it
}

// AcquireDone describes the end of an acquisition.
type AcquireDone struct {
	Subject
	Time time.Time
	// Err is the error that the caller gets, or nil if there is a lease. If the caller gives up
	// at that very moment, it gets an error even if Err is nil; Released follows at once.
	Err    error
	Token  int64         // 0 with an error, and in layouts without tokens
	Took   time.Duration // since the acquisition began
	Waited bool          // for a holder, or for another goroutine of this process
	// TookOver reports that the claim replaced another holder's record, after that holder had
	// died or its session had ended. For a semaphore, the write that gave the slots took some
	// from such a holder.
	TookOver bool
	Attached bool // the lease was detached before
}

// Renewed describes a renewal.
type Renewed struct {
	Subject
	Time  time.Time
	Token int64
	// Took is the time from the first write of the renewal until it was known to have landed.
	// Requests is how many requests that took: one, unless an answer was lost, refused or late.
	Took     time.Duration
	Requests int
	// Left is how much longer the lease would have been valid without the renewal, and TTL is
	// the record's. If the first request succeeds at once, Left is a little over half of TTL.
	Left, TTL time.Duration
}

// Lost describes the loss of a lease before its release.
type Lost struct {
	Subject
	Time  time.Time
	Token int64
	Cause error         // the cause of its context's end, which matches leasehold.ErrLost
	Held  time.Duration // since it was acquired
}

// Released describes a release.
type Released struct {
	Subject
	Time     time.Time
	Token    int64
	Held     time.Duration // from the acquisition until the release began or the lease was lost
	Took     time.Duration // duration of the release
	Err      error         // why the lock may still be held
	Lost     bool          // a Lost came before
	Detached bool          // the lease was detached, not freed
}

// TroubleMessage is the message of the warning that the Logger gets with each Trouble. A program
// that reports troubles itself can drop it in its slog.Handler.
const TroubleMessage = "the store fails, and is tried again"

// Trouble describes a store outage that has lasted for several requests.
type Trouble struct {
	Subject
	Time time.Time
	Err  error // the last error
	// Failures is how many requests of this candidate have failed in a row. It is 0 if only the
	// watch of a holder's session fails.
	Failures int
}

// Leader describes a change of leader.
type Leader struct {
	Subject
	Time     time.Time
	Known    bool // this candidate knows a leader
	WasKnown bool // it knew one before this event
	New      bool // first event of this leader; if false, it is known again or no longer

	// The leader's holder name, address and token, or the last leader's if none is known.
	Name    string
	Address string
	Token   int64
}

// Request describes a finished request.
type Request struct {
	Subject
	Time time.Time
	// Op is "read", "check" (a holder's session), "claim", "renew" or "free"; for a semaphore,
	// it is "read" or "write". It is one store request, except with epochs and during
	// cooldowns, where the layout may need more. With the kind Session, reads and frees include
	// those for watching another candidate's session; the subject's key is then the key of that
	// session.
	Op   string
	Took time.Duration
	// Err is the store's error. Its kind is one of the sentinels of package store, unless the
	// object is not a lock. A missing object and an unchanged one are not errors.
	Err error
}

// Join combines traces. Each function of the result calls those of the traces in order, and
// AcquireStart passes the context of one to the next. Join ignores nil traces; if there are no
// others, it returns nil.
func Join(traces ...*Trace) *Trace {
	all := slices.DeleteFunc(slices.Clone(traces), func(t *Trace) bool { return t == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &Trace{
		AcquireStart: joinStarts(all),
		Waiting:      join(all, func(t *Trace) func(context.Context, Waiting) { return t.Waiting }),
		AcquireDone:  join(all, func(t *Trace) func(context.Context, AcquireDone) { return t.AcquireDone }),
		Renewed:      join(all, func(t *Trace) func(context.Context, Renewed) { return t.Renewed }),
		Lost:         join(all, func(t *Trace) func(context.Context, Lost) { return t.Lost }),
		Released:     join(all, func(t *Trace) func(context.Context, Released) { return t.Released }),
		Trouble:      join(all, func(t *Trace) func(context.Context, Trouble) { return t.Trouble }),
		Leader:       join(all, func(t *Trace) func(context.Context, Leader) { return t.Leader }),
		Request:      join(all, func(t *Trace) func(context.Context, Request) { return t.Request }),
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

func joinStarts(traces []*Trace) func(context.Context, AcquireStart) context.Context {
	var all []func(context.Context, AcquireStart) context.Context
	for _, t := range traces {
		if t.AcquireStart != nil {
			all = append(all, t.AcquireStart)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context, e AcquireStart) context.Context {
		for _, f := range all {
			if with := f(ctx, e); with != nil {
				ctx = with //nolint:fatcontext // each is to see what those before it have added
			}
		}
		return ctx
	}
}
