package protocol

import (
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/internal/record"
)

// sessions is what a candidate knows about sessions: its own process's, which it may be under,
// and those of others, whose end frees their locks.
//
// current and ended differ on purpose. The lease of an ended session ends at once for its
// holder (rule D7). For all others, including the other candidates of this process, the session
// goes on until its object shows its end.
type sessions struct {
	current string   // the session of the lease, or of the acquisition; empty: none
	ended   string   // the last one of this process under which nothing is valid any more
	over    string   // the last one known to have ended for good
	entered []string // this process's sessions with something of the candidate under them, now or possibly later
	named   string   // the one of them that the lock names, as last seen
}

// gone reports whether nothing is valid under the session any more. What names it then ends
// without a release.
func (s *sessions) gone(session string) bool {
	return session != "" && (session == s.over || session == s.ended)
}

// others reports whether the session belongs to another process, as far as known. It may have
// ended, and a record would not show it. This process's own session reports its end.
func (s *sessions) others(session string) bool {
	return session != "" && session != s.current
}

// enter notes the session of an acquisition. It comes before any write, so no write naming the
// session can land without its knowledge.
func (s *sessions) enter(session string) {
	s.current = session
	if session != "" && !slices.Contains(s.entered, session) {
		s.entered = append(s.entered, session)
	}
}

// emit reports the changes since the last time: the lock no longer names a session of this
// process, or nothing of the candidate is under one any more. names is what the lock names now.
// How the lock changed does not matter: its waiters saw it name the session, and poll nothing
// else.
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

// checked handles the answer about the holder's session. Its end counts like a watcher's
// report: the version seen may be taken over.
func (c *Candidate) checked(ev Checked, now Now, out *Actions) {
	switch {
	case ev.Err == nil && !ev.Held:
		c.sessionExpired(ev.Session, false, now)
	case c.acq.want != atOnce || !c.obs.fresh: // the caller has left, and the next one reads again
	case ev.Err != nil:
		c.fail(fmt.Errorf("it is held under a session, and whether that goes on is not known: %w", ev.Err), now, out)
	default:
		c.acq.want = nothing
		out.Add(Refused{Record: c.obs.record, Abandoned: ev.Abandoned})
	}
}

// sessionExpired notes the end of a session. The candidate takes over the version seen; if
// somebody else was faster, the write is refused. A lock naming another session by now was
// taken since, and its new holder's session is watched in turn.
func (c *Candidate) sessionExpired(session string, look bool, now Now) {
	c.sessions.over = session
	if c.obs.record.Session == session {
		c.obs.claimableAt = now.Clock
		if c.wanting() {
			c.due, c.obs.fresh = min(c.due, now.Clock), c.obs.fresh && !look
		}
	}
}

// sessionOver ends the lease with its session, which cannot be undone (rules D4 and D7). Others
// take over its writes, even late ones, when the session has ended for them too. Until then,
// other users in this process may still work under it.
func (c *Candidate) sessionOver(session string, err error, now Now, out *Actions) {
	// It may be another session than the current one, but a record that names it need not be
	// freed.
	if c.sessions.ended = session; c.sessions.current != session {
		return
	}
	c.sessions.current, c.writes.open = "", nil
	switch {
	case c.phase == held:
		c.lose(err, out)
	case c.acq.want != nothing: // an earlier lease's release may be in flight, and goes on
		c.fail(err, now, out)
	case c.phase == freeing && c.busy == none:
		c.released(nil, out)
	}
}

// named appends, to the given ones, this process's sessions that the object names without being
// held, or may still name. Those are in writes of this candidate that have landed or may still
// land, which must be settled (rule D6).
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

// under appends, to the given ones, the sessions with something of the candidate under them,
// now or possibly later: its acquisition or lease, a lease not yet released by its user, writes
// that may have landed, and writes to find that out.
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

// memberships reports changes about this process's sessions, at the end of a step. Most
// candidates are under none, and pay nothing.
func (c *Candidate) memberships(out *Actions) {
	if len(c.sessions.entered) == 0 {
		return
	}
	names := ""
	if c.obs.held() {
		names = c.obs.record.Session
	}
	var room [4]string // enough for most, without an allocation
	c.sessions.emit(names, c.under(room[:0]), out)
}

// Awaits returns the session that must end before the candidate can take the lock, unless
// somebody releases it first, or "". An Acquire without Wait awaits nothing.
func (c *Candidate) Awaits() string {
	if r := c.obs.record; c.wanting() && c.acq.want != atOnce && c.obs.claimableAt == Never {
		return r.Session
	}
	return ""
}
