package engine

import (
	"errors"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lockorder"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// An Engine gives one candidate of the protocol its clock, its alarm and its requests.
// Whatever happens to the candidate happens in Step, one event at a time and whoever brings
// it, so an idle engine needs nothing. The candidate has at most one request under way, so
// writes of one lease never overtake each other.
type Engine struct {
	mu    lockorder.Mutex // see package lockorder for what may be locked under it
	owner Owner

	// A lease under a session needs nothing until it is released. Its engine rests then, and
	// has what there is to remember of the candidate, which is little, because there may be
	// very many of them.
	rest   *protocol.Saved
	active *active // nil: it rests
}

// active is what an engine has while it has something to do.
// All of it is guarded by the engine's mutex, and gone when the engine rests: a thing that must
// survive that belongs to protocol.Saved.
type active struct {
	candidate *protocol.Candidate
	follows   bool // the candidate of an election, which is watched even under a session
	alarm     Alarm
	late      bool     // the owner wants to know when a renewal is late
	session   *Session // of the acquisition, and then of the lease; nil: none
	leased    bool     // from the grant of a lease until its release is settled
	watch     watch    // for the session that the candidate waits for
	failing   error    // why it is not known whether the session goes on that the acquisition waited for

	giveUp   func()          // gives up the look under way
	looked   time.Duration   // when the last read was sent
	shown    layout.Snapshot // by the last read that showed anything
	showed   time.Duration   // when that was answered
	settling []chan struct{} // closed when the candidate has settled
	idle     []func()        // called when no request is under way
	past     chan struct{}   // closed when the collection of it has ended; nil: none goes on
	leave    func()          // gives the collection up
}

// Init makes an engine of a new candidate.
// A heartbeat's engine has a rank of its own, since the engines of the locks under the session
// enter it while they are locked.
func (e *Engine) Init(owner Owner, cfg protocol.Config) {
	e.owner = owner
	e.mu.Rank(lockorder.Engine)
	if cfg.Fresh || cfg.Reaper {
		e.mu.Rank(lockorder.Heartbeat)
	}
	e.start(protocol.New(cfg), cfg)
}

func (e *Engine) start(c *protocol.Candidate, cfg protocol.Config) {
	e.active = &active{candidate: c, follows: cfg.Follow}
	e.owner.Rest(false)
}

// Enter locks the engine and makes it ready for what comes.
func (e *Engine) Enter() {
	e.mu.Lock()
	if e.active != nil {
		return
	}
	c := e.restored()
	e.start(c, protocol.Config{})
	e.active.leased, e.active.session = true, e.owner.Session(e.rest.Session())
	e.rest = nil
}

// restored makes the candidate from what was kept. It does what the one that rested would have
// done (see protocol.Restore), so nobody can tell whether an engine has rested.
func (e *Engine) restored() *protocol.Candidate {
	return protocol.Restore(e.owner.Config(), e.rest)
}

// Leave unlocks the engine, which rests from now on if it can.
//
// An engine that collects the past does not rest: the collection has to be given up with the
// lease. Nor does that of an election, which somebody may begin to observe at any time.
func (e *Engine) Leave() {
	a := e.active
	if rest, can := a.candidate.Save(); can && !a.follows && a.past == nil {
		e.rest, e.active = rest, nil
		e.owner.Rest(true)
	}
	e.mu.Unlock()
}

// Locked calls f while the engine is locked, whether or not it rests.
func (e *Engine) Locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// Resting reports that the engine rests.
func (e *Engine) Resting() bool { return e.active == nil }

// host is what the engine works for, as members of a session say it.
func (e *Engine) host() Host { return e.owner }

// Owner is what the engine works for.
func (e *Engine) Owner() Owner { return e.owner }

// Candidate is the candidate of an engine that was entered, to look at, or what the one will
// be that rests.
func (e *Engine) Candidate() *protocol.Candidate {
	if e.active == nil {
		return e.restored()
	}
	return e.active.candidate
}

// Tell enters the engine and passes an event to the candidate.
func (e *Engine) Tell(ev protocol.Event) {
	e.Enter()
	defer e.Leave()
	e.Step(ev)
}

// Step passes an event to the candidate of an engine that was entered, and then the events
// that the owner returns, one after the other.
func (e *Engine) Step(ev protocol.Event) {
	for ev != nil {
		ev = e.step(ev)
	}
}

// step passes one event to the candidate, tells the owner, and carries out the actions.
//
// Callers rely on this order. When the owner is told, nothing has been sent: so a deadline that moves
// back has moved (rule A7), and a lease has ended for its user, before the request that frees the
// lock is sent. The alarm is set last, by the candidate's new state.
func (e *Engine) step(ev protocol.Event) (next protocol.Event) {
	a := e.active
	now := e.runtime().Now()
	actions := a.candidate.Step(ev, now)
	next = e.owner.Stepped(ev, actions)
	for _, action := range actions {
		e.do(action)
	}
	e.watchSession()
	if a.past != nil && !a.candidate.Valid(now.Clock) {
		a.leave() // it goes on for as long as the lease does
	}
	e.settle()
	if !a.candidate.Busy() {
		for _, f := range a.idle {
			e.runtime().Apart(f)
		}
		a.idle = nil
	}
	e.arm()
	return next
}

// do carries out what is not the owner's.
func (e *Engine) do(action protocol.Action) {
	switch a := action.(type) {
	case protocol.Granted:
		e.active.leased = true
	case protocol.Detached:
		e.active.leased = errors.Is(a.Err, protocol.ErrLost) // and must still be released
	case protocol.Released:
		e.active.leased = false
	case protocol.Read:
		e.read(a)
	case protocol.Check:
		e.check(a)
	case protocol.Write:
		e.write(action, a.Timeout)
	case protocol.SessionOrphan:
		e.owner.Session(a.Session).orphaned(e.owner.Place())
	case protocol.Unnamed:
		e.owner.Session(a.Session).released(e.owner.Place().Key)
	case protocol.Left:
		e.owner.Session(a.Session).leave(e)
	}
}

func (e *Engine) runtime() Runtime { return e.owner.Place().Runtime }

// arm sets the alarm for the candidate's next step.
// An alarm that goes off early or twice is harmless, because a Tick does only what is due. One that
// was never set would leave a lease unrenewed, so it is set after every step, whatever that was.
func (e *Engine) arm() {
	a := e.active
	wake, ok := a.candidate.Wake()
	if a.late {
		now := e.runtime().Now().Clock
		if late, sound := a.candidate.Sound(now); sound && now < late {
			wake = min(wake, late)
		}
	}
	switch {
	case ok && a.alarm == nil:
		a.alarm = e.runtime().Alarm(func() { e.Tell(protocol.Tick{}) })
		fallthrough
	case ok:
		a.alarm.Set(wake)
	case a.alarm != nil:
		a.alarm.Stop()
	}
}

// TellLate has the owner of an engine that was entered told when a renewal is late, by a
// step, or no longer.
func (e *Engine) TellLate(on bool) {
	if e.active.late = on; on {
		e.arm()
	}
}

// Shown is a record that was seen, and what the store has told of its age, which is as it is
// now.
func (e *Engine) Shown(r record.Record) layout.Snapshot {
	a := e.active
	s := a.shown
	if s.Record.WriteID != r.WriteID {
		s = layout.Snapshot{} // it is not the one that was read last
	}
	// The store's clock has gone on since, and the age of a record with it.
	if !s.Date.IsZero() {
		s.Date = s.Date.Add(e.runtime().Now().Clock - a.showed)
	}
	s.Record = r
	return s
}

// settle tells those who wait for it that all has settled, if it has.
func (e *Engine) settle() {
	if !e.unsettled() {
		for _, c := range e.active.settling {
			close(c)
		}
		e.active.settling = nil
	}
}

// unsettled reports that a request is under way, or a write may yet land, of an acquisition
// that the user neither waits for nor holds a lease of.
func (e *Engine) unsettled() bool {
	return e.active.candidate.Outstanding() || !e.active.leased && e.active.past != nil
}

// Settled is closed when no write of an acquisition is under way any more, or has become a
// lease: what the user holds or waits for was not given up.
// A process waits for it before it exits: a claim that lands later would hold the lock for a TTL,
// and nobody would be there to free it.
func (e *Engine) Settled() <-chan struct{} {
	e.Enter()
	defer e.Leave()
	settled := make(chan struct{})
	e.active.settling = append(e.active.settling, settled)
	e.settle()
	return settled
}

// Forgettable reports that the engine may be dropped: nothing is under way, and what its candidate
// knows is worth nothing any more.
func (e *Engine) Forgettable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active == nil || e.active.past != nil {
		return false // it holds a lease, or collects the past
	}
	ok, _ := e.active.candidate.Forgettable(e.runtime().Now().Clock)
	return ok
}

// Past is closed when the collection of the past has ended that is under way in an engine
// that was entered, and nil if none is.
func (e *Engine) Past() <-chan struct{} { return e.active.past }

// whenIdle calls f apart when no request is under way. An engine that rests is not woken for that.
func (e *Engine) whenIdle(f func()) {
	e.Locked(func() {
		if e.active != nil && e.active.candidate.Busy() {
			e.active.idle = append(e.active.idle, f)
		} else {
			e.runtime().Apart(f)
		}
	})
}
