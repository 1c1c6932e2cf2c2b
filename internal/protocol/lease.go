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

// renewed takes in that a renewal has landed, whether its answer said so or a look.
func (c *Candidate) renewed(a attempt, out *actions) {
	c.lease, c.due = leased(a)
	out.add(Renewed{})
}

// giveUp ends the lease before its work has stopped.
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
