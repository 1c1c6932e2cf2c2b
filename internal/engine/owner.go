package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// An Owner is what an engine works for. It says what the engine has to know, which is always
// the same, and is told what happens, while the engine is locked: it must not enter that
// engine or one above it (see Engine), and must not block.
type Owner interface {
	Host
	// Config makes the candidate anew that has rested, but for its incarnation.
	Config() protocol.Config
	// Rest: the engine rests from now on, or has been woken. One that rests holds a lease
	// under a session and remembers next to nothing, and neither should its owner.
	Rest(on bool)
}

// A Host is what an engine of any kind works for: an [Owner] for that of a lock.
type Host interface {
	// Place is where the candidate competes.
	Place() Place
	// Session is the session of this process that has that name.
	Session(name string) *Session
	// Context gives requests their values.
	Context() context.Context
	// Watcher is what another engine works for, which watches a session of others on behalf
	// of this one: it says what that engine has to know, and sees what happens.
	Watcher(session string, of *Engine) Owner

	// Stepped: the machine has taken in an event, and asks for these actions. Nothing has been
	// sent yet. The engine carries out requests, and what concerns this process's sessions, when
	// Stepped has returned. The rest is for the owner to do. Stepped must not step the engine:
	// an event that follows from an action is returned, and is the next to be taken in.
	Stepped(ev protocol.Event, actions []protocol.Action) (next protocol.Event)
	// EndLease: the session is over, so the lease that the candidate holds under it, if it
	// does, is to end now. The candidate is told later.
	EndLease(why error)
}

// A Place is where a candidate competes, and in what.
type Place struct {
	Runtime Runtime
	Store   store.Store // of the lock and of sessions
	Key     string
	Layout  layout.Layout // nil: the object is a table
	Logger  *slog.Logger
}

// String names the object, for messages.
func (p Place) String() string {
	if p.Layout == nil {
		return layout.Table{Store: p.Store, Key: p.Key}.String()
	}
	return p.Layout.String()
}

// A Runtime is what an engine lives in.
//
// There are two: [Process], and the simulation's. Everything by which one run can differ from
// another goes through it, so under the same runtime the same seed gives the same run.
type Runtime interface {
	// Now is what the clocks show.
	Now() protocol.Now
	// Alarm makes an alarm that is not set, and calls f apart when it goes off.
	Alarm(f func()) Alarm
	// After calls f apart when that time has passed.
	After(d time.Duration, f func())
	// Apart calls f soon, when nothing is locked.
	Apart(f func())
	// Ask begins a request, when nothing is locked. The caller may give the request up at any
	// time, and more than once.
	Ask(r Request) (giveUp func())
	// Draw gives a number below n, or 0.
	Draw(n int) int
	// Parallel is how many requests at a time are sent for something that concerns many, until it is
	// known how many the store takes.
	Parallel() int
	// Incarnation makes the mark of one candidate and one start (rule A9).
	Incarnation() string
}

// An Alarm wakes an engine.
type Alarm interface {
	// Set lets it go off when the clock shows that, or before, and at no other time.
	Set(at time.Duration)
	Stop()
}

// A Request is a call of a layout.
type Request struct {
	For     protocol.Action // Read, Check or Write; nil: epochs of the past are collected
	Context context.Context
	Timeout time.Duration
	// Do makes the call. Its context ends with the time-out, and when the request is given up.
	Do func(ctx context.Context)
	// Done is called after it.
	Done func()
}

// How leases and sessions end.
var (
	ErrLost        = errors.New("the lease was lost")
	ErrSessionOver = errors.New("the session is over")
	ErrClosed      = errors.New("it was closed")
)
