package lock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

const (
	// MostEvents is how many events are kept for a function that does not return.
	MostEvents = 1024

	// TracePatience is how long a call of the user waits for the function of a Trace that hears of
	// the call's end. It waits at all because a process may exit right after, and the last events
	// of a short job would usually be lost.
	TracePatience = time.Second
)

// Events are passed to the functions of a Trace one after the other, on a goroutine of their own:
// see [Callbacks].
type Events struct {
	of      string
	log     *slog.Logger
	queue   Callbacks
	dropped atomic.Int64 // since the last one that was queued
}

// NewEvents returns the events of the lock or semaphore that messages call of. It logs a function
// that takes longer than ttl, and dropped events.
func NewEvents(of string, ttl time.Duration, log *slog.Logger) *Events {
	e := &Events{of: of, log: log}
	e.queue.Most, e.queue.Patience = MostEvents, ttl
	e.queue.Hangs = func(name string) {
		log.Warn("a function of a Trace does not return, and the next ones wait for it", "of", of, "function", name)
	}
	return e
}

// add queues a call, and reports whether it will be made.
func (e *Events) add(name string, call func()) bool {
	if !e.queue.Add(name, call) {
		if e.dropped.Add(1) == 1 {
			e.log.Warn("events of a Trace are dropped, since its functions do not return", "of", e.of, "kept", MostEvents)
		}
		return false
	}
	if n := e.dropped.Swap(0); n > 0 {
		e.log.Warn("events of a Trace were dropped", "of", e.of, "number", n)
	}
	return true
}

// Tell queues the call of a Trace's function, if the Trace has it.
func Tell[E any](ctx context.Context, e *Events, name string, f func(context.Context, E), event E) {
	if f != nil {
		e.add(name, func() { f(ctx, event) })
	}
}

// TellLast is Tell for an event that a call of the user waits for. The channel is closed when the
// function has returned or will not be called, and after TracePatience at the latest.
func TellLast[E any](ctx context.Context, e *Events, name string, f func(context.Context, E), event E) <-chan struct{} {
	told := make(chan struct{})
	if f == nil {
		close(told)
		return told
	}
	end := sync.OnceFunc(func() { close(told) })
	late := time.AfterFunc(TracePatience, end)
	call := func() {
		defer end()
		defer late.Stop()
		f(ctx, event)
	}
	if !e.add(name, call) {
		late.Stop()
		end()
	}
	return told
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

// Watch returns an owner that calls told with the answer to each of the engine's requests, while
// the engine is locked, and otherwise does what w does.
func Watch(w engine.Owner, told func(Answer)) engine.Owner {
	return &watched{Owner: w, told: told}
}

type watched struct {
	engine.Owner
	told     func(Answer)
	requests Requests
}

// Stepped passes on the answer to a request, and notes when the next one is sent.
func (w *watched) Stepped(ev protocol.Event, actions []protocol.Action) protocol.Event {
	if answer, ok := w.requests.Answered(ev, clock.Now()); ok {
		w.told(answer)
	}
	for _, action := range actions {
		w.requests.Sent(action, clock.Now())
	}
	return w.Owner.Stepped(ev, actions)
}
