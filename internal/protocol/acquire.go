package protocol

import (
	"fmt"

	"github.com/leasehold/leasehold/internal/record"
)

// want is what the user waits for.
type want int

const (
	nothing want = iota
	atOnce       // the lock, or the word that another has it
	eventually
)

// acquisition is what the user wants of the lock, and was told of it. It goes from acquire by seek,
// which looks, waits (see wait) and claims, to claimed or fail.
type acquisition struct {
	want     want
	watching bool          // look, even if nobody wants the lock
	reported record.Record // the holder that Waiting told of
}

// acquire begins an acquisition, by what is known and by what must be looked up first.
// A second Acquire before the answer to the first is a fault of the driver, and one while a lease
// is held would make two leases of one candidate. So both panic: to go on would be worse.
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
	// Knowledge of a free lock may be old, but then the write is refused and tells;
	// so a lock that nobody else uses costs one request. Knowledge of a holder may
	// be old too, so the lock is read again before the caller is told.
	c.obs.fresh = c.obs.known && (c.obs.version != "" || c.cfg.Tokenless) && !c.obs.record.Held
	if c.obs.rests(now.Clock) {
		c.obs.fresh = false // somebody may have ended that since, and the caller is told of it
	}
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
	// A new user has heard of nobody and waits from now, so everything that is told once, and every
	// pause that grows, begins anew.
	c.acq.reported, c.due, c.pace.poll, c.handoff.passed, c.pace.again = record.Record{}, 0, 0, false, false
	h := &c.handoff
	if rest := c.rest(); ev.Wait && h.on && h.over(rest, c.cfg.TTL) {
		// Those who wait elsewhere cannot see a lock that is free for a moment only.
		c.obs.fresh, c.due = false, h.ended+rest
		h.on, h.rested = false, true
	}
}

// watch looks at once when it begins, since what is known may be as old as the last acquisition.
func (c *Candidate) watch(on bool) {
	if on && !c.acq.watching && c.acq.want == nothing && c.phase == clear {
		c.obs.fresh, c.due = false, 0
	}
	c.acq.watching = on
}

// cancel ends an acquisition because of its user.
// A claim that was sent is not called back, because no store can do that: seek goes on for
// nobody, until the claim has landed and is freed, or cannot land any more (rule D6).
func (c *Candidate) cancel(err error, now Now, out *Actions) {
	if err == nil {
		err = ErrCancelled
	}
	switch { // else the answer and the cancellation crossed
	case c.acq.want != nothing:
		c.fail(err, now, out)
	case c.phase == detaching:
		c.notDetached(err, now, out)
	case c.phase == attaching:
		c.notAttached(err, now, out)
	}
}

// seek takes the next step towards the lock, or towards the certainty that an
// abandoned claim cannot land any more.
//
// The order of the cases is part of the rules. Giving up comes before asking, asking before
// deciding, and an error that no wait can mend before any wait.
func (c *Candidate) seek(now Now, out *Actions) {
	switch {
	case c.acq.want == nothing && len(c.writes.open) > 0 && now.Clock >= c.until:
		c.abandon(out)
		c.writes.open = nil // should it land yet, the others wait out its TTL
	// An answer to an old question decides nothing: the holder may have renewed since (rule A5).
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
	// The name is used. A session under it could be taken for an earlier one, which locks still
	// name (rule D1).
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
	// Neither the record nor its age says whether a holder under a session is there. So one look
	// at the heartbeat is worth it before the user hears "held".
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

// claim writes a record with the next token over exactly what was seen. One whose answer is lost
// may have landed (rule A6): seek looks, and adopt calls claimed if it has. If not, another claim
// follows on the same condition.
func (c *Candidate) claim(now Now, out *Actions) {
	if c.cfg.Reaper {
		c.reap(now, out)
		return
	}
	// One more than the largest token ever seen, also after a claim of our own that may have
	// landed: two leases of one token could not be told apart by any resource (rule A3).
	r := c.writes.record(&c.cfg, now)
	r.Session = c.sessions.current
	r.Token, r.AcquiredAt, r.Unknown, r.Previous = c.obs.next(&c.cfg), now.Wall, c.obs.record.Unknown, c.obs.record.Epoch
	c.remember(&r, now)
	// An answer that takes longer than half a TTL is no use: see claimed.
	c.write(claiming, Write{Op: Claim, Record: r, Timeout: min(MaxRequest, c.cfg.TTL/2)}, now, out)
}

// claimed takes in that a claim has landed: it is a lease, unless that came too late.
func (c *Candidate) claimed(a attempt, now Now, out *Actions) {
	c.release.freed = freed{}
	c.lease = lease{end: c.terms.end(a.t0), granted: now.Clock}
	c.due = c.lease.take(a)
	// Under a session no lease is too old to begin work, but it may be under an earlier session.
	late := a.record.Session == "" && now.Clock > a.t0+a.record.TTL/2 || a.record.Session != c.sessions.current
	// A hold that is to be short must not be over, or nearly, when it begins.
	late = late || c.terms.MaxHold > 0 && now.Clock > a.t0+c.terms.MaxHold/2
	switch {
	case c.acq.want == nothing:
		c.undo(now)
	case late && c.trouble.slow >= EnoughTries:
		c.fail(c.terms.tooSlow(), now, out) // and nobody wants what has landed: see stray
	case late:
		// Too little is left of it to begin work. It was never handed out, so
		// it may be replaced at once, by an acquisition of its own (rule A3).
		c.trouble.slow++
		c.due = now.Clock
	case !c.agreed(a.record):
		// It is the claim of an earlier acquisition, which had other terms. To renew it with these
		// would not do: it would be somebody else's lease until then (rule A3 as above).
		c.due = now.Clock
	default:
		c.phase, c.acq.want = held, nothing
		c.handoff.begin(a.t0)
		out.Add(Granted{})
	}
}

// denied: the store refuses a claim for good.
func (c *Candidate) denied(err error, now Now, out *Actions) {
	// This refusal is about this claim only. Whether an earlier one landed, it does not say.
	if len(c.named(nil)) == 0 { // else an earlier one may have landed, and its session goes on
		c.writes.open = nil
	}
	if c.acq.want != nothing {
		c.fail(err, now, out)
	}
}

// reap frees a lock whose holder was waited out, over exactly what was seen. It is the end
// of a session: nobody will hold that lock again.
// The token stays: should the holder come back, it sees that this very lease was ended (see loss).
// If its delayed heartbeat comes first, this write is refused and it lives; if this write comes
// first, the heartbeat is refused. Without it both could believe themselves right (rule D3).
func (c *Candidate) reap(now Now, out *Actions) {
	r := c.obs.record
	r.Held, r.Rest, r.WriteID, r.Ended = false, nil, c.writes.name(&c.cfg), "its holder was waited out by "+c.cfg.Holder
	c.write(reaping, Write{Op: Free, Record: r, Timeout: min(MaxRequest, r.TTL/2)}, now, out)
}

// fail ends an acquisition. A claim that may have landed, or may yet land, is
// settled all the same: if it lands, it is released.
func (c *Candidate) fail(err error, now Now, out *Actions) {
	c.acq.want = nothing
	c.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	out.Add(Failed{Err: err})
}

// tooLong ends an acquisition that does not wait and has had no answer for a TTL.
// A user who does not wait was promised an answer, and a store that hangs gives none.
func (c *Candidate) tooLong(now Now, out *Actions) {
	if c.acq.want != atOnce || now.Clock < c.until {
		return
	}
	c.fail(c.trouble.NoAnswer(), now, out)
}

// tired reports that an acquisition that does not wait has failed often enough.
// Once is too few: stores refuse a single request for reasons that are gone a moment later.
func (c *Candidate) tired() bool {
	return c.acq.want == atOnce && c.failedOften()
}
