package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/session"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// reapers watch the sessions that candidates wait for: one reaper for each session, however many locks
// are held under it, and one more for those that poll it seldom.
//
// A candidate without a session watches by itself. Candidates under a session share its reapers, so a
// thousand locks that wait for one session cost what one waiter costs. In Chubby and ZooKeeper, a server
// that notifies its clients has the same effect.
type reapers struct {
	mu Mutex
	of map[protocol.Await]*reaper
}

func newReapers() *reapers { return &reapers{of: map[protocol.Await]*reaper{}} }

// A reaper waits until a session has ended, and ends it when it has been waited out. It is the owner of its
// engine, in front of the Watcher.
//
// Waiting is not enough: a delayed heartbeat could land after others have taken the locks. So the session's
// object is written over first, and then such a heartbeat is refused (rule D3).
type reaper struct {
	Owner
	all      *reapers
	await    protocol.Await
	engine   Engine                // of the session's object
	ctx      context.Context       // whose values requests get
	failures int                   // of waits, in a row; guarded by the engine's mutex
	stopped  bool                  // guarded by all.mu
	waiters  session.Watch[member] // guarded by all.mu
}

// A watch is a machine's part in a reaper.
type watch struct {
	protocol.Await
	reaper *reaper // nil: none
}

// watchSession watches the session that the candidate waits for.
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

// join adds a member to those that wait for the end of a session. The requests get the first one's
// values.
func (all *reapers) join(await protocol.Await, m member, looked time.Duration, by Host) *reaper {
	all.mu.Lock()
	defer all.mu.Unlock()
	r := all.of[await]
	if r == nil {
		r = &reaper{all: all, await: await, ctx: m.values()}
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

// leave removes a member that no longer waits. The last one stops the reaper: a session that nobody waits
// for is neither watched nor ended.
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

// begin waits until the session has ended. If the reaper was stopped first, Cancel has found nothing to
// cancel, so the wait must not begin any more.
func (r *reaper) begin() {
	r.engine.Enter()
	defer r.engine.Leave()
	var stopped bool
	r.locked(func() { stopped = r.stopped })
	if !stopped {
		r.engine.begin(r.ctx, nil, candidate.Acquire{Wait: true})
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
		case candidate.Reaped:
			r.over()
		case candidate.Failed:
			r.failed(a.Err)
		}
	}
	return next
}

func (r *reaper) runtime() Runtime { return r.Place().Runtime }

// locked calls f while all.mu is locked.
func (r *reaper) locked(f func()) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	f()
}

// beat passes on a heartbeat. It says which locks were released, so waiters need not poll until then. A
// missed one costs only time: the end of the session makes all waiters poll.
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

// troubled passes on that the store does not say whether the session goes on. Those that wait for its end
// send nothing themselves, so they would not find out.
func (r *reaper) troubled(err error) {
	var all []member
	r.locked(func() {
		r.waiters.Troubled(err)
		all = r.waiters.Waiters()
	})
	each(r.runtime(), all, func(m member, _ bool) { m.Tell(protocol.SessionTroubled{Err: err}) })
}

// trouble returns why it is unknown whether the session goes on, or nil.
func (r *reaper) trouble() (err error) {
	r.locked(func() { err = r.waiters.Trouble() })
	return err
}

// over tells the waiters that the session has ended. Late ones read their lock first, because another
// process may have been told earlier.
func (r *reaper) over() {
	var all []member
	r.locked(func() {
		r.remove()
		all = r.waiters.Waiters()
	})
	session := r.Place().Key
	each(r.runtime(), all, func(m member, late bool) { m.Tell(protocol.SessionExpired{Session: session, Look: late}) })
}

// failed waits for the session again after a pause, if anybody still does. If waiting is hopeless, it ends
// all waits.
func (r *reaper) failed(err error) {
	if Final(err) {
		var all []member
		r.locked(func() { all = r.waiters.Waiters() })
		err = fmt.Errorf("the session of the holder: %w", err) // they explain it
		each(r.runtime(), all, func(m member, _ bool) { m.Tell(protocol.Cancel{Err: err}) })
	}
	r.failures++
	r.runtime().After(protocol.Pause(r.failures, nil), r.begin)
}

// Final reports whether retrying is pointless until somebody changes something, or until there is another
// session. ErrNotExist is final, because these requests are for objects that must exist. Unknown errors
// are not.
func Final(err error) bool {
	for _, final := range []error{store.ErrNotExist, record.ErrForeign, protocol.ErrTooLarge, ErrSessionOver, ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return store.Final(err)
}

// Abandoned reports, for an entered engine, whether it waits for the end of that session, whose heartbeat
// looks as if its sender were dead.
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

// Waits returns, for an entered engine, the Watcher of the session that its candidate waits for, or nil.
func (e *Engine) Waits() Owner {
	if e.active == nil || e.active.watch.reaper == nil {
		return nil
	}
	return e.active.watch.reaper.Owner
}
