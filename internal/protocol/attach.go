package protocol

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// A Proof is what is left of a lease that was detached from its candidate. It proves that the
// record that stands is of that lease, and nothing else does (rule A12).
type Proof struct {
	Token   int64
	WriteID string // of the record that stood when it was made
	// Marks are incarnations whose renewals of the lease may have taken that record's place since:
	// each was a ToRenew of which it is not known what became.
	Marks []string
	// Expires is when the lease is over, by the wall clock of whom it was detached from. It is
	// asked only where the store does not tell the age of the record, and no exclusion rests on it.
	Expires time.Time
}

// proves reports that r is the record of the lease.
// Both are compared: the token says which lease it is, and the write ID that nobody has used the
// lease since, such as another process with a copy of the proof.
func (p *Proof) proves(r record.Record) bool {
	return r.Held && r.Token == p.Token && r.Session == "" && !r.Opaque &&
		(r.WriteID == p.WriteID || slices.Contains(p.Marks, r.Incarnation()))
}

// over reports that the lease is over, by the answer that has shown its record.
// By the store's clock, where that tells the age: the wall clock is that of another machine.
func (p *Proof) over(ev ReadDone, now Now) bool {
	if ev.Aged {
		return ev.Age >= Validity(ev.Record.TTL)
	}
	return now.Wall.After(p.Expires)
}

// Use is what a candidate attaches a lease for.
type Use int

// The uses of a lease that was detached.
const (
	ToHold    Use = iota // it goes on here
	ToRenew              // it goes on for another TTL, detached: it is never valid here
	ToRelease            // it ends
)

// attachment is the use of a lease that another candidate has detached. It goes from attach by
// takeUp, which looks and writes, to attached, returned or notAttached.
type attachment struct {
	Attach
	stale bool // the look under way was sent before it began
	over  bool // the lease is, by the last look
	sent  bool // a write that may have landed
}

// anew makes a new incarnation of the candidate: what it has written so far is a stranger's to it
// from now on, which it neither relies on, nor frees, nor takes over before its time.
//
// The name is that of the candidate with a number, which no other candidate has, as its own is
// drawn.
func (c *Candidate) anew(now Now) {
	c.generation++
	c.cfg.Incarnation = c.next(0)
	c.writes, c.handoff, c.obs.own, c.release.left = writes{}, handoff{}, 0, ""
	if c.obs.known && c.obs.version != "" {
		c.obs.expired = false
		c.obs.claimableAt, c.obs.spread = c.claimable(c.obs.record, now.Clock, false)
	}
}

// next is the name of this incarnation, or of one after it.
func (c *Candidate) next(n int) string { return c.base + "-" + strconv.Itoa(c.generation+n) }

// Incarnation is the mark of what the candidate writes.
func (c *Candidate) Incarnation() string { return c.cfg.Incarnation }

// NextIncarnation is what it will be when the candidate has begun an Attach. To keep it before that
// makes a Proof, of which it is one of the Marks, outlive a crash during a ToRenew.
func (c *Candidate) NextIncarnation() string { return c.next(1) }

// detach ends the lease here, and leaves its record as it stands.
// The lease is not valid from here on, by the change of phase, and the proof is given out later: if
// not, this process would go on while another holds the lease by it.
func (c *Candidate) detach(now Now, out *Actions) {
	switch {
	case c.phase == lost:
		out.Add(Detached{Err: ErrLost})
		return
	case c.phase != held || c.sessions.current != "" || c.cfg.Tokenless || c.cfg.WriteOnce:
		panic("protocol: Detach while " + c.phase.String())
	}
	c.phase, c.due = detaching, now.Clock
}

// letStand takes the next step to the certainty that the record that stands is the last one.
//
// A renewal that was sent and not answered may land later, and then the proof would name a record
// that does not stand any more: its user would be told that the lease was lost, and nobody could free
// the lock. So it is settled by another renewal on the same condition (rule A6).
func (c *Candidate) letStand(now Now, out *Actions) {
	switch {
	case !c.obs.fresh:
		c.read(min(MaxRequest, c.cfg.TTL/6, c.lease.deadline-now.Clock), now, out)
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

// notDetached: nobody will go on with the lease, so what is left of it is freed.
func (c *Candidate) notDetached(err error, now Now, out *Actions) {
	out.Add(Detached{Err: err})
	c.beginRelease(true, now)
}

// attach begins to use a lease that was detached.
//
// It writes under an incarnation of its own. Under that of the proof two processes that have copies
// of it would make the same write IDs, and each would take the other's renewal for its own (A6, A9).
func (c *Candidate) attach(ev Attach, now Now) {
	if !c.Settled() || c.cfg.Tokenless || c.cfg.WriteOnce {
		panic("protocol: Attach while " + c.phase.String())
	}
	c.sessions.enter("")
	c.phase, c.attachment, c.lease = attaching, attachment{Attach: ev, stale: c.busy == reading}, lease{}
	c.obs.fresh, c.due, c.until = false, now.Clock, now.Clock+c.cfg.TTL
	c.trouble.forget()
	c.agree(Terms{})
	c.anew(now)
}

// looked takes in what a look has shown of the lease that is being attached.
func (a *attachment) looked(ev ReadDone, now Now) (stale bool) {
	a.over = ev.Shown == Found && a.Proof.over(ev, now)
	stale, a.stale = a.stale, false
	return stale
}

// takeUp takes the next step to use the lease.
func (c *Candidate) takeUp(now Now, out *Actions) {
	a, r := &c.attachment, c.obs.record
	// A write of our own may have landed although the store said that it would not: a copy of it has.
	proven := c.obs.version != "" && a.Proof.proves(r) || c.obs.held() && c.cfg.mine(r)
	switch {
	case !c.obs.fresh:
		c.read(MaxRequest, now, out)
	// Our own write was conditional on the record of the lease, so if another is there now, the lease
	// was freed, by us or by somebody before us.
	case !proven && a.Use == ToRelease && a.sent:
		c.returned(now, out)
	case !proven:
		c.notAttached(a.loss(&c.cfg, &c.obs), now, out)
	// The write would be safe, as nobody has taken the lock. But the owner of the proof has worked
	// without a valid lease, and must be told.
	case a.over && a.Use != ToRelease:
		c.notAttached(ErrExpired, now, out)
	case c.failedOften():
		c.notAttached(c.trouble.Err, now, out)
	case c.resting(now):
	case a.Use == ToRelease:
		free := asFree(r, c.writes.name(&c.cfg), now)
		c.write(attachWriting, Write{Op: Free, Record: free, Timeout: min(MaxRequest, r.TTL/2)}, now, out)
		a.sent = true
	default:
		// The token and the time of the acquisition stay: it is one lease.
		next := c.writes.again(&c.cfg, r, now)
		if a.Use == ToRenew {
			next.Holder, next.Address, next.Meta = r.Holder, r.Address, r.Meta
		}
		c.write(attachWriting, Write{Op: Renew, Record: next, Timeout: min(MaxRequest, next.TTL/2)}, now, out)
		a.sent = true
	}
}

// loss says what became of a lease whose record does not stand any more.
func (a *attachment) loss(cfg *Config, o *observation) error {
	if r := o.record; o.version != "" && r.Held && r.Token == a.Proof.Token {
		return fmt.Errorf("%w: its holder is %q", ErrCopied, r.Holder)
	}
	return o.loss(cfg, &lease{record: record.Record{Token: a.Proof.Token}})
}

// loss says what became of a lease, by what stands in its place.
func (o *observation) loss(cfg *Config, of *lease) error {
	if o.version == "" {
		return ErrVanished
	}
	return of.loss(cfg, o.record)
}

// failedOften reports that the store has failed so often that a user who does not wait is told.
func (c *Candidate) failedOften() bool {
	return max(c.trouble.Reads, c.trouble.Writes) >= EnoughTries
}

// attachWritten takes in the answer to a write of an attachment.
func (c *Candidate) attachWritten(ev WriteDone, now Now, out *Actions) {
	switch sent := &c.writes.sent; {
	case c.phase != attaching: // its user has gone, and it was a write of another incarnation
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

// attached takes in that the write of the attachment has landed, with its own time (rule A4).
func (c *Candidate) attached(a attempt, now Now, out *Actions) {
	c.release.freed = freed{}
	c.lease = lease{end: Never, granted: now.Clock}
	c.due = c.lease.take(a)
	switch {
	case c.attachment.Use == ToRenew:
		c.phase, c.due = clear, 0
		out.Add(Detached{Record: c.obs.record})
		c.anew(now)
	case now.Clock >= c.lease.deadline:
		c.notAttached(ErrSlowStore, now, out)
	default:
		c.phase = held
		c.handoff.begin(a.t0)
		out.Add(Granted{})
	}
}

// returned: the record of the lease does not stand any more.
func (c *Candidate) returned(now Now, out *Actions) {
	if c.attachment.over {
		c.notAttached(ErrExpired, now, out) // it is free, and its owner must be told
		return
	}
	c.phase, c.due = clear, 0
	out.Add(Detached{Record: c.obs.record})
	c.anew(now) // what it frees was another's, so its next lease does not follow on one of its own
}

// notAttached ends an attachment. A write that may have landed, or may yet land, is not freed as after
// an acquisition that was given up: it is of a lease that the owner of the proof still has, and goes
// on with by the mark. So it must not be this incarnation's.
func (c *Candidate) notAttached(err error, now Now, out *Actions) {
	f := Failed{Err: err}
	if len(c.writes.open) > 0 || c.obs.held() && c.cfg.mine(c.obs.record) {
		f.Open = c.cfg.Incarnation
	}
	c.phase, c.due = clear, 0
	out.Add(f)
	c.anew(now)
}

// expire ends what may not take longer: a Detach at the end of the lease, an Attach after a TTL.
func (c *Candidate) expire(now Now, out *Actions) {
	switch {
	case c.phase == detaching && now.Clock >= c.lease.deadline:
		c.notDetached(c.terms.Expiry(now.Clock, c.lease.end, c.lease.record.TTL), now, out)
	case c.phase == attaching && now.Clock >= c.until:
		c.notAttached(c.trouble.NoAnswer(), now, out)
	}
}
