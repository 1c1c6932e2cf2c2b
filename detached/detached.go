// Package detached hands the lease of a lock from one process to another: from one step of a
// pipeline to the next, for example, or from a lock command to an unlock command.
//
//	lease, err := lock.Acquire(ctx)
//	d, err := detached.From(ctx, lease) // ends the lease in this process; the lock stays held
//	text, err := json.Marshal(d)        // keep it in a file that only its owner can read
//
//	d, err := detached.Parse(text)      // in the other process
//	err = detached.Renew(ctx, lock, d, keep)
//	err = detached.Release(ctx, lock, d)
//
// A detached lease is not renewed in the background, and nothing stops the work under it. The
// work must have stopped by [Lease.ExpiresAt]; a token protects a resource from work that has
// not. If nobody uses the lease again, others can take the lock over after its TTL and margin.
// docs/protocol.md explains it in rule A12.
package detached

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store"
)

// Lease is the lease of a lock that no process holds. Store it as JSON: anyone who has it, and
// write access to the store, can use the lease.
//
// A Lease identifies one record of the lock, and each use replaces that record. So you can use
// a Lease once. If two processes have copies, one succeeds and the other gets an error that
// matches [leasehold.ErrLost].
type Lease struct {
	// Store is the store's name for itself. Only a lock in a store with this name takes the
	// lease; if Store is empty, any store will do.
	Store string
	// URL says how to open the store again. It is for your use: From leaves it empty, and
	// this package ignores it.
	URL       string
	Key       string
	Layout    leasehold.Layout
	NoIfMatch bool // the lock's option
	Token     leasehold.Token
	Holder    string
	TTL       time.Duration

	// AcquiredAt and ExpiresAt are times by the wall clock of the process that last wrote the
	// record. The lease is valid before ExpiresAt, which is TTL − margin after that write was
	// sent. If the store does not tell how old the record is, ExpiresAt decides whether the
	// lease can still be attached and renewed. Mutual exclusion does not depend on either time.
	AcquiredAt, ExpiresAt time.Time

	// Released reports that the lease was released and cannot be used. You may set it, so that
	// a second release fails without a request.
	Released bool

	writeID string   // of the record
	pending []string // incarnations that may have renewed the lease since
}

// maxPending bounds how many renewals with an unknown result a Lease remembers. If an earlier
// one lands after all, it is taken for another copy's.
const maxPending = 8

// ErrForeign: this is not a detached lease that this version understands, or it belongs to
// another lock. Use the result of the last From or Renew, with its own lock.
var ErrForeign = errors.New("not a detached lease that this version understands")

// ErrDetached: the lease was detached. It is the cause of the end of its context, not a failure.
var ErrDetached = lock.ErrDetached

// UnsettledError: the store did not say whether a write of a detached lease has landed. Continue
// with the Lease in it, which covers both cases. The one you passed covers only the case without
// the write.
type UnsettledError struct {
	Lease Lease
	Cause error
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("it is not known whether the detached lease was renewed: %v", e.Cause)
}

// Unwrap returns Cause.
func (e *UnsettledError) Unwrap() error { return e.Cause }

// From ends a lease in this process without freeing the lock, which stays held until the TTL
// and margin have passed. As for Release, all work under the lease in this process must have
// stopped.
//
// The lease is invalid from the call on, and its context ends with [ErrDetached].
// From waits until no write of the lease is in flight or may still land. That takes one or two
// requests if a renewal has just failed, and none otherwise. Afterwards Release does nothing
// and returns nil.
//
// If the lease was lost, the error matches [leasehold.ErrLost]; if ctx ends first, it matches
// ctx.Err(). In both cases the lease is being freed, as by Release. If ctx ended before the
// call, From waits up to 5 s anyway. A lease of an Election, of a semaphore, under a Session,
// or in a layout without tokens cannot be detached: From returns an error, and the lease stays
// valid.
func From(ctx context.Context, l *leasehold.Lease) (Lease, error) {
	st, s, err := leasehold.Internal.Detach(ctx, l)
	if err != nil {
		return Lease{}, err
	}
	return leaseOf(st, l.Key(), s), nil
}

// leaseOf returns the Lease for a lock's current record.
func leaseOf(st store.Store, key string, s layout.Snapshot) Lease {
	i, proof := leasehold.Internal.Describe(key, s), candidate.ProofOf(s.Record)
	return Lease{
		Store: st.String(), Key: key, Layout: i.Layout, NoIfMatch: i.NoIfMatch, Token: i.Token, Holder: i.Holder, TTL: i.TTL,
		AcquiredAt: i.AcquiredAt, ExpiresAt: proof.Expires, writeID: proof.WriteID,
	}
}

// Attach takes over a detached lease, which is renewed in this process from now on. It costs
// one read and one conditional write. The lease keeps its token, and its holder is the lock's.
//
// If the lease has ended, the error matches [leasehold.ErrLost] and says why, and nothing was
// written: another candidate has the lock, the lease was released or force-released, another
// copy of the Lease was used, or the lease has expired. An expired lease has ended even if the
// lock is free, because the work under it was not covered by a valid lease. If the store does
// not say whether the write landed, the error is an [*UnsettledError]. If this lock is already
// held, it is a [*leasehold.HeldError].
//
// Attach does not wait for other holders. If the store fails three times in a row or does not
// answer within a TTL, Attach returns the last reason. If ctx ends first, the error matches
// ctx.Err().
func Attach(ctx context.Context, l *leasehold.Lock, d Lease) (*leasehold.Lease, error) {
	lease, _, err := d.use(ctx, l, candidate.ToHold, nil)
	return lease, err
}

// Renew renews a detached lease once, for the lock's TTL, with one read and one conditional
// write. The lease stays detached and is never valid in this process. Renew returns the Lease
// to use next; errors are as for [Attach].
//
// Before it sends anything, Renew calls keep with the Lease to use if this process ends before
// Renew returns. It is usable whether or not the renewal lands. Without keep, the lease may be
// lost if the process ends. If keep fails, Renew sends nothing and returns its error. keep may
// be nil.
func Renew(ctx context.Context, l *leasehold.Lock, d Lease, keep func(Lease) error) (Lease, error) {
	_, s, err := d.use(ctx, l, candidate.ToRenew, keep)
	if err != nil {
		return Lease{}, err
	}
	next := leaseOf(leasehold.Internal.Store(l), l.Key(), s)
	next.URL = d.URL
	return next, nil
}

// Release frees the lock held by a detached lease, with one read and one conditional write. It
// returns nil once the lease certainly no longer holds the lock. Errors are as for [Attach],
// with one exception: if the lease has expired but its record is still the current one, Release
// frees the lock and returns an error that matches [leasehold.ErrLost].
func Release(ctx context.Context, l *leasehold.Lock, d Lease) error {
	_, _, err := d.use(ctx, l, candidate.ToRelease, nil)
	return err
}

// use is the common part of the calls.
func (d Lease) use(ctx context.Context, l *leasehold.Lock, use candidate.Use, keep func(Lease) error) (*leasehold.Lease, layout.Snapshot, error) {
	if err := d.suits(l); err != nil {
		return nil, layout.Snapshot{}, err
	}
	pending := d
	ev := candidate.Attach{Proof: d.proof(), Use: use}
	lease, s, open, err := leasehold.Internal.Attach(ctx, l, ev, func(incarnation string) error {
		if use == candidate.ToRenew {
			pending = d.with(incarnation)
			// A renewal may last less long than the current record (rule A7).
			if less := time.Now().Add(protocol.Validity(leasehold.Internal.Config(l).TTL)); less.Before(pending.ExpiresAt) {
				pending.ExpiresAt = less
			}
		}
		if keep == nil {
			return nil
		}
		return keep(pending)
	})
	if open != "" {
		err = &UnsettledError{pending.with(open), err}
	}
	return lease, s, err
}

// suits returns why the lock cannot take the detached lease.
func (d Lease) suits(l *leasehold.Lock) error {
	st, o := leasehold.Internal.Store(l), leasehold.Internal.Options(l)
	switch {
	case d.writeID == "" || d.Token == leasehold.NoToken:
		return fmt.Errorf("%w: it was made neither by detached.From nor by detached.Parse", ErrForeign)
	case o.Session != nil:
		return errors.New("a lock under a session cannot take a detached lease: nobody renews that session for it")
	case d.Key != l.Key():
		return fmt.Errorf("%w here: it is of the lock %q, not of %q", ErrForeign, d.Key, l.Key())
	case d.Layout != o.Layout:
		return fmt.Errorf("%w here: it has the layout %s, not %s", ErrForeign, d.Layout, o.Layout)
	case d.NoIfMatch != o.NoIfMatch:
		return fmt.Errorf("%w here: its lock has the option NoIfMatch %t, and this one %t", ErrForeign, d.NoIfMatch, o.NoIfMatch)
	case d.Store != "" && d.Store != st.String():
		return fmt.Errorf("%w here: it is of a lock in %s, not in %s", ErrForeign, d.Store, st)
	case d.Released:
		return fmt.Errorf("%w: it was released already", leasehold.ErrLost)
	}
	return nil
}

// proof returns the part that the protocol needs.
func (d Lease) proof() candidate.Proof {
	return candidate.Proof{Token: int64(d.Token), WriteID: d.writeID, Marks: d.pending, Expires: d.ExpiresAt}
}

// with returns the Lease to use once a renewal by this incarnation may have landed.
func (d Lease) with(incarnation string) Lease {
	if d.pending = slices.Clone(d.pending); !slices.Contains(d.pending, incarnation) {
		d.pending = append(d.pending, incarnation)
	}
	d.pending = d.pending[max(len(d.pending)-maxPending, 0):]
	return d
}
