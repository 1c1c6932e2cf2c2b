package candidate

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// want is what the user asked for.
type want int

const (
	nothing want = iota
	atOnce       // the lock, or the answer "held"
	eventually
)

// acquisition is what the user wants, and what it was told. It begins in acquire, seek reads, waits
// and claims, and claimed or fail ends it.
type acquisition struct {
	want     want
	watching bool          // poll even if nobody wants the lock
	reported record.Record // the holder in the last Waiting
	slow     int           // claims in a row with a useless, late answer
}

// recent is how old knowledge of a numbered lock may be. Numbers are collected at the age of a day.
const recent = time.Hour

// acquire begins an acquisition, and decides whether to read first. It panics if an earlier Acquire
// has no answer yet or a lease is held, because going on could give one candidate two leases.
func (c *Machine) acquire(ev Acquire, now protocol.Now) {
	if c.acq.want != nothing || c.phase != clear && c.phase != freeing {
		panic("protocol: Acquire while " + c.phase.String())
	}
	c.acq.want = atOnce
	c.agree(ev.Terms)
	c.sessions.enter(ev.Session)
	if ev.Wait {
		c.acq.want = eventually
	}
	// Claim a lock last seen free without a read, so an uncontended lock costs one request: if it
	// has changed, the write is refused. Before you report a holder, read again.
	c.obs.fresh = c.obs.known && (c.obs.version != "" || c.cfg.Tokenless) && !c.obs.record.Held
	if c.obs.rests(now.Clock) {
		c.obs.fresh = false // a force-release may have ended it, and a refusal reports it
	}
	if c.obs.spent(&c.cfg) {
		c.obs.fresh = false // no write is sent, so only a read shows a repair
	}
	if c.handoff.passed && c.cfg.mine(c.obs.record) {
		c.obs.fresh = true // passed on within this process, so still ours
	}
	if c.cfg.Numbered && now.Clock-max(c.obs.first, c.pace.looked) > recent {
		c.obs.fresh = false // the next number may have been used and garbage-collected since
	}
	c.trouble.Forget()
	c.until = now.Clock + c.cfg.TTL // if it does not wait
	// This user was told nothing yet and waits from now: report everything again, and start with
	// short intervals.
	c.acq.slow, c.acq.reported, c.due, c.pace.poll, c.handoff.passed, c.pace.again = 0, record.Record{}, 0, 0, false, false
	h := &c.handoff
	if rest := c.rest(); ev.Wait && h.on && h.over(rest, c.cfg.TTL) {
		// Leave a gap that waiters elsewhere can see: they miss a lock that is free for only a
		// moment.
		c.obs.fresh, c.due = false, h.ended+rest
		h.on, h.rested = false, true
	}
}

// watch starts or stops polling for no user. It first reads at once, because the last acquisition
// may be long ago.
func (c *Machine) watch(on bool) {
	if on && !c.acq.watching && c.acq.want == nothing && c.phase == clear {
		c.obs.fresh, c.due = false, 0
	}
	c.acq.watching = on
}

// cancel ends an acquisition, Detach or Attach because of err, by default ErrCancelled. It does
// nothing if the answer has already been sent. No store can call back a claim, so seek continues
// until the claim has landed and is released, or can no longer land (rule D6).
func (c *Machine) cancel(err error, now protocol.Now, out *protocol.Actions) {
	if err == nil {
		err = protocol.ErrCancelled
	}
	switch { // otherwise the answer and the Cancel crossed
	case c.acq.want != nothing:
		c.fail(err, now, out)
	case c.phase == detaching:
		c.notDetached(err, now, out)
	case c.phase == attaching:
		c.notAttached(err, now, out)
	}
}

// seek takes the next step towards the lock, or makes sure an abandoned claim can no longer land.
//
// The order of the cases matters: give up before reading, read before deciding, and report a
// permanent error before waiting.
func (c *Machine) seek(now protocol.Now, out *protocol.Actions) {
	switch {
	case c.acq.want == nothing && len(c.writes.open) > 0 && now.Clock >= c.until:
		c.abandon(out)
		c.writes.open = nil // if it still lands, the others wait out its TTL
	// An old answer decides nothing: the holder may have renewed since (rule A5).
	case !c.obs.fresh:
		c.read(protocol.MaxRequest, now, out)
	case c.acq.want == nothing && len(c.writes.open) == 0:
		c.obs.expire(&c.cfg, c.acq.want, now, out)
		c.wait(now, out)
	case c.reaps() && !c.obs.held():
		c.acq.want = nothing
		out.Add(Reaped{c.obs.record})
	case c.obs.version == "" && c.taking.Existing:
		c.fail(protocol.ErrAbsent, now, out)
	// A session of this name could be mistaken for an earlier one, still named in locks (rule D1).
	case c.obs.version != "" && c.beats():
		c.fail(protocol.ErrUsed, now, out)
	case c.obs.spent(&c.cfg) && !c.reaps():
		c.fail(fmt.Errorf("%w: it is %d, and %d is the last one", protocol.ErrTooLarge, c.obs.record.Token, int64(record.LastToken)), now, out)
	case c.tired():
		c.fail(c.trouble.Err, now, out)
	case now.Clock >= c.obs.from(c.acq.want) && !c.obs.stuck(&c.cfg):
		c.obs.expire(&c.cfg, c.acq.want, now, out)
		if !c.resting(now) {
			c.claim(now, out)
		}
	case c.acq.want == atOnce && c.obs.version == "":
		c.fail(protocol.ErrVanished, now, out)
	// The record does not show whether its session is alive, and neither does its age. So read the
	// heartbeat once before you answer "held".
	case c.acq.want == atOnce && c.sessions.others(c.obs.record.Session):
		c.busy = checking
		out.Add(Check{Session: c.obs.record.Session, Timeout: min(protocol.MaxRequest, c.cfg.TTL)})
	case c.acq.want == atOnce:
		c.acq.want = nothing
		out.Add(Refused{Record: c.obs.record, Rest: c.obs.rest(now.Clock)})
	default:
		c.obs.expire(&c.cfg, c.acq.want, now, out)
		c.wait(now, out)
	}
}

// claim overwrites exactly the record last seen, with the next token. If the answer is lost, the
// claim may have landed (rule A6), and a read decides: either adopt calls claimed, or seek claims
// again on the same condition.
func (c *Machine) claim(now protocol.Now, out *protocol.Actions) {
	if c.reaps() {
		c.reap(now, out)
		return
	}
	// This is one more than the largest token ever seen, even after an unanswered claim of this
	// candidate: a resource could not tell two leases with the same token apart (rule A3).
	r := c.writes.record(&c.cfg, now)
	r.Session = c.sessions.current
	r.Token, r.AcquiredAt, r.Unknown, r.Previous = c.obs.next(&c.cfg), now.Wall, c.obs.record.Unknown, c.obs.record.Epoch
	c.remember(&r, now)
	// An answer that takes longer than half a TTL is no use: see claimed.
	c.write(claiming, Write{Op: Claim, Record: r, Timeout: min(protocol.MaxRequest, c.cfg.TTL/2)}, now, out)
}

// claimed handles a landed claim. It becomes a lease, unless it landed too late.
func (c *Machine) claimed(a attempt, now protocol.Now, out *protocol.Actions) {
	c.release.freed = freed{}
	c.lease = lease{end: c.terms.end(a.t0), granted: now.Clock}
	c.due = c.lease.take(a)
	// Under a session, a lease is never too old to begin work. But the claim may name an earlier
	// session.
	late := a.record.Session == "" && now.Clock > a.t0+a.record.TTL/2 || a.record.Session != c.sessions.current
	// A short hold must not be mostly used up when it begins.
	late = late || c.terms.MaxHold > 0 && now.Clock > a.t0+c.terms.MaxHold/2
	switch {
	case c.acq.want == nothing:
		c.undo(now)
	case late && c.acq.slow >= protocol.EnoughTries:
		c.fail(c.terms.tooSlow(), now, out) // nobody wants the landed record: see stray
	case late:
		// Too little of it is left to begin work. Nobody was given this lease, so the candidate may
		// replace it at once by an acquisition with a new token (rule A3).
		c.acq.slow++
		c.due = now.Clock
	case !c.agreed(a.record):
		// This claim is of an earlier acquisition, with other options. To renew it with the new
		// ones would not do: it would be the other user's lease until then (rule A3, as above).
		c.due = now.Clock
	default:
		c.phase, c.acq.want = held, nothing
		c.handoff.begin(a.t0)
		out.Add(Granted{})
	}
}

// denied handles a claim that the store permanently refuses.
func (c *Machine) denied(err error, now protocol.Now, out *protocol.Actions) {
	// The refusal is about this claim only. An earlier one may still land.
	if len(c.named(nil)) == 0 { // else an earlier one may have landed, and its session goes on
		c.writes.open = nil
	}
	if c.acq.want != nothing {
		c.fail(err, now, out)
	}
}

// reap frees a lock whose holder was waited out, by overwriting exactly the record last seen. It is
// how a dead session ends, and nobody will hold its lock again.
//
// The token stays, so a holder that comes back sees that its own lease was ended (see loss). If its
// delayed heartbeat lands before this write, this write is refused, and the other way around.
// Without that condition, both sides could believe they won (rule D3).
func (c *Machine) reap(now protocol.Now, out *protocol.Actions) {
	r := c.obs.record
	r.Held, r.Rest, r.WriteID, r.Ended = false, nil, c.writes.name(&c.cfg), "its holder was waited out by "+c.cfg.Holder
	c.write(reaping, Write{Op: Free, Record: r, Timeout: min(protocol.MaxRequest, r.TTL/2)}, now, out)
}

// fail ends an acquisition with err. A claim is settled and, if it lands, released.
func (c *Machine) fail(err error, now protocol.Now, out *protocol.Actions) {
	c.acq.want = nothing
	c.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	out.Add(Failed{Err: err})
}

// tooLong fails an acquisition without Wait after a TTL, because a store that hangs never answers.
func (c *Machine) tooLong(now protocol.Now, out *protocol.Actions) {
	if c.acq.want != atOnce || now.Clock < c.until {
		return
	}
	c.fail(c.trouble.NoAnswer(), now, out)
}

// tired reports whether an acquisition without Wait has failed often enough to end. Stores refuse
// single requests for reasons that soon pass.
func (c *Machine) tired() bool {
	return c.acq.want == atOnce && c.failedOften()
}

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
func (c *Machine) rest() time.Duration {
	lasted := c.handoff.ended - c.handoff.leased
	if c.sessions.current != "" {
		return protocol.Renewal(c.cfg.TTL) * 5 / 4
	}
	return min(protocol.FirstPoll+lasted/2, PollInterval(lasted, c.cfg.TTL)) * 5 / 4
}

// over reports whether the handoff has lasted long enough. It may last 32 times as long as the gap,
// so that gaps cost 3 %, but at most two turns or a third of the TTL, whichever is longer, because
// waits elsewhere have time limits. Both times double with each of the first two unused gaps, so a
// lock used by one process alone is not free half the time.
func (h *handoff) over(rest, ttl time.Duration) bool {
	on := h.ended - h.began
	return on >= rest*32<<h.vain || h.turns >= 2 && on >= protocol.Renewal(ttl)<<h.vain
}

// pass ends a lease in favour of the next user of this candidate, and reports whether it did. It
// sends nothing. The record is this candidate's, so nobody else can hold the lock by it, and the
// next user's claim replaces it with a new token (rule A3): one write, not two.
func (c *Machine) pass(now protocol.Now, out *protocol.Actions) bool {
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
func (c *Machine) drop(now protocol.Now) {
	if c.handoff.passed {
		c.handoff.passed = false
		c.beginRelease(true, now)
	}
}
