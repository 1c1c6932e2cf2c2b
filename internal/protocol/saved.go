package protocol

import (
	"encoding/json"
	"time"
)

// A Saved is all that a candidate needs to know of a lease under a session, to which nothing
// happens until it is released or the session is over. It is small, since there may be very
// many of them.
//
// It has nothing that can be made anew from the configuration, and nothing of a wait: a candidate
// that holds a lease waits for nothing.
type Saved struct {
	incarnation     string
	rng             random
	seq, wrote      uint64 // wrote: the number in the lease's write ID
	version         Version
	session         string
	acquired        time.Duration // since the epoch of Unix
	token           int64
	epoch, previous int64
	unknown         map[string]json.RawMessage
	handoff         handoff
}

// Session is the one that the lease is under.
func (s *Saved) Session() string { return s.session }

// Save gives what is to be remembered of a candidate that holds a lease under a session, and
// false if it does anything else. What Restore makes of it does what the candidate would have
// done.
func (c *Candidate) Save() (*Saved, bool) {
	if c.sessions.current == "" || c.phase != held || c.acq.watching {
		return nil, false
	}
	r := c.lease.record
	wrote, _ := c.cfg.number(r)
	return &Saved{
		incarnation: c.cfg.Incarnation, rng: c.rng, seq: c.writes.seq, wrote: wrote,
		version: c.obs.version, session: c.sessions.current, acquired: time.Duration(r.AcquiredAt.UnixNano()),
		token: r.Token, epoch: r.Epoch, previous: r.Previous, unknown: r.Unknown, handoff: c.handoff,
	}, true
}

// Restore makes a candidate that goes on where the one rested whose configuration cfg was,
// but for its incarnation.
func Restore(cfg Config, rest *Saved) *Candidate {
	cfg.Incarnation = rest.incarnation
	c := New(cfg)
	r := c.writes.record(&c.cfg, Now{Wall: time.Unix(0, int64(rest.acquired)).UTC()})
	r.WriteID, r.AcquiredAt = cfg.writeID(rest.wrote), r.RenewedAt
	r.Session, r.Token, r.Epoch, r.Previous, r.Unknown = rest.session, rest.token, rest.epoch, rest.previous, rest.unknown
	c.rng, c.writes.seq, c.phase, c.lease, c.due = rest.rng, rest.seq, held, lease{r, never}, never
	c.obs = observation{known: true, fresh: true, version: rest.version, record: r, top: max(r.Token, r.Epoch)}
	c.obs.own = rest.wrote
	c.handoff, c.sessions = rest.handoff, sessions{current: rest.session, entered: []string{rest.session}}
	return c
}
