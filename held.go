package leasehold

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/record"
)

// Advice for callers that keep a lock from themselves.
const (
	sameSession = "another Lock of the same key holds it under the same session: release that lease, or share the Lock"
	notReleased = "this Lock's own lease of it was lost and has not been released: call Release when its work has stopped"
)

// ownSession reports whether the holder's session is the acquisition's own. It is for advice
// only: a lock that names our session need not be ours (rule D5).
func (d *driver) ownSession(r record.Record) bool {
	return d.opts.Session != nil && r.Session == d.opts.Session.Key()
}

// warnOwn logs that a lost lease has not been released, because other goroutines cannot get in
// until it is. This is the most common way to lock yourself out: the work sees its context end
// and returns, and Release is never called because the lease is lost anyway.
func (d *driver) warnOwn() {
	d.Locked(func() {
		if d.lease != nil && d.lease.advice() != "" {
			d.opts.Logger.Warn("a lost lease has not been released", "lock", d.at.String(), "token", int64(d.lease.token), "advice", notReleased)
		}
	})
}

// advice returns what to do about an invalid lease that keeps others out.
func (l *Lease) advice() string {
	if errors.Is(context.Cause(l.ctx), ErrLost) {
		return notReleased
	}
	return ""
}

// heldError returns who holds the lock, if known, and cause, if any. Both matter: "context
// deadline exceeded" alone sends you to look for a slow store when another job just took an
// hour, and "held by" alone hides later store errors.
func (d *driver) heldError(cause error) error {
	d.Enter()
	defer d.Leave()
	held := &HeldError{Info: d.now.seen}
	if d.opts.Session != nil && d.now.seen.Session == d.opts.Session.Key() {
		held.advice = sameSession
	}
	if d.now.waiter != nil { // another goroutine waits for that holder
		held.Info = d.seenNow()
	}
	if d.lease != nil { // another goroutine of this process
		held.Info = describe(d.key, layout.Snapshot{Record: d.Candidate().Lease()})
		held.advice = d.lease.advice()
	}
	if held.advice == notReleased { // neither waiting nor the store would help
		held.Info.Abandoned = false
		if cause == nil {
			return held
		}
		return errors.Join(held, cause)
	}
	if trouble := d.Trouble(); cause != nil && trouble != nil {
		cause = fmt.Errorf("%w; the lock %v was not acquired, since the store fails: %w", cause, d.at, trouble)
	}
	switch {
	case cause == nil && !held.Info.Exists:
		// Another goroutine is acquiring the lock and does not know its holder either.
		held.Info.Key, held.Info.Holder = d.key, d.opts.Holder
		return held
	case cause == nil:
		return held
	case !held.Info.Exists:
		return cause
	}
	return errors.Join(cause, held)
}
