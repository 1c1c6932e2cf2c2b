package leasehold

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// Errors that callers can check. They are wrapped with their causes, so use [errors.Is].
// An error that matches none of them is a store error or the end of the caller's context;
// [Final] reports whether retrying makes sense.
var (
	// ErrHeld: the lock is held. Every such error is a [*HeldError]. [Lock.TryAcquire]
	// returns it, and [Lock.Acquire] joins it to the end of its context. Try again later, or
	// wait with Acquire.
	ErrHeld = errors.New("the lock is held")
	// ErrLost: the lease ended before it was released. Stop the work. The error's cause says
	// why: no renewal succeeded in time, another candidate took the lock, someone
	// force-released it, or its object was deleted or overwritten.
	ErrLost = engine.ErrLost
	// ErrBroken, with ErrLost: someone force-released the lock, or the lease's session, and no
	// other candidate has taken it. Find out why before you acquire the lock again.
	ErrBroken = protocol.ErrBroken
	// ErrTimeUp, with ErrLost: the lease reached the limit set by [WithMaxHold] or
	// [WithoutRenewal]. Acquire the lock again to continue.
	ErrTimeUp = candidate.ErrTimeUp
	// ErrReleased: the lease was released. It is the cause of its context's end, not a failure.
	ErrReleased = lock.ErrReleased
	// ErrDetached: the lease was detached with detached.From. It is the cause of its
	// context's end, not a failure.
	ErrDetached = errors.New("the lease was detached")
	// ErrSessionOver: the session of the lease or Lock has ended. The error's cause says why.
	// A Lock cannot change its session: begin another session and make new Locks under it.
	ErrSessionOver = engine.ErrSessionOver
	// ErrClosed: the [Locks] were closed or, with ErrSessionOver, the session was. Make new ones.
	ErrClosed = engine.ErrClosed
	// ErrNotLeading: [Election.Resign] was called while this candidate did not lead. Nothing was
	// changed.
	ErrNotLeading = errors.New("not the leader")
	// ErrResigned: this candidate resigned. It is the cause of the end of the work's context, not a
	// failure.
	ErrResigned = errors.New("the leader resigned")
	// ErrTokenTooLarge: the lock's token is so large that none can follow it, which only a change
	// by hand can cause. You can inspect and break the lock, but not acquire it before you repair
	// it: see "A token that is too large" in docs/maintain.md.
	ErrTokenTooLarge = protocol.ErrTooLarge
	// ErrForeignObject: the object under the lock's key is not a record that this version
	// understands. It is never overwritten. Inspect it, and move it away or choose another
	// key for the lock.
	ErrForeignObject = record.ErrForeign
	// ErrMoved: the lock has moved to another location, or a move to here is not complete: see
	// admin.Move. Every such error is a [*MovedError] and also matches ErrForeignObject. Use
	// the location in the error.
	ErrMoved = record.ErrMoved
)

// Final reports whether an error is permanent: retrying does not help until someone changes
// access, the bucket, the lock's name or object, or the store, or until there is another
// session. If Final returns false, wait a little and try again. [Election.Run] and
// [AcquireAll] use it, and so should your own loop around [Lock.Acquire].
func Final(err error) bool { return engine.Final(err) }

// MovedError says where a lock has moved to, or where an incomplete move comes from. It
// matches [ErrMoved] and [ErrForeignObject]. Get it with [errors.As].
type MovedError struct {
	// To is the lock's new location. If it is empty, the lock is moving here from From. Both
	// are the store's name with the key: a URL, if the store has one.
	To, From string

	at    string
	cause error
}

func (e *MovedError) Error() string {
	if e.To != "" {
		return fmt.Sprintf("the lock %s has moved to %s: use that name", e.at, e.To)
	}
	return fmt.Sprintf("the lock %s is to come from %s: use it once `leasehold move` is done, or run that again if it was interrupted", e.at, e.From)
}

// Unwrap returns the error from reading the record.
func (e *MovedError) Unwrap() error { return e.cause }

// HeldError says who holds the lock. It matches [ErrHeld]. Get it with [errors.As]. Its Info
// is from the last read: the lock may be free by now, and the holder may have died, see
// [Info.Abandoned].
type HeldError struct {
	Info Info

	advice string // set if the caller itself keeps the lock from being free
}

func (e *HeldError) Error() string {
	text := fmt.Sprintf("the lock %s is held by %s (token %v)", e.Info.Key, e.Info.Holder, e.Info.Token)
	if e.Info.Rest > 0 {
		text = fmt.Sprintf("the lock %s rests for %v more, until %s, as %s has asked (token %v)", e.Info.Key,
			e.Info.Rest.Round(time.Second), time.Now().Add(e.Info.Rest).Format(time.DateTime), e.Info.Holder, e.Info.Token)
		if e.Info.Age < 0 {
			text += "; the store does not tell how old that is, so it counts from now"
		}
	}
	if e.Info.Abandoned {
		text += fmt.Sprintf("; it looks abandoned, and a wait of a little over %v can take it over", e.Info.TTL)
	}
	if e.advice != "" {
		text += "; " + e.advice
	}
	return text
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

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
			d.opts.Logger.Warn("a lost lease has not been released", "lock", d.at.String(), "token", d.lease.core.Token, "advice", notReleased)
		}
	})
}

// advice returns what to do about an invalid lease that keeps others out.
func (l *Lease) advice() string {
	if l.core.Lost() != nil {
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
