package protocol

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
)

// read looks at the object, unless the last look has failed a moment ago.
func (c *Candidate) read(timeout time.Duration, now Now, out *Actions) {
	if c.due = c.trouble.LookAt; now.Clock < c.due {
		return
	}
	c.busy = reading
	c.pace.before, c.pace.sent = c.pace.looked, now.Clock
	unless := c.obs.version
	if c.cfg.Numbered && c.obs.spent(&c.cfg) {
		unless = "" // what is put right is written over, and is not the next number
	}
	if c.cfg.Numbered && c.phase == clear && len(c.writes.open) > 0 {
		// Where the number that was seen was collected, a request that was late may have made it
		// anew. It says nothing of a claim of ours with the next one: the highest number does.
		unless = ""
	}
	if c.cfg.Numbered && c.obs.held() && c.obs.record.Session != "" {
		// "The next number is not there" may mean that it was collected. Otherwise a claim
		// would find that out, but under a session none is sent before it is over.
		unless = ""
	}
	if c.phase == attaching {
		unless = "" // only an answer with the record tells its age
	}
	out.Add(Read{Unless: unless, Timeout: timeout})
}

// recheck has the object looked at again, once more if a look is under way.
// The look under way may have been answered before what the driver has heard of.
func (c *Candidate) recheck(now Now) {
	if c.wanting() {
		c.obs.fresh, c.due, c.pace.again = false, now.Clock, c.busy == reading
	}
}

// readDone takes in the answer to a look. What it means is for the phase to say.
func (c *Candidate) readDone(ev ReadDone, now Now, out *Actions) {
	if c.phase == attaching && c.attachment.looked(ev, now) {
		c.due = now.Clock // it shows what stood before the lease was detached, perhaps
		return
	}
	if ev.Shown == Unread {
		c.unread(ev, now, out)
		return
	}
	c.trouble.Looked()
	c.due = now.Clock
	c.pace.looked = now.Clock
	switch ev.Shown {
	case Same:
		c.same()
	case Found:
		c.found(ev, now, out)
	// No write of ours that was conditional on a version can land on nothing. One that was to
	// create the object still can, and stays open.
	case Absent:
		c.writes.settle(&c.cfg, "", record.Record{})
		if c.obs.vanish(ev.Date, now, &c.rng) {
			out.Add(Vanished{c.obs.record})
		}
		if c.phase == held {
			c.lose(ErrVanished, out)
		}
	case Foreign:
		c.foreign(ev.Err, now, out)
	}
}

// unread: the store did not answer. Try again soon, and then less and less often.
// A failed look says nothing about the lock, so it changes nothing that is believed of it: above
// all it neither ends a lease nor brings a takeover nearer.
func (c *Candidate) unread(ev ReadDone, now Now, out *Actions) {
	if c.phase == clear {
		out.Add(Unreadable{ev.Err})
	}
	c.lookFailed(ev.Err, now, out)
	if c.phase == clear && c.acq.want != nothing && (ev.Fatal || c.tired()) {
		c.fail(ev.Err, now, out)
	}
	if c.phase == attaching && (ev.Fatal || c.failedOften()) {
		c.notAttached(ev.Err, now, out)
	}
	if c.phase == freeing && ev.Fatal {
		c.freeDenied(ev.Err, now, out)
	}
}

// same: the object is unchanged, and the time until it may be taken goes on (rule
// A5). A write that was to replace it is still open, and only another one on the
// same condition can settle it (rule A6).
func (c *Candidate) same() {
	c.obs.fresh, c.peer.stale = true, false
}

// found: there is a record. It is known, or of an open write of ours, or another's.
func (c *Candidate) found(ev ReadDone, now Now, out *Actions) {
	if c.obs.known && ev.Version == c.obs.version {
		c.same() // the store need not know conditional reads
		return
	}
	// It is an unknown outcome that is known now (rule A6). It must not be taken for a rival's:
	// the candidate would walk away from a lock that it holds.
	if a, ok := c.writes.landed(&c.cfg, ev.Record); ok {
		c.adopt(a, ev.Version, now, out)
		return
	}
	c.writes.settle(&c.cfg, ev.Version, ev.Record)
	if c.obs.advances(&c.cfg, ev.Record) {
		c.trouble.Progress()
	}
	c.sight(ev, now)
	if c.phase == held {
		c.lose(c.lease.loss(&c.cfg, ev.Record), out)
	}
}

// foreign: there is something that we do not understand. We leave it alone.
// It may be a record of a later version, or a file that somebody put there by mistake: to write
// over it would destroy what a person can still put right.
func (c *Candidate) foreign(err error, now Now, out *Actions) {
	// A claim that was to create the object has met this one, of another kind that was created at the same moment. It is
	// no more under way than one that has met a rival's, and only its own caller is told.
	c.writes.open = slices.DeleteFunc(c.writes.open, func(a attempt) bool { return a.vain })
	if c.phase == clear || c.phase == freeing {
		c.abandon(out) // by hand what was there may be brought back, and then nobody would free it
	}
	if c.phase != attaching { // which says what may have landed before: it may be brought back
		c.writes.open = nil // what they were conditional on is gone
	}
	c.release.left = c.obs.version
	c.obs.fresh = false // but known: the holder that was seen may be valid yet, if the object is gone next
	switch {
	case c.phase == held:
		c.lose(err, out)
	case c.phase == detaching:
		c.notDetached(err, now, out)
	case c.phase == attaching:
		c.notAttached(err, now, out)
	case c.phase == freeing:
		c.released(err, out)
	case c.acq.want != nothing:
		c.fail(err, now, out)
	case c.acq.watching:
		out.Add(Unreadable{err})
		c.due = now.Clock + min(Renewal(c.cfg.TTL), retry.Max)
	}
}

// sight takes in a version that an answer has shown for the first time.
// Only Patience counts on the candidate's own clock. FastStart goes by the store's, which no
// other rule trusts: so it is an option, and it is never used for a session (rule D3).
func (c *Candidate) sight(ev ReadDone, now Now) {
	c.observe(ev.Record, ev.Version, now.Clock)
	rest := ev.Record.Resting()
	c.obs.claimableAt -= min(rest, Rested(ev.Age))
	if c.cfg.FastStart && rest == 0 && ev.Record.Session == "" && ev.Age >= Stale(ev.Record.TTL) {
		c.obs.claimableAt, c.obs.spread = now.Clock, 0 // it rests on the store's clock, and weakens P2 only
	}
}

// sighted takes in the result of another's look, so that the wait for a holder that is
// gone counts from then (rule A5). It never makes the candidate act, and it is ignored
// where the candidate may know better: while it does something, where it has looked
// itself since, and for a record of its own.
func (c *Candidate) sighted(ev Sighted, now Now) {
	since := ev.Sent > max(c.obs.first, c.pace.looked) || !c.obs.known
	idle := c.phase == clear && c.busy == none && c.acq.want == nothing && !c.handoff.passed && !c.unsettled()
	if seen := ev.Answer; idle && since && seen.Shown == Found && (seen.Version != c.obs.version || !c.obs.known) && !c.cfg.mine(seen.Record) {
		c.sight(seen, now)
	}
}

// observe takes in a version that was not known. The time until the lock may be
// taken counts from now, the receipt of the answer that first showed it (rule A5).
// The holder sent this version before it could be seen, so the wait that begins now ends after
// its lease, if no clock is off by more than the drift bound. Counted from the sending of the
// look, it could have begun before the renewal that the look has shown. Kubernetes' leader
// election and DynamoDB's lock client watch a record for its time in the same way.
func (c *Candidate) observe(r record.Record, v Version, now time.Duration) {
	successor := c.peer.successor // a layout without tokens does not keep it
	c.pace.renewed(c.obs.record, r)
	c.peer.sees(c.obs.record, r, now)
	lookedOn := c.acq.reported.WriteID != "" && c.acq.reported.SameLease(c.obs.record)
	c.obs.take(&c.cfg, r, v, now)
	if !c.cfg.mine(r) {
		c.handoff.rested = false
	}
	c.obs.claimableAt, c.obs.spread = c.claimable(r, now, lookedOn && !successor)
}

// claimable says from when on the lock may be taken of which r was seen first now, and how much
// later a waiter takes it, so that not all waiters try at once. wakes: many followers may have
// waited for it to be free.
func (c *Candidate) claimable(r record.Record, now time.Duration, wakes bool) (at, spread time.Duration) {
	// Of its own one too: the next user of this candidate is to leave the lock alone like any other,
	// and so is a successor.
	now += r.Resting()
	switch {
	case c.cfg.mine(r): // of a record of our own nobody else can hold a lease
	case r.Opaque:
		return Never, 0
	case r.Held && r.Session != "":
		if r.Session == c.sessions.over {
			return now, 0
		}
		// Its holder keeps the lease for as long as its session lasts, and does not look at the
		// object meanwhile. So no patience is enough, and no clock: the session must be over
		// (rule D3).
		return Never, 0
	case r.Held:
		// The record's TTL, not ours: its holder counts by that.
		return now + Patience(r.TTL), c.rng.Spread(r.TTL / 10)
	case r.Successor != "" && r.Successor != c.cfg.Holder:
		// Only a courtesy: the conditional write decides.
		return now + Renewal(r.TTL) + Margin(r.TTL), c.rng.Spread(r.TTL / 10)
	case c.cfg.Follow && wakes && r.Successor == "":
		// They all look at about this time, and one of them is to claim it before the others do. However
		// many there are, and however long the TTL, a second is enough for that.
		return now, c.rng.Spread(min(c.cfg.frequent(r.TTL), time.Second))
	}
	return now, 0
}
