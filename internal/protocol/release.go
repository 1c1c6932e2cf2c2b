package protocol

import (
	"cmp"
	"time"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
)

// release is what a candidate knows of the release of a lease: the last one, or the one that is
// on its way. It goes from the user's word (resign), or from a record of our own that nobody wants
// (undo, stray, drop), by beginRelease and free to released.
type release struct {
	successor string        // whom it is to name
	resigned  bool          // it came while the lease was held
	orphan    bool          // no user is to be told: the lease came after its user had gone
	deleting  bool          // its object may be on its way to be deleted
	denied    error         // why the store refused it, last
	until     time.Duration // when to give it up
	left      Version       // a record of our own that could not be freed
	freed     freed         // if it was confirmed, by the release of the last lease
}

// asFree is the record of a lock that is freed, whose record was r.
func asFree(r record.Record, writeID string, now Now) record.Record {
	r.Held, r.Session, r.WriteID, r.RenewedAt, r.ExpiresAt = false, "", writeID, now.Wall, now.Wall
	r.Successor, r.Rest = "", nil
	return r
}

// freed is the record that the release of the last lease has left in the store.
type freed struct {
	confirmed bool
	record    record.Record
	version   Version
}

// confirm takes in what the release of a lease has left in the store, if that is free: then the
// followers are told.
// They hear it from the leader before they would see it, so it must be certain: a record that
// another has written since is no word of ours.
func (l *release) confirm(of *lease, r record.Record, v Version) {
	if !r.Held && r.Token == of.record.Token {
		l.freed = freed{confirmed: true, record: r, version: v}
	}
}

// resign ends the lease at its user's word: to pass it on, or to free it.
//
// The user has stopped the work by then. That is a duty of the driver which no machine can check:
// if the release landed earlier, the work would go on under another's lease (rule A10).
func (c *Candidate) resign(ev Release, now Now, out *Actions) {
	c.release.successor = ev.Successor
	// Those who wait in this process are to leave the lock alone as all others are.
	ev.Pass = ev.Pass && c.terms.rest(c.lease.granted, now.Clock, "") == nil
	if ev.Pass && c.pass(now, out) {
		return
	}
	c.handoff.on = ev.Pass
	if c.phase != held && c.phase != lost {
		panic("protocol: Release while " + c.phase.String())
	}
	c.release.resigned = c.phase == held
	// A release promises a TTL of zero, so validity ends first (rule A7), by the
	// change of phase. A lease that was lost because time ran out may still stand
	// in the record, and to free it spares the next holder the wait.
	c.beginRelease(false, now)
}

// longestNotice bounds for how long a lease goes on that its user wants to end.
const longestNotice = 15 * time.Second

// nameSuccessor gives notice to a follower that it is next, by the renewals that follow, of which
// the first is sent anyway. It looks at that when it would look anyway, and then often (see isNext),
// so that the release is noticed soon.
func (c *Candidate) nameSuccessor(ev NameSuccessor, now Now, out *Actions) {
	known := now.Clock
	if c.phase == held && !c.final() && !c.cfg.Tokenless && ev.Successor != "" {
		c.lease.successor = ev.Successor
		next := c.due
		if c.busy != none { // a renewal that is under way does not name it yet
			next = now.Clock + Renewal(c.cfg.TTL)
		}
		if at := next + noticed(c.cfg.TTL); at <= now.Clock+longestNotice {
			known = at
		}
	}
	out.Add(NoticeGiven{known})
}

// undo frees a lease whose user had gone when it came.
func (c *Candidate) undo(now Now) {
	// The TTL that there is to settle it began when the caller gave up. If that is
	// over the store answers all the same, so a few more tries are worth it: not for longer
	// than a TTL, since they come as often as those of a holder.
	until := max(c.until, now.Clock+min(retry.Max, c.cfg.TTL))
	c.beginRelease(true, now)
	c.release.until = until
}

// stray reports that the object is a record of our own that nobody wants, and that no
// claim is on its way to replace. It must be freed wherever it comes from: under a session
// it would stand for as long as that lasts (rule D6), and without one others would wait
// out a holder that there is not.
//
// That the record is ours is no claim to the lock (rule A9). It only says that nobody else relies
// on the record, so to free it takes nothing from anybody.
func (c *Candidate) stray() bool {
	r := c.obs.record
	return c.phase == clear && c.acq.want == nothing && len(c.writes.open) == 0 && !c.handoff.passed && c.obs.held() && c.obs.version != c.release.left &&
		c.cfg.mine(r) && !c.sessions.gone(r.Session)
}

// unsettled reports that a claim of ours that nobody wants may land yet, or has landed.
func (c *Candidate) unsettled() bool { return len(c.writes.open) > 0 || c.stray() }

// Outstanding reports that a release is under way, or a claim that has not become a lease,
// or that such a claim may yet land: somebody has to free it.
func (c *Candidate) Outstanding() bool {
	if c.phase == held || c.phase == lost {
		return false // it is the user who has to
	}
	return c.phase != clear || c.unsettled() || c.busy != none && c.busy != reading && c.busy != checking
}

// beginRelease frees the record that stands. It is an orphan's where no user waits for that.
func (c *Candidate) beginRelease(orphan bool, now Now) {
	c.phase, c.release.orphan = freeing, orphan
	// From here on no earlier write may be taken for a lease again: the release
	// may land after we have looked, and the next lease needs a token of its own
	// (rule A8).
	c.writes.open = nil
	c.release.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	c.trouble.forget()
	c.release.deleting, c.release.denied = false, nil
}

// free sends the release, or the look that tells what became of the last one. One whose answer is
// lost is sent again if the record is there still, and has landed if it is not.
func (c *Candidate) free(now Now, out *Actions) {
	switch {
	// The user must not wait for a store for ever. For others the lease runs out by itself, and
	// under a session abandon sees to it that it does.
	case now.Clock >= c.release.until:
		c.unreleased(cmp.Or(c.release.denied, ErrUnsettled), out)
	case !c.obs.fresh:
		c.read(MaxRequest, now, out)
	// There is nothing of ours to free, and to write over another's record would end a lease that
	// is valid.
	case !c.obs.held() || !c.cfg.mine(c.obs.record):
		c.released(nil, out) // it is free, or it has passed to another
	case c.sessions.gone(c.obs.record.Session):
		c.released(nil, out) // what it names ends without that
	case c.cfg.Tokenless && (c.release.deleting || c.lease.promised-now.Clock < c.cfg.TTL/enoughLeft):
		// The record is deleted, and no condition would keep a delete that comes
		// late from removing the next holder's. So none is sent when too little is
		// left, no second one while the first may still be on its way, and till then
		// not even we take the lock anew.
		c.released(ErrTooLate, out)
	case c.resting(now):
	default:
		r := asFree(c.obs.record, c.writes.name(&c.cfg), now)
		if !c.release.orphan { // of which nobody has had the lease
			r.Successor = c.release.successor
			r.Rest = c.terms.rest(c.lease.granted, now.Clock, r.WriteID)
		}
		timeout := min(MaxRequest, Renewal(r.TTL))
		if c.cfg.Tokenless {
			timeout, c.release.deleting = min(timeout, (c.lease.promised-now.Clock)/2), true
		}
		c.write(releasing, Write{Op: Free, Record: r, Timeout: timeout}, now, out)
	}
}

// released ends a release, and nothing is left to do but what left and claimableAt remember.
func (c *Candidate) released(err error, out *Actions) {
	c.phase, c.due, c.release.left = clear, 0, ""
	if err != nil {
		c.release.left = c.obs.version
	}
	if err != nil && c.release.deleting {
		// A delete that is on its way lands within the lease that it was sent under or never. It
		// would remove the next holder's marker, so till then not even we take the lock anew: by
		// our own clock as late as others would, since its rate may have changed meanwhile.
		c.obs.claimableAt = max(c.obs.claimableAt, c.lease.promised+2*Margin(c.lease.record.TTL))
	}
	if !c.release.orphan {
		if err == nil {
			c.release.confirm(&c.lease, c.obs.record, c.obs.version)
		}
		out.Add(Released{err})
	}
}

// freeDenied takes in that the store refuses a release, or the look that tells what became of one, for good. A lease of
// its own ends with its TTL all the same, so its user is told at once. Under a session the lock would stay held, so the
// session, and every other lease under it, would have to end (see abandon). Many a refusal passes, of credentials that
// have just changed or a clock that was wrong. So there it is tried again for a TTL, like any release that fails.
// An acquisition that waits for this release fails at once, like any other that meets a refusal.
func (c *Candidate) freeDenied(err error, now Now, out *Actions) {
	if c.release.denied = err; len(c.named(nil)) == 0 {
		c.released(err, out)
	} else if c.acq.want != nothing {
		c.fail(err, now, out)
	}
}

// unreleased ends a release of which it is not known that it landed.
// The user is told so, because no error means that the lock is certainly not this lease's any more.
func (c *Candidate) unreleased(err error, out *Actions) {
	c.abandon(out)
	c.released(err, out)
}

// abandon gives up to settle what may have landed, or may yet land, and says whose end
// alone would make it harmless.
// A lease of its own needs no such word, since it ends with its TTL. A session may go on for a
// month, and with it a lock that nobody holds and nobody will free (rule D6).
func (c *Candidate) abandon(out *Actions) {
	for _, session := range c.named(nil) {
		out.Add(SessionOrphan{Session: session})
	}
}
