package protocol

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Step takes an event at a time and returns what to do, in order. It panics on
// an event that cannot be: an answer to nothing, a second Acquire before the
// first was answered, a Release of no lease.
func (c *Candidate) Step(ev Event, now Now) []Action {
	var out actions
	if c.phase == held && now.Clock >= c.lease.deadline {
		// Before anything else, even a renewal's good answer: who has been
		// told "no longer" must not be told "again".
		c.lose(ErrExpired, &out)
	}
	c.tooLong(now, &out)
	switch ev := ev.(type) {
	case Acquire:
		c.acquire(ev, now)
	case Cancel:
		c.cancel(ev.Err, now, &out)
	case Release:
		c.resign(ev, now, &out)
	case Drop:
		c.drop(now)
	case Watch:
		c.watch(ev.On)
	case GiveUp:
		c.giveUp(ev.Err, &out)
	case ReadDone:
		c.finish(reading)
		c.readDone(ev, now, &out)
	case WriteDone:
		c.writeDone(c.finish(claiming, renewing, releasing, reaping), ev, now, &out)
	case Checked:
		c.finish(checking)
		c.checked(ev, now, &out)
	case SessionOver:
		c.sessionOver(ev.Session, ev.Err, now, &out)
	case SessionExpired:
		c.sessionExpired(ev.Session, ev.Look, now)
	case SessionTroubled:
		if c.wanting() {
			c.trouble.report(ev.Err, &c.cfg, now, &out)
		}
	case Recheck:
		c.recheck(now)
	case RenewSoon:
		c.renewSoon(now)
	case Retune:
		c.cfg.TTL, c.cfg.Frequent, c.cfg.Infrequent = ev.TTL, ev.Frequent, ev.Infrequent
	case Sighted:
		c.sighted(ev, now)
	case PeerAnswer:
		c.peerAnswered(ev, now, &out)
	case Tick:
	}
	c.advance(now, &out)
	c.ask(now, &out)
	if c.obs.news {
		c.obs.news = false
		out.add(Seen{})
	}
	c.memberships(&out)
	return out
}

type actions []Action

func (a *actions) add(x Action) { *a = append(*a, x) }

// finish takes note that the request under way, one of these kinds, was answered, and says which.
func (c *Candidate) finish(kinds ...inflight) (kind inflight) {
	if !slices.Contains(kinds, c.busy) {
		panic("protocol: an answer to nothing")
	}
	kind, c.busy = c.busy, none
	return kind
}

func (c *Candidate) acquire(ev Acquire, now Now) {
	if c.acq.want != nothing || c.phase == held || c.phase == lost {
		panic("protocol: Acquire while " + c.phase.String())
	}
	c.acq.want = atOnce
	c.sessions.enter(ev.Session)
	if ev.Wait {
		c.acq.want = eventually
	}
	// Knowledge of a free lock may be old, but then the write is refused and tells;
	// so a lock that nobody else uses costs one request. Knowledge of a holder may
	// be old too, so the lock is read again before the caller is told.
	c.obs.fresh = c.obs.known && (c.obs.version != "" || c.cfg.Tokenless) && !c.obs.record.Held
	if c.obs.spent(&c.cfg) {
		c.obs.fresh = false // no write would tell that it has been put right
	}
	if c.handoff.passed && c.cfg.mine(c.obs.record) {
		c.obs.fresh = true // for a moment it is nobody's
	}
	if c.cfg.Numbered && now.Clock-max(c.obs.first, c.pace.looked) > recent {
		c.obs.fresh = false // the next number may have been used and collected since
	}
	c.trouble.forget()
	c.until = now.Clock + c.cfg.TTL // if it does not wait
	c.acq.reported, c.due, c.pace.poll, c.handoff.passed, c.pace.again = record.Record{}, 0, 0, false, false
	h := &c.handoff
	if rest := h.rest(c.cfg.TTL); ev.Wait && h.on && h.over(rest) {
		// Those who wait elsewhere cannot see a lock that is free for a moment only.
		c.obs.fresh, c.due = false, h.ended+rest
		h.on, h.rested = false, true
	}
}

func (c *Candidate) watch(on bool) {
	if on && !c.acq.watching && c.acq.want == nothing && c.phase == clear {
		c.obs.fresh, c.due = false, 0
	}
	c.acq.watching = on
}

func (c *Candidate) cancel(err error, now Now, out *actions) {
	if err == nil {
		err = ErrCancelled
	}
	if c.acq.want != nothing { // else the answer and the cancellation crossed
		c.fail(err, now, out)
	}
}

// fail ends an acquisition. A claim that may have landed, or may yet land, is
// settled all the same: if it lands, it is released.
func (c *Candidate) fail(err error, now Now, out *actions) {
	c.acq.want = nothing
	c.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	out.add(Failed{err})
}

// resign ends the lease at its user's word: to pass it on, or to free it.
func (c *Candidate) resign(ev Release, now Now, out *actions) {
	c.release.successor = ev.Successor
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

// beginRelease frees the record that stands. It is an orphan's where no user waits for that.
func (c *Candidate) beginRelease(orphan bool, now Now) {
	c.phase, c.release.orphan = freeing, orphan
	// From here on no earlier write may be taken for a lease again: the release
	// may land after we have looked, and the next lease needs a token of its own
	// (rule A8).
	c.writes.open = nil
	c.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	c.trouble.forget()
	c.release.deleting = false
}

func (c *Candidate) lose(cause error, out *actions) {
	c.phase = lost
	out.add(Lost{cause})
}

// advance does what is due, if no request is under way.
func (c *Candidate) advance(now Now, out *actions) {
	if c.busy != none || now.Clock < c.due && (!c.settling() || now.Clock < c.until) {
		return
	}
	if c.stray() {
		c.beginRelease(true, now)
	}
	switch {
	case c.phase == held:
		c.keep(now, out)
	case c.phase == freeing:
		c.free(now, out)
	case c.wanting():
		c.seek(now, out)
	}
}

// seek takes the next step towards the lock, or towards the certainty that an
// abandoned claim cannot land any more.
func (c *Candidate) seek(now Now, out *actions) {
	switch {
	case c.acq.want == nothing && len(c.writes.open) > 0 && now.Clock >= c.until:
		c.abandon(out)
		c.writes.open = nil // should it land yet, the others wait out its TTL
	case !c.obs.fresh:
		c.read(MaxRequest, now, out)
	case c.acq.want == nothing && len(c.writes.open) == 0:
		c.obs.expire(&c.cfg, now, out)
		c.wait(now, out)
	case c.cfg.Reaper && !c.obs.held():
		c.acq.want = nothing
		out.add(Reaped{c.obs.record})
	case c.obs.version == "" && c.cfg.Existing:
		c.fail(ErrAbsent, now, out)
	case c.obs.version != "" && c.cfg.Fresh:
		c.fail(ErrUsed, now, out)
	case c.obs.spent(&c.cfg) && !c.cfg.Reaper:
		c.fail(fmt.Errorf("%w: it is %d, and %d is the last one", ErrTooLarge, c.obs.record.Token, int64(record.LastToken)), now, out)
	case c.tired():
		c.fail(c.trouble.err, now, out)
	case now.Clock >= c.obs.claimableAt && !c.obs.stuck(&c.cfg):
		c.obs.expire(&c.cfg, now, out)
		if !c.resting(now) {
			c.claim(now, out)
		}
	case c.acq.want == atOnce && c.obs.version == "":
		c.fail(ErrVanished, now, out)
	case c.acq.want == atOnce && c.sessions.others(c.obs.record.Session):
		c.busy = checking
		out.add(Check{Session: c.obs.record.Session, Timeout: min(MaxRequest, c.cfg.TTL)})
	case c.acq.want == atOnce:
		c.acq.want = nothing
		out.add(Refused{Record: c.obs.record})
	default:
		c.obs.expire(&c.cfg, now, out)
		c.wait(now, out)
	}
}

// recheck has the object looked at again, once more if a look is under way.
func (c *Candidate) recheck(now Now) {
	if c.wanting() {
		c.obs.fresh, c.due, c.pace.again = false, now.Clock, c.busy == reading
	}
}

func (c *Candidate) read(timeout time.Duration, now Now, out *actions) {
	if c.due = c.trouble.lookAt; now.Clock < c.due {
		return
	}
	c.busy = reading
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
	out.add(Read{Unless: unless, Timeout: timeout})
}

// claim writes a record with the next token over exactly what was seen.
func (c *Candidate) claim(now Now, out *actions) {
	if c.cfg.Reaper {
		c.reap(now, out)
		return
	}
	r := c.writes.record(&c.cfg, now)
	r.Session = c.sessions.current
	r.Token, r.AcquiredAt, r.Unknown, r.Previous = c.obs.next(&c.cfg), now.Wall, c.obs.record.Unknown, c.obs.record.Epoch
	// An answer that takes longer than half a TTL is no use: see adopt.
	c.write(claiming, Write{Op: Claim, Record: r, Timeout: min(MaxRequest, c.cfg.TTL/2)}, now, out)
}

// keep takes the next step to keep the lease: a renewal, or the look that tells
// what became of the last one.
func (c *Candidate) keep(now Now, out *actions) {
	left := c.lease.deadline - now.Clock
	if c.cfg.WriteOnce || c.sessions.current != "" {
		c.due = c.lease.deadline
		return
	}
	if !c.obs.fresh {
		c.read(min(MaxRequest, c.cfg.TTL/6, left), now, out)
		return
	}
	if c.resting(now) {
		return
	}
	r := c.writes.record(&c.cfg, now)
	r.Token, r.AcquiredAt, r.Unknown, r.Previous = c.lease.record.Token, c.lease.record.AcquiredAt, c.lease.record.Unknown, c.lease.record.Previous
	// The write may land at once and its answer never come, and from then on the
	// others count by it. If it promises less, believe it from now on (rule A7).
	c.lease.deadline = min(c.lease.deadline, now.Clock+Validity(r.TTL))
	c.write(renewing, Write{Op: Renew, Record: r, Timeout: min(MaxRequest, Renewal(r.TTL), left)}, now, out)
}

// free sends the release, or the look that tells what became of the last one.
func (c *Candidate) free(now Now, out *actions) {
	switch {
	case now.Clock >= c.until:
		c.unreleased(ErrUnsettled, out)
	case !c.obs.fresh:
		c.read(MaxRequest, now, out)
	case !c.obs.held() || !c.cfg.mine(c.obs.record):
		c.released(nil, out) // it is free, or it has passed to another
	case c.sessions.gone(c.obs.record.Session):
		c.released(nil, out) // what it names ends without that
	case c.cfg.Tokenless && (c.release.deleting || c.lease.deadline-now.Clock < c.cfg.TTL/enoughLeft):
		// The record is deleted, and no condition would keep a delete that comes
		// late from removing the next holder's. So none is sent when too little is
		// left, no second one while the first may still be on its way, and till then
		// not even we take the lock anew.
		c.released(ErrTooLate, out)
	case c.resting(now):
	default:
		r := c.obs.record
		r.Held, r.Session, r.WriteID, r.RenewedAt, r.ExpiresAt = false, "", c.writes.name(&c.cfg), now.Wall, now.Wall
		r.Successor = c.release.successor
		timeout := min(MaxRequest, Renewal(r.TTL))
		if c.cfg.Tokenless {
			timeout, c.release.deleting = min(timeout, (c.lease.deadline-now.Clock)/2), true
		}
		c.write(releasing, Write{Op: Free, Record: r, Timeout: timeout}, now, out)
	}
}

func (c *Candidate) released(err error, out *actions) {
	c.phase, c.due, c.release.left = clear, 0, ""
	if err != nil {
		c.release.left = c.obs.version
	}
	if err != nil && c.release.deleting {
		// A delete that is on its way lands within the lease that it was sent under or never. It
		// would remove the next holder's marker, so till then not even we take the lock anew.
		c.obs.claimableAt = max(c.obs.claimableAt, c.lease.deadline)
	}
	if !c.release.orphan {
		if err == nil {
			c.release.confirm(&c.lease, c.obs.record, c.obs.version)
		}
		out.add(Released{err})
	}
	c.release.orphan = false
}

// write sends w on the condition that the object has the version that was seen (rule A1).
func (c *Candidate) write(kind inflight, w Write, now Now, out *actions) {
	w.Expect, w.Over = c.obs.version, c.obs.record
	// This reading of the clock is older than the first byte (rule A4).
	c.writes.sent = attempt{first: c.writes.seq, last: c.writes.seq, expect: w.Expect, record: w.Record, t0: now.Clock}
	if kind != releasing && kind != reaping { // a free record needs no owner
		c.writes.remember(c.writes.sent, out)
	}
	c.busy = kind
	out.add(w)
}
