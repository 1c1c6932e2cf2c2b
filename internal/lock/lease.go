package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// ErrReleased is the cause of the end of a lease that its user has released.
var ErrReleased = errors.New("the lease was released")

// ErrDetached is the cause of the end of a lease that was detached: see package detached.
var ErrDetached = errors.New("the lease was detached")

// A Holding is what a lease belongs to: a candidate for a lock, or an acquisition of a semaphore.
type Holding interface {
	Key() string
	Where() string // for messages
	// What the lease has unless its Terms say otherwise.
	Holder() string
	TTL() time.Duration
	Weight() int // slots of a semaphore; 1 for a lock

	// ValidUntil returns the clock reading at which the latest lease ceases to be valid: its own deadline
	// or its session's, whichever is earlier (rule D4).
	ValidUntil() time.Duration
	// SessionErr returns why the lease's session has ended, or nil.
	SessionErr() error

	// Free ends the lease and sends its release, which may name a successor. Settle follows.
	Free(l *Lease, successor string)
	// GiveUp ends a lease whose work has not stopped, unless it has ended. It must still be released.
	GiveUp(l *Lease, why error)
}

// Terms are those of a lease whose acquisition had options, with the clock reading at which they end it.
type Terms struct {
	candidate.Terms
	End time.Duration
}

// A Lease knows how long a lease lasts, how it ends and how its release is settled, for locks and
// semaphores alike. It reads the clock at each use instead of relying on a timer (rule A10).
type Lease struct {
	Token  int64
	Terms  *Terms // nil: none
	of     Holding
	ctx    context.Context
	cancel context.CancelCauseFunc

	release  sync.Once
	settled  atomic.Bool   // the release is
	released chan struct{} // made when the release begins, closed when it is settled
	outcome  error         // of the release; set before released is closed
}

// Begin begins the lease. It keeps the values of the acquisition's context but not its end, because a
// timeout for the wait must not end the work.
func (l *Lease) Begin(ctx context.Context, of Holding, token int64, terms *Terms) {
	l.of, l.Token, l.Terms = of, token, terms
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
}

// Of returns what the lease belongs to.
func (l *Lease) Of() Holding { return l.of }

// Context ends with the lease.
func (l *Lease) Context() context.Context { return l.ctx }

// Values returns a context with the values of the lease's, which does not end.
func (l *Lease) Values() context.Context { return context.WithoutCancel(l.ctx) }

// Holder returns the holder's name in the lease's records.
func (l *Lease) Holder() string {
	if l.Terms != nil && l.Terms.Holder != "" {
		return l.Terms.Holder
	}
	return l.of.Holder()
}

// TTL returns the TTL in the lease's records.
func (l *Lease) TTL() time.Duration {
	if l.Terms != nil && l.Terms.TTL > 0 {
		return l.Terms.TTL
	}
	return l.of.TTL()
}

// until returns the clock reading at which the lease expires, and 0 once it has ended.
//
// The holding's reading is that of its latest lease, which may be a later one. So this lease's end is
// looked up after it: an earlier lease has ended before a later one begins.
func (l *Lease) until() time.Duration {
	until := l.of.ValidUntil()
	if l.ctx.Err() != nil {
		return 0
	}
	return until
}

// Valid reports whether the lease is valid now.
func (l *Lease) Valid() bool { return clock.Now() < l.until() }

// Deadline returns when the lease expires unless it is renewed first, or the zero time once it has
// ended.
func (l *Lease) Deadline() time.Time {
	now := time.Now() // before the other clock: a pause in between makes it early
	deadline := l.until()
	if deadline == 0 {
		return time.Time{}
	}
	return now.Add(deadline - clock.Now())
}

// End returns when the lease's terms end it, or the zero time if they do not or it has ended.
func (l *Lease) End() time.Time {
	now := time.Now() // as in Deadline
	switch deadline := l.Deadline(); {
	case l.Terms == nil || deadline.IsZero():
		return time.Time{}
	case l.Terms.NoRenewal:
		return deadline
	case l.Terms.MaxHold == 0:
		return time.Time{}
	}
	return now.Add(l.Terms.End - clock.Now())
}

// Err returns why the lease has ended, or nil.
func (l *Lease) Err() error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if l.Valid() {
		return nil
	}
	if err := l.of.SessionErr(); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrLost, err)
	}
	expired := protocol.ErrExpired
	if t := l.Terms; t != nil {
		expired = t.Expiry(clock.Now(), t.End, l.TTL())
	}
	return fmt.Errorf("%w: %w", engine.ErrLost, expired)
}

// Finish ends the lease, which is valid only while its context is. So work that is told to stop finds it
// invalid.
func (l *Lease) Finish(cause error) { l.cancel(cause) }

// Lost returns why the lease ended before it was released or detached, or nil.
func (l *Lease) Lost() error {
	if cause := context.Cause(l.ctx); errors.Is(cause, engine.ErrLost) {
		return cause
	}
	return nil
}

// Once calls f unless the release has begun: f begins it. Several callers may want it at once: the work,
// Do's clean-up, the end of a campaign. The first begins it, and all wait for the same one.
func (l *Lease) Once(f func()) {
	l.release.Do(func() {
		l.released = make(chan struct{})
		f()
	})
}

// BeginRelease begins the release, which may name a successor.
func (l *Lease) BeginRelease(successor string) { l.Once(func() { l.of.Free(l, successor) }) }

// Settle ends the release. The outcome says why others may still see the lease as held; nil means that
// nobody does. Calls that wait for the release return once one and other, which may be nil, are closed.
func (l *Lease) Settle(outcome error, one, other <-chan struct{}) {
	l.outcome = outcome
	l.settled.Store(true)
	if one == nil && other == nil {
		close(l.released)
		return
	}
	go func() {
		for _, before := range []<-chan struct{}{one, other} {
			if before != nil {
				<-before
			}
		}
		close(l.released)
	}()
}

// Settled reports whether the release is settled.
func (l *Lease) Settled() bool { return l.settled.Load() }

// Release frees what the lease holds and waits for it. See [Grace] and [Wait] for how long.
func (l *Lease) Release(ctx context.Context, successor string) error {
	ctx, cancel := Grace(ctx)
	defer cancel()
	return l.Ended(l.Free(ctx, successor))
}

// Free begins the release and waits for it. The error says why what the lease held may still be held.
func (l *Lease) Free(ctx context.Context, successor string) error {
	l.BeginRelease(successor)
	if _, err := Wait(ctx, l.ctx, l.released); err != nil {
		return fmt.Errorf("the release of %v is under way and not confirmed yet: %w", l.of.Where(), err)
	}
	return l.outcome
}

// Ended adds the loss of the lease, if it was lost, to the outcome of Free.
func (l *Lease) Ended(outcome error) error {
	if lost := l.Lost(); lost != nil {
		return errors.Join(lost, outcome)
	}
	return outcome
}

// Do calls work with a context that ends with ctx and with the lease, and then releases the lease. The
// error is that of work, joined with the loss of the lease. unreleased is told why a lease that was not
// lost may still be held.
func (l *Lease) Do(ctx context.Context, work func(ctx context.Context) error, unreleased func(error)) (err error) {
	working, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) }) //nolint:contextcheck // either may end it
	defer func() {
		cancel(nil)
		// Read before the release, which ends every lease. The work may have ended the lease itself.
		lost := l.Err()
		if !errors.Is(lost, engine.ErrLost) {
			lost = nil
		}
		last, done := Last(ctx)
		defer done()
		if e := l.Release(last, ""); e != nil && lost == nil {
			unreleased(e)
		}
		if lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	return work(working)
}
