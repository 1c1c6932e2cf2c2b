package protocol

import (
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
)

// release is what a candidate knows of the release of a lease: the last one, or the one that is
// on its way.
type release struct {
	successor string  // whom it is to name
	resigned  bool    // it came while the lease was held
	orphan    bool    // no user is to be told: the lease came after its user had gone
	deleting  bool    // its object may be on its way to be deleted
	left      Version // a record of our own that could not be freed
	freed     freed   // if it was confirmed, by the release of the last lease
}

// freed is the record that the release of the last lease has left in the store.
type freed struct {
	confirmed bool
	record    record.Record
	version   Version
}

// confirm takes in what the release of a lease has left in the store, if that is free: then the
// followers are told.
func (l *release) confirm(of *lease, r record.Record, v Version) {
	if !r.Held && r.Token == of.record.Token {
		l.freed = freed{confirmed: true, record: r, version: v}
	}
}

// undo frees a lease whose user had gone when it came.
func (c *Candidate) undo(now Now) {
	// The TTL that there is to settle it began when the caller gave up. If that is
	// over the store answers all the same, so a few more tries are worth it: not for longer
	// than a TTL, since they come as often as those of a holder.
	until := max(c.until, now.Clock+min(retry.Max, c.cfg.TTL))
	c.beginRelease(true, now)
	c.until = until
}

// unreleased ends a release that may land yet, or never.
func (c *Candidate) unreleased(err error, out *actions) {
	c.abandon(out)
	c.released(err, out)
}
