package protocol

import "time"

// A handoff is the time for which one candidate has passed the lock on among its own
// users, so that nobody else could have it.
//
// It is for a process of many goroutines that want the lock in turn. Each turn would else cost a
// release and a claim, two writes on a store where a write is the dearest thing. The price is
// fairness towards other processes, so it is bounded: over says when the lock must be free for a
// while, and rest for how long, so that a waiter elsewhere can see it.
type handoff struct {
	began, ended time.Duration
	leased       time.Duration // the last lease of it began
	turns        int           // the leases of it
	on           bool
	rested       bool // it was followed by a rest, and nobody else was seen since
	passed       bool // a lease of it is over, and its record stands until the next user claims
	vain         int8 // rests in a row that nobody used, of which the first two count
}

// begin takes in that a lease begins that was claimed at t0.
func (h *handoff) begin(t0 time.Duration) {
	if !h.on {
		// A rest that nobody has used was time lost, so the next comes later. One waiter that shows up
		// makes them frequent again.
		if h.vain = min(h.vain+1, 2); !h.rested {
			h.vain = 0
		}
		h.on, h.began, h.turns, h.rested = true, t0, 0, false
	}
	h.leased = t0
	h.turns++
}

// rest is how long the lock must be free so that waiters elsewhere see it. Their
// pauses grow by half, so the last one is at most half the time since a new lease.
// Those who wait for the end of a session hear of the release from its heartbeat, at which they
// look each third of the TTL, however short the lease was.
func (c *Candidate) rest() time.Duration {
	lasted := c.handoff.ended - c.handoff.leased
	if c.sessions.current != "" {
		return Renewal(c.cfg.TTL) * 5 / 4
	}
	return min(FirstPoll+lasted/2, PollInterval(lasted, c.cfg.TTL)) * 5 / 4
}

// over reports that the handoff has lasted long enough: so many times longer than the rest after it that this costs 3 %;
// but no longer than two turns, or a third of the TTL, whichever is longer, since those who wait elsewhere have waits that
// end. Both are more where nobody has used the last rests, so that a lock that one process alone uses is not free for half
// of the time.
func (h *handoff) over(rest, ttl time.Duration) bool {
	on := h.ended - h.began
	return on >= rest*32<<h.vain || h.turns >= 2 && on >= Renewal(ttl)<<h.vain
}

// pass ends a lease in favour of the next user of this candidate, and reports whether
// it does. Nothing is sent: the record is ours, so nobody else can hold a lease of it,
// and the next user's claim replaces it, with a token of its own (rule A3). That is one
// write where a release and a claim are two.
func (c *Candidate) pass(now Now, out *Actions) bool {
	c.handoff.ended = now.Clock
	idle := c.phase == held && c.busy == none && c.obs.fresh
	// Under a session the record would stand for as long as that lasts, should the next
	// user not come (rule D6).
	if !idle || c.cfg.WriteOnce || c.sessions.current != "" || c.handoff.over(c.rest(), c.cfg.TTL) {
		return false
	}
	// As after any release, no earlier write may be taken for a lease again (A8).
	// The phase changes before anybody is told, so the old lease is not valid when the next user's
	// claim is sent, and that has a token of its own.
	c.phase, c.writes.open, c.handoff.passed = clear, nil, true
	out.Add(Released{nil})
	return true
}

// drop frees what was passed on to a user who has gone.
// Left as it is, that record would have others wait its TTL out for nobody.
func (c *Candidate) drop(now Now) {
	if c.handoff.passed {
		c.handoff.passed = false
		c.beginRelease(true, now)
	}
}
