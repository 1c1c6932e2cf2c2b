package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/inside"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/retry"
	"github.com/leasehold/leasehold/store"
)

var (
	// ErrOccupied: something else lies where a lock is to be moved to. It was left as it is.
	ErrOccupied = protocol.ErrOccupied
	// ErrMovedElsewhere: the lock has moved already, to another place than was named, or is still on its way by
	// another move.
	ErrMovedElsewhere = protocol.ErrMovedElsewhere
)

// MoveOptions are the options of [Move].
type MoveOptions struct {
	// Acquire is how to acquire the lock that is to be moved; nil: by its Acquire, which waits for its
	// holder for as long as the context of Move allows.
	Acquire func(ctx context.Context) (*leasehold.Lease, error)
}

// maxMoveFailures is how many failures in a row end a Move. It can be run again.
const maxMoveFailures = 6

// Move takes a lock to another place, in the same store or in another one, while its candidates go on. It
// acquires the lock at from, seals its object, and makes the lock at to, free, with a token that is at least
// the last one of from. So the tokens of to are larger than all of from. It returns what lies at to then.
//
// The sealed object stays for good, and must never be deleted: a candidate that still uses from fails with a
// [leasehold.MovedError] that says where the lock is now. Until Move is done, one that uses to fails as well.
//
// Move can be interrupted at any point, killed too, and run again, also by several processes at once:
// the two objects say how to go on. If it has been done already it changes nothing. If it fails
// before the seal, from can be used as before. Where something else lies at to it fails with [ErrOccupied];
// where from has moved elsewhere, with [ErrMovedElsewhere]; where nothing is there, with store.ErrNotExist.
// Six failures of a store in a row end it.
//
// The lock at from has any layout with tokens, and no session; that at to has [leasehold.LayoutObject], since
// in the other layouts tokens are numbers of objects, which cannot go on from any number.
//
// It costs 4 reads and 4 writes, if from is free and nothing else goes on, and with epochs at from a
// listing more for each request there.
func Move(ctx context.Context, from, to *leasehold.Lock, opts *MoveOptions) (leasehold.Info, error) {
	m, err := newMover(from, to, opts)
	if err != nil {
		return leasehold.Info{}, err
	}
	defer m.undo(ctx)
	for failures := 0; ; {
		step, err := m.next(ctx)
		if err == nil && step == protocol.MoveDone {
			return m.arrived(ctx)
		}
		if err == nil {
			err = m.do(ctx, step)
		}
		if err == nil {
			failures = 0
			continue
		}
		m.old.known, m.new.known = false, false
		if failures++; m.final(err) || failures == maxMoveFailures || sleep(ctx, retry.Pause(failures, nil)) != nil {
			return leasehold.Info{}, m.left(err)
		}
	}
}

// An end is one of the two places of a move.
type end struct {
	inside.Parts
	lock  *leasehold.Lock
	name  string
	known bool // what is there, or else it is to be looked at
	at    layout.Snapshot
}

func newEnd(lock *leasehold.Lock) end {
	p := root.Parts(lock)
	return end{Parts: p, lock: lock, name: p.Layout.String()}
}

func (e *end) place() protocol.Place {
	return protocol.Place{Exists: e.at.Exists, Record: e.at.Record, Version: e.at.Version}
}

// look finds out what is there. That something is sealed or closed is what it is for.
func (e *end) look(ctx context.Context) error {
	if e.known {
		return nil
	}
	s, err := e.Layout.Look(ctx, "")
	if err != nil && !errors.Is(err, leasehold.ErrMoved) {
		return root.Explain(e.lock, err)
	}
	e.at, e.known = s, true
	return nil
}

func (e *end) write(ctx context.Context, w protocol.Write) error {
	s, err := e.Layout.Write(ctx, w)
	if err != nil {
		return root.Explain(e.lock, err)
	}
	e.at, e.known = s, true
	return nil
}

// A mover carries out what protocol.Move decides.
type mover struct {
	old, new end
	move     protocol.Move
	acquire  func(ctx context.Context) (*leasehold.Lease, error)
	lease    leasehold.Detached // if move.Lease is there
	closed   bool               // the new object, as far as is known
	sealed   bool               // the old one
}

func newMover(from, to *leasehold.Lock, opts *MoveOptions) (*mover, error) {
	m := &mover{old: newEnd(from), new: newEnd(to), acquire: func(ctx context.Context) (*leasehold.Lease, error) { return from.Acquire(ctx) }}
	m.move = protocol.Move{From: m.old.name, To: m.new.name}
	switch {
	case m.old.name == m.new.name:
		return nil, fmt.Errorf("the lock %s cannot be moved to where it is", m.old.name)
	case m.old.Config.Tokenless:
		return nil, fmt.Errorf("the lock %s: %w to go on with: stop all that use it, and use the new name", m.old.name, ErrNoTokens)
	case m.new.Config.Tokenless || m.new.Config.Numbered:
		return nil, fmt.Errorf("the lock %s cannot be moved to a lock in the layout %s, whose tokens cannot go on from those that were given out: use the layout %s there",
			m.old.name, m.new.Config.Layout, leasehold.LayoutObject)
	}
	if opts != nil && opts.Acquire != nil {
		m.acquire = opts.Acquire
	}
	return m, nil
}

// next looks at what is not known, and finds out what to do.
func (m *mover) next(ctx context.Context) (protocol.MoveStep, error) {
	if err := m.new.look(ctx); err != nil {
		return 0, err
	}
	if err := m.old.look(ctx); err != nil {
		return 0, err
	}
	m.closed, m.sealed = m.new.at.Record.Move.From == m.move.From, m.old.at.Record.Move.To == m.move.To
	step, err := m.move.Next(m.old.place(), m.new.place())
	if errors.Is(err, protocol.ErrNothingToMove) {
		err = fmt.Errorf("%w: %w", err, store.ErrNotExist)
	}
	return step, err
}

// do takes the next step. After an error nothing is known of either place.
func (m *mover) do(ctx context.Context, step protocol.MoveStep) error {
	now, id := time.Now(), newWriteID()
	switch step {
	case protocol.MoveClose:
		return m.new.write(ctx, protocol.Write{Op: protocol.Free, Record: m.move.Closed(m.new.Config, id, m.new.at.Date, now)})
	case protocol.MoveTake:
		return m.take(ctx)
	case protocol.MoveSeal:
		return m.old.write(ctx, protocol.Write{Op: protocol.Free, Record: m.move.Sealed(m.old.place(), id, now), Expect: m.old.at.Version})
	default:
		r := m.move.Opened(m.old.place(), m.new.place(), m.new.Config, id, now)
		return m.new.write(ctx, protocol.Write{Op: protocol.Free, Record: r, Expect: m.new.at.Version})
	}
}

// errMoveRaced: it was overtaken, by whoever acquired the lock once the mover's lease had run out.
var errMoveRaced = errors.New("another has taken the lock over before it was sealed")

// take gets a lease of the old lock, and has nobody renew it: the seal is to be the next write there.
func (m *mover) take(ctx context.Context) error {
	if m.move.Lease != nil {
		m.move.Lease = nil
		return fmt.Errorf("the lock %s: %w", m.old.name, errMoveRaced)
	}
	lease, err := m.acquire(ctx)
	switch {
	case errors.Is(err, leasehold.ErrMoved): // meanwhile, by another run of this move perhaps
		m.old.known, m.new.known = false, false
		return nil
	case err != nil:
		return &untaken{err}
	}
	if m.lease, err = lease.Detach(ctx); err != nil {
		return err
	}
	proof := root.Proof(m.lease)
	m.move.Lease, m.old.known = &proof, false
	return nil
}

// untaken is why the lock was not acquired. Acquiring it has its own patience.
type untaken struct{ error }

func (e *untaken) Unwrap() error { return e.error }

// final reports that to go on would change nothing.
func (m *mover) final(err error) bool {
	if _, ok := errors.AsType[*untaken](err); ok {
		return true
	}
	return leasehold.Final(err) || errors.Is(err, ErrOccupied) || errors.Is(err, ErrMovedElsewhere)
}

// arrived is what lies in the new place. Another mover may have opened it, and others have used it since.
func (m *mover) arrived(ctx context.Context) (leasehold.Info, error) {
	m.move.Lease = nil
	if m.new.at.Record.Move.To != "" { // and has gone further since
		_, info, err := root.Look(ctx, m.new.lock)
		return info, err
	}
	return root.Describe(m.new.lock.Key(), m.new.at), nil
}

// left adds to an error what it leaves behind.
func (m *mover) left(err error) error {
	switch {
	case m.closed && errors.Is(err, ErrMovedElsewhere):
		return fmt.Errorf("%w; %s was closed for this move and stays closed: if nothing else is to come there, delete its object", err, m.move.To)
	case m.sealed && m.closed:
		return fmt.Errorf("%w; %s is sealed and %s is closed: nobody can use the lock until the move is run again", err, m.move.From, m.move.To)
	case m.closed:
		return fmt.Errorf("%w; %s is as it was, and %s stays closed until the move is run again", err, m.move.From, m.move.To)
	}
	return err
}

// undo frees the old lock if the move ends with a lease of it. If a seal of it lands all the same, then either that or
// the release is refused.
func (m *mover) undo(ctx context.Context) {
	if m.move.Lease == nil || m.sealed {
		return
	}
	last, cancel := lock.Last(ctx)
	defer cancel()
	_ = m.old.lock.ReleaseDetached(last, m.lease) // else its TTL is waited out
}

// sleep waits, or returns why not.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
