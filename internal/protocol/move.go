package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Errors of a move that cannot go on, whatever is tried again.
var (
	// ErrNothingToMove: there is no lock in the old place, nor is its seal there.
	ErrNothingToMove = errors.New("there is no lock to move")
	// ErrOccupied: something else than the end of this move lies in the new place.
	ErrOccupied = errors.New("the new place is taken")
	// ErrMovedElsewhere: the lock in the old place has moved already, or is to move, by another move.
	ErrMovedElsewhere = errors.New("another move has the lock")
)

// A Place is one of the two objects of a move, as a look has shown it. A move keeps nothing else: a
// run on another machine begins with two looks.
type Place struct {
	Exists  bool
	Record  record.Record // its Move says whether it is sealed or closed
	Version Version
}

// A Move takes a lock from one place to another. It is pure: the two places, and whether the mover has a
// lease of the old lock, say what comes next (rules M1 to M5). So a move
// may be killed at any point, and run again, and run by several at once.
type Move struct {
	From, To string // the names of the places
	// Lease proves the mover's lease of the old lock, which it has detached. nil: it has none.
	Lease *Proof
}

// A MoveStep is what a move does next.
type MoveStep int

// The steps of a move, in their order.
const (
	MoveClose MoveStep = iota + 1 // make the new object, closed, where nothing is
	MoveTake                      // acquire the old lock, as any candidate does, and detach the lease
	MoveSeal                      // write the old object over, sealed
	MoveOpen                      // write the new object over: a lock that is free
	MoveDone                      // nothing: the lock is in its new place
)

// Next is what to do after both places have been looked at, the old one after the new one or before it.
func (m *Move) Next(old, to Place) (MoveStep, error) {
	switch there := to.Record.Move; {
	case !old.Exists:
		return 0, fmt.Errorf("%w at %s", ErrNothingToMove, m.From)
	case old.Record.Move.From != "":
		return 0, fmt.Errorf("%w: %s is itself the end of a move from %s that is not done: run that one again first", ErrMovedElsewhere, m.From, old.Record.Move.From)
	case old.Record.Move.To != "" && old.Record.Move.To != m.To:
		return 0, fmt.Errorf("%w: it has gone from %s to %s, and not to %s", ErrMovedElsewhere, m.From, old.Record.Move.To, m.To)
	case !to.Exists:
		// Nothing is done to the old object before this. Else somebody could make a lock in the new
		// place while another still holds the old one (rule M1).
		return MoveClose, nil
	case there.From != "" && there.From != m.From:
		return 0, fmt.Errorf("%w: %s is to get the lock from %s", ErrOccupied, m.To, there.From)
	case there.From != "":
		return m.from(old), nil
	case old.Record.Move.To != "":
		return MoveDone, nil // it is a lock, or has moved on by now
	case there.To != "":
		return 0, fmt.Errorf("%w: a lock was at %s, and has moved to %s: choose another name", ErrOccupied, m.To, there.To)
	}
	return 0, fmt.Errorf("%w: there is a lock at %s already", ErrOccupied, m.To)
}

// from is what to do while the new object is closed.
func (m *Move) from(old Place) MoveStep {
	switch {
	case old.Record.Move.To != "":
		return MoveOpen // rule M3: only what was read, and is sealed, has no holder any more
	case m.Lease != nil && m.Lease.proves(old.Record):
		return MoveSeal // rule M2
	}
	return MoveTake
}

// Closed is the record of the new object until it is opened.
func (m *Move) Closed(cfg Config, writeID string, date, wall time.Time) record.Record {
	r := First(cfg, writeID, date, wall)
	r.Move = record.Move{From: m.From}
	return r
}

// Sealed is the record of the old object for good. Its token is that of the mover's lease: the largest that
// was given out there, and no larger one ever will be.
func (m *Move) Sealed(old Place, writeID string, wall time.Time) record.Record {
	r := old.Record
	r.Held, r.WriteID, r.RenewedAt, r.Ended, r.Move = false, writeID, wall, record.EndedByMove, record.Move{To: m.To}
	return r
}

// Opened is the record of the new object when the old one was read and is sealed: the same lock, free, in
// the new place's layout and with its TTL.
//
// Its token is the seal's, so that the next one is larger than all in the old place (rule M4). Where the
// closed object's is larger it is that: it was drawn by the store's time, as that of every lock that is made,
// and is above what was given out in a new place that somebody has deleted since.
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
