package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// An Engine gives one candidate of the protocol its clock, its alarm and its requests. The candidate has
// at most one request under way, so writes of one lease never overtake each other.
type Engine struct {
	mu    Mutex
	owner Owner
	until atomic.Int64 // see Until

	// A lease under a session needs nothing until it is released. Meanwhile its engine rests, and
	// keeps only the little that it must remember of the candidate: there may be very many.
	rest   *candidate.Saved
	active *active // nil: it rests
}

// active is the state of an engine that does not rest, guarded by the engine's mutex. What must survive
// a rest belongs in candidate.Saved.
type active struct {
	loop
	candidate *candidate.Machine
	follows   bool // the candidate is an election's, which polls even under a session
	place     Place
	ctx       context.Context // of the acquisition; gives requests their values
	late      bool            // the owner wants to be told when a renewal is late
	session   *Session        // of the acquisition, then of the lease; nil: none
	leased    bool            // from the grant until the release is settled
	watch     watch           // of the session that the candidate waits for
	failing   error           // why it is unknown whether the session goes on that the acquisition waited for

	giveUp func()          // gives up the read under way
	looked time.Duration   // when the last read was sent
	shown  layout.Snapshot // by the last read that showed something
	showed time.Duration   // when that read was answered
	past   chan struct{}   // closed when the collection of old epochs has ended; nil: none is under way
	leave  func()          // gives up that collection
}

// Init starts an engine with a new candidate. A heartbeat's engine has its own lock rank, because the
// engines of the locks under the session enter it while they are locked.
func (e *Engine) Init(owner Owner, cfg candidate.Config) {
	e.owner = owner
	e.mu.Rank(RankEngine)
	switch cfg.Role.(type) {
	case candidate.Heartbeat, candidate.Reaper:
		e.mu.Rank(RankHeartbeat)
	}
	e.start(candidate.New(cfg), cfg.Role)
}

func (e *Engine) start(c *candidate.Machine, role candidate.Role) {
	_, follows := role.(candidate.Follower)
	e.active = &active{candidate: c, follows: follows, place: e.owner.Place(), ctx: context.Background()}
	e.owner.Rest(false)
}

// Enter locks the engine and wakes it if it rests.
func (e *Engine) Enter() {
	e.mu.Lock()
	if e.active != nil {
		return
	}
	c := e.restored()
	e.start(c, candidate.Waiter{}) // no others rest
	e.active.leased, e.active.session = true, e.owner.Session(e.rest.Session())
	e.active.ctx = e.owner.Context()
	e.rest = nil
}

// restored makes the candidate from what was kept. It behaves as if it had never rested: see
// candidate.Restore.
func (e *Engine) restored() *candidate.Machine {
	return candidate.Restore(e.owner.Config(), e.rest)
}

// Leave unlocks the engine, which then rests if it can.
//
// An engine that collects old epochs does not rest, because the collection must end with the lease.
// Nor does an election's, because somebody may begin to observe it at any time.
func (e *Engine) Leave() {
	a := e.active
	if rest, can := a.candidate.Save(); can && !a.follows && a.past == nil {
		e.rest, e.active = rest, nil
		e.owner.Rest(true)
	}
	e.mu.Unlock()
}

// What the owner asks for.

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

// How the candidate is stepped.

// Tell enters the engine and steps it.
func (e *Engine) Tell(ev protocol.Event) {
	e.Enter()
	defer e.Leave()
	e.Step(ev)
}

// Step passes an event to the candidate of an engine that was entered, and then the events
// that the owner returns, one after the other.
func (e *Engine) Step(ev protocol.Event) { e.active.step(e, ev) }

func (e *Engine) machine() machine { return e.active.candidate }

func (e *Engine) stored(now protocol.Now) {
	until := time.Duration(0)
	if c := e.active.candidate; c.Valid(now.Clock) {
		until = c.Deadline()
	}
	e.until.Store(int64(until))
}

func (e *Engine) follow(now protocol.Now) {
	e.watchSession()
	if a := e.active; a.past != nil && !a.candidate.Valid(now.Clock) {
		a.leave() // it ends with the lease
	}
}

// do carries out the actions that are the engine's.
func (e *Engine) do(action protocol.Action) {
	switch a := action.(type) {
	case candidate.Granted:
		e.active.leased = true
	case candidate.Detached:
		e.active.leased = errors.Is(a.Err, protocol.ErrLost) // and must still be released
	case candidate.Released:
		e.active.leased = false
	case candidate.Read:
		e.read(a)
	case candidate.Check:
		e.check(a)
	case candidate.Write:
		e.write(action, a.Timeout)
	case protocol.SessionOrphan:
		e.owner.Session(a.Session).orphaned(e.active.place)
	case protocol.Unnamed:
		e.owner.Session(a.Session).released(e.active.place.Key)
	case protocol.Left:
		e.owner.Session(a.Session).leave(e)
	}
}

func (e *Engine) runtime() Runtime {
	if e.active == nil {
		return e.owner.Place().Runtime
	}
	return e.active.place.Runtime
}

func (e *Engine) wake() (time.Duration, bool) {
	a := e.active
	wake, ok := a.candidate.Wake()
	if a.late {
		now := e.runtime().Now().Clock
		if late, sound := a.candidate.Sound(now); sound && now < late {
			wake = min(wake, late)
		}
	}
	return wake, ok
}

// What the candidate asks of the store.

// read sends a read. The time is kept, because a heartbeat that announced a release since then may have
// announced this lock's: see session.Watch.
func (e *Engine) read(a candidate.Read) {
	p := e.active.place
	var s layout.Snapshot
	var err error
	e.active.looked = p.Runtime.Now().Clock
	e.active.giveUp = p.Runtime.Ask(Request{
		For: a, Context: e.active.ctx, Timeout: a.Timeout,
		Do: func(ctx context.Context) { s, err = p.Layout.Look(ctx, a.Unless) },
		Done: func() {
			e.Enter()
			defer e.Leave()
			e.active.giveUp = nil
			if !errors.Is(err, store.ErrNotModified) {
				e.active.shown, e.active.showed = s, p.Runtime.Now().Clock
			}
			e.Step(layout.ReadDone(s, err))
		},
	})
}

// check reads whether the holder's session goes on. One read is enough to answer a user that does not wait.
// To find out that a silent session has ended takes a reaper, and a TTL.
func (e *Engine) check(a candidate.Check) {
	p := e.active.place
	var s layout.Snapshot
	var err error
	e.active.giveUp = p.Runtime.Ask(Request{
		For: a, Context: e.active.ctx, Timeout: a.Timeout,
		Do: func(ctx context.Context) { s, err = layout.Heartbeat{Store: p.Store, Key: a.Session}.Look(ctx, "") },
		Done: func() {
			e.Enter()
			defer e.Leave()
			e.active.giveUp = nil
			checked := layout.Checked(a.Session, s, err)
			checked.Abandoned = s.Abandoned(p.Runtime.Now().Wall)
			e.Step(checked)
		},
	})
}

// write keeps the action as it came, and puts what its two closures share in one struct: each variable and
// each copy would be an allocation at every renewal.
//
// A write cannot be given up as a read can. It may land whether or not anybody waits for its answer, so
// the answer is always worth having (rule A6).
func (e *Engine) write(action protocol.Action, timeout time.Duration) {
	p := e.active.place
	var wrote struct {
		s   layout.Snapshot
		err error
	}
	p.Runtime.Ask(Request{
		For: action, Context: e.active.ctx, Timeout: timeout,
		Do: func(ctx context.Context) {
			a, _ := action.(candidate.Write)
			wrote.s, wrote.err = p.Layout.Write(ctx, a)
			if p.Logger.Enabled(ctx, slog.LevelDebug) { // the arguments cost more than the call
				p.Logger.DebugContext(ctx, "write", "lock", p.Layout.String(), "op", a.Op.String(), "token", a.Record.Token, "error", wrote.err)
			}
		},
		Done: func() {
			e.Enter()
			defer e.Leave()
			e.Step(layout.WriteDone(wrote.s, wrote.err))
			a, _ := action.(candidate.Write)
			epochs, ok := p.Layout.(layout.Epochs) // if the write failed, none was written
			if ok && epochs.Due(a.Op, wrote.s.Record.Epoch) && e.active.past == nil && e.active.candidate.Valid(p.Runtime.Now().Clock) {
				e.collect(p, epochs)
			}
		},
	})
}

// collect deletes old epochs for as long as the lease lasts. Only a valid lease collects, one collection at
// a time: its holder has just written the highest number, so the others are certainly old. A failure
// matters little, because the next holder tries again.
func (e *Engine) collect(p Place, epochs layout.Epochs) {
	e.active.past = make(chan struct{})
	e.active.leave = p.Runtime.Ask(Request{
		Context: e.active.ctx, Timeout: time.Minute,
		Do: func(ctx context.Context) {
			deleted, err := collect(ctx, epochs)
			if err != nil {
				p.Logger.DebugContext(ctx, "epochs of the past were not collected", "lock", p.Layout.String(), "error", err)
				return
			}
			p.Logger.DebugContext(ctx, "epochs of the past were collected", "lock", p.Layout.String(), "deleted", deleted)
		},
		Done: func() {
			e.Enter()
			defer e.Leave()
			close(e.active.past)
			e.active.past, e.active.leave = nil, nil
			e.active.settle(e)
		},
	})
}

// collect skips objects that are not records, which somebody may want back. It stops at any other error, so
// that a failing store gets no more requests.
func collect(ctx context.Context, epochs layout.Epochs) (deleted int, err error) {
	for _, err := range epochs.Collect(ctx, layout.DefaultCollection) {
		switch {
		case errors.Is(err, record.ErrForeign): // it stays where it is
		case err != nil:
			return deleted, err
		default:
			deleted++
		}
	}
	return deleted, nil
}

// What is known of it.

// Locked calls f while the engine is locked, whether or not it rests.
func (e *Engine) Locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// Resting reports whether the engine rests.
func (e *Engine) Resting() bool { return e.active == nil }

// host returns the owner, as a member of a session.
func (e *Engine) host() Host { return e.owner }

func (e *Engine) values() context.Context { return e.active.ctx }

// Owner returns the owner.
func (e *Engine) Owner() Owner { return e.owner }

// Until returns the clock reading at which the candidate's lease ceases to be valid unless it is renewed
// first, or 0 if it holds none. A lease under a session is also valid only while the session is. Until
// takes no mutex: each use of a lease calls it.
func (e *Engine) Until() time.Duration { return time.Duration(e.until.Load()) }

// Candidate returns the candidate of an entered engine, for reading only. If the engine rests, it is a
// restored copy.
func (e *Engine) Candidate() *candidate.Machine {
	if e.active == nil {
		return e.restored()
	}
	return e.active.candidate
}

// TellLate makes an entered engine step when a renewal is late, so that the owner notices, or stops that.
func (e *Engine) TellLate(on bool) {
	if e.active.late = on; on {
		e.active.arm(e)
	}
}

// Shown returns a snapshot of a record that was seen, with its age as of now, if the store has told it.
func (e *Engine) Shown(r record.Record) layout.Snapshot {
	a := e.active
	s := a.shown
	if s.Record.WriteID != r.WriteID {
		s = layout.Snapshot{} // it is not the last one that was read
	}
	// The store's clock has moved on since, and so has the record's age.
	if !s.Date.IsZero() {
		s.Date = s.Date.Add(e.runtime().Now().Clock - a.showed)
	}
	s.Record = r
	return s
}

// settled reports whether no request is under way, and no write may still land, of an acquisition that
// the user neither waits for nor holds a lease of.
func (e *Engine) settled() bool {
	return !e.active.candidate.Outstanding() && (e.active.leased || e.active.past == nil)
}

// Settled returns a channel that is closed when nothing of an abandoned acquisition can still land. A
// process waits for it before it exits: a claim that landed later would hold the lock for a TTL, with
// nobody to free it.
func (e *Engine) Settled() <-chan struct{} {
	e.Enter()
	defer e.Leave()
	return e.active.whenSettled(e)
}

// Forgettable reports whether the engine may be dropped: nothing is under way, and what its candidate
// knows is worthless by now.
func (e *Engine) Forgettable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active == nil || e.active.past != nil {
		return false // it holds a lease, or collects old epochs
	}
	ok, _ := e.active.candidate.Forgettable(e.runtime().Now().Clock)
	return ok
}

// Past returns, for an entered engine, a channel that is closed when the collection of old epochs has
// ended, or nil if none is under way.
func (e *Engine) Past() <-chan struct{} { return e.active.past }

// whenIdle does not wake an engine that rests.
func (e *Engine) whenIdle(f func()) {
	e.Locked(func() {
		if e.active != nil {
			e.active.whenIdle(e, f)
		} else {
			e.runtime().Apart(f)
		}
	})
}
