package protocol

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// lease is what a candidate holds, or held last.
type lease struct {
	record   record.Record // as it was written
	deadline time.Duration // it is valid before this
	promised time.Duration // by the record: nobody else holds the lock before this
	end      time.Duration // no renewal makes it valid for longer, by its terms; never: any does
	granted  time.Duration
	sent     time.Duration // the last write of it that has landed
	meta     metaChange
	// successor is whom the user is about to end it in favour of; renewals name it.
	successor string
}

// take takes in that the attempt a has landed, which began the lease or renewed it, and says when
// it is to be renewed. It counts from that attempt's own t0, however long ago that was (rule A4).
// Under a session its own times do not matter: the session's clock says how long it is valid
// (rule D4). Its terms do.
func (l *lease) take(a attempt) (renewal time.Duration) {
	l.record, l.sent, l.deadline, l.promised = a.record, a.t0, l.end, l.end
	if a.record.Session != "" {
		return l.deadline
	}
	// Others count by the record, which promises what is believed here or more, and never less.
	l.promised = a.t0 + Validity(a.record.TTL)
	l.deadline = min(l.promised, l.end)
	return a.t0 + Renewal(a.record.TTL)
}

// final reports that nothing can or need make the lease valid for longer: no renewal follows. A
// write that carries other meta data may.
func (c *Candidate) final() bool {
	// Under a session the heartbeat is renewed in its place. A marker that cannot be written over
	// just ends, and so does a lease that lasts as long as its terms allow.
	return c.cfg.WriteOnce || c.sessions.current != "" || c.terms.NoRenewal || c.lease.deadline >= c.lease.end
}

// Valid reports whether the candidate holds a lease that is valid at the given
// reading of the clock (rule A10).
//
// It takes the time as an argument and keeps no flag: a flag would be true for as long as the
// process is paused, which is when it matters.
func (c *Candidate) Valid(clock time.Duration) bool {
	return c.phase == held && clock < c.lease.deadline
}

// Deadline is the reading of the clock from which on the lease is no longer
// valid. It is meaningful while a lease is held.
func (c *Candidate) Deadline() time.Duration { return c.lease.deadline }

// Promised is the reading of the clock before which nobody else holds the lock, by the record of
// the lease that is held, or was held last. It is later than Deadline where the terms of the lease
// end it earlier.
func (c *Candidate) Promised() time.Duration { return c.lease.promised }

// Lease is the record of the lease that is held, or was held last.
func (c *Candidate) Lease() record.Record { return c.lease.record }

// keep takes the next step to keep the lease: a renewal, or the look that tells
// what became of the last one.
//
// A renewal whose answer is lost, or is a refusal, may have landed (rule A6). writeFailed makes
// what is known of the object stale, so a look follows at once, and it shows
//
//   - this renewal: adopt calls renewed, which counts from the time before it was sent;
//   - what was there before: the renewal is open still, and another one follows on the same
//     condition, after a pause (see resting);
//   - something else, or nothing: the lease is lost, and loss says how;
//   - no answer: another look follows, after a pause.
//
// Meanwhile the lease is valid until its deadline, and there Step ends it before it does anything else.
func (c *Candidate) keep(now Now, out *Actions) {
	if c.final() && !c.lease.meta.pending() {
		c.due = c.lease.deadline
		return
	}
	if !c.obs.fresh {
		c.read(min(MaxRequest, c.cfg.TTL/6, c.lease.deadline-now.Clock), now, out)
		return
	}
	if c.resting(now) {
		return
	}
	c.renew(now, out)
}

// renew sends a renewal.
func (c *Candidate) renew(now Now, out *Actions) {
	r := c.writes.again(&c.cfg, c.lease.record, now)
	r.Successor = c.lease.successor
	// The write may land at once and its answer never come, and from then on the
	// others count by it. If it promises less, believe it from now on (rule A7). Under a session it
	// promises nothing: they wait for the end of that.
	if r.Session == "" {
		c.lease.promised = min(c.lease.promised, now.Clock+Validity(r.TTL))
		c.lease.deadline = min(c.lease.deadline, c.lease.promised)
	}
	c.write(renewing, Write{Op: Renew, Record: r, Timeout: min(MaxRequest, Renewal(r.TTL), c.lease.deadline-now.Clock)}, now, out)
}

// renewed takes in that a renewal has landed, whether its answer said so or a look.
// It counts from the sending of that very attempt. Counted from the answer, a renewal that was
// answered after a TTL would look fresh, while others have taken the lock by then (rule A4).
func (c *Candidate) renewed(a attempt, now Now, out *Actions) {
	final := c.final()
	if c.due = c.lease.take(a); !final {
		out.Add(Renewed{})
	}
	c.metaLanded(a.meta, out)
	c.carrySoon(now) // a change may have come meanwhile
}

// renewSoon brings the next renewal forward, to a second after the last one at the earliest.
// Many locks may be released at one moment, and one heartbeat tells of all of them.
func (c *Candidate) renewSoon(now Now) {
	if c.phase == held {
		c.due = min(c.due, max(now.Clock, c.obs.first+time.Second))
	}
}

// giveUp ends the lease before its work has stopped: nothing is sent until the user releases.
func (c *Candidate) giveUp(err error, out *Actions) {
	if c.phase != held {
		return
	}
	why := ErrGivenUp
	if err != nil {
		why = fmt.Errorf("%w: %w", ErrGivenUp, err)
	}
	c.lose(why, out)
}

// lose ends the lease. What stands in the store is freed when the user releases, and not before:
// its work may go on until then.
// Nothing that comes later revives it, not even the answer to a renewal that landed in time: the
// user has been told to stop, and can be told that only once.
func (c *Candidate) lose(cause error, out *Actions) {
	c.phase = lost
	out.Add(Lost{cause})
}

// loss says what became of the lease, by the record that stands in its place. One that is free
// and has its token says what was done to this very lease, and names nobody who did it: its
// holder is still this candidate's.
func (l *lease) loss(cfg *Config, r record.Record) error {
	ours := !r.Held && r.Token == l.record.Token
	switch {
	case !r.Held && cfg.Tokenless:
		return ErrVanished
	case ours && r.Ended == record.EndedByHand:
		return ErrBroken
	case ours && r.Ended == record.EndedByTakeover:
		return ErrTaken // by one that has not come through yet
	case ours && r.Ended != "":
		return fmt.Errorf("%w: %s", ErrFreed, r.Ended)
	case ours:
		return ErrFreed
	}
	return fmt.Errorf("%w: holder %q, token %d", ErrTaken, r.Holder, r.Token)
}
