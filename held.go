package leasehold

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/record"
)

// A caller may keep a lock from itself.
const (
	sameSession = "another Lock of the same key holds it under the same session: release that lease, or share the Lock"
	notReleased = "this Lock's own lease of it was lost and has not been released: call Release when its work has stopped"
)

// ownSession reports that the holder's session is the one that the acquisition is for.
// It is for advice only. That a lock names the own session is no ownership (rule D5).
func (d *driver) ownSession(r record.Record) bool {
	return d.opts.Session != nil && r.Session == d.opts.Session.Key()
}

// warnOwn reports a lost lease that has not been released, since nobody gets in before. It is
// the most common way to lock oneself out: the work saw the end of its context, returned, and
// nobody called Release because the lease was gone anyway.
func (d *driver) warnOwn() {
	d.Locked(func() {
		if d.lease != nil && d.lease.advice() != "" {
			d.opts.Logger.Warn("a lost lease has not been released", "lock", d.at.String(), "token", int64(d.lease.token), "advice", notReleased)
		}
	})
}

// advice is what to do about a lease that keeps others out and is not valid any more.
func (l *Lease) advice() string {
	if errors.Is(context.Cause(l.ctx), ErrLost) {
		return notReleased
	}
	return ""
}

// heldError says who holds the lock, if that is known, and why the acquisition
// ended, if it has a reason of its own. Both matter: "context deadline exceeded" alone sends
// its reader to look for a slow store, when a colleague's job just took an hour; and "held by"
// alone hides that the store has failed since.
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
	if held.advice == notReleased { // neither a wait nor the store would help
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
		// Another goroutine is acquiring it, and does not know more either.
		held.Info.Key, held.Info.Holder = d.key, d.opts.Holder
		return held
	case cause == nil:
		return held
	case !held.Info.Exists:
		return cause
	}
	return errors.Join(cause, held)
}
