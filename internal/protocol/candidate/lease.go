package candidate

import (
	"fmt"
	"maps"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
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
	l.promised = a.t0 + protocol.Validity(a.record.TTL)
	l.deadline = min(l.promised, l.end)
	return a.t0 + protocol.Renewal(a.record.TTL)
}

// final reports whether the lease cannot or need not be extended. It is not renewed, but changed
// metadata may still be written.
func (c *Machine) final() bool {
	// A session renews its heartbeat instead. A marker that cannot be overwritten just ends, and so
	// does a lease that lasts as long as its options allow.
	return c.cfg.WriteOnce || c.sessions.current != "" || c.terms.NoRenewal || c.lease.deadline >= c.lease.end
}

// Valid reports whether the candidate holds a valid lease at this time of the clock (rule A10).
// There is no flag, because it would stay true while the process is suspended, just when it
// matters.
func (c *Machine) Valid(clock time.Duration) bool {
	return c.phase == held && clock < c.lease.deadline
}

// Deadline returns when a held lease ceases to be valid, by the clock.
func (c *Machine) Deadline() time.Duration { return c.lease.deadline }

// Promised returns until when, by the clock, nobody else holds the lock, according to the present
// or last lease's record. It is after Deadline if the options end the lease earlier.
func (c *Machine) Promised() time.Duration { return c.lease.promised }

// Lease returns the record of the present or last lease.
func (c *Machine) Lease() record.Record { return c.lease.record }

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
func (c *Machine) keep(now protocol.Now, out *protocol.Actions) {
	if c.final() && !c.lease.meta.pending() {
		c.due = c.lease.deadline
		return
	}
	if !c.obs.fresh {
		c.read(min(protocol.MaxRequest, c.cfg.TTL/6, c.lease.deadline-now.Clock), now, out)
		return
	}
	if c.resting(now) {
		return
	}
	c.renew(now, out)
}

// renew sends a renewal.
func (c *Machine) renew(now protocol.Now, out *protocol.Actions) {
	r := c.writes.again(&c.cfg, c.lease.record, now)
	r.Successor = c.lease.successor
	// The write may land while its answer gets lost, and then others count by its record. If it
	// promises less, rely on no more from now on (rule A7). Under a session, it promises nothing:
	// others wait for the session's end.
	if r.Session == "" {
		c.lease.promised = min(c.lease.promised, now.Clock+protocol.Validity(r.TTL))
		c.lease.deadline = min(c.lease.deadline, c.lease.promised)
	}
	c.write(renewing, Write{Op: Renew, Record: r, Timeout: min(protocol.MaxRequest, protocol.Renewal(r.TTL), c.lease.deadline-now.Clock)}, now, out)
}

// renewed handles a landed renewal, known by its answer or by a read. The lease counts from when
// that attempt was sent. Counted from an answer a TTL later, it would look fresh after others have
// taken the lock (rule A4).
func (c *Machine) renewed(a attempt, now protocol.Now, out *protocol.Actions) {
	final := c.final()
	if c.due = c.lease.take(a); !final {
		out.Add(Renewed{})
	}
	c.metaLanded(a.meta, out)
	c.carrySoon(now) // a change may have come meanwhile
}

// renewSoon moves the next renewal forward, to at least a second after the last one, because one
// heartbeat announces all locks released together.
func (c *Machine) renewSoon(now protocol.Now) {
	if c.phase == held {
		c.due = min(c.due, max(now.Clock, c.obs.first+time.Second))
	}
}

// giveUp ends the lease before its work has stopped. The record stays until the user releases.
func (c *Machine) giveUp(err error, out *protocol.Actions) {
	if c.phase != held {
		return
	}
	why := protocol.ErrGivenUp
	if err != nil {
		why = fmt.Errorf("%w: %w", protocol.ErrGivenUp, err)
	}
	c.lose(why, out)
}

// lose ends the lease for good. Not even the answer to a renewal in time revives it, because its
// user is told to stop only once. The record is freed when the user releases, because its work may
// go on until then.
func (c *Machine) lose(cause error, out *protocol.Actions) {
	c.phase = lost
	out.Add(Lost{cause})
}

// loss returns why the lease was lost, by the record in its place. A free record with the same
// token says what happened to this lease, but not who did it: its holder is still this candidate.
func (l *lease) loss(cfg *Config, r record.Record) error {
	ours := !r.Held && r.Token == l.record.Token
	switch {
	case !r.Held && cfg.Tokenless:
		return protocol.ErrVanished
	case ours && r.Ended == record.EndedByHand:
		return protocol.ErrBroken
	case ours && r.Ended == record.EndedByTakeover:
		return protocol.ErrTaken // by a candidate whose second write has not landed yet
	case ours && r.Ended != "":
		return fmt.Errorf("%w: %s", protocol.ErrFreed, r.Ended)
	case ours:
		return protocol.ErrFreed
	}
	return fmt.Errorf("%w: holder %q, token %d", protocol.ErrTaken, r.Holder, r.Token)
}

// metaChange is the meta data change that a lease's user asked for. The user numbers the
// changes, and the last one counts.
type metaChange struct {
	asked  int // the last change
	landed int // a record with this change, or with a later one, has landed
}

// pending reports whether the last change may be missing from the record.
func (m *metaChange) pending() bool { return m.asked != m.landed }

// metaPause is the interval between writes with changes, counted from when the last landed one
// was sent. Many changes in a second become one write: a store may not take more for one
// object, and each costs as much as a renewal.
const metaPause = time.Second

// setMeta changes the current lease's meta data, as one of its terms. The next renewal carries
// the change and is brought forward. If none follows, because the lease is under a session or
// its terms let it end, one write of the record does, without making the lease valid for longer
// (see lease.take).
//
// An ended lease is left alone: either Lost was reported, or the Release came first.
func (c *Machine) setMeta(ev SetMeta, now protocol.Now, out *protocol.Actions) {
	if c.cfg.WriteOnce {
		panic("protocol: SetMeta of a record that cannot be written over")
	}
	if c.phase != held {
		return
	}
	c.terms.Meta, c.cfg.Meta = ev.Meta, ev.Meta
	c.lease.meta.asked = ev.Number
	if c.terms.NoRenewal {
		c.lease.end = min(c.lease.end, c.lease.deadline) // which the write would else move
	}
	// While an attempt is open, the last known record need not be the current one.
	if len(c.writes.open) == 0 && maps.Equal(c.lease.record.Meta, ev.Meta) {
		c.metaLanded(ev.Number, out)
	}
	c.carrySoon(now)
}

// carrySoon brings the next write forward if a change is pending.
func (c *Machine) carrySoon(now protocol.Now) {
	if c.lease.meta.pending() {
		c.due = min(c.due, max(now.Clock, c.lease.sent+metaPause))
	}
}

// metaLanded notes that a record with change number has landed, as shown by a clean success or
// a read only (rule A6). A change that came during the write is not in it.
func (c *Machine) metaLanded(number int, out *protocol.Actions) {
	if m := &c.lease.meta; number > m.landed {
		m.landed = number
		out.Add(MetaSet{number})
	}
}
