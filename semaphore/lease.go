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
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

// A Lease is the right to work in slots of a semaphore until it is released or lost. It is
// valid while its session is, so it sends no requests of its own. A Lease is safe for
// concurrent use.
type Lease struct {
	d      *driver
	n      queue.Caller
	under  under
	weight int
	holder string
	token  leasehold.Token
	ctx    context.Context
	cancel context.CancelCauseFunc
	values context.Context // the parent of ctx, which does not end

	release  sync.Once
	released chan struct{} // closed when the release is settled
	outcome  error         // of the release; set before released is closed

	// Held while the lease ends and its end is reported, or a release could be reported
	// before the loss.
	ending sync.Mutex
	times  times
}

func newLease(d *driver, n queue.Caller, c *caller, token leasehold.Token) *Lease {
	l := &Lease{d: d, n: n, under: c.under, weight: int(c.weight), holder: c.holder, token: token, values: c.ctx, released: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(c.ctx)
	l.times.granted = engine.Process{}.Now().Clock
	return l
}

// Context returns a context that ends when the lease is lost or released; context.Cause
// then returns what [Lease.Err] does. It carries the values of the context passed to
// Acquire.
func (l *Lease) Context() context.Context { return l.ctx }

// Done returns a channel that is closed when the lease is lost or released. After the
// machine was suspended, that may take up to a second; Valid knows at once.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Key returns the semaphore's name in its store.
func (l *Lease) Key() string { return l.d.key }

// Holder returns the holder's name in this lease.
func (l *Lease) Holder() string { return l.holder }

// Weight returns the number of slots the lease holds.
func (l *Lease) Weight() int { return l.weight }

// Token returns the number of the grant, which is larger than that of every earlier grant.
// It fences only where no other lease can be held at the same time: see the package
// documentation.
func (l *Lease) Token() leasehold.Token { return l.token }

// Valid reports whether the lease is valid now: see [leasehold.Lease.Valid]. It sends
// nothing, so call it before each step that only a holder may take.
func (l *Lease) Valid() bool { return l.ctx.Err() == nil && l.under.inner.Valid() }

// Deadline returns the time at which the lease ends unless its session's next heartbeat
// comes first: see [leasehold.Lease.Deadline].
func (l *Lease) Deadline() time.Time {
	now := time.Now() // before the other clock: a delay in between makes the deadline early, not late
	until := l.under.inner.Until()
	if l.ctx.Err() != nil || until == 0 {
		return time.Time{}
	}
	return now.Add(until - engine.Process{}.Now().Clock)
}

// Err returns nil while the lease is held, leasehold.ErrReleased after Release was called,
// and an error that matches [leasehold.ErrLost] if the lease was lost before that.
func (l *Lease) Err() error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if l.Valid() {
		return nil
	}
	return fmt.Errorf("%w: %w", leasehold.ErrLost, l.under.outer.Err())
}

// end ends the lease, and reports whether this call did it. The lease is valid only while its
// context is, so code that learns of the end finds it invalid.
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

// Abandon ends the lease at once without releasing its slots. Its context ends with an
// error that matches [leasehold.ErrLost] and cause. The lease must still be released.
// Abandon does nothing if the lease has ended. Package fence calls it when a resource
// rejects the lease's token.
func (l *Lease) Abandon(cause error) {
	why := protocol.ErrGivenUp
	if cause != nil {
		why = fmt.Errorf("%w: %w", why, cause)
	}
	l.lose(why)
}

func (l *Lease) beginRelease() {
	l.release.Do(func() {
		// After the process was suspended, the lease may have expired unnoticed. Others may
		// have had the slots since, so the release must report the loss.
		if l.ctx.Err() == nil && !l.Valid() {
			l.lose(l.under.outer.Err())
		}
		// Validity ends before anything is sent (rule T4).
		l.d.Leave(queue.Leave{Caller: l.n}, func() bool {
			l.traceReleasing()
			l.end(leasehold.ErrReleased)
			return true
		})
	})
}

// Release ends the lease and passes its slots to the first waiters with one write. All work
// in the slots must have stopped before. Release must also be called for a lost lease.
//
// Release returns nil once the lease certainly no longer holds the slots. If ctx ends
// first, Release returns an error that matches ctx.Err() and continues in the background.
// If ctx ended before the call, or is the lease's own context, Release waits up to 5 s
// anyway.
//
// If the store does not answer for a TTL, Release returns an error and the session ends,
// because nothing else could free the slots. If the session ends before the release is
// confirmed, Release returns an error too: others see the slots as taken until they learn
// of that end. If the lease was lost, the error matches [leasehold.ErrLost]. Further calls
// return the result of the first.
func (l *Lease) Release(ctx context.Context) error {
	ctx, cancel := lock.Grace(ctx)
	defer cancel()
	l.beginRelease()
	if _, err := lock.Wait(ctx, l.ctx, l.released); err != nil {
		return l.ended(fmt.Errorf("the release of seats in %v is under way and not confirmed yet: %w", l.d.at(), err))
	}
	return l.ended(l.outcome)
}

// ended adds the loss of the lease, if it was lost, to the release's outcome.
func (l *Lease) ended(outcome error) error {
	if lost := context.Cause(l.ctx); errors.Is(lost, leasehold.ErrLost) {
		return errors.Join(lost, outcome)
	}
	return outcome
}

// do is Do with an acquired lease.
func (l *Lease) do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) (err error) {
	work, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) }) //nolint:contextcheck // two contexts may end it
	defer func() {
		lost := l.Err() // read before the release, which ends the lease
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
