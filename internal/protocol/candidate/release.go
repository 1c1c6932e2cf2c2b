package candidate

import (
	"cmp"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// release is what a candidate knows about the last or current release of a lease. A release
// starts with the user (resign) or with an unwanted record of this candidate (undo, stray,
// drop), and goes through beginRelease and free to released.
type release struct {
	successor string           // the record will name it
	resigned  bool             // it came while the lease was held
	orphan    bool             // no user hears of it: the lease came after its user had left
	deleting  bool             // a delete of its object may be in flight
	denied    error            // the store's last refusal
	until     time.Duration    // when to give up
	left      protocol.Version // a record of this candidate that could not be freed
	freed     freed            // the last lease's, if its release was confirmed
}

// asFree returns the record of a freed lock from its last one.
func asFree(r record.Record, writeID string, now protocol.Now) record.Record {
	r.Held, r.Session, r.WriteID, r.RenewedAt, r.ExpiresAt = false, "", writeID, now.Wall, now.Wall
	r.Successor, r.Rest = "", nil
	return r
}

// freed is the record left by the last lease's release.
type freed struct {
	confirmed bool
	record    record.Record
	version   protocol.Version
}

// confirm notes what a lease's release left in the store, if that is free, and then the
// followers are told. They hear it before they could read it, so it must be certain. Another
// candidate's later record does not count.
func (l *release) confirm(of *lease, r record.Record, v protocol.Version) {
	if !r.Held && r.Token == of.record.Token {
		l.freed = freed{confirmed: true, record: r, version: v}
	}
}

// resign passes the lease on or frees it, as its user asks.
//
// The user has stopped the work by then. That is the driver's duty, and no machine can check
// it. An earlier release would let the work go on under somebody else's lease (rule A10).
func (c *Machine) resign(ev Release, now protocol.Now, out *protocol.Actions) {
	c.release.successor = ev.Successor
	// A cooldown applies to the waiters in this process too.
	ev.Pass = ev.Pass && c.terms.rest(c.lease.granted, now.Clock, "") == nil
	if ev.Pass && c.pass(now, out) {
		return
	}
	c.handoff.on = ev.Pass
	if c.phase != held && c.phase != lost {
		panic("protocol: Release while " + c.phase.String())
	}
	c.release.resigned = c.phase == held
	// A release promises a TTL of zero, so validity ends first (rule A7), by the change of
	// phase. An expired lease may still be in the record, and freeing it spares the next holder
	// the wait.
	c.beginRelease(false, now)
}

// longestNotice bounds how long a lease goes on after its user decided to end it.
const longestNotice = 15 * time.Second

// nameSuccessor tells a follower that it is next, in the renewals from now on, which come no
// sooner. The follower reads one when it would anyway, and then polls often (see isNext), so it
// notices the release soon.
func (c *Machine) nameSuccessor(ev NameSuccessor, now protocol.Now, out *protocol.Actions) {
	known := now.Clock
	if c.phase == held && !c.final() && !c.cfg.Tokenless && ev.Successor != "" {
		c.lease.successor = ev.Successor
		next := c.due
		if c.busy != none { // a renewal in flight does not name it yet
			next = now.Clock + protocol.Renewal(c.cfg.TTL)
		}
		if at := next + noticed(c.cfg.TTL); at <= now.Clock+longestNotice {
			known = at
		}
	}
	out.Add(NoticeGiven{known})
}

// undo frees a lease whose user left before it came.
func (c *Machine) undo(now protocol.Now) {
	// The TTL for settling it started when the caller gave up, and may be over. The store is
	// answering again, so a few more tries are worth it. They come as often as a holder's, so
	// they end after a TTL.
	until := max(c.until, now.Clock+min(protocol.MaxPause, c.cfg.TTL))
	c.beginRelease(true, now)
	c.release.until = until
}

// stray reports whether the object is an unwanted record of this candidate, and no claim in
// flight will replace it. It must be freed, whatever its cause: under a session it would stay
// as long as the session (rule D6), and otherwise others would wait for a holder that does not
// exist.
//
// The record's origin is no claim to the lock (rule A9). But nobody else relies on the record,
// so freeing it takes nothing from anybody.
func (c *Machine) stray() bool {
	r := c.obs.record
	return c.phase == clear && c.acq.want == nothing && len(c.writes.open) == 0 && !c.handoff.passed && c.obs.held() && c.obs.version != c.release.left &&
		c.cfg.mine(r) && !c.sessions.gone(r.Session)
}

// unsettled reports whether an unwanted claim of this candidate has landed or may still land.
func (c *Machine) unsettled() bool { return len(c.writes.open) > 0 || c.stray() }

// Outstanding reports whether a release or a claim is in progress, or an unwanted claim has
// landed or may still land: something must still be freed.
func (c *Machine) Outstanding() bool {
	if c.phase == held || c.phase == lost {
		return false // the user must release it
	}
	return c.phase != clear || c.unsettled() || c.busy != none && c.busy != reading && c.busy != checking
}

// beginRelease frees the current record. orphan: no user waits for that.
func (c *Machine) beginRelease(orphan bool, now protocol.Now) {
	c.phase, c.release.orphan = freeing, orphan
	// From here on, no earlier write may become a lease again: the release may land after a
	// read, and the next lease needs its own token (rule A8).
	c.writes.open = nil
	c.release.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	c.trouble.Forget()
	c.release.deleting, c.release.denied = false, nil
}

// enoughLeft is the inverse of the part of the TTL that must be left for a lease's record to be
// deleted.
const enoughLeft = 4

// free sends the release, or the read that shows what became of the last one. After a lost
// answer, the record is freed again if it is still there. If not, the release has landed.
func (c *Machine) free(now protocol.Now, out *protocol.Actions) {
	switch {
	// The user must not wait for a store forever. For others the lease expires, or abandon ends
	// its session.
	case now.Clock >= c.release.until:
		c.unreleased(cmp.Or(c.release.denied, protocol.ErrUnsettled), out)
	case !c.obs.fresh:
		c.read(protocol.MaxRequest, now, out)
	// There is nothing to free here, and overwriting another candidate's record would end a
	// valid lease.
	case !c.obs.held() || !c.cfg.mine(c.obs.record):
		c.released(nil, out) // it is free, or has another holder
	case c.sessions.gone(c.obs.record.Session):
		c.released(nil, out) // what names the session ends without a release
	case c.cfg.Tokenless && (c.release.deleting || c.lease.promised-now.Clock < c.cfg.TTL/enoughLeft):
		// The record is deleted, and no condition keeps a late delete from removing the next
		// holder's. So none is sent when too little of the lease is left, and no second one
		// while the first may be in flight. Until then, not even this candidate takes the lock
		// again.
		c.released(protocol.ErrTooLate, out)
	case c.resting(now):
	default:
		r := asFree(c.obs.record, c.writes.name(&c.cfg), now)
		if !c.release.orphan { // an orphan's lease was never used
			r.Successor = c.release.successor
			r.Rest = c.terms.rest(c.lease.granted, now.Clock, r.WriteID)
		}
		timeout := min(protocol.MaxRequest, protocol.Renewal(r.TTL))
		if c.cfg.Tokenless {
			timeout, c.release.deleting = min(timeout, (c.lease.promised-now.Clock)/2), true
		}
		c.write(releasing, Write{Op: Free, Record: r, Timeout: timeout}, now, out)
	}
}

// released ends a release. What remains is in left and claimableAt.
func (c *Machine) released(err error, out *protocol.Actions) {
	c.phase, c.due, c.release.left = clear, 0, ""
	if err != nil {
		c.release.left = c.obs.version
	}
	if err != nil && c.release.deleting {
		// A delete in flight lands within its lease, or never. It would remove the next
		// holder's marker, so until then not even this candidate takes the lock again. By its
		// own clock it waits as long as others would, because the clock's rate may have changed
		// meanwhile.
		c.obs.claimableAt = max(c.obs.claimableAt, c.lease.promised+2*protocol.Margin(c.lease.record.TTL))
	}
	if !c.release.orphan {
		if err == nil {
			c.release.confirm(&c.lease, c.obs.record, c.obs.version)
		}
		out.Add(Released{err})
	}
}

// freeDenied handles a permanent refusal of a release, or of the read after one. A lease
// without a session ends with its TTL anyway, so its user is told at once. A session's lock
// would stay held, so the session would have to end, with all its leases (see abandon). But
// many refusals pass, such as those of new credentials or a wrong clock, so the release is
// retried for a TTL, like any other that fails. An acquisition waiting for it fails at once,
// like any other that is refused.
func (c *Machine) freeDenied(err error, now protocol.Now, out *protocol.Actions) {
	if c.release.denied = err; len(c.named(nil)) == 0 {
		c.released(err, out)
	} else if c.acq.want != nothing {
		c.fail(err, now, out)
	}
}

// unreleased ends a release that may not have landed, with an error: nil would mean that the
// lock is certainly no longer this lease's.
func (c *Machine) unreleased(err error, out *protocol.Actions) {
	c.abandon(out)
	c.released(err, out)
}

// abandon gives up on settling what has landed or may still land, and names the sessions whose
// end makes it harmless. A lease without a session ends with its TTL. A session may go on for a
// month, and with it an ownerless lock (rule D6).
func (c *Machine) abandon(out *protocol.Actions) {
	for _, session := range c.named(nil) {
		out.Add(protocol.SessionOrphan{Session: session})
	}
}
