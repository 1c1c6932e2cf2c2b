package candidate

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Permanent errors of a move.
var (
	// ErrNothingToMove: the old place has neither a lock nor its seal.
	ErrNothingToMove = errors.New("there is no lock to move")
	// ErrOccupied: the new place has an object that is not this move's.
	ErrOccupied = errors.New("the new place is taken")
	// ErrMovedElsewhere: another move has moved the lock in the old place, or is about to.
	ErrMovedElsewhere = errors.New("another move has the lock")
)

// A Place is what a read showed of a move's old or new object. A move remembers nothing else: a
// run on another machine starts with two reads.
type Place struct {
	Exists bool
	Record record.Record // its Move says whether it is sealed or closed
}

// A Move takes a lock from one place to another. It is pure: the two places, and whether the
// mover has a lease of the old lock, determine the next step (rules M1 to M5). So you may kill
// a move at any point, run it again, and run several at once.
type Move struct {
	From, To string // the names of the places
	// Lease proves the mover's lease of the old lock, which it has detached. nil: it has none.
	Lease *Proof
}

// A MoveStep is the next step of a move.
type MoveStep int

// The steps of a move, in order.
const (
	MoveClose MoveStep = iota + 1 // create the new object, closed, where nothing is
	MoveTake                      // acquire the old lock, as any candidate does, and detach the lease
	MoveSeal                      // overwrite the old object, sealed
	MoveOpen                      // overwrite the new object with a free lock
	MoveDone                      // nothing: the lock is in its new place
)

// Next returns the next step. Both places must have been read, in either order.
func (m *Move) Next(old, to Place) (MoveStep, error) {
	switch there := to.Record.Move; {
	case !old.Exists:
		return 0, fmt.Errorf("%w at %s", ErrNothingToMove, m.From)
	case old.Record.Move.From != "":
		return 0, fmt.Errorf("%w: %s is itself the end of a move from %s that is not done: run that one again first", ErrMovedElsewhere, m.From, old.Record.Move.From)
	case old.Record.Move.To != "" && old.Record.Move.To != m.To:
		return 0, fmt.Errorf("%w: it has gone from %s to %s, and not to %s", ErrMovedElsewhere, m.From, old.Record.Move.To, m.To)
	case !to.Exists:
		// The new object comes first. Otherwise somebody could create a lock in the new place
		// while the old one is still held (rule M1).
		return MoveClose, nil
	case there.From != "" && there.From != m.From:
		return 0, fmt.Errorf("%w: %s is to get the lock from %s", ErrOccupied, m.To, there.From)
	case there.From != "":
		return m.from(old), nil
	case old.Record.Move.To != "":
		return MoveDone, nil // it is a lock, or has moved on since
	case there.To != "":
		return 0, fmt.Errorf("%w: a lock was at %s, and has moved to %s: choose another name", ErrOccupied, m.To, there.To)
	}
	return 0, fmt.Errorf("%w: there is a lock at %s already", ErrOccupied, m.To)
}

// from returns the next step while the new object is closed.
func (m *Move) from(old Place) MoveStep {
	switch {
	case old.Record.Move.To != "":
		return MoveOpen // rule M3: only a seal that was read proves that the old lock has no holder
	case m.Lease != nil && m.Lease.proves(old.Record):
		return MoveSeal // rule M2
	}
	return MoveTake
}

// Closed returns the new object's record until it is opened.
func (m *Move) Closed(cfg Config, writeID string, date, wall time.Time) record.Record {
	r := First(cfg, writeID, date, wall)
	r.Move = record.Move{From: m.From}
	return r
}

// Sealed returns the old object's final record. It has the token of the mover's lease: the
// largest one given out there, now and forever.
func (m *Move) Sealed(old Place, writeID string, wall time.Time) record.Record {
	r := old.Record
	r.Held, r.WriteID, r.RenewedAt, r.Ended, r.Move = false, writeID, wall, record.EndedByMove, record.Move{To: m.To}
	return r
}

// Opened returns the new object's record after the old one was read and is sealed: the same
// lock, free, with the new place's layout and TTL.
//
// It has the seal's token, so that the next one is larger than all in the old place (rule M4),
// or the closed object's if that is larger. A new lock's token is drawn from the store's time,
// so it is above those of a deleted lock in the new place.
func (m *Move) Opened(old, to Place, cfg Config, writeID string, wall time.Time) record.Record {
	r := old.Record
	counted := r.CountedTerm() > 0
	r.Token = max(r.Token, to.Record.Token)
	if counted {
		r.TermToken = r.Token
	}
	r.Move, r.Layout, r.TTL, r.WriteID, r.RenewedAt, r.ExpiresAt = record.Move{}, cfg.Layout, cfg.TTL, writeID, wall, wall
	r.Epoch, r.Previous, r.Rest, r.Successor, r.Session = 0, 0, nil, "", ""
	return r
}
