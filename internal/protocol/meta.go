package protocol

import (
	"maps"
	"time"
)

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
func (c *Candidate) setMeta(ev SetMeta, now Now, out *Actions) {
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
	if settled := c.busy == none && len(c.writes.open) == 0; settled && maps.Equal(c.lease.record.Meta, ev.Meta) {
		c.metaLanded(ev.Number, out)
		return
	}
	c.carrySoon(now)
}

// carrySoon brings the next write forward if a change is pending.
func (c *Candidate) carrySoon(now Now) {
	if c.lease.meta.pending() {
		c.due = min(c.due, max(now.Clock, c.lease.sent+metaPause))
	}
}

// metaLanded notes that a record with change number has landed, as shown by a clean success or
// a read only (rule A6). A change that came during the write is not in it.
func (c *Candidate) metaLanded(number int, out *Actions) {
	if m := &c.lease.meta; number > m.landed {
		m.landed = number
		out.Add(MetaSet{number})
	}
}
