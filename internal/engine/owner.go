package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store"
)

// An Owner is the user of an engine. It answers what the engine must know, always with the same
// answer, and is told what happens. Its methods are called while the engine is locked, so they must not
// enter that engine or one of a higher rank, and must not block.
type Owner interface {
	Host
	// Config returns the configuration of the candidate, except for its incarnation.
	Config() candidate.Config
	// Context returns a context with the values of the lease's, for an engine that has rested.
	Context() context.Context
	// Rest: the engine rests from now on, or was woken. A resting engine holds a lease under a session
	// and keeps next to nothing, and its owner should do the same.
	Rest(on bool)
}

// A Host is the user of an engine of any kind. That of a lock is an [Owner].
type Host interface {
	// Place returns where the machine competes.
	Place() Place
	// Session returns the session of this process with that name.
	Session(name string) *Session
	// Watcher returns the owner of another engine, which watches another process's session on behalf
	// of this one.
	Watcher(session string, of *Engine) Owner

	// Stepped: the machine has taken in an event, and asks for these actions. Nothing has been
	// sent yet. The engine carries out requests, and what concerns this process's sessions, when
	// Stepped has returned. The rest is for the owner to do. Stepped must not step the engine:
	// an event that follows from an action is returned, and is the next to be taken in.
	Stepped(ev protocol.Event, actions []protocol.Action) (next protocol.Event)
	// EndLease: the session has ended, so the leases under it must end now. The machine is told later.
	EndLease(why error)
}

// A Place is where a machine competes, and what it runs in.
type Place struct {
	Runtime Runtime
	Store   store.Store // of the lock and of sessions
	Key     string
	Layout  layout.Layout // nil: the object is a queue
	Logger  *slog.Logger
}

// String names the object, for messages.
func (p Place) String() string {
	if p.Layout == nil {
		return layout.Table{Store: p.Store, Key: p.Key}.String()
	}
	return p.Layout.String()
}

// A Runtime gives engines time, chance and goroutines. There are two: [Process], and the simulation's.
// Everything in which two runs can differ goes through it, so the simulation can replay a run by its
// seed.
type Runtime interface {
	// Now returns what the clocks show.
	Now() protocol.Now
	// Alarm returns an alarm that is not set, which calls f apart when it goes off.
	Alarm(f func()) Alarm
	// After calls f apart after that time.
	After(d time.Duration, f func())
	// Apart calls f soon, when nothing is locked.
	Apart(f func())
	// Ask begins a request, when nothing is locked. The caller may give it up at any time, and more
	// than once.
	Ask(r Request) (giveUp func())
	// Draw returns a random number below n, or 0.
	Draw(n int) int
	// Parallel returns how many requests to send at a time for something that concerns many engines,
	// until it is known how many the store takes.
	Parallel() int
	// Incarnation returns a new incarnation (rule A9).
	Incarnation() string
}

// An Alarm wakes an engine.
type Alarm interface {
	// Set makes it go off at that clock reading or before, and at no other time.
	Set(at time.Duration)
	Stop()
}

// A Request is a call of a layout.
type Request struct {
	For     protocol.Action // Read, Check or Write; nil: a collection of old epochs
	Context context.Context
	Timeout time.Duration
	// Do makes the call. Its context ends at the timeout, or when the request is given up.
	Do func(ctx context.Context)
	// Done is called after Do.
	Done func()
}

// How leases and sessions end.
var (
	ErrLost        = errors.New("the lease was lost")
	ErrSessionOver = errors.New("the session is over")
	ErrClosed      = errors.New("it was closed")
)
