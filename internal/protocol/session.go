package protocol

import (
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/internal/record"
)

// sessions is what a candidate knows of sessions: those of its own process, which it may be
// under, and those of others, whose end makes their locks free.
//
// current and ended differ on purpose. The lease of an ended session is over at once for its
// holder (rule D7); for all others the session goes on until its object says otherwise, and
// another candidate of the same process is one of these others.
type sessions struct {
	current string   // that the lease is under, or the acquisition wants it under; empty: none
	ended   string   // one of ours under which nothing is valid any more, the last one
	over    string   // one that is over for good, the last one known
	entered []string // of ours: something of the candidate is under these, or may yet be
	named   string   // the one of them that the lock names, as far as was seen
}

// gone reports that nothing is valid under a session any more, so that what names it ends
// without being freed.
func (s *sessions) gone(session string) bool {
	return session != "" && (session == s.over || session == s.ended)
}

// others reports that a session is not ours, as far as we know: it may be over, and a record that
// names it would say the same. Our own tells us.
func (s *sessions) others(session string) bool {
	return session != "" && session != s.current
}

// enter takes in that an acquisition is to be under a session.
// Entering comes before any write, so there is no moment in which a write of ours that names the
// session may land and the session does not know of it.
func (s *sessions) enter(session string) {
	s.current = session
	if session != "" && !slices.Contains(s.entered, session) {
		s.entered = append(s.entered, session)
	}
}

// emit tells what has changed since the last time: the lock, which names a session now or none,
// does not name one of ours any more; or nothing of the candidate is under one any more. It does
// not matter how the lock came to change: those who wait for it have seen that it named the
// session, and look at nothing else.
func (s *sessions) emit(names string, under []string, out *Actions) {
	if s.named != "" && s.named != names {
		out.Add(Unnamed{s.named})
	}
	s.entered = slices.DeleteFunc(s.entered, func(session string) bool {
		left := !slices.Contains(under, session)
		if left {
			out.Add(Left{session})
		}
		return left
	})
	if s.named = ""; slices.Contains(s.entered, names) {
		s.named = names
	}
}

// checked takes in whether the holder's session goes on. If it is over, that is as good as
// a watcher's report of its end: the version that was seen may be taken over.
func (c *Candidate) checked(ev Checked, now Now, out *Actions) {
	switch {
	case ev.Err == nil && !ev.Held:
		c.sessionExpired(ev.Session, false, now)
	case c.acq.want != atOnce || !c.obs.fresh: // the caller who asked has gone, and the next one looks anew
	case ev.Err != nil:
		c.fail(fmt.Errorf("it is held under a session, and whether that goes on is not known: %w", ev.Err), now, out)
	default:
		c.acq.want = nothing
		out.Add(Refused{Record: c.obs.record, Abandoned: ev.Abandoned})
	}
}

// sessionExpired takes in that a session is over. The version that was seen is the one to take
// over: should somebody else have been faster, the write is refused.
// A lock that names another session meanwhile is not concerned: it was taken since, and its new
// holder's session is watched in its turn.
func (c *Candidate) sessionExpired(session string, look bool, now Now) {
	c.sessions.over = session
	if c.obs.record.Session == session {
		c.obs.claimableAt = now.Clock
		if c.wanting() {
			c.due, c.obs.fresh = min(c.due, now.Clock), c.obs.fresh && !look
		}
	}
}

// sessionOver ends the lease with its session, whose end nobody can undo (rules D4 and
// D7). Others take over its writes under the session, and those that may land yet, when
// the session is over for them too: until then others of this process may still be at
// work under it.
func (c *Candidate) sessionOver(session string, err error, now Now, out *Actions) {
	// It concerns another session than the present one, but a record that names it need not be freed.
	if c.sessions.ended = session; c.sessions.current != session {
		return
	}
	c.sessions.current, c.writes.open = "", nil
	switch {
	case c.phase == held:
		c.lose(err, out)
	case c.acq.want != nothing: // a release of an earlier lease may be on its way, and goes on
		c.fail(err, now, out)
	case c.phase == freeing && c.busy == none:
		c.released(nil, out)
	}
}

// named are the sessions of ours that the object names, or may yet name, without being
// held: a write of ours that landed, or may land yet, names them, so that it must be settled
// (rule D6). They are appended to those given.
func (c *Candidate) named(sessions []string) []string {
	add := func(r record.Record) {
		if r.Held && r.Session != "" && !c.sessions.gone(r.Session) && !slices.Contains(sessions, r.Session) {
			sessions = append(sessions, r.Session)
		}
	}
	if c.obs.version != "" && c.cfg.mine(c.obs.record) {
		add(c.obs.record)
	}
	for _, a := range c.writes.open {
		add(a.record)
	}
	return sessions
}

// under are the sessions that something of the candidate is under, or may yet be: its
// acquisition or lease, a lease that its user has not released yet, writes that may have
// landed, and writes that it may send to find that out. They are appended to those given.
func (c *Candidate) under(in []string) []string {
	in = c.named(in)
	if c.acq.want != nothing || len(c.writes.open) > 0 {
		in = append(in, c.sessions.current)
	}
	if c.phase != clear {
		in = append(in, c.lease.record.Session)
	}
	return in
}

// memberships tells of the sessions of ours what has changed, as the last thing in a step. Most
// candidates are under none, and pay nothing for it.
func (c *Candidate) memberships(out *Actions) {
	if len(c.sessions.entered) == 0 {
		return
	}
	names := ""
	if c.obs.held() {
		names = c.obs.record.Session
	}
	var room [4]string // enough for most, and no memory of its own
	c.sessions.emit(names, c.under(room[:0]), out)
}

// Awaits is the session whose end the candidate waits for, because only that makes the lock free
// to be taken, if nobody releases it before; or empty. An Acquire without Wait awaits nothing.
func (c *Candidate) Awaits() string {
	if r := c.obs.record; c.wanting() && c.acq.want != atOnce && c.obs.claimableAt == Never {
		return r.Session
	}
	return ""
}
