package leasehold

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// Errors that a caller can decide by. They come wrapped, with their causes, so ask for them with
// [errors.Is]. An error that matches none of them is the store's, or the end of the caller's own
// context; [Final] says whether to try again makes sense.
var (
	// ErrHeld: another holds the lock. Every such error is a [*HeldError].
	// [Lock.TryAcquire] returns it, and [Lock.Acquire] joins it to the end of its context. Try
	// again later, or wait with Acquire.
	ErrHeld = errors.New("the lock is held")
	// ErrLost: the lease ended before it was released. The cause that goes with
	// it says why: no renewal came through in time, another took the lock, somebody
	// broke it by hand, its object was deleted or overwritten. The work must stop.
	ErrLost = engine.ErrLost
	// ErrBroken goes with ErrLost: somebody broke the lock by hand, or the session that the
	// lease was under. Nobody else has taken it.
	ErrBroken = protocol.ErrBroken
	// ErrTimeUp goes with ErrLost: the lease has lasted for as long as its own acquisition has
	// allowed, by [WithMaxHold] or [WithoutRenewal].
	ErrTimeUp = protocol.ErrTimeUp
	// ErrReleased: the lease was released.
	// It is the cause that the lease's context ends with, and no failure.
	ErrReleased = errors.New("the lease was released")
	// ErrDetached: the lease was detached, by [Lease.Detach].
	// It is the cause that the lease's context ends with, and no failure.
	ErrDetached = errors.New("the lease was detached")
	// ErrSessionOver: the session that the lease was under, or was to be under, is over. The
	// cause that goes with it says why.
	// A Lock keeps its session for good: begin another session, and make Locks under that.
	ErrSessionOver = engine.ErrSessionOver
	// ErrClosed: the [Locks] were closed. It goes with ErrSessionOver too, for a session that was.
	ErrClosed = engine.ErrClosed
	// ErrNotLeading: this candidate of an election is not the leader.
	// [Election.Resign] returns it when there is nothing to resign from, or no more.
	ErrNotLeading = errors.New("not the leader")
	// ErrResigned: the work was stopped because this candidate of an election resigned.
	// It is the cause that the context of the work ends with.
	ErrResigned = errors.New("the leader resigned")
	// ErrTokenTooLarge: the lock's token is so large that none can follow it, which nothing
	// but a change by hand can have made it. The lock can be looked at and broken, and not be
	// acquired before that is put right: see "A token that is too large" in
	// docs/maintain.md.
	ErrTokenTooLarge = protocol.ErrTooLarge
	// ErrForeignObject: what lies in the lock's place is not a record that this
	// version understands. It is left as it is. Look at it, and move it away or
	// choose another name for the lock.
	ErrForeignObject = record.ErrForeign
	// ErrMoved: the lock has moved to another place, or is to come from one: see admin.Move. Every such
	// error is a [*MovedError], and matches ErrForeignObject too. Use the place that it names.
	ErrMoved = record.ErrMoved
)

// Final reports that to try again is of no use until a person changes something: access, the
// bucket, the lock's name or object, the store itself; or until there is another session. It is
// what [Election.Run] and [AcquireAll] go by, and what a loop of one's own around [Lock.Acquire]
// should. Where it is false, wait a little and try again.
func Final(err error) bool { return engine.Final(err) }

// MovedError says where a lock has gone, or is to come from. It matches [ErrMoved] and
// [ErrForeignObject]. Get it with [errors.As].
type MovedError struct {
	// To is where the lock is now; empty: it is to come here. From is from where it is to come.
	// Both are what the store calls itself, with the key: a URL, where it has one.
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

// Unwrap is what was found there.
func (e *MovedError) Unwrap() error { return e.cause }

// HeldError says by whom the lock is held. It matches [ErrHeld].
// Get it with [errors.As]. Its Info is as old as the last look: the lock may be free by now, and
// the holder may be gone, see [Info.Abandoned].
type HeldError struct {
	Info Info

	advice string // where the caller itself keeps the lock from being free
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
