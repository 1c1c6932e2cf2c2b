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

// Errors that callers can check with [errors.Is]. Others are store errors or the end of the
// caller's context. [Final] reports whether retrying makes sense.
var (
	// ErrHeld: the lock is held, as a [*HeldError] says. Try again later, or wait with Acquire,
	// which joins it to the end of its context.
	ErrHeld = errors.New("the lock is held")
	// ErrLost: the lease ended before it was released. Stop the work. The cause says why: no
	// renewal in time, another holder, a force-release, or an object that was deleted.
	ErrLost = engine.ErrLost
	// ErrBroken, with ErrLost: someone force-released the lock or the session. Find out why
	// before you acquire the lock again.
	ErrBroken = protocol.ErrBroken
	// ErrTimeUp, with ErrLost: the lease reached the limit of [WithMaxHold] or [WithoutRenewal].
	// Acquire the lock again to continue.
	ErrTimeUp = candidate.ErrTimeUp
	// ErrReleased: the lease was released. It is the cause of its context's end, not a failure.
	ErrReleased = lock.ErrReleased
	// ErrSessionOver: the session of the lease or Lock has ended, and the cause says why. Begin
	// another session and make new Locks under it.
	ErrSessionOver = engine.ErrSessionOver
	// ErrClosed: the [Locks] were closed or, with ErrSessionOver, the session was. Make new ones.
	ErrClosed = engine.ErrClosed
	// ErrNotLeading: this candidate was to resign and did not lead. Nothing was changed.
	ErrNotLeading = errors.New("not the leader")
	// ErrResigned: this candidate resigned. It is the cause of the end of the work's context.
	ErrResigned = errors.New("the leader resigned")
	// ErrTokenTooLarge: no token can follow the lock's, which someone changed by hand. Repair
	// the lock before you acquire it: see "A token that is too large" in docs/maintain.md.
	ErrTokenTooLarge = protocol.ErrTooLarge
	// ErrForeignObject: the object under the lock's key is not a record that this version
	// understands, and is never overwritten. Move it away, or choose another key.
	ErrForeignObject = record.ErrForeign
	// ErrMoved: the lock has moved, or a move to here is not complete: see admin.Move. Use the
	// location in the [*MovedError]. It also matches ErrForeignObject.
	ErrMoved = record.ErrMoved
)

// Final reports whether an error is permanent: retrying does not help until someone changes
// access, the bucket, the lock's name or object, or the store, or until there is another
// session. Otherwise wait a little and try again. Use it in your own loop around
// [Lock.Acquire].
func Final(err error) bool { return engine.Final(err) }

// MovedError says where a lock has moved to, or where an incomplete move comes from. It matches
// [ErrMoved] and [ErrForeignObject].
type MovedError struct {
	// To is the lock's new location. If it is empty, the lock is moving here from From.
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

// HeldError says who holds the lock or semaphore, as last read: it may be free by now, and the
// holder may have died, see [Info.Abandoned]. It matches [ErrHeld].
type HeldError struct {
	Info Info

	advice string // set if the caller itself keeps the lock from being free
}

func (e *HeldError) Error() string {
	if e.Info.Size > 0 {
		return slotsTaken(e.Info)
	}
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

// slotsTaken says who holds the slots of a semaphore.
func slotsTaken(i Info) string {
	text := fmt.Sprintf("%d of %d slots of the semaphore %s are taken", i.Taken(), i.Size, i.Key)
	if len(i.Holders) > 0 {
		text += ", by " + i.Holders[0].Holder
	}
	if n := len(i.Holders); n > 1 {
		text += fmt.Sprintf(" and %d more", n-1)
	}
	if n := len(i.Waiters); n > 0 {
		text += fmt.Sprintf(", and %d wait", n)
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
