package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/lockorder"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/session"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
	"github.com/leasehold/leasehold/store"
)

// reapers watch the sessions that candidates wait for: one for each session, however many
// locks are held under it, and one more for those who look at it seldom.
//
// Without a session of its own a candidate watches by itself. With one it shares the reapers of
// that session: a thousand locks that wait for one session cost what one waiter costs. Chubby and
// ZooKeeper have the same economy, by a server that tells its clients.
type reapers struct {
	mu lockorder.Mutex
	of map[protocol.Await]*reaper
}

func newReapers() *reapers { return &reapers{of: map[protocol.Await]*reaper{}} }

// A reaper waits until a session is over, and ends it when it was waited out. It stands
// between its engine and the Watcher.
// To wait the holder out is not enough: a heartbeat that was delayed could still land after others have taken
// the locks. So the session's object is written over first, and then the heartbeat is refused
// (rule D3).
type reaper struct {
	Owner
	all      *reapers
	await    protocol.Await
	engine   Engine                // of the session's object
	ctx      context.Context       // gives requests their values
	failures int                   // of waits, in a row; guarded by the engine's mutex
	stopped  bool                  // guarded by all.mu
	waiters  session.Watch[member] // guarded by all.mu
}

// A watch is a candidate's part in a reaper.
type watch struct {
	protocol.Await
	reaper *reaper // nil: none
}

// watchSession has the session watched that the candidate waits for.
func (e *Engine) watchSession() {
	a := e.active
	session := a.candidate.Awaits()
	if session == a.watch.Session {
		return
	}
	if a.watch.reaper != nil {
		a.watch.reaper.leave(e)
	}
	if a.watch = (watch{}); session == "" {
		return
	}
	all, by := newReapers(), e.owner // of this candidate alone
	if s := a.session; s != nil {
		all, by = s.reapers, s.owner
	}
	await := protocol.Await{Session: session}
	a.watch = watch{await, all.join(await, e, a.looked, by)}
}

// join adds a candidate to those that wait for the end of a session.
func (all *reapers) join(await protocol.Await, m member, looked time.Duration, by Host) *reaper {
	all.mu.Lock()
	defer all.mu.Unlock()
	r := all.of[await]
	if r == nil {
		r = &reaper{all: all, await: await, ctx: m.host().Context()}
		r.Owner = by.Watcher(await.Session, &r.engine)
		r.engine.initReaper(r, await.Seldom)
		all.of[await] = r
		r.runtime().Apart(r.begin)
	}
	if r.waiters.Join(m, looked) {
		r.runtime().Apart(func() { m.Tell(protocol.Recheck{}) })
	}
	return r
}

// leave takes a candidate out that does not wait any more, and the last one stops the reaper: a
// session that nobody waits for is not watched, and not ended either.
func (r *reaper) leave(m member) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.waiters.Leave(m) {
		r.remove()
		r.stopped = true
		r.runtime().Apart(r.engine.Cancel)
	}
}

func (r *reaper) remove() {
	if r.all.of[r.await] == r {
		delete(r.all.of, r.await)
	}
}

// Context is that of the candidate that was the first to wait.
func (r *reaper) Context() context.Context { return r.ctx }

// begin waits until the session is over. If the reaper was stopped first, Cancel has found
// nothing to cancel, so the wait must not begin any more.
func (r *reaper) begin() {
	r.engine.Enter()
	defer r.engine.Leave()
	var stopped bool
	r.locked(func() { stopped = r.stopped })
	if !stopped {
		_ = r.engine.AcquireEntered(true, nil, protocol.Terms{}) // no session can be over
	}
}

// Stepped tells the waiters what has become of the session.
func (r *reaper) Stepped(ev protocol.Event, actions []protocol.Action) protocol.Event {
	next := r.Owner.Stepped(ev, actions)
	for _, action := range actions {
		switch a := action.(type) {
		case protocol.Seen:
			r.beat()
		case protocol.Troubled:
			r.troubled(a.Err)
		case protocol.Reaped:
			r.over()
		case protocol.Failed:
			r.failed(a.Err)
		}
	}
	return next
}

func (r *reaper) runtime() Runtime { return r.engine.runtime() }

// locked runs f while what many candidates share is locked.
func (r *reaper) locked(f func()) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	f()
}

// beat takes in a heartbeat.
// A heartbeat tells which locks were released, so that those that wait for them need not look until
// then. To miss one costs time only: the end of the session makes them all look.
func (r *reaper) beat() {
	record, _, _ := r.engine.Candidate().Observed()
	var all, named []member
	r.locked(func() {
		all = r.waiters.Waiters()
		named = r.waiters.Beat(record, r.runtime().Now().Clock, func(m member) string { return m.host().Place().Key })
	})
	each(r.runtime(), named, func(m member, _ bool) { m.Tell(protocol.Recheck{}) })
	for _, m := range all {
		if t, is := m.(*Table); is && record.Held {
			beat := protocol.SessionBeat{Session: r.Place().Key, TTL: record.TTL}
			r.runtime().Apart(func() { t.Tell(beat) })
		}
	}
}

// troubled takes in that the store does not say whether the session goes on. Those that wait
// for its end send nothing themselves, so it is theirs to hear.
func (r *reaper) troubled(err error) {
	var all []member
	r.locked(func() {
		r.waiters.Troubled(err)
		all = r.waiters.Waiters()
	})
	each(r.runtime(), all, func(m member, _ bool) { m.Tell(protocol.SessionTroubled{Err: err}) })
}

// trouble is why it is not known whether the session goes on, or nil.
func (r *reaper) trouble() (err error) {
	r.locked(func() { err = r.waiters.Trouble() })
	return err
}

// over tells the waiters that the session is over.
// Those that come late in the queue look first, since another process may have been told earlier.
func (r *reaper) over() {
	var all []member
	r.locked(func() {
		r.remove()
		all = r.waiters.Waiters()
	})
	session := r.Place().Key
	each(r.runtime(), all, func(m member, late bool) { m.Tell(protocol.SessionExpired{Session: session, Look: late}) })
}

// failed lets the session be waited for again, after a pause, if anybody still waits; and if
// that is hopeless, nobody does any more.
func (r *reaper) failed(err error) {
	if Final(err) {
		var all []member
		r.locked(func() { all = r.waiters.Waiters() })
		err = fmt.Errorf("the session of the holder: %w", err) // they explain it
		each(r.runtime(), all, func(m member, _ bool) { m.Tell(protocol.Cancel{Err: err}) })
	}
	r.failures++
	r.runtime().After(retry.Pause(r.failures, nil), r.begin)
}

// Final reports that to try again is of no use until a person changes something, or until there
// is another session. Here a lock that does not exist is one that must.
// It errs on the side of going on: an error that is not known to be final may pass.
func Final(err error) bool {
	for _, final := range []error{store.ErrNotExist, record.ErrForeign, protocol.ErrTooLarge, ErrSessionOver, ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return store.Final(err)
}

// Abandoned reports, for an engine that was entered, that it waits for the end of that
// session, whose heartbeat looks as if its sender was gone.
func (e *Engine) Abandoned(session string) bool {
	w := e.active.watch
	if w.reaper == nil || w.Session != session {
		return false
	}
	r := &w.reaper.engine
	r.Enter()
	defer r.Leave()
	record, _, exists := r.Candidate().Observed()
	return exists && (!record.Held || r.Shown(record).Abandoned(r.runtime().Now().Wall))
}

// Waits is the Watcher of the session that the candidate of an engine that was entered waits
// for, and nil if it waits for none.
func (e *Engine) Waits() Owner {
	if e.active == nil || e.active.watch.reaper == nil {
		return nil
	}
	return e.active.watch.reaper.Owner
}
