package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store"
)

var (
	// ErrOccupied: the destination of a move holds another object, which was left as it was. Move
	// the lock to another name, or remove that object.
	ErrOccupied = candidate.ErrOccupied
	// ErrMovedElsewhere: the lock has moved to another destination, or is being moved there. Use
	// that destination.
	ErrMovedElsewhere = candidate.ErrMovedElsewhere
)

// MoveOptions are the options of [Move].
type MoveOptions struct {
	// Acquire acquires the lock to move. Default: the lock's own Acquire, which waits for the
	// holder until the context of Move ends.
	Acquire func(ctx context.Context) (*leasehold.Lease, error)
}

// maxMoveFailures is how many failures in a row end a Move. You can run it again.
const maxMoveFailures = 6

// Move moves a lock to another location, in the same store or another one, while its candidates
// run. It acquires the lock at from, seals its object, and creates the lock at to in the free
// state, with a token at least as large as the last one at from. So all tokens at to are larger
// than those at from. Move returns the state of to.
//
// The sealed object stays for good. Never delete it: candidates that still use from fail with a
// [leasehold.MovedError], which names the new location. Until Move is done, candidates that use
// to fail as well.
//
// You can interrupt or kill Move at any point and run it again, even in several processes at
// once: the two objects say how to continue. If the move is already done, Move changes nothing.
// If it fails before the seal, from can be used as before. Move fails with [ErrOccupied] if
// there is something else at to, with [ErrMovedElsewhere] if from has moved elsewhere, with
// store.ErrNotExist if there is nothing at from, and after six store errors in a row.
//
// The lock at from may have any layout with tokens, and no session. The lock at to must have
// [leasehold.LayoutObject], because in other layouts tokens are the numbers of objects, which
// cannot continue from an arbitrary number.
//
// Move costs 4 reads and 4 writes if from is free and not contended. With epochs at from, each
// request there costs one more listing.
func Move(ctx context.Context, from, to *leasehold.Lock, opts *MoveOptions) (leasehold.Info, error) {
	m, err := newMover(from, to, opts)
	if err != nil {
		return leasehold.Info{}, err
	}
	defer m.undo(ctx)
	for failures := 0; ; {
		step, err := m.next(ctx)
		if err == nil && step == candidate.MoveDone {
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
		if failures++; m.final(err) || failures == maxMoveFailures || sleep(ctx, protocol.Pause(failures, nil)) != nil {
			return leasehold.Info{}, m.left(err)
		}
	}
}

// An end is a move's source or destination.
type end struct {
	lock  *leasehold.Lock
	in    layout.Layout
	cfg   candidate.Config
	name  string
	known bool // at is up to date; otherwise it must be read
	at    layout.Snapshot
}

func newEnd(lock *leasehold.Lock) end {
	in := leasehold.Internal.Layout(lock)
	return end{lock: lock, in: in, cfg: leasehold.Internal.Config(lock), name: in.String()}
}

func (e *end) place() candidate.Place {
	return candidate.Place{Exists: e.at.Exists, Record: e.at.Record}
}

// look reads the lock. A sealed or closed lock is not an error here.
func (e *end) look(ctx context.Context) error {
	if e.known {
		return nil
	}
	s, err := e.in.Look(ctx, "")
	if err != nil && !errors.Is(err, leasehold.ErrMoved) {
		return leasehold.Internal.Explain(e.lock, err)
	}
	e.at, e.known = s, true
	return nil
}

// write writes the lock after a look, and notes what it has written.
func (e *end) write(ctx context.Context, w candidate.Write) error {
	s, err := e.in.Write(ctx, w)
	if err != nil {
		return leasehold.Internal.Explain(e.lock, err)
	}
	e.at = s
	return nil
}

// A mover carries out what candidate.Move decides.
type mover struct {
	old, new end
	move     candidate.Move
	acquire  func(ctx context.Context) (*leasehold.Lease, error)
	closed   bool // the new object, as far as known
	sealed   bool // the old object, as far as known
}

func newMover(from, to *leasehold.Lock, opts *MoveOptions) (*mover, error) {
	m := &mover{old: newEnd(from), new: newEnd(to), acquire: func(ctx context.Context) (*leasehold.Lease, error) { return from.Acquire(ctx) }}
	m.move = candidate.Move{From: m.old.name, To: m.new.name}
	switch {
	case m.old.name == m.new.name:
		return nil, fmt.Errorf("the lock %s cannot be moved to where it is", m.old.name)
	case m.old.cfg.Tokenless:
		return nil, fmt.Errorf("the lock %s: %w to go on with: stop all that use it, and use the new name", m.old.name, ErrNoTokens)
	case m.new.cfg.Tokenless || m.new.cfg.Numbered:
		return nil, fmt.Errorf("the lock %s cannot be moved to a lock in the layout %s, whose tokens cannot go on from those that were given out: use the layout %s there",
			m.old.name, m.new.cfg.Layout.Name, leasehold.LayoutObject)
	}
	if opts != nil && opts.Acquire != nil {
		m.acquire = opts.Acquire
	}
	return m, nil
}

// next reads what is not known and returns the next step.
func (m *mover) next(ctx context.Context) (candidate.MoveStep, error) {
	if err := m.new.look(ctx); err != nil {
		return 0, err
	}
	if err := m.old.look(ctx); err != nil {
		return 0, err
	}
	m.closed, m.sealed = m.new.at.Record.Move.From == m.move.From, m.old.at.Record.Move.To == m.move.To
	step, err := m.move.Next(m.old.place(), m.new.place())
	if errors.Is(err, candidate.ErrNothingToMove) {
		err = fmt.Errorf("%w: %w", err, store.ErrNotExist)
	}
	return step, err
}

// do takes the next step. After an error, both locations must be read again.
func (m *mover) do(ctx context.Context, step candidate.MoveStep) error {
	now, id := time.Now(), newWriteID()
	switch step {
	case candidate.MoveClose:
		return m.new.write(ctx, candidate.Write{Op: candidate.Free, Record: m.move.Closed(m.new.cfg, id, m.new.at.Date, now)})
	case candidate.MoveTake:
		return m.take(ctx)
	case candidate.MoveSeal:
		return m.old.write(ctx, candidate.Write{Op: candidate.Free, Record: m.move.Sealed(m.old.place(), id, now), Expect: m.old.at.Version})
	default:
		r := m.move.Opened(m.old.place(), m.new.place(), m.new.cfg, id, now)
		return m.new.write(ctx, candidate.Write{Op: candidate.Free, Record: r, Expect: m.new.at.Version})
	}
}

// errMoveRaced means another candidate acquired the lock after the mover's lease had expired.
var errMoveRaced = errors.New("another has taken the lock over before it was sealed")

// take acquires the old lock without renewal, because the seal must be the next write there.
func (m *mover) take(ctx context.Context) error {
	if m.move.Lease != nil {
		m.move.Lease = nil
		return fmt.Errorf("the lock %s: %w", m.old.name, errMoveRaced)
	}
	lease, err := m.acquire(ctx)
	switch {
	case errors.Is(err, leasehold.ErrMoved): // meanwhile, perhaps by another run of this move
		m.old.known, m.new.known = false, false
		return nil
	case err != nil:
		return &untaken{err}
	}
	_, last, err := leasehold.Internal.Detach(ctx, lease)
	if err != nil {
		if lease.Err() == nil { // it cannot be detached at all, and nobody else would release it
			last, cancel := lock.Last(ctx)
			defer cancel()
			_ = lease.Release(last) // if this fails, others wait for its TTL
			err = &untaken{err}
		}
		return err
	}
	proof := candidate.ProofOf(last.Record)
	m.move.Lease, m.old.known = &proof, false
	return nil
}

// untaken is the reason why the lock was not acquired, or its lease is of no use. It is not
// retried, because acquiring retries by itself.
type untaken struct{ error }

func (e *untaken) Unwrap() error { return e.error }

// final reports whether a retry would change nothing.
func (m *mover) final(err error) bool {
	if _, ok := errors.AsType[*untaken](err); ok {
		return true
	}
	return leasehold.Final(err) || errors.Is(err, ErrOccupied) || errors.Is(err, ErrMovedElsewhere)
}

// arrived returns the state of the new location. Another mover may have opened it, and others
// may have used it since.
func (m *mover) arrived(ctx context.Context) (leasehold.Info, error) {
	if m.new.at.Record.Move.To != "" { // the lock has moved on since
		_, info, err := leasehold.Internal.Look(ctx, m.new.lock)
		return info, err
	}
	return leasehold.Internal.Describe(m.new.lock.Key(), m.new.at), nil
}

// left adds to an error what the move leaves behind.
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

// undo frees the old lock if the move ends with a lease of it. If a seal lands after all, the
// store refuses either the seal or the release.
func (m *mover) undo(ctx context.Context) {
	if m.move.Lease == nil || m.sealed {
		return
	}
	last, cancel := lock.Last(ctx)
	defer cancel()
	free := candidate.Attach{Proof: *m.move.Lease, Use: candidate.ToRelease}
	_, _, _, _ = leasehold.Internal.Attach(last, m.old.lock, free, nil) // if this fails, others wait for its TTL
}

// sleep waits for d, or returns the error of ctx.
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
