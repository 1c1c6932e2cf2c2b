package engine

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// A machine decides. It has no clock, goroutine, random source or store.
type machine interface {
	Step(ev protocol.Event, now protocol.Now) []protocol.Action
	Busy() bool // a request is under way
}

// An engine is what a loop drives: an [Engine], whose machine is that of a lock, of a heartbeat or of a
// reaper, or a [Table].
type engine interface {
	member
	runtime() Runtime
	machine() machine
	stored(now protocol.Now)   // stores until when what the machine holds is valid
	do(action protocol.Action) // carries out an action, if it is the engine's
	follow(now protocol.Now)   // watches the sessions that the machine now waits for
	settled() bool             // nothing that the user has abandoned can still land
	wake() (at time.Duration, ok bool)
}

// A loop passes events to a machine, one at a time, on the goroutine that brings the event. So an idle
// machine costs nothing. The engine's mutex guards it.
type loop struct {
	alarm    Alarm
	settling []chan struct{} // closed when the engine has settled
	idle     []func()        // called when no request is under way
}

// step passes an event to the machine, tells the owner, carries out the actions, and goes on with the event
// that the owner returns.
//
// Callers rely on this order. The validity of a lease is stored first: so a deadline that moves back has
// moved, and a lease that has ended is invalid, before the request that lets others in is sent (rules A7
// and A10). When the owner is told, nothing has been sent either, so it can end what its user was given.
// The alarm is set last, by the machine's new state.
func (l *loop) step(e engine, ev protocol.Event) {
	for ev != nil {
		now := e.runtime().Now()
		actions := e.machine().Step(ev, now)
		e.stored(now)
		ev = e.host().Stepped(ev, actions)
		for _, action := range actions {
			e.do(action)
		}
		e.follow(now)
		l.settle(e)
		if !e.machine().Busy() {
			for _, f := range l.idle {
				e.runtime().Apart(f)
			}
			l.idle = nil
		}
		l.arm(e)
	}
}

// arm sets the alarm for the machine's next step. An early or second alarm is harmless, because a Tick
// does only what is due. A missing one would leave a lease unrenewed, so every step sets it.
func (l *loop) arm(e engine) {
	wake, ok := e.wake()
	switch {
	case ok && l.alarm == nil:
		l.alarm = e.runtime().Alarm(func() { e.Tell(protocol.Tick{}) })
		fallthrough
	case ok:
		l.alarm.Set(wake)
	case l.alarm != nil:
		l.alarm.Stop()
	}
}

// settle tells those who wait that the engine has settled, if it has.
func (l *loop) settle(e engine) {
	if len(l.settling) > 0 && e.settled() {
		for _, c := range l.settling {
			close(c)
		}
		l.settling = nil
	}
}

// whenSettled returns a channel that is closed when the engine has settled.
func (l *loop) whenSettled(e engine) <-chan struct{} {
	settled := make(chan struct{})
	l.settling = append(l.settling, settled)
	l.settle(e)
	return settled
}

// whenIdle calls f apart when no request is under way.
func (l *loop) whenIdle(e engine, f func()) {
	if e.machine().Busy() {
		l.idle = append(l.idle, f)
	} else {
		e.runtime().Apart(f)
	}
}
