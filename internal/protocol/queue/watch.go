package queue

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// watch decides which sessions to watch. Each waiter watches the session of its predecessor, and the head those of all
// holders, so every dead entry is noticed, whoever else died with it. A waiter whose turn is near watches every
// heartbeat. The others look every SeldomWatch, which keeps a long queue cheap.
//
// If its predecessor is late or dead, a waiter also watches everybody ahead of that, until it sees its predecessor's
// session renewed: several machines may have failed at once, and waiting out one after the other would take a TTL each.
func (t *Machine) watch(now protocol.Now) {
	t.awaits = t.awaits[:0]
	for _, ghost := range t.ghosts {
		if t.any(coming) {
			t.await(ghost, false, false, now)
		}
	}
	for i, w := range t.table.Waiters {
		if c := t.callerOf(w); c == nil || c.state != waiting {
			continue
		}
		near := t.pace.near(t.table, i, t.cfg.TTL, t.seen)
		late, doubt := true, false
		if !near {
			late = !t.await(t.table.Waiters[i-1].Session, false, true, now)
		}
		for before := i - 1; late && before >= 0; before-- {
			late = !t.await(t.table.Waiters[before].Session, doubt, false, now)
			doubt = true
		}
		// Where several hold slots, those who get theirs with the head watch one holder each: when two holders have
		// died, the first one's end makes the next waiter the head, which would begin to wait for the other's then.
		if !late && near && i < len(t.table.Holders) && together(t.table, i) {
			late = !t.await(t.table.Holders[i].Session, false, false, now)
		}
		for _, h := range t.table.Holders {
			if late {
				t.await(h.Session, doubt, false, now)
			}
		}
	}
	if t.crowded() { // it watches as if it had joined: a table that is full of the dead would stay full
		all, late := t.table.Entries(), true
		for before := len(all) - 1; late && before >= 0; before-- {
			session := all[before].Session
			t.await(session, true, false, now)
			late = t.dead[session] || t.alive[session].until == protocol.Never
		}
	}
	for _, a := range t.awaits {
		s := t.alive[a.Session]
		s.seldom = a.Seldom
		t.alive[a.Session] = s
	}
	for session := range t.alive {
		if !slices.ContainsFunc(t.awaits, func(a protocol.Await) bool { return a.Session == session }) {
			delete(t.alive, session)
		}
	}
}

// signs is what is known of a watched session.
type signs struct {
	until   time.Duration // it is on time until then; Never: it is late, and that was noticed
	seen    bool          // its heartbeat in the store was seen
	doubted bool          // it may have failed with another one
	seldom  bool          // watched seldom: never late, but found dead
}

// beat notes a heartbeat. The first one seen may be the last one the session sent.
func (s signs) beat(until time.Duration) signs {
	return signs{until: until, seen: true, doubted: s.doubted && !s.seen}
}

// await adds a session to those to watch, unless it is dead or our own, and reports whether it is on time as
// far as we know. With doubt, it counts as late until we see a heartbeat. Callers of this process may await
// the same session: it is watched seldom only if all of them ask for that.
func (t *Machine) await(session string, doubt, seldom bool, now protocol.Now) bool {
	switch {
	case t.dead[session]:
		return false
	case t.ours(session):
		return true // we are told of its end
	}
	if a := t.awaiting(session); !seldom {
		a.Seldom = false
	}
	s, watched := t.alive[session]
	switch {
	case !watched, s.seldom:
		s = signs{until: now.Clock + t.cfg.TTL, doubted: doubt} // we must see its heartbeat within this time
	case now.Clock >= s.until:
		s.until = protocol.Never // noticed once
	}
	t.alive[session] = s
	return s.until != protocol.Never && !s.doubted
}

// awaiting returns the Await of a session, and adds one if there is none.
func (t *Machine) awaiting(session string) *protocol.Await {
	i := slices.IndexFunc(t.awaits, func(a protocol.Await) bool { return a.Session == session })
	if i < 0 {
		i, t.awaits = len(t.awaits), append(t.awaits, protocol.Await{Session: session, Seldom: true})
	}
	return &t.awaits[i]
}

// lives reports whether we have seen a session renewed while we watched it.
func (t *Machine) lives(session string) bool {
	s := t.alive[session]
	return t.ours(session) || s.seen && !s.doubted && s.until != protocol.Never
}

// last returns the last entry whose session may be alive.
func (t *Machine) last() (last record.Entry) {
	for _, s := range t.table.Entries() {
		if !t.dead[s.Session] {
			last = s
		}
	}
	return last
}

// ours reports whether a session belongs to this process and has not ended. We are told of its end.
func (t *Machine) ours(session string) bool {
	return slices.ContainsFunc(t.callers, func(c *caller) bool { return c.entry.Session == session && !c.over })
}

// watchful reports whether a caller of this process should write n although it wants nothing else, because it
// would move forward. Only the waiter next to a dead entry writes, so that a queue of a hundred does not
// send a hundred writes.
func (t *Machine) watchful(n record.Table) bool {
	for i, w := range t.table.Waiters {
		if c := t.callerOf(w); c == nil || c.state != waiting {
			continue
		}
		switch {
		case i > 0 && t.dead[t.table.Waiters[i-1].Session]:
			return true
		case i > 0:
		case hasEntry(n.Holders, w.ID), slices.ContainsFunc(t.table.Holders, func(s record.Entry) bool { return t.dead[s.Session] }):
			return true
		}
	}
	return false
}
