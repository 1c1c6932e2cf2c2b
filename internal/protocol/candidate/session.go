package candidate

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
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
func (s *sessions) emit(names string, under []string, out *protocol.Actions) {
	if s.named != "" && s.named != names {
		out.Add(protocol.Unnamed{Session: s.named})
	}
	s.entered = slices.DeleteFunc(s.entered, func(session string) bool {
		left := !slices.Contains(under, session)
		if left {
			out.Add(protocol.Left{Session: session})
		}
		return left
	})
	if s.named = ""; slices.Contains(s.entered, names) {
		s.named = names
	}
}

// checked handles the answer about the holder's session. Its end counts like a watcher's
// report: the version seen may be taken over.
func (c *Machine) checked(ev Checked, now protocol.Now, out *protocol.Actions) {
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
func (c *Machine) sessionExpired(session string, look bool, now protocol.Now) {
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
func (c *Machine) sessionOver(session string, err error, now protocol.Now, out *protocol.Actions) {
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
func (c *Machine) named(sessions []string) []string {
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
func (c *Machine) under(in []string) []string {
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
func (c *Machine) memberships(out *protocol.Actions) {
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
func (c *Machine) Awaits() string {
	if r := c.obs.record; c.wanting() && c.acq.want != atOnce && c.obs.claimableAt == protocol.Never {
		return r.Session
	}
	return ""
}

// A Saved is all a candidate must remember about a lease under a session, to which nothing
// happens until it is released or the session ends. A Saved is small, because there may be very
// many.
//
// It has nothing from the configuration, and no state of a wait: a candidate with a lease does
// not wait.
type Saved struct {
	incarnation string
	rng         protocol.Random
	seq, wrote  uint64 // wrote: the number in the lease's write ID
	version     protocol.Version
	session     string
	acquired    time.Duration // since the Unix epoch
	token, term int64
	handoff     handoff
	more        *savedMore // nil: none of it
}

// savedMore is what many leases lack: a lock has no past at first, and few have numbered
// objects.
type savedMore struct {
	epoch, previous int64
	history         string // see record.Pack
	unknown         map[string]json.RawMessage
	renewed         time.Duration // since the Unix epoch, if the record was written again
	sent            time.Duration // then: by the clock
	agreed          *agreed       // nil: no terms
}

// agreed has a lease's terms, and when they started.
type agreed struct {
	terms   Terms
	granted time.Duration
}

// Session returns the lease's session.
func (s *Saved) Session() string { return s.session }

// Save returns what to remember about a candidate that holds a lease under a session, or false
// if it does anything else. Restore makes of it a candidate that does what this one would have
// done.
func (c *Machine) Save() (*Saved, bool) {
	// A lease ended by its terms needs its alarm, and an outstanding write needs a candidate.
	if c.sessions.current == "" || c.phase != held || c.acq.watching || c.lease.end != protocol.Never || c.lease.meta.pending() {
		return nil, false
	}
	r := c.lease.record
	wrote, _ := c.cfg.number(r)
	s := &Saved{
		incarnation: c.cfg.Incarnation, rng: c.rng, seq: c.writes.seq, wrote: wrote,
		version: c.obs.version, session: c.sessions.current, acquired: time.Duration(r.AcquiredAt.UnixNano()),
		token: r.Token, term: r.Term, handoff: c.handoff,
	}
	var terms *agreed
	if !c.terms.None() {
		terms = &agreed{c.terms, c.lease.granted}
	}
	if terms != nil || r.Epoch != 0 || r.Previous != 0 || len(r.History) > 0 || len(r.Unknown) > 0 {
		s.more = &savedMore{epoch: r.Epoch, previous: r.Previous, history: record.Pack(r.History), unknown: r.Unknown, agreed: terms}
		if r.RenewedAt != r.AcquiredAt { // by a change of the meta data, so it has terms
			s.more.renewed, s.more.sent = time.Duration(r.RenewedAt.UnixNano()), c.lease.sent
		}
	}
	return s, true
}

// Restore returns a candidate that continues where the saved one rested. cfg was that one's
// configuration, except for the incarnation.
func Restore(cfg Config, rest *Saved) *Machine {
	cfg.Incarnation = rest.incarnation
	c := New(cfg)
	var more savedMore
	if rest.more != nil {
		more = *rest.more
	}
	var terms agreed
	if more.agreed != nil {
		terms = *more.agreed
		c.agree(terms.terms)
	}
	r := c.writes.record(&c.cfg, protocol.Now{Wall: time.Unix(0, int64(rest.acquired)).UTC()})
	r.WriteID, r.AcquiredAt = cfg.writeID(rest.wrote), r.RenewedAt
	r.Session, r.Token, r.Term, r.TermToken = rest.session, rest.token, rest.term, rest.token
	r.Epoch, r.Previous, r.History, r.Unknown = more.epoch, more.previous, record.Unpack(more.history), more.unknown
	sent := rest.handoff.leased
	if more.renewed != 0 {
		sent, r.RenewedAt = more.sent, time.Unix(0, int64(more.renewed)).UTC()
		r.ExpiresAt = r.RenewedAt.Add(r.TTL)
	}
	c.rng, c.writes.seq, c.phase, c.due = rest.rng, rest.seq, held, protocol.Never
	c.lease = lease{record: r, deadline: protocol.Never, promised: protocol.Never, end: protocol.Never, granted: terms.granted, sent: sent}
	c.obs = observation{known: true, fresh: true, version: rest.version, record: r, top: max(r.Token, r.Epoch)}
	c.obs.own = rest.wrote
	c.handoff, c.sessions = rest.handoff, sessions{current: rest.session, entered: []string{rest.session}}
	return c
}
