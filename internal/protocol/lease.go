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
}

// leased is the lease that the attempt a has brought, and when it is to be renewed. It counts from
// that attempt's own t0, however long ago that was (rule A4). Under a session its own times do not
// matter: the session's clock says how long it is valid (rule D4).
func leased(a attempt) (l lease, renewal time.Duration) {
	if a.record.Session != "" {
		return lease{a.record, never}, never
	}
	return lease{a.record, a.t0 + Validity(a.record.TTL)}, a.t0 + Renewal(a.record.TTL)
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
func (c *Candidate) keep(now Now, out *actions) {
	left := c.lease.deadline - now.Clock
	// There is nothing to renew. Under a session the heartbeat is renewed in its place; a marker
	// that cannot be written over just ends.
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

// renewed takes in that a renewal has landed, whether its answer said so or a look.
// It counts from the sending of that very attempt. Counted from the answer, a renewal that was
// answered after a TTL would look fresh, while others have taken the lock by then (rule A4).
func (c *Candidate) renewed(a attempt, out *actions) {
	c.lease, c.due = leased(a)
	out.add(Renewed{})
}

// renewSoon brings the next renewal forward, to a second after the last one at the earliest.
// Many locks may be released at one moment, and one heartbeat tells of all of them.
func (c *Candidate) renewSoon(now Now) {
	if c.phase == held {
		c.due = min(c.due, max(now.Clock, c.obs.first+time.Second))
	}
}

// giveUp ends the lease before its work has stopped: nothing is sent until the user releases.
func (c *Candidate) giveUp(err error, out *actions) {
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
func (c *Candidate) lose(cause error, out *actions) {
	c.phase = lost
	out.add(Lost{cause})
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
