package leasehold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
)

// A Lease is the right to work under a lock until it is released or lost. It is
// renewed in the background. No other lease of the lock is valid while this one
// is, provided that no clock involved runs more than a twelfth faster or slower
// than real time; a request that is on its way when the lease ends is stopped by
// nothing but a check of the [Token]. A Lease is safe for concurrent use.
//
// The idea is that of Gray and Cheriton (1989): a right that ends by itself, by clocks that need
// to agree on a rate only. The token beside it is Chubby's sequencer, which Kleppmann has made
// known as the fencing token; it is for the cases in which no clock helps.
type Lease struct {
	d      *driver
	token  Token
	terms  *leaseTerms // nil: those of the Lock
	ctx    context.Context
	cancel context.CancelCauseFunc

	deadline atomic.Int64 // a reading of clock.Now; 0 once the lease has ended
	release  sync.Once
	settled  atomic.Bool   // the release is
	released chan struct{} // made when the release begins, closed when it is settled
	outcome  error         // of the release; set before released is closed
}

// newLease keeps the values of the acquisition's context and not its end: a time-out that was meant
// for the waiting must not end the work.
func newLease(ctx context.Context, d *driver, c *protocol.Candidate) *Lease {
	r := c.Lease()
	l := &Lease{d: d, token: Token(r.Token), terms: termsOf(c)}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

// Context ends when the lease is lost or released; context.Cause then tells
// which, as [Lease.Err] does. It carries the values of the context that the lock
// was acquired with.
//
// A request that is made with it is cut off when the lease ends. That says nothing about whether
// it has landed, or yet will: only the token does.
func (l *Lease) Context() context.Context { return l.ctx }

// Done is closed when the lease is lost or released. A process that was
// suspended sees it up to a second after it wakes up; Valid tells at once.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Key is the name of the lock.
func (l *Lease) Key() string { return l.d.key }

// Token is the lease's own number, larger than that of every earlier lease of the
// lock. It stays what it is after the lease has ended.
// It is [NoToken] in a layout that has none.
func (l *Lease) Token() Token { return l.token }

// Holder is the name that the lease is held under.
func (l *Lease) Holder() string {
	if l.terms != nil && l.terms.Holder != "" {
		return l.terms.Holder
	}
	return l.d.opts.Holder
}

// ttl is that of its records.
func (l *Lease) ttl() time.Duration {
	if l.terms != nil && l.terms.TTL > 0 {
		return l.terms.TTL
	}
	return l.d.opts.TTL
}

// Valid looks at the clock and reports whether the lease is valid now: the time
// since its last renewal was sent is less than TTL − margin, where the margin is
// TTL/12 + 10 ms. The clock goes on while the machine is suspended. What Valid
// returned a moment ago says nothing about now. Under a [Session] it is the heartbeat
// that counts instead of renewals.
//
// Valid sends nothing and waits for nobody, so call it before each step that only a holder may
// take, however small the step is.
func (l *Lease) Valid() bool { return clock.Now() < l.until() }

// until is the reading of the clock from which on the lease is no longer valid: its own
// deadline or that of its session, whichever is earlier (rule D4).
func (l *Lease) until() time.Duration {
	deadline := time.Duration(l.deadline.Load())
	if s := l.d.opts.Session; s != nil {
		deadline = min(deadline, s.inner.Until())
	}
	return deadline
}

// Deadline is when the lease ends unless it is renewed first: a reading of Go's
// monotonic clock, for timers. It errs early, never late, but like all timers of
// Go it stands still while the machine is suspended, so ask Valid before acting.
// Once the lease has ended, it is the zero time.
// It moves with each renewal, so do not keep it.
func (l *Lease) Deadline() time.Time {
	now := time.Now() // before the other clock: a pause in between makes it early
	deadline := l.until()
	if deadline == 0 {
		return time.Time{}
	}
	return now.Add(deadline - clock.Now())
}

// End is when the lease ends even if it is renewed, by [WithMaxHold] or [WithoutRenewal], as
// Deadline tells it; the zero time if it does not, or has.
func (l *Lease) End() time.Time {
	now := time.Now() // as in Deadline
	switch deadline := l.Deadline(); {
	case l.terms == nil || deadline.IsZero():
		return time.Time{}
	case l.terms.NoRenewal:
		return deadline
	case l.terms.MaxHold == 0:
		return time.Time{}
	}
	return now.Add(l.terms.end - clock.Now())
}

// Err is nil while the lease is held, [ErrReleased] after Release was called, [ErrDetached] after Detach
// was, and matches [ErrLost] if the lease was lost before that.
//
// It looks at the clock as Valid does. So after the machine was suspended it may match ErrLost a
// moment before Done is closed.
func (l *Lease) Err() error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if l.Valid() {
		return nil
	}
	if s := l.d.opts.Session; s != nil && s.Err() != nil {
		return fmt.Errorf("%w: %w", ErrLost, s.Err())
	}
	expired := protocol.ErrExpired
	if t := l.terms; t != nil {
		expired = t.Expiry(clock.Now(), t.end, l.ttl())
	}
	return fmt.Errorf("%w: %w", ErrLost, expired)
}

// end ends the lease's validity first and then its context. The driver calls it.
// In between there is a moment in which Valid says no and the context goes on. The other order
// would have one in which work that was told to stop still finds its lease valid.
func (l *Lease) end(cause error) {
	l.deadline.Store(0)
	l.cancel(cause)
}

// Abandon ends the lease at once, without freeing the lock: the lease is no longer
// valid nor renewed, and its context ends with an error that matches [ErrLost] and
// cause. Package fence calls it when a resource has refused the lease's token. The
// others wait the lease out unless it is released, as it still must be. A lease that
// has ended stays as it is.
//
// It returns at once and sends nothing, so it may be called from the work itself. The cause may
// be nil.
func (l *Lease) Abandon(cause error) { l.d.giveUp(l, cause) }

// beginRelease begins the release, once. It may name a successor.
// Several may want it at once: the work, Do's own clean-up, the end of a campaign. A lease has
// one release, and all the others wait for that.
func (l *Lease) beginRelease(successor string) {
	l.release.Do(func() {
		l.released = make(chan struct{})
		l.d.release(l, successor)
	})
}

// Release ends the lease and frees the lock, by one write. All work under the
// lease must have stopped before. Release must be called for a lease that was
// lost too: it lets in the next goroutine that waits for this Lock, and what is
// left of the lease in the store is freed.
//
// Release returns nil when the lock is certainly not this lease's any more. If ctx
// ends first, it returns an error that matches ctx.Err(), and goes on in the
// background; if ctx has ended before the call, or ends with the lease as [Lease.Context] does,
// it waits up to 5 s all the same, so that a deferred Release works. If the store does not answer for a TTL, or denies
// access, the error says so: then the others wait the lease out. Under a [Session] a release that is denied is tried
// again for a TTL too, and then the session ends. If the lease had been lost,
// the error matches [ErrLost], whether the lock is free or not. Further calls return
// what the first one did.
//
// An error that matches neither ctx.Err() nor ErrLost asks nothing of the caller, and a retry
// would change nothing: others may take the lock for held for a little over its TTL.
func (l *Lease) Release(ctx context.Context) error { return l.releaseTo(ctx, "") }

func (l *Lease) releaseTo(ctx context.Context, successor string) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	return l.ended(l.free(ctx, successor))
}

// free begins the release, and returns why the lock may not be free, if it may not.
func (l *Lease) free(ctx context.Context, successor string) error {
	l.beginRelease(successor)
	if _, err := lock.Wait(ctx, l.ctx, l.released); err != nil {
		return fmt.Errorf("the release of the lock %v is under way and not confirmed yet: %w", l.d.at, err)
	}
	return l.outcome
}

// ended adds to what free returned that the lease had been lost.
func (l *Lease) ended(outcome error) error {
	if lost := context.Cause(l.ctx); errors.Is(lost, ErrLost) {
		return errors.Join(lost, outcome)
	}
	return outcome
}
