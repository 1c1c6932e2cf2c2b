package lock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
)

const (
	// MostEvents is how many events are kept for a function that does not return.
	MostEvents = 1024

	// TracePatience is how long a call of the user waits for the function of a Trace that hears of
	// the call's end. It waits at all because a process may exit right after, and the last events
	// of a short job would usually be lost.
	TracePatience = time.Second
)

// Events calls the functions of a Trace one after the other, in the order of the events, on a
// goroutine of its own. The goroutine ends when no call is left.
//
// The functions cannot run where the events arise, because the engine is locked there: one that
// releases its own lease would wait for itself, and one that hangs would hold up a renewal. Nor can
// each have its own goroutine, because a user who hears of a loss before the lease that was lost
// cannot make sense of it.
type Events struct {
	of       string
	patience time.Duration
	log      *slog.Logger

	mu      engine.Mutex
	pending []event
	running bool
	dropped int // since the last one that was queued
}

type event struct {
	name string
	call func()
}

// NewEvents returns the events of the lock or semaphore that messages call of. It logs a function
// that takes longer than patience, and dropped events.
func NewEvents(of string, patience time.Duration, log *slog.Logger) *Events {
	return &Events{of: of, patience: patience, log: log}
}

// add queues a call and returns at once. It may be called while the engine is locked. It reports
// false if MostEvents are queued already; then the call is dropped.
func (e *Events) add(name string, call func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.pending) >= MostEvents {
		if e.dropped++; e.dropped == 1 {
			e.log.Warn("events of a Trace are dropped, since its functions do not return", "of", e.of, "kept", MostEvents)
		}
		return false
	}
	if e.dropped > 0 {
		e.log.Warn("events of a Trace were dropped", "of", e.of, "number", e.dropped)
		e.dropped = 0
	}
	e.pending = append(e.pending, event{name, call})
	if !e.running {
		e.running = true
		go e.run()
	}
	return true
}

// run ends when the queue is empty, so an idle lock keeps no goroutine. It decides that under the
// mutex of add: a call added at the same moment is either seen here or starts the next goroutine.
func (e *Events) run() {
	for {
		e.mu.Lock()
		if len(e.pending) == 0 {
			e.running = false
			e.mu.Unlock()
			return
		}
		next := e.pending[0]
		e.pending = e.pending[1:]
		e.mu.Unlock()
		// A hanging call cannot be ended. Without this report the lock would just fall silent.
		late := time.AfterFunc(e.patience, func() {
			e.log.Warn("a function of a Trace does not return, and the next ones wait for it", "of", e.of, "function", next.name)
		})
		next.call()
		late.Stop()
	}
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
