package protocol

import (
	"maps"
	"time"
)

// metaChange is what the user of a lease wants its record to carry. The changes are numbered by the
// user of the candidate, and the last one counts.
type metaChange struct {
	asked  int // the last one
	landed int // all up to this one are in a record that has landed, or one after them is
}

// pending reports that the record is not known to carry the last one.
func (m *metaChange) pending() bool { return m.asked != m.landed }

// metaPause is between the writes that carry changes: it counts from the sending of the last one
// that has landed. Many changes in a second are one write, since a store may take no more of one
// object, and each costs as much as a renewal.
const metaPause = time.Second

// setMeta changes the meta data of the lease that is held, and of no other: it is one of its terms
// from now on. The next renewal carries it, which is brought forward. Where there is none, because a
// session is renewed in its place or its terms let the lease end, one write of the record does, which
// makes the lease valid for no longer (see lease.take).
//
// A lease that has ended is left alone: Lost has said so, or the Release was first.
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
	// With an attempt open the record that was seen need not be the one that stands.
	if settled := c.busy == none && len(c.writes.open) == 0; settled && maps.Equal(c.lease.record.Meta, ev.Meta) {
		c.metaLanded(ev.Number, out)
		return
	}
	c.carrySoon(now)
}

// carrySoon brings the write forward that carries a change, if one is to.
func (c *Candidate) carrySoon(now Now) {
	if c.lease.meta.pending() {
		c.due = min(c.due, max(now.Clock, c.lease.sent+metaPause))
	}
}

// metaLanded takes in that a record has landed that was written when so many changes were asked for.
// Only a clean success and a look say so (rule A6). A change that came while that write was under way
// is not in it.
func (c *Candidate) metaLanded(number int, out *Actions) {
	if m := &c.lease.meta; number > m.landed {
		m.landed = number
		out.Add(MetaSet{number})
	}
}
