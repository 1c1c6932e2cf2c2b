package protocol

import (
	"fmt"

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
}

// acquire begins an acquisition, and decides whether to read first. It panics if an earlier Acquire
// has no answer yet or a lease is held, because going on could give one candidate two leases.
func (c *Candidate) acquire(ev Acquire, now Now) {
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
	c.trouble.forget()
	c.until = now.Clock + c.cfg.TTL // if it does not wait
	// This user was told nothing yet and waits from now: report everything again, and start with
	// short intervals.
	c.acq.reported, c.due, c.pace.poll, c.handoff.passed, c.pace.again = record.Record{}, 0, 0, false, false
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
func (c *Candidate) watch(on bool) {
	if on && !c.acq.watching && c.acq.want == nothing && c.phase == clear {
		c.obs.fresh, c.due = false, 0
	}
	c.acq.watching = on
}

// cancel ends an acquisition, Detach or Attach because of err, by default ErrCancelled. It does
// nothing if the answer has already been sent. No store can call back a claim, so seek continues
// until the claim has landed and is released, or can no longer land (rule D6).
func (c *Candidate) cancel(err error, now Now, out *Actions) {
	if err == nil {
		err = ErrCancelled
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
func (c *Candidate) seek(now Now, out *Actions) {
	switch {
	case c.acq.want == nothing && len(c.writes.open) > 0 && now.Clock >= c.until:
		c.abandon(out)
		c.writes.open = nil // if it still lands, the others wait out its TTL
	// An old answer decides nothing: the holder may have renewed since (rule A5).
	case !c.obs.fresh:
		c.read(MaxRequest, now, out)
	case c.acq.want == nothing && len(c.writes.open) == 0:
		c.obs.expire(&c.cfg, c.acq.want, now, out)
		c.wait(now, out)
	case c.cfg.Reaper && !c.obs.held():
		c.acq.want = nothing
		out.Add(Reaped{c.obs.record})
	case c.obs.version == "" && c.cfg.Existing:
		c.fail(ErrAbsent, now, out)
	// A session of this name could be mistaken for an earlier one, still named in locks (rule D1).
	case c.obs.version != "" && c.cfg.Fresh:
		c.fail(ErrUsed, now, out)
	case c.obs.spent(&c.cfg) && !c.cfg.Reaper:
		c.fail(fmt.Errorf("%w: it is %d, and %d is the last one", ErrTooLarge, c.obs.record.Token, int64(record.LastToken)), now, out)
	case c.tired():
		c.fail(c.trouble.Err, now, out)
	case now.Clock >= c.obs.from(c.acq.want) && !c.obs.stuck(&c.cfg):
		c.obs.expire(&c.cfg, c.acq.want, now, out)
		if !c.resting(now) {
			c.claim(now, out)
		}
	case c.acq.want == atOnce && c.obs.version == "":
		c.fail(ErrVanished, now, out)
	// The record does not show whether its session is alive, and neither does its age. So read the
	// heartbeat once before you answer "held".
	case c.acq.want == atOnce && c.sessions.others(c.obs.record.Session):
		c.busy = checking
		out.Add(Check{Session: c.obs.record.Session, Timeout: min(MaxRequest, c.cfg.TTL)})
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
func (c *Candidate) claim(now Now, out *Actions) {
	if c.cfg.Reaper {
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
	c.write(claiming, Write{Op: Claim, Record: r, Timeout: min(MaxRequest, c.cfg.TTL/2)}, now, out)
}

// claimed handles a landed claim. It becomes a lease, unless it landed too late.
func (c *Candidate) claimed(a attempt, now Now, out *Actions) {
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
	case late && c.trouble.slow >= EnoughTries:
		c.fail(c.terms.tooSlow(), now, out) // nobody wants the landed record: see stray
	case late:
		// Too little of it is left to begin work. Nobody was given this lease, so the candidate may
		// replace it at once by an acquisition with a new token (rule A3).
		c.trouble.slow++
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
func (c *Candidate) denied(err error, now Now, out *Actions) {
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
func (c *Candidate) reap(now Now, out *Actions) {
	r := c.obs.record
	r.Held, r.Rest, r.WriteID, r.Ended = false, nil, c.writes.name(&c.cfg), "its holder was waited out by "+c.cfg.Holder
	c.write(reaping, Write{Op: Free, Record: r, Timeout: min(MaxRequest, r.TTL/2)}, now, out)
}

// fail ends an acquisition with err. A claim is settled and, if it lands, released.
func (c *Candidate) fail(err error, now Now, out *Actions) {
	c.acq.want = nothing
	c.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	out.Add(Failed{Err: err})
}

// tooLong fails an acquisition without Wait after a TTL, because a store that hangs never answers.
func (c *Candidate) tooLong(now Now, out *Actions) {
	if c.acq.want != atOnce || now.Clock < c.until {
		return
	}
	c.fail(c.trouble.NoAnswer(), now, out)
}

// tired reports whether an acquisition without Wait has failed often enough to end. Stores refuse
// single requests for reasons that soon pass.
func (c *Candidate) tired() bool {
	return c.acq.want == atOnce && c.failedOften()
}
