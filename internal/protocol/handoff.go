package protocol

import "time"

// A handoff is the time in which one candidate passes the lock among its own users, and no other
// candidate can have it.
//
// It is for processes whose goroutines take turns. Passing the lock on saves each turn a release,
// and with it one of two writes. The price is fairness towards other processes, so it is bounded:
// over says when to leave a gap in which the lock is free, and rest how long the gap is, so that
// waiters elsewhere see it.
type handoff struct {
	began, ended time.Duration
	leased       time.Duration // when its last lease began
	turns        int           // its leases so far
	on           bool
	rested       bool // a gap followed it, and no other candidate was seen since
	passed       bool // its last lease has ended, and the record stays until the next user claims
	vain         int8 // unused gaps in a row, up to two
}

// begin notes a lease claimed at t0.
func (h *handoff) begin(t0 time.Duration) {
	if !h.on {
		// An unused gap was lost time, so the next one comes later. A single waiter makes them
		// frequent again.
		if h.vain = min(h.vain+1, 2); !h.rested {
			h.vain = 0
		}
		h.on, h.began, h.turns, h.rested = true, t0, 0, false
	}
	h.leased = t0
	h.turns++
}

// rest returns how long the lock must be free for waiters elsewhere to see it. Their poll intervals
// grow by half, so the last one is at most half the time since a new lease. Under a session,
// waiters hear about the release from the heartbeat, which they poll every third of the TTL.
func (c *Candidate) rest() time.Duration {
	lasted := c.handoff.ended - c.handoff.leased
	if c.sessions.current != "" {
		return Renewal(c.cfg.TTL) * 5 / 4
	}
	return min(FirstPoll+lasted/2, PollInterval(lasted, c.cfg.TTL)) * 5 / 4
}

// over reports whether the handoff has lasted long enough. It may last 32 times as long as the gap,
// so that gaps cost 3 %, but at most two turns or a third of the TTL, whichever is longer, because
// waits elsewhere have time limits. Both times double with each of the first two unused gaps, so a
// lock used by one process alone is not free half the time.
func (h *handoff) over(rest, ttl time.Duration) bool {
	on := h.ended - h.began
	return on >= rest*32<<h.vain || h.turns >= 2 && on >= Renewal(ttl)<<h.vain
}

// pass ends a lease in favour of the next user of this candidate, and reports whether it did. It
// sends nothing. The record is this candidate's, so nobody else can hold the lock by it, and the
// next user's claim replaces it with a new token (rule A3): one write, not two.
func (c *Candidate) pass(now Now, out *Actions) bool {
	c.handoff.ended = now.Clock
	idle := c.phase == held && c.busy == none && c.obs.fresh
	// Under a session, if the next user never came, the record would stay until the session ends
	// (rule D6).
	if !idle || c.cfg.WriteOnce || c.sessions.current != "" || c.handoff.over(c.rest(), c.cfg.TTL) {
		return false
	}
	// As after any release, no earlier write may count as a lease again (rule A8). The phase
	// changes before anybody is told, so the old lease is no longer valid when the next user's
	// claim is sent.
	c.phase, c.writes.open, c.handoff.passed = clear, nil, true
	out.Add(Released{nil})
	return true
}

// drop frees the lock if its next user has left. Otherwise others would wait out the TTL of a
// record without a holder.
func (c *Candidate) drop(now Now) {
	if c.handoff.passed {
		c.handoff.passed = false
		c.beginRelease(true, now)
	}
}
