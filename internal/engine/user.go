package engine

import (
	"context"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// Acquire begins an acquisition, under s unless that is nil. It calls before first, while the engine is
// locked. The owner is told the one answer. Requests get the values of ctx, and do not end with it.
// Acquire fails if the session has ended, and then begins nothing.
func (e *Engine) Acquire(ctx context.Context, ev candidate.Acquire, s *Session, before func()) error {
	e.Enter()
	defer e.Leave()
	if s != nil {
		if err := s.enter(e); err != nil {
			return err
		}
		ev.Session = s.Key()
	}
	before()
	e.begin(ctx, s, ev)
	return nil
}

// Attach uses a detached lease, under no session. Nothing of the candidate may be outstanding: see
// Settled. Otherwise it is like Acquire.
func (e *Engine) Attach(ctx context.Context, ev candidate.Attach, before func()) {
	e.Enter()
	defer e.Leave()
	before()
	e.begin(ctx, nil, ev)
}

func (e *Engine) begin(ctx context.Context, s *Session, ev protocol.Event) {
	e.active.ctx, e.active.session, e.active.failing = context.WithoutCancel(ctx), s, nil
	e.Step(ev)
}

// Cancel ends the acquisition, unless it was answered meanwhile. The candidate answers at once and cleans
// up in the background, so a caller never waits for the store after it gave up.
func (e *Engine) Cancel() {
	e.Enter()
	defer e.Leave()
	a := e.active
	if a.giveUp != nil {
		a.giveUp() // nobody waits for the answer
	}
	if r := a.watch.reaper; r != nil {
		a.failing = r.trouble()
	}
	e.Step(protocol.Cancel{})
}

// Trouble returns, for an entered engine, the store error that keeps the acquisition from ending, or nil.
func (e *Engine) Trouble() error {
	if err := e.active.candidate.Trouble(); err != nil {
		return err
	}
	return e.active.failing
}

// Release ends the lease and frees the lock. It calls how when the owner has been told of everything that
// had ended before. There the owner ends the lease's validity, before anything is sent, and says how
// to release it.
//
// A lease may have ended unnoticed: the machine was suspended, or the session is about to tell. Then the
// user must hear of the loss, and not that the release succeeded.
func (e *Engine) Release(how func() candidate.Release) {
	s := e.leaseSession()
	if s != nil && !s.Valid() {
		s.End(protocol.ErrExpired) // unless it has ended: no alarm has gone off since it expired
	}
	e.Enter()
	defer e.Leave()
	if e.runtime().Now().Clock >= e.active.candidate.Deadline() {
		e.Step(protocol.Tick{}) // it is lost, and no alarm has gone off since
	}
	if s != nil {
		if why := s.Over(); why != nil {
			e.Step(protocol.SessionOver{Session: s.Key(), Err: why}) // it is about to tell us
		}
	}
	e.Step(how())
}

// Detach ends the lease and leaves its record as it is. It calls how when the owner has been told of
// everything that had ended before. There the owner ends the lease's validity, and says what becomes of
// it.
func (e *Engine) Detach(how func() protocol.Event) {
	e.Enter()
	defer e.Leave()
	if e.runtime().Now().Clock >= e.active.candidate.Deadline() {
		e.Step(protocol.Tick{}) // as for a release
	}
	e.Step(how())
}

// leaseSession returns the session of the lease, or nil.
func (e *Engine) leaseSession() (s *Session) {
	e.Locked(func() {
		if e.active != nil {
			s = e.active.session
		} else {
			s = e.owner.Session(e.rest.Session())
		}
	})
	return s
}

// Watch makes the candidate poll even while nobody wants the lock, or stops that.
func (e *Engine) Watch(on bool) {
	e.Enter()
	defer e.Leave()
	if a := e.active; !on && a.giveUp != nil && a.candidate.Settled() {
		a.giveUp()
	}
	e.Step(candidate.Watch{On: on})
}
