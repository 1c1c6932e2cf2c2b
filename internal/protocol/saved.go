package protocol

import (
	"encoding/json"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// A Saved is all that a candidate needs to know of a lease under a session, to which nothing
// happens until it is released or the session is over. It is small, since there may be very
// many of them.
//
// It has nothing that can be made anew from the configuration, and nothing of a wait: a candidate
// that holds a lease waits for nothing.
type Saved struct {
	incarnation string
	rng         Random
	seq, wrote  uint64 // wrote: the number in the lease's write ID
	version     Version
	session     string
	acquired    time.Duration // since the epoch of Unix
	token, term int64
	handoff     handoff
	more        *savedMore // nil: none of it
}

// savedMore is what many a lease does not have: no lock has a past at first, and few have objects
// with numbers.
type savedMore struct {
	epoch, previous int64
	history         string // see record.Pack
	unknown         map[string]json.RawMessage
	renewed         time.Duration // since the epoch of Unix, if the record was written once more
	sent            time.Duration // then: by the clock
	agreed          *agreed       // nil: no terms
}

// agreed are the terms of a lease, and what they count from.
type agreed struct {
	terms   Terms
	granted time.Duration
}

// Session is the one that the lease is under.
func (s *Saved) Session() string { return s.session }

// Save gives what is to be remembered of a candidate that holds a lease under a session, and
// false if it does anything else. What Restore makes of it does what the candidate would have
// done.
func (c *Candidate) Save() (*Saved, bool) {
	// A lease that its terms end needs its alarm, and one whose record is to be written a candidate.
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
		if r.RenewedAt != r.AcquiredAt { // by a change of the meta data, so there are terms
			s.more.renewed, s.more.sent = time.Duration(r.RenewedAt.UnixNano()), c.lease.sent
		}
	}
	return s, true
}

// Restore makes a candidate that goes on where the one rested whose configuration cfg was,
// but for its incarnation.
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
