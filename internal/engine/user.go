package engine

import "github.com/leasehold/leasehold/internal/protocol"

// Acquire begins an acquisition on these terms, under a session if there is one, whose one answer
// the owner is told. It fails if the session is over, and then begins nothing.
func (e *Engine) Acquire(wait bool, s *Session, terms protocol.Terms) error {
	e.Enter()
	defer e.Leave()
	return e.AcquireEntered(wait, s, terms)
}

// AcquireEntered is Acquire for an engine that was entered.
func (e *Engine) AcquireEntered(wait bool, s *Session, terms protocol.Terms) error {
	ev := protocol.Acquire{Wait: wait, Terms: terms}
	if s != nil {
		if err := s.enter(e); err != nil {
			return err
		}
		ev.Session = s.Key()
	}
	e.active.session, e.active.failing = s, nil
	e.Step(ev)
	return nil
}

// Attach uses a lease that was detached, under no session. Nothing of the candidate may be
// outstanding: see Settled.
func (e *Engine) Attach(ev protocol.Attach) {
	e.Enter()
	defer e.Leave()
	e.AttachEntered(ev)
}

// AttachEntered is Attach for an engine that was entered.
func (e *Engine) AttachEntered(ev protocol.Attach) {
	e.active.session, e.active.failing = nil, nil
	e.Step(ev)
}

// Cancel ends the acquisition, unless its answer crosses.
// The candidate answers at once and goes on in the background, so a caller never waits for the
// store after it gave up.
func (e *Engine) Cancel() {
	e.Enter()
	defer e.Leave()
	a := e.active
	if a.giveUp != nil {
		a.giveUp() // nobody waits for what the look would show
	}
	if r := a.watch.reaper; r != nil {
		a.failing = r.trouble()
	}
	e.Step(protocol.Cancel{})
}

// Trouble is why the acquisition of an engine that was entered has not come to its end:
// because of the store, if that fails.
func (e *Engine) Trouble() error {
	if err := e.active.candidate.Trouble(); err != nil {
		return err
	}
	return e.active.failing
}

// Release ends the lease and frees the lock. When the owner has been told of all that had
// ended before, how is called: there the owner ends the lease's validity, before anything is
// sent, and says how it is to be released.
//
// A lease may have ended without anybody having noticed: the machine slept, or the session is on
// its way to tell. Then the user must hear of the loss, and not that the release went well.
func (e *Engine) Release(how func() protocol.Release) {
	s := e.leaseSession()
	if s != nil && !s.Valid() {
		s.End(protocol.ErrExpired) // if it has not ended yet: no alarm has gone off since it ran out
	}
	e.Enter()
	defer e.Leave()
	if e.runtime().Now().Clock >= e.active.candidate.Deadline() {
		e.Step(protocol.Tick{}) // it is lost, and no alarm has gone off since
	}
	if s != nil {
		if why := s.Over(); why != nil {
			e.Step(protocol.SessionOver{Session: s.Key(), Err: why}) // it is on its way to tell us so
		}
	}
	e.Step(how())
}

// Detach ends the lease and leaves its record as it stands. When the owner has been told of all that
// had ended before, how is called: there the owner ends the lease's validity, and says what is to
// become of it.
func (e *Engine) Detach(how func() protocol.Event) {
	e.Enter()
	defer e.Leave()
	if e.runtime().Now().Clock >= e.active.candidate.Deadline() {
		e.Step(protocol.Tick{}) // as for a release
	}
	e.Step(how())
}

// leaseSession is the session that the lease is under, and nil if it is under none.
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

// Watch makes the candidate look even while nobody wants the lock, or no longer.
func (e *Engine) Watch(on bool) {
	e.Enter()
	defer e.Leave()
	if a := e.active; !on && a.giveUp != nil && a.candidate.Settled() {
		a.giveUp()
	}
	e.Step(protocol.Watch{On: on})
}
