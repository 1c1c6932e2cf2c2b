package semaphore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
)

// A Lease is the right to work in seats of a semaphore until it is released or lost. It is valid as
// long as its session is, so nothing is sent for it alone. A Lease is safe for concurrent use.
type Lease struct {
	d      *driver
	n      protocol.Caller
	under  under
	weight int
	holder string
	token  leasehold.Token
	ctx    context.Context
	cancel context.CancelCauseFunc
	values context.Context // what ctx is made from, which does not end

	release  sync.Once
	released chan struct{} // closed when the release is settled
	outcome  error         // of the release; set before released is closed

	// Its end and what is told of it are one, or a release could be told of before the loss.
	ending sync.Mutex
	times  times
}

func newLease(d *driver, n protocol.Caller, c *caller, token leasehold.Token) *Lease {
	l := &Lease{d: d, n: n, under: c.under, weight: int(c.weight), holder: c.holder, token: token, values: c.ctx, released: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(c.ctx)
	l.times.granted = engine.Process{}.Now().Clock
	return l
}

// Context ends when the lease is lost or released; context.Cause then tells which, as [Lease.Err] does.
// It carries the values of the context that the seats were acquired with.
func (l *Lease) Context() context.Context { return l.ctx }

// Done is closed when the lease is lost or released. A process that was suspended sees it up to a second
// after it wakes up; Valid tells at once.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Key is the name of the semaphore.
func (l *Lease) Key() string { return l.d.key }

// Holder is the name that the lease is held under.
func (l *Lease) Holder() string { return l.holder }

// Weight is how many seats it holds.
func (l *Lease) Weight() int { return l.weight }

// Token is the number of the grant, larger than those of all grants before it. It fences where no other
// lease can be held at the same time: see the package documentation.
func (l *Lease) Token() leasehold.Token { return l.token }

// Valid looks at the clock and reports whether the lease is valid now: see [leasehold.Lease.Valid]. It
// sends nothing, so call it before each step that only a holder may take.
func (l *Lease) Valid() bool { return l.ctx.Err() == nil && l.under.inner.Valid() }

// Deadline is when the lease ends unless its session's next heartbeat comes first: see
// [leasehold.Lease.Deadline].
func (l *Lease) Deadline() time.Time {
	now := time.Now() // before the other clock: a pause in between makes it early
	until := l.under.inner.Until()
	if l.ctx.Err() != nil || until == 0 {
		return time.Time{}
	}
	return now.Add(until - engine.Process{}.Now().Clock)
}

// Err is nil while the lease is held, leasehold.ErrReleased after Release was called, and matches
// [leasehold.ErrLost] if it was lost before that.
func (l *Lease) Err() error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if l.Valid() {
		return nil
	}
	return fmt.Errorf("%w: %w", leasehold.ErrLost, l.under.outer.Err())
}

// end ends the lease, which it does once, and reports that it did. Its validity is that of its context, so
// nothing that is told of the end still finds it valid.
func (l *Lease) end(cause error) bool {
	l.cancel(cause)
	return context.Cause(l.ctx) == cause //nolint:errorlint // this very error, and not one like it
}

// lose ends a lease that was not released.
func (l *Lease) lose(why error) {
	l.ending.Lock()
	defer l.ending.Unlock()
	if cause := fmt.Errorf("%w: %w", leasehold.ErrLost, why); l.end(cause) {
		l.d.lost(l, cause)
	}
}

// Abandon ends the lease at once, without giving the seats back: its context ends with an error that
// matches [leasehold.ErrLost] and cause. It must still be released. A lease that has ended stays as it
// is. Package fence calls it when a resource has refused the lease's token.
func (l *Lease) Abandon(cause error) {
	why := protocol.ErrGivenUp
	if cause != nil {
		why = fmt.Errorf("%w: %w", why, cause)
	}
	l.lose(why)
}

func (l *Lease) beginRelease() {
	l.release.Do(func() {
		// After a pause it may be over before anything has noticed. Then others may have had the seats already, and
		// a release that said nothing of that would be one of seats that were not held.
		if l.ctx.Err() == nil && !l.Valid() {
			l.lose(l.under.outer.Err())
		}
		// Validity ends before anything is sent (rule T4).
		l.d.Leave(protocol.Leave{Caller: l.n}, func() bool {
			l.traceReleasing()
			l.end(leasehold.ErrReleased)
			return true
		})
	})
}

// Release ends the lease and gives its seats to those who wait first, by one write. All work in them
// must have stopped before. It must be called for a lease that was lost too.
//
// Release returns nil when the seats are certainly not this lease's any more. If ctx ends first, it
// returns an error that matches ctx.Err(), and goes on in the background; if ctx has ended before the
// call, or ends with the lease as its Context does, it waits up to 5 s all the same. If the store does not answer for a TTL the error says so, and
// the session ends: nobody could free the seats otherwise. If the session ends before the release is
// confirmed, the error says so: others take the seats for held until they know of that end. If the lease had been lost, the error matches
// [leasehold.ErrLost]. Further calls return what the first one did.
func (l *Lease) Release(ctx context.Context) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	l.beginRelease()
	if _, err := lock.Wait(ctx, l.ctx, l.released); err != nil {
		return l.ended(fmt.Errorf("the release of seats in %v is under way and not confirmed yet: %w", l.d.at(), err))
	}
	return l.ended(l.outcome)
}

// ended adds to what came of the release that the lease had been lost.
func (l *Lease) ended(outcome error) error {
	if lost := context.Cause(l.ctx); errors.Is(lost, leasehold.ErrLost) {
		return errors.Join(lost, outcome)
	}
	return outcome
}

// do is Do, of a lease that was acquired.
func (l *Lease) do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) (err error) {
	work, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) }) //nolint:contextcheck // two contexts may end it
	defer func() {
		lost := l.Err() // asked before the release, after which every lease has ended
		if errors.Is(lost, leasehold.ErrReleased) {
			lost = nil // f has released it itself
		}
		last, done := lock.Last(ctx)
		defer done()
		if e := l.Release(last); e != nil && lost == nil {
			l.d.opts.Logger.Warn("seats were not released", "semaphore", l.d.key, "error", e)
		}
		if lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	return f(work, l)
}
