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
