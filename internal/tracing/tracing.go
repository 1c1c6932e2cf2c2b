// Package tracing has what a driver needs to tell a leasehold.Trace what happens: a bounded queue of
// events, and the times of the requests that its engine sends.
package tracing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/callback"
)

// Most is how many events are kept for a function that does not return.
const Most = 1024

// Patience is how long a call of the user waits for the function that is told of its end.
//
// It waits at all because a process may end right after: the last events of a job that cron starts
// would else be lost more often than not.
const Patience = time.Second

// Events are told one after the other, outside of what tells them: see [callback.Queue].
type Events struct {
	of      string
	log     *slog.Logger
	queue   callback.Queue
	dropped atomic.Int64 // since the last that was queued
}

// New makes the events of what messages call by that name. A function that takes longer than ttl is
// reported to the log, and so is what was dropped.
func New(of string, ttl time.Duration, log *slog.Logger) *Events {
	e := &Events{of: of, log: log}
	e.queue.Most, e.queue.Patience = Most, ttl
	e.queue.Hangs = func(name string) {
		log.Warn("a function of a Trace does not return, and the next ones wait for it", "of", of, "function", name)
	}
	return e
}

// add queues a call, and reports whether it will be made.
func (e *Events) add(name string, call func()) bool {
	if !e.queue.Add(name, call) {
		if e.dropped.Add(1) == 1 {
			e.log.Warn("events of a Trace are dropped, since its functions do not return", "of", e.of, "kept", Most)
		}
		return false
	}
	if n := e.dropped.Swap(0); n > 0 {
		e.log.Warn("events of a Trace were dropped", "of", e.of, "number", n)
	}
	return true
}

// Tell queues the call of a function of a Trace, if there is one.
func Tell[E any](ctx context.Context, e *Events, name string, f func(context.Context, E), event E) {
	if f != nil {
		e.add(name, func() { f(ctx, event) })
	}
}

// TellLast is Tell for what a call of the user waits for: the channel is closed when the function has
// returned, or will not be called, or at the end of Patience.
func TellLast[E any](ctx context.Context, e *Events, name string, f func(context.Context, E), event E) <-chan struct{} {
	told := make(chan struct{})
	if f == nil {
		close(told)
		return told
	}
	end := sync.OnceFunc(func() { close(told) })
	late := time.AfterFunc(Patience, end)
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
