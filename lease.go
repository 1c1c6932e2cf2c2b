package leasehold

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// A Lease is the right to work under a lock until it is released or lost. It is renewed in the
// background. While it is valid, no other lease of the lock is: see the guarantee above. It
// cannot stop a request that is already on its way when it ends; only a check of the [Token]
// can. A Lease is safe for concurrent use.
//
// The idea is from Gray and Cheriton (1989): rights that expire by clocks that agree only on
// their rate.
type Lease struct{ core lock.Lease }

// Context returns a context that ends when the lease is lost or released, with the cause that
// [Lease.Err] returns. It carries the values of the context passed to Acquire. A request that
// is cancelled with it may still take effect later: only a check of the token prevents that.
func (l *Lease) Context() context.Context { return l.core.Context() }

// Done returns a channel that is closed when the lease is lost or released. After the machine
// was suspended, that may take up to a second; Valid knows at once.
func (l *Lease) Done() <-chan struct{} { return l.core.Context().Done() }

// Key returns the lock's name in its store.
func (l *Lease) Key() string { return l.core.Of().Key() }

// Token returns the lease's number, which does not change when the lease ends. In layouts
// without tokens it is [NoToken].
func (l *Lease) Token() Token { return Token(l.core.Token) }

// Holder returns the holder's name in the record of this lease.
func (l *Lease) Holder() string { return l.core.Holder() }

// Valid reports whether the lease is valid now: whether less than TTL − margin has passed since
// its last renewal, or its session's, was sent. The margin is TTL/12 + 10 ms, and the clock
// also counts while the machine is suspended.
//
// Valid sends nothing and never blocks. Call it before each step that only the holder may take:
// an earlier result says nothing about now.
func (l *Lease) Valid() bool { return l.core.Valid() }

// Deadline returns the time at which the lease ends unless it is renewed first, by Go's
// monotonic clock. Each renewal moves it. It is the zero time once the lease has ended. It is
// never late, unless the machine was suspended and that clock stopped: call Valid before you
// act.
func (l *Lease) Deadline() time.Time { return l.core.Deadline() }

// Err returns nil while the lease is valid, [ErrReleased] after it was released, an error that
// says so after it was detached, and one that matches [ErrLost] if it was lost before that. It
// reads the clock, as Valid does, so it may notice a lost lease before Done is closed.
func (l *Lease) Err() error { return l.core.Err() }

// Abandon ends the lease at once, with an error that matches [ErrLost] and cause, which may be
// nil. It sends nothing, never blocks, and does nothing if the lease has ended. The lease must
// still be released; until then, others wait until it has expired. Package fence calls Abandon
// when a resource rejects the token.
func (l *Lease) Abandon(cause error) { l.core.Of().GiveUp(&l.core, cause) }

// Release ends the lease and frees the lock with one write. All work under the lease must have
// stopped before. Release must also be called for a lost lease: it frees what the lease has
// left in the store, and lets in the next goroutine that waits for this Lock.
//
// Release returns nil once the lease certainly no longer holds the lock. If the lease was lost,
// the error matches [ErrLost]. If ctx ends first, the error matches ctx.Err(), and the release
// continues in the background; if ctx ended before the call, or is the lease's own, Release
// waits up to 5 s anyway. If the store denies access or does not answer for a TTL, Release
// returns the reason, and others wait until the lease has expired; you need not handle that.
// Under a [Session], the session then ends. Further calls return the result of the first.
func (l *Lease) Release(ctx context.Context) error { return l.core.Release(ctx, "") }

// SetMeta replaces the metadata in this lease's record, to show a job's progress, for example.
// The map is copied; an empty map means no metadata. All later renewals carry it.
//
// SetMeta returns nil when a record with this change, or a later one, has landed. The next
// renewal carries it, early, or one write of its own if no renewal follows. Metadata is written
// at most once a second, so a call may take a second, and of faster changes only the last one
// is written. If the store fails, SetMeta retries as long as the lease lasts. If ctx or the
// lease ends first, the error matches ctx.Err() or that of [Lease.Err], and the change may
// still land.
//
// SetMeta changes nothing and returns an error if the record becomes too large, or in
// [LayoutMarker] without If-Match.
func (l *Lease) SetMeta(ctx context.Context, meta map[string]string) error {
	d, ok := l.core.Of().(*driver)
	if !ok {
		return fmt.Errorf("a lease of %s has no meta data of its own", l.core.Of().Where())
	}
	if err := d.metaFits(l, meta); err != nil {
		return fmt.Errorf("the meta data of the lock %v: %w", d.at, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	call := d.setMeta(l, meta)
	select {
	case <-call.landed:
	case <-ctx.Done():
	case <-l.Done():
	}
	if d.forgetMeta(call) {
		return nil
	}
	if err := l.Err(); err != nil {
		return fmt.Errorf("the lease of the lock %v ended before its meta data was known to have landed: %w", d.at, err)
	}
	return fmt.Errorf("the meta data of the lock %v may still land: %w", d.at, ctx.Err())
}

// metaFits returns why the lease's record cannot carry meta.
func (d *driver) metaFits(l *Lease, meta map[string]string) error {
	if d.opts.Layout == LayoutMarker && d.opts.NoIfMatch {
		return fmt.Errorf("it cannot change in the layout %s without If-Match, whose object is not written over", d.opts.Layout)
	}
	with := *d.opts
	with.Holder, with.Meta = l.Holder(), meta
	return with.encodable()
}

// metaCalls are the unanswered calls of SetMeta, numbered in the order in which the candidate
// gets them.
type metaCalls struct {
	last    int
	waiting []*metaCall
}

// A metaCall is one call of SetMeta.
type metaCall struct {
	lease  *Lease
	number int
	landed chan struct{} // closed when a record with it has landed
}

// setMeta passes the call to the candidate. If the lease has already ended, the call gets no
// answer.
func (d *driver) setMeta(l *Lease, meta map[string]string) *metaCall {
	d.Enter()
	defer d.Leave()
	calls := &d.now.metaCalls
	calls.last++
	call := &metaCall{lease: l, number: calls.last, landed: make(chan struct{})}
	if d.lease != l || l.Context().Err() != nil {
		return call
	}
	calls.waiting = append(calls.waiting, call)
	if meta = maps.Clone(meta); meta == nil {
		meta = map[string]string{}
	}
	d.Step(candidate.SetMeta{Number: call.number, Meta: meta})
	return call
}

// metaSet answers the calls up to this number, but not those for an earlier lease, whose
// callers are about to notice its end.
func (d *driver) metaSet(number int) {
	calls := &d.now.metaCalls
	calls.waiting = slices.DeleteFunc(calls.waiting, func(call *metaCall) bool {
		landed := call.lease == d.lease && call.number <= number
		if landed {
			close(call.landed)
		}
		return landed
	})
}

// forgetMeta ends a call, and reports whether its change has landed. A resting engine has no
// calls.
func (d *driver) forgetMeta(call *metaCall) (landed bool) {
	d.Locked(func() {
		select {
		case <-call.landed:
			landed = true
			return
		default:
		}
		if d.now != nil {
			d.now.metaCalls.waiting = slices.DeleteFunc(d.now.metaCalls.waiting, func(other *metaCall) bool { return other == call })
		}
	})
	return landed
}
