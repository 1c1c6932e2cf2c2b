package candidate

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// read sends a read, or after a failed one, waits for the backoff first.
func (c *Machine) read(timeout time.Duration, now protocol.Now, out *protocol.Actions) {
	if c.due = c.trouble.LookAt; now.Clock < c.due {
		return
	}
	c.busy = reading
	c.pace.before, c.pace.sent = c.pace.looked, now.Clock
	unless := c.obs.version
	if c.cfg.Numbered && c.obs.spent(&c.cfg) {
		unless = "" // a repair overwrites the object, and is not the next number
	}
	if c.cfg.Numbered && c.phase == clear && len(c.writes.open) > 0 {
		// If the last known number was garbage-collected, a late request may have re-created it.
		// Only the highest number shows whether a claim of ours landed.
		unless = ""
	}
	if c.cfg.Numbered && c.obs.held() && c.obs.record.Session != "" {
		// The next number may be missing because it was garbage-collected. Usually a claim finds
		// out, but under a session, no claim is sent before the session ends.
		unless = ""
	}
	if c.phase == attaching {
		unless = "" // only an answer with the record shows its age
	}
	out.Add(Read{Unless: unless, Timeout: timeout})
}

// recheck makes the candidate read again, and once more if a read is under way, because its answer
// may be older than the driver's news.
func (c *Machine) recheck(now protocol.Now) {
	if c.wanting() {
		c.obs.fresh, c.due, c.pace.again = false, now.Clock, c.busy == reading
	}
}

// readDone handles the answer to a read. The phase decides what it means.
func (c *Machine) readDone(ev ReadDone, now protocol.Now, out *protocol.Actions) {
	if c.phase == attaching && c.attachment.looked(ev, now) {
		c.due = now.Clock // it may show the state before the Detach
		return
	}
	if ev.Shown == protocol.Unread {
		c.unread(ev, now, out)
		return
	}
	c.trouble.Looked()
	c.due = now.Clock
	c.pace.looked = now.Clock
	switch ev.Shown {
	case protocol.Same:
		c.same()
	case protocol.Found:
		c.found(ev, now, out)
	// A write conditional on a version can no longer land. One that creates the object still can,
	// and stays open.
	case protocol.Absent:
		c.writes.settle(&c.cfg, "", record.Record{})
		if c.obs.vanish(ev.Date, now, &c.rng) {
			out.Add(Vanished{c.obs.record})
		}
		if c.phase == held {
			c.lose(protocol.ErrVanished, out)
		}
	case protocol.Foreign:
		c.foreign(ev.Err, now, out)
	}
}

// unread handles a failed read: try again, with growing backoffs. It changes nothing known about
// the lock. It neither ends a lease nor brings a takeover nearer.
func (c *Machine) unread(ev ReadDone, now protocol.Now, out *protocol.Actions) {
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

// same notes that the object is unchanged, so the time until a takeover keeps counting (rule A5). A
// write over this version is still open, and only another one on the same condition can settle it
// (rule A6).
func (c *Machine) same() {
	c.obs.fresh, c.peer.stale = true, false
}

// found handles a record: one already known, one of an open write, or another candidate's.
func (c *Machine) found(ev ReadDone, now protocol.Now, out *protocol.Actions) {
	if c.obs.known && ev.Version == c.obs.version {
		c.same() // a store need not support conditional reads
		return
	}
	// This decides an unknown outcome (rule A6). If it counted as a rival's write, the candidate
	// would abandon a lock it holds.
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

// foreign handles an unrecognized object, and leaves it alone. It may be a record of a later
// version, or a misplaced file, and overwriting it would destroy what a person can repair.
func (c *Machine) foreign(err error, now protocol.Now, out *protocol.Actions) {
	// A claim to create the object was refused because of this one, created at the same moment. It
	// is no longer under way, and only its caller is told.
	c.writes.open = slices.DeleteFunc(c.writes.open, func(a attempt) bool { return a.vain })
	if c.phase == clear || c.phase == freeing {
		c.abandon(out) // the old object may be restored, and then nobody would free it
	}
	if c.phase != attaching { // notAttached reports its open writes, because the old object may be restored
		c.writes.open = nil // the object they expect is gone
	}
	c.release.left = c.obs.version
	c.obs.fresh = false // but still known: if the object vanishes next, the last holder may still be valid
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
		c.due = now.Clock + min(protocol.Renewal(c.cfg.TTL), protocol.MaxPause)
	}
}

// sight handles a version seen for the first time. Only Patience counts by the candidate's clock.
// FastStart trusts the store's clock, as no other rule does, so it is an option, and never used for
// a session (rule D3).
func (c *Machine) sight(ev ReadDone, now protocol.Now) {
	c.observe(ev.Record, ev.Version, now.Clock)
	rest := ev.Record.Resting()
	c.obs.claimableAt -= min(rest, Rested(ev.Age))
	if c.taking.FastStart && rest == 0 && ev.Record.Session == "" && ev.Age >= protocol.Stale(ev.Record.TTL) {
		c.obs.claimableAt, c.obs.spread = now.Clock, 0 // this relies on the store's clock, and weakens only P2
	}
}

// sighted handles the result of another candidate's read, so the wait for a dead holder counts from
// then (rule A5). It never makes the candidate act. It is ignored if the candidate is busy, has
// read since, or wrote the record itself.
func (c *Machine) sighted(ev Sighted, now protocol.Now) {
	since := ev.Sent > max(c.obs.first, c.pace.looked) || !c.obs.known
	idle := c.phase == clear && c.busy == none && c.acq.want == nothing && !c.handoff.passed && !c.unsettled()
	if seen := ev.Answer; idle && since && seen.Shown == protocol.Found && (seen.Version != c.obs.version || !c.obs.known) && !c.cfg.mine(seen.Record) {
		c.sight(seen, now)
	}
}

// observe notes a new version. The time until a takeover counts from now, the receipt of the answer
// that first showed it (rule A5). The holder sent it earlier, so the wait ends after its lease, if
// no clock exceeds the drift bound. Counted from when the read was sent, the wait could begin
// before the renewal it shows. Kubernetes' leader election and DynamoDB's lock client count the
// same way.
func (c *Machine) observe(r record.Record, v protocol.Version, now time.Duration) {
	successor := c.peer.successor // a layout without tokens forgets it
	c.pace.renewed(c.obs.record, r)
	c.peer.sees(c.obs.record, r, now)
	lookedOn := c.acq.reported.WriteID != "" && c.acq.reported.SameLease(c.obs.record)
	c.obs.take(&c.cfg, r, v, now)
	if !c.cfg.mine(r) {
		c.handoff.rested = false
	}
	c.obs.claimableAt, c.obs.spread = c.claimable(r, now, lookedOn && !successor)
}

// claimable returns when the lock may be taken after r was first seen now, and how much later a
// waiter takes it, so that not all try at once. wakes: many followers may have waited for the
// release.
func (c *Machine) claimable(r record.Record, now time.Duration, wakes bool) (at, spread time.Duration) {
	// A cooldown applies to our own records too: neither this candidate's next user nor a successor
	// may skip it.
	now += r.Resting()
	switch {
	case c.cfg.mine(r): // nobody else can hold a lease by our record
	case r.Opaque:
		return protocol.Never, 0
	case r.Held && r.Session != "":
		if r.Session == c.sessions.over {
			return now, 0
		}
		// The holder keeps its lease for as long as its session lasts, without reading the object.
		// So no patience and no clock is enough: the session must have ended (rule D3).
		return protocol.Never, 0
	case r.Held:
		// The record's TTL, not ours, because its holder counts by that.
		return now + protocol.Patience(r.TTL), c.rng.Spread(r.TTL / 10)
	case r.Successor != "" && r.Successor != c.cfg.Holder:
		// This is only a courtesy: the conditional write decides.
		return now + protocol.Renewal(r.TTL) + protocol.Margin(r.TTL), c.rng.Spread(r.TTL / 10)
	case c.follows() && wakes && r.Successor == "":
		// All followers read at about this time, and one should claim before the others. A second
		// is enough for this, however many they are and however long the TTL.
		return now, c.rng.Spread(min(c.pace.frequent(r.TTL), time.Second))
	}
	return now, 0
}

// observation is what the candidate knows about the object: its own record while it holds or
// frees a lease.
//
// Above all it does not forget. When the object is deleted, the largest token stays, and so
// does the last record, because its holder may go on without noticing.
type observation struct {
	known       bool             // an answer has shown it
	fresh       bool             // it may be acted on; otherwise read first
	version     protocol.Version // empty: there is no object
	record      record.Record    // the last one seen, kept when the object vanishes
	claimableAt time.Duration    // not before: rule A5
	spread      time.Duration    // waiters claim it this much later, not all at once; 0 if claimableAt is Never
	first       time.Duration    // when this version was first seen
	expired     bool             // Expired was reported for this version
	top         int64            // the largest token ever seen
	base        int64            // the store's time in milliseconds, if there is no object
	own         uint64           // the largest number ever seen in a record of this candidate
	news        bool             // Seen must be reported
}

// take notes a new version.
func (o *observation) take(cfg *Config, r record.Record, v protocol.Version, now time.Duration) {
	o.known, o.fresh, o.expired, o.news = true, true, false, true
	o.version, o.record, o.first = v, r, now
	if r.Token <= record.LastToken { // a larger token has no holder, and somebody may correct it
		o.top = max(o.top, r.Token, r.Epoch)
	}
	if n, ours := cfg.number(r); ours {
		o.own = max(o.own, n)
	}
}

// vanish notes an answer without an object, and reports whether there was one before. Its
// holder may not have noticed, so this candidate does not create the object before that lease
// has ended.
func (o *observation) vanish(date time.Time, now protocol.Now, rng *protocol.Random) bool {
	was := o.version != ""
	if r := o.record; was && (!r.Held || r.Session == "") { // else its holder does not read the object: see claimable
		o.claimableAt, o.spread = now.Clock+protocol.Patience(r.TTL), rng.Spread(r.TTL/10)
	}
	o.news = was
	o.known, o.fresh, o.version = true, true, ""
	o.base = protocol.FirstToken(date, now.Wall)
	return was
}

// from returns when such an acquisition may claim the lock. Waiters claim it one after the
// other, in random order, but not a caller that does not wait: it must not hear that a free
// lock is held, and if it tries again and again it must not take over late.
func (o *observation) from(want want) time.Duration {
	if want == atOnce {
		return o.claimableAt
	}
	return o.claimableAt + o.spread
}

// expire reports, once, that a holder is late.
func (o *observation) expire(cfg *Config, want want, now protocol.Now, out *protocol.Actions) {
	if now.Clock >= o.from(want) && o.version != "" && o.record.Held && !o.expired && !cfg.mine(o.record) {
		o.expired = true
		out.Add(Expired{o.record})
	}
}

// rest returns how long the cooldown of a free lock still lasts.
func (o *observation) rest(now time.Duration) time.Duration {
	if o.version == "" || o.record.Resting() == 0 {
		return 0
	}
	return max(o.claimableAt-now, 0)
}

// rests reports whether the lock is in its cooldown.
func (o *observation) rests(now time.Duration) bool { return o.rest(now) > 0 }

// held reports whether the object names a holder.
func (o *observation) held() bool { return o.version != "" && o.record.Held }

// stuck reports whether such a candidate can never take this record over, however old it is.
func (o *observation) stuck(cfg *Config) bool {
	return cfg.WriteOnce && !cfg.Sweep && o.held()
}

// advances reports whether a new record shows a write not known to have landed. Then the store
// works, and the next request is not a retry. A store that renames the same record at each read
// does not count.
func (o *observation) advances(cfg *Config, r record.Record) bool {
	if n, ours := cfg.number(r); ours {
		return n > o.own
	}
	return max(r.Token, r.Epoch) > o.top || cfg.Tokenless && r.Held
}

// spent reports whether no token can follow the current one.
func (o *observation) spent(cfg *Config) bool {
	return o.version != "" && o.record.Token > record.LastToken || o.next(cfg) > record.LastToken
}

// next returns the next acquisition's token: one more than the largest ever seen (rule A3). It
// never goes back while the object exists. After a deletion it does so only for candidates that
// have seen none larger, which start at the store's time.
func (o *observation) next(cfg *Config) int64 {
	switch {
	case cfg.Tokenless:
		return 0
	case o.version == "" && !cfg.Numbered:
		return max(o.top+1, o.base)
	}
	return o.top + 1
}

// Claimable reports whether an acquisition that does not wait would claim the lock now, by what
// is known. The store decides.
func (c *Machine) Claimable(clock time.Duration) bool {
	return c.phase == clear && c.obs.known && (c.obs.version != "" || c.cfg.Tokenless) &&
		clock >= c.obs.from(atOnce) && !c.obs.stuck(&c.cfg)
}

// Observed returns what the candidate last saw: the record, its version, and whether there is
// an object or need not be one. Before the first answer, exists is false.
func (c *Machine) Observed() (r record.Record, v protocol.Version, exists bool) {
	return c.obs.record, c.obs.version, c.obs.known && (c.obs.version != "" || c.cfg.Tokenless)
}
