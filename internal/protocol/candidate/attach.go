package candidate

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// A Proof identifies a detached lease. Only a Proof shows that a record is of that lease (rule
// A12).
type Proof struct {
	Token   int64
	WriteID string // of the record when the Proof was made
	// Marks are incarnations whose renewals may have replaced that record: each began a ToRenew
	// whose outcome is unknown.
	Marks []string
	// Expires is the end of the lease by the wall clock of the process that detached it. It is only
	// used if the store does not report the record's age, and exclusion never depends on it.
	Expires time.Time
}

// ProofOf returns the Proof of a lease with this record.
func ProofOf(r record.Record) Proof {
	return Proof{Token: r.Token, WriteID: r.WriteID, Expires: r.RenewedAt.Add(protocol.Validity(r.TTL))}
}

// proves reports whether r is the lease's record. The token identifies the lease. By the write ID,
// no other process with a copy of the proof has used it since.
func (p *Proof) proves(r record.Record) bool {
	return r.Held && r.Token == p.Token && r.Session == "" && !r.Opaque &&
		(r.WriteID == p.WriteID || slices.Contains(p.Marks, r.Incarnation()))
}

// over reports whether the lease has expired, given the read that showed its record. The record's
// age decides if the store reports it, because Expires is by another machine's wall clock.
func (p *Proof) over(ev ReadDone, now protocol.Now) bool {
	if ev.Aged {
		return ev.Age >= protocol.Validity(ev.Record.TTL)
	}
	return now.Wall.After(p.Expires)
}

// Use is the purpose of an Attach.
type Use int

// The uses of a detached lease.
const (
	ToHold    Use = iota // continue it here
	ToRenew              // extend it by a TTL but leave it detached: it is never valid here
	ToRelease            // end it
)

// attachment is an Attach under way. It begins in attach, takeUp reads and writes, and attached,
// returned or notAttached ends it.
type attachment struct {
	Attach
	stale bool // the read under way was sent before the Attach
	over  bool // the lease has expired, by the last read
	sent  bool // a release may have landed
}

// anew gives the candidate a new incarnation, named after the first with a number, and therefore
// unique. Whatever the candidate wrote before is a stranger's: it does not rely on it, free it, or
// take it over early.
func (c *Machine) anew(now protocol.Now) {
	c.generation++
	c.cfg.Incarnation = c.next(0)
	c.writes, c.handoff, c.obs.own, c.release.left = writes{}, handoff{}, 0, ""
	if c.obs.version != "" {
		c.obs.expired = false
		c.obs.claimableAt, c.obs.spread = c.claimable(c.obs.record, now.Clock, false)
	}
}

// next returns the name of this incarnation (0), or of the n-th after it.
func (c *Machine) next(n int) string { return c.base + "-" + strconv.Itoa(c.generation+n) }

// Incarnation returns the prefix of the candidate's write IDs.
func (c *Machine) Incarnation() string { return c.cfg.Incarnation }

// NextIncarnation returns the incarnation of the next Attach. Store it among a Proof's Marks before
// a ToRenew, and the Proof survives a crash.
func (c *Machine) NextIncarnation() string { return c.next(1) }

// detach ends the lease here and leaves its record. The change of phase invalidates the lease
// before anyone gets the proof, so this process cannot rely on it while another one uses the proof.
func (c *Machine) detach(now protocol.Now, out *protocol.Actions) {
	switch {
	case c.phase == lost:
		out.Add(Detached{Err: protocol.ErrLost})
		return
	case c.phase != held || c.sessions.current != "" || c.cfg.Tokenless || c.cfg.WriteOnce:
		panic("protocol: Detach while " + c.phase.String())
	}
	c.phase, c.due = detaching, now.Clock
}

// letStand detaches once no earlier write can replace the record. If an unanswered renewal landed
// later, the proof would name an old record: its user would hear "lost", and nobody could free the
// lock. So another renewal on the same condition settles it first (rule A6).
func (c *Machine) letStand(now protocol.Now, out *protocol.Actions) {
	switch {
	case !c.obs.fresh:
		c.read(min(protocol.MaxRequest, c.cfg.TTL/6, c.lease.deadline-now.Clock), now, out)
	case !c.obs.held() || !c.cfg.mine(c.obs.record):
		c.notDetached(c.obs.loss(&c.cfg, &c.lease), now, out)
	case len(c.writes.open) == 0:
		c.phase, c.due = clear, 0
		out.Add(Detached{Record: c.obs.record})
		c.anew(now)
	case c.resting(now):
	default:
		c.renew(now, out)
	}
}

// notDetached reports err, and frees what is left of the lease.
func (c *Machine) notDetached(err error, now protocol.Now, out *protocol.Actions) {
	out.Add(Detached{Err: err})
	c.beginRelease(true, now)
}

// attach begins an Attach, under a new incarnation. Two processes with copies of one proof would
// otherwise make the same write IDs, and mistake each other's renewals for their own (rules A6 and
// A9).
func (c *Machine) attach(ev Attach, now protocol.Now) {
	if !c.Settled() || c.cfg.Tokenless || c.cfg.WriteOnce {
		panic("protocol: Attach while " + c.phase.String())
	}
	c.sessions.enter("")
	c.phase, c.attachment, c.lease = attaching, attachment{Attach: ev, stale: c.busy == reading}, lease{}
	c.obs.fresh, c.due, c.until = false, now.Clock, now.Clock+c.cfg.TTL
	c.trouble.Forget()
	c.agree(Terms{})
	c.anew(now)
}

// looked notes what a read shows about the lease, and reports whether the read was sent too early.
func (a *attachment) looked(ev ReadDone, now protocol.Now) (stale bool) {
	a.over = ev.Shown == protocol.Found && a.Proof.over(ev, now)
	stale, a.stale = a.stale, false
	return stale
}

// takeUp takes the next step of an Attach.
func (c *Machine) takeUp(now protocol.Now, out *protocol.Actions) {
	a, r := &c.attachment, c.obs.record
	// The store may have rejected our write although a copy of the request landed.
	proven := c.obs.version != "" && a.Proof.proves(r) || c.obs.held() && c.cfg.mine(r)
	switch {
	case !c.obs.fresh:
		c.read(protocol.MaxRequest, now, out)
	// Our write was conditional on the lease's record. So if it is gone, the lease was freed, here
	// or before.
	case !proven && a.sent:
		c.returned(now, out)
	case !proven:
		c.notAttached(a.loss(&c.cfg, &c.obs), now, out)
	// The write would be safe, because the lock was not taken. But the proof's owner worked without
	// a valid lease, and must be told.
	case a.over && a.Use != ToRelease:
		c.notAttached(protocol.ErrExpired, now, out)
	case c.failedOften():
		c.notAttached(c.trouble.Err, now, out)
	case c.resting(now):
	case a.Use == ToRelease:
		free := asFree(r, c.writes.name(&c.cfg), now)
		c.write(attachWriting, Write{Op: Free, Record: free, Timeout: min(protocol.MaxRequest, r.TTL/2)}, now, out)
		a.sent = true
	default:
		// The token and the time of acquisition stay, because it is the same lease.
		next := c.writes.again(&c.cfg, r, now)
		if a.Use == ToRenew {
			next.Holder, next.Address, next.Meta = r.Holder, r.Address, r.Meta
		}
		c.write(attachWriting, Write{Op: Renew, Record: next, Timeout: min(protocol.MaxRequest, next.TTL/2)}, now, out)
	}
}

// loss returns why an attached lease was lost, by what the candidate last saw.
func (a *attachment) loss(cfg *Config, o *observation) error {
	if r := o.record; o.version != "" && r.Held && r.Token == a.Proof.Token {
		return fmt.Errorf("%w: its holder is %q", protocol.ErrCopied, r.Holder)
	}
	return o.loss(cfg, &lease{record: record.Record{Token: a.Proof.Token}})
}

// loss returns why a lease was lost, by what the candidate last saw.
func (o *observation) loss(cfg *Config, of *lease) error {
	if o.version == "" {
		return protocol.ErrVanished
	}
	return of.loss(cfg, o.record)
}

// failedOften reports whether reads or writes have failed EnoughTries times in a row.
func (c *Machine) failedOften() bool {
	return max(c.trouble.Reads, c.trouble.Writes) >= protocol.EnoughTries
}

// attachWritten handles the answer to a write of an Attach.
func (c *Machine) attachWritten(ev WriteDone, now protocol.Now, out *protocol.Actions) {
	switch sent := &c.writes.sent; {
	case c.phase != attaching: // its user gave up, and another incarnation wrote it
		c.obs.fresh, c.due = false, now.Clock
	case ev.Err != nil:
		c.tryFailed(ev.Err, now, out)
		if n := len(c.writes.open); ev.Void && n > 0 {
			c.writes.open = c.writes.open[:n-1]
		}
		if ev.Fatal {
			c.notAttached(ev.Err, now, out)
		}
	default:
		c.trouble.Progress()
		sent.record.Epoch = ev.Epoch
		if c.attachment.Use == ToRelease {
			c.observe(sent.record, ev.Version, now.Clock)
			c.returned(now, out)
			return
		}
		c.adopt(*sent, ev.Version, now, out)
	}
}

// attached handles a landed write, from whose own time the lease counts (rule A4).
func (c *Machine) attached(a attempt, now protocol.Now, out *protocol.Actions) {
	c.release.freed = freed{}
	c.lease = lease{end: protocol.Never}
	c.due = c.lease.take(a)
	switch {
	case c.attachment.Use == ToRenew:
		c.phase, c.due = clear, 0
		out.Add(Detached{Record: c.obs.record})
		c.anew(now)
	case now.Clock >= c.lease.deadline:
		c.notAttached(protocol.ErrSlowStore, now, out)
	default:
		c.phase = held
		c.handoff.begin(a.t0)
		out.Add(Granted{})
	}
}

// returned ends an Attach whose lease has no record any more.
func (c *Machine) returned(now protocol.Now, out *protocol.Actions) {
	if c.attachment.over {
		c.notAttached(protocol.ErrExpired, now, out) // the lock is free, but the owner must be told
		return
	}
	c.phase, c.due = clear, 0
	out.Add(Detached{Record: c.obs.record})
	c.anew(now) // this lease was another candidate's, so the next one does not follow one of our own
}

// notAttached ends an Attach with err. A write that may land is not freed, because it belongs to
// the lease of the proof's owner, who can continue with the mark Failed.Open. So it must not be
// this incarnation's.
func (c *Machine) notAttached(err error, now protocol.Now, out *protocol.Actions) {
	f := Failed{Err: err}
	if len(c.writes.open) > 0 || c.obs.held() && c.cfg.mine(c.obs.record) {
		f.Open = c.cfg.Incarnation
	}
	c.phase, c.due = clear, 0
	out.Add(f)
	c.anew(now)
}

// expire ends a Detach at the end of its lease, and an Attach after a TTL.
func (c *Machine) expire(now protocol.Now, out *protocol.Actions) {
	switch {
	case c.phase == detaching && now.Clock >= c.lease.deadline:
		c.notDetached(c.terms.Expiry(now.Clock, c.lease.end, c.lease.record.TTL), now, out)
	case c.phase == attaching && now.Clock >= c.until:
		c.notAttached(c.trouble.NoAnswer(), now, out)
	}
}
