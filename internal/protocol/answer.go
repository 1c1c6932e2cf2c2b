package protocol

import (
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
)

func (c *Candidate) writeDone(kind inflight, ev WriteDone, now Now, out *actions) {
	if ev.Err != nil {
		c.writeFailed(ev, now, out)
		return
	}
	c.trouble.progress()
	c.writes.sent.record.Epoch = ev.Epoch
	switch kind {
	case releasing:
		c.observe(c.writes.sent.record, ev.Version, now.Clock)
		c.released(nil, out)
	case reaping:
		c.observe(c.writes.sent.record, ev.Version, now.Clock)
	default:
		c.adopt(c.writes.sent, ev.Version, now, out)
	}
}

// writeFailed: whatever the store said, the write may have landed, and a read
// must tell (rule A6). That holds for a refusal too: an earlier attempt of our
// own, or the same request delivered twice, may be what it collided with.
func (c *Candidate) writeFailed(ev WriteDone, now Now, out *actions) {
	c.release.deleting = c.release.deleting && !ev.Void
	c.tryFailed(ev.Err, now, out)
	if !ev.Fatal {
		return
	}
	switch c.phase {
	case clear:
		c.denied(ev.Err, now, out)
	case freeing:
		c.unreleased(ev.Err, out)
	case held, lost:
		// No short cut: the reason of the refusal may pass, and until the deadline
		// the lease is valid whatever the store says.
	}
}

func (c *Candidate) readDone(ev ReadDone, now Now, out *actions) {
	if ev.Shown == Unread {
		c.unread(ev, now, out)
		return
	}
	c.trouble.looked()
	c.due = now.Clock
	c.pace.before, c.pace.looked = c.pace.looked, now.Clock
	switch ev.Shown {
	case Same:
		c.same()
	case Found:
		c.found(ev, now, out)
	case Absent:
		c.writes.settle(&c.cfg, "", record.Record{})
		if c.vanish(ev.Date, now) {
			out.add(Vanished{c.obs.record})
		}
		if c.phase == held {
			c.lose(ErrVanished, out)
		}
	case Foreign:
		c.foreign(ev.Err, now, out)
	}
}

// unread: the store did not answer. Try again soon, and then less and less often.
func (c *Candidate) unread(ev ReadDone, now Now, out *actions) {
	if c.phase == clear {
		out.add(Unreadable{ev.Err})
	}
	c.lookFailed(ev.Err, now, out)
	if c.phase == clear && c.acq.want != nothing && (ev.Fatal || c.tired()) {
		c.fail(ev.Err, now, out)
	}
	if c.phase == freeing && ev.Fatal {
		c.unreleased(ev.Err, out)
	}
}

// same: the object is unchanged, and the time until it may be taken goes on (rule
// A5). A write that was to replace it is still open, and only another one on the
// same condition can settle it (rule A6).
func (c *Candidate) same() {
	c.obs.fresh, c.peer.stale = true, false
}

func (c *Candidate) found(ev ReadDone, now Now, out *actions) {
	if c.obs.known && ev.Version == c.obs.version {
		c.same() // the store need not know conditional reads
		return
	}
	if a, ok := c.writes.landed(&c.cfg, ev.Record); ok {
		c.adopt(a, ev.Version, now, out)
		return
	}
	c.writes.settle(&c.cfg, ev.Version, ev.Record)
	if c.obs.advances(&c.cfg, ev.Record) {
		c.trouble.progress()
	}
	c.sight(ev, now)
	if c.phase == held {
		c.lose(c.lease.loss(&c.cfg, ev.Record), out)
	}
}

// sight takes in a version that an answer has shown for the first time.
func (c *Candidate) sight(ev ReadDone, now Now) {
	c.observe(ev.Record, ev.Version, now.Clock)
	if c.cfg.FastStart && ev.Record.Session == "" && ev.Age >= Stale(ev.Record.TTL) {
		c.obs.claimableAt = now.Clock // it rests on the store's clock, and weakens P2 only
	}
}

// sighted takes in the result of another's look, so that the wait for a holder that is
// gone counts from then (rule A5). It never makes the candidate act, and it is ignored
// where the candidate may know better: while it does something, where it has looked
// itself since, and for a record of its own.
func (c *Candidate) sighted(ev Sighted, now Now) {
	since := ev.Sent > max(c.obs.first, c.pace.looked) || !c.obs.known
	idle := c.phase == clear && c.busy == none && c.acq.want == nothing && !c.handoff.passed && !c.unsettled()
	if seen := ev.Answer; idle && since && seen.Shown == Found && seen.Version != c.obs.version && !c.cfg.mine(seen.Record) {
		c.sight(seen, now)
	}
}

// foreign: there is something that we do not understand. We leave it alone.
func (c *Candidate) foreign(err error, now Now, out *actions) {
	if c.phase == clear || c.phase == freeing {
		c.abandon(out) // by hand what was there may be brought back, and then nobody would free it
	}
	c.writes.open = nil // what they were conditional on is gone
	c.release.left = c.obs.version
	c.obs.fresh = false // but known: the holder that was seen may be valid yet, if the object is gone next
	switch {
	case c.phase == held:
		c.lose(err, out)
	case c.phase == freeing:
		c.released(err, out)
	case c.acq.want != nothing:
		c.fail(err, now, out)
	case c.acq.watching:
		out.add(Unreadable{err})
		c.due = now.Clock + min(Renewal(c.cfg.TTL), retry.Max)
	}
}

// adopt takes in that the attempt a landed as version v, with that attempt's own
// t0, however long ago that was (rules A4 and A6). The others can no longer land.
func (c *Candidate) adopt(a attempt, v Version, now Now, out *actions) {
	c.writes.open = nil
	c.trouble.progress()
	c.observe(a.record, v, now.Clock)
	switch c.phase {
	case clear:
		c.claimed(a, now, out)
	case held:
		c.renewed(a, out)
	case lost, freeing: // the record is ours, to be freed; the lease is over
	}
}

// claimed takes in that a claim has landed: it is a lease, unless that came too late.
func (c *Candidate) claimed(a attempt, now Now, out *actions) {
	c.release.freed = freed{}
	c.lease, c.due = leased(a)
	// Under a session no lease is too old to begin work, but it may be under an earlier session.
	late := a.record.Session == "" && now.Clock > a.t0+a.record.TTL/2 || a.record.Session != c.sessions.current
	switch {
	case c.acq.want == nothing:
		c.undo(now)
	case late && c.trouble.slow >= enoughTries:
		c.fail(ErrSlowStore, now, out) // and nobody wants what has landed: see stray
	case late:
		// Too little is left of it to begin work. It was never handed out, so
		// it may be replaced at once, by an acquisition of its own (rule A3).
		c.trouble.slow++
		c.due = now.Clock
	default:
		c.phase, c.acq.want = held, nothing
		c.handoff.begin(a.t0)
		out.add(Granted{})
	}
}

// denied: the store refuses a claim for good.
func (c *Candidate) denied(err error, now Now, out *actions) {
	if len(c.named()) == 0 { // else an earlier one may have landed, and its session goes on
		c.writes.open = nil
	}
	if c.acq.want != nothing {
		c.fail(err, now, out)
	}
}
