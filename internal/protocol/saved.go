package protocol

import (
	"encoding/json"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// A Saved is all a candidate must remember about a lease under a session, to which nothing
// happens until it is released or the session ends. A Saved is small, because there may be very
// many.
//
// It has nothing from the configuration, and no state of a wait: a candidate with a lease does
// not wait.
type Saved struct {
	incarnation string
	rng         Random
	seq, wrote  uint64 // wrote: the number in the lease's write ID
	version     Version
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
func (c *Candidate) Save() (*Saved, bool) {
	// A lease ended by its terms needs its alarm, and an outstanding write needs a candidate.
	if c.sessions.current == "" || c.phase != held || c.acq.watching || c.lease.end != Never || c.lease.meta.pending() {
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
func Restore(cfg Config, rest *Saved) *Candidate {
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
	r := c.writes.record(&c.cfg, Now{Wall: time.Unix(0, int64(rest.acquired)).UTC()})
	r.WriteID, r.AcquiredAt = cfg.writeID(rest.wrote), r.RenewedAt
	r.Session, r.Token, r.Term, r.TermToken = rest.session, rest.token, rest.term, rest.token
	r.Epoch, r.Previous, r.History, r.Unknown = more.epoch, more.previous, record.Unpack(more.history), more.unknown
	sent := rest.handoff.leased
	if more.renewed != 0 {
		sent, r.RenewedAt = more.sent, time.Unix(0, int64(more.renewed)).UTC()
		r.ExpiresAt = r.RenewedAt.Add(r.TTL)
	}
	c.rng, c.writes.seq, c.phase, c.due = rest.rng, rest.seq, held, Never
	c.lease = lease{record: r, deadline: Never, promised: Never, end: Never, granted: terms.granted, sent: sent}
	c.obs = observation{known: true, fresh: true, version: rest.version, record: r, top: max(r.Token, r.Epoch)}
	c.obs.own = rest.wrote
	c.handoff, c.sessions = rest.handoff, sessions{current: rest.session, entered: []string{rest.session}}
	return c
}
