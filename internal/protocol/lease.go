package protocol

import (
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// lease is the candidate's present or last lease.
type lease struct {
	record   record.Record // as written
	deadline time.Duration // it is valid before this
	promised time.Duration // nobody else holds the lock before this, by the record
	end      time.Duration // its options end it here; Never: they do not
	granted  time.Duration
	sent     time.Duration // when its last landed write was sent
	meta     metaChange
	// successor is the holder the user wants next; renewals name it.
	successor string
}

// take notes that attempt a, a claim or renewal of the lease, has landed, and returns when to renew
// next. The lease counts from a's own t0, however long ago (rule A4). Under a session, only the
// options limit it: the session's clock says how long it is valid (rule D4).
func (l *lease) take(a attempt) (renewal time.Duration) {
	l.record, l.sent, l.deadline, l.promised = a.record, a.t0, l.end, l.end
	if a.record.Session != "" {
		return l.deadline
	}
	// Others count by the record, so it never promises less than the holder relies on.
	l.promised = a.t0 + Validity(a.record.TTL)
	l.deadline = min(l.promised, l.end)
	return a.t0 + Renewal(a.record.TTL)
}

// final reports whether the lease cannot or need not be extended. It is not renewed, but changed
// metadata may still be written.
func (c *Candidate) final() bool {
	// A session renews its heartbeat instead. A marker that cannot be overwritten just ends, and so
	// does a lease that lasts as long as its options allow.
	return c.cfg.WriteOnce || c.sessions.current != "" || c.terms.NoRenewal || c.lease.deadline >= c.lease.end
}

// Valid reports whether the candidate holds a valid lease at this time of the clock (rule A10).
// There is no flag, because it would stay true while the process is suspended, just when it
// matters.
func (c *Candidate) Valid(clock time.Duration) bool {
	return c.phase == held && clock < c.lease.deadline
}

// Deadline returns when a held lease ceases to be valid, by the clock.
func (c *Candidate) Deadline() time.Duration { return c.lease.deadline }

// Promised returns until when, by the clock, nobody else holds the lock, according to the present
// or last lease's record. It is after Deadline if the options end the lease earlier.
func (c *Candidate) Promised() time.Duration { return c.lease.promised }

// Lease returns the record of the present or last lease.
func (c *Candidate) Lease() record.Record { return c.lease.record }

// keep takes the next step to keep the lease: a renewal, or a read to find out whether one landed.
//
// After a refusal or a lost answer, a renewal may have landed (rule A6). So writeFailed makes a
// read follow at once. It can show
//
//   - this renewal: adopt calls renewed, which counts from before it was sent;
//   - the record before it: the renewal is still open, and another follows on the same condition,
//     after
//     a backoff (see resting);
//   - another record, or none: the lease is lost, and loss says how;
//   - nothing: another read follows, after a backoff.
//
// Meanwhile, the lease is valid until its deadline, where Step ends it before anything else.
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
	// The write may land while its answer gets lost, and then others count by its record. If it
	// promises less, rely on no more from now on (rule A7). Under a session, it promises nothing:
	// others wait for the session's end.
	if r.Session == "" {
		c.lease.promised = min(c.lease.promised, now.Clock+Validity(r.TTL))
		c.lease.deadline = min(c.lease.deadline, c.lease.promised)
	}
	c.write(renewing, Write{Op: Renew, Record: r, Timeout: min(MaxRequest, Renewal(r.TTL), c.lease.deadline-now.Clock)}, now, out)
}

// renewed handles a landed renewal, known by its answer or by a read. The lease counts from when
// that attempt was sent. Counted from an answer a TTL later, it would look fresh after others have
// taken the lock (rule A4).
func (c *Candidate) renewed(a attempt, now Now, out *Actions) {
	final := c.final()
	if c.due = c.lease.take(a); !final {
		out.Add(Renewed{})
	}
	c.metaLanded(a.meta, out)
	c.carrySoon(now) // a change may have come meanwhile
}

// renewSoon moves the next renewal forward, to at least a second after the last one, because one
// heartbeat announces all locks released together.
func (c *Candidate) renewSoon(now Now) {
	if c.phase == held {
		c.due = min(c.due, max(now.Clock, c.obs.first+time.Second))
	}
}

// giveUp ends the lease before its work has stopped. The record stays until the user releases.
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

// lose ends the lease for good. Not even the answer to a renewal in time revives it, because its
// user is told to stop only once. The record is freed when the user releases, because its work may
// go on until then.
func (c *Candidate) lose(cause error, out *Actions) {
	c.phase = lost
	out.Add(Lost{cause})
}

// loss returns why the lease was lost, by the record in its place. A free record with the same
// token says what happened to this lease, but not who did it: its holder is still this candidate.
func (l *lease) loss(cfg *Config, r record.Record) error {
	ours := !r.Held && r.Token == l.record.Token
	switch {
	case !r.Held && cfg.Tokenless:
		return ErrVanished
	case ours && r.Ended == record.EndedByHand:
		return ErrBroken
	case ours && r.Ended == record.EndedByTakeover:
		return ErrTaken // by a candidate whose second write has not landed yet
	case ours && r.Ended != "":
		return fmt.Errorf("%w: %s", ErrFreed, r.Ended)
	case ours:
		return ErrFreed
	}
	return fmt.Errorf("%w: holder %q, token %d", ErrTaken, r.Holder, r.Token)
}
