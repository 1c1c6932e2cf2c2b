package leasehold

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
)

const (
	// asksAtOnce is how many locks AcquireAny polls at a time.
	asksAtOnce = 8
	// anyPatience is how long AcquireAny waits for one lock before it continues with the
	// others.
	anyPatience = time.Second
)

// AcquireAny acquires one of the locks, whichever it can get first. It polls up to eight at a
// time, starting at a random one so that callers do not all want the same lock, and claims free
// ones one after the other. If the store does not answer about one lock within a second,
// AcquireAny continues with the others. If no lock is free, it waits for all of them. Errors
// and the end of ctx are as for [Lock.Acquire]; AcquireAny fails only if it cannot wait for any
// lock.
//
// The search costs one read per lock, or none for a lock known to be free, and the claim.
// During the wait, each lock that is not under a session costs as much as one waiter.
//
// AcquireAny may win two locks at the same moment, during the wait or if a claim takes longer
// than a second. It returns one and releases the other in the background, which ends within
// that lock's TTL: see [Lock.Settle]. The other's token is used up, which does no harm.
func AcquireAny(ctx context.Context, locks []*Lock) (*Lease, error) {
	if len(locks) == 0 {
		return nil, errors.New("there is no lock to acquire any of")
	}
	racing, over := context.WithCancel(ctx)
	defer over()
	r := &race{over: over, ends: make(chan result, 2*len(locks))}
	lease, err := r.try(racing, locks)
	switch cause := ctx.Err(); {
	case lease != nil:
		return lease, nil
	case racing.Err() == nil:
		return r.wait(racing, locks)
	case cause != nil && !errors.Is(err, cause):
		err = errors.Join(err, cause)
	}
	return r.end(nil, err) // ends the claim in progress too
}

// A race is a set of acquisitions, of which one wins.
type race struct {
	over    context.CancelFunc // ends all acquisitions
	ends    chan result        // of acquisitions; has room for all
	running int                // acquisitions that have not ended
}

// enter adds an acquisition.
func (r *race) enter(ctx context.Context, acquire func(ctx context.Context, opts ...AcquireOption) (*Lease, error)) {
	r.running++
	go func() {
		lease, err := acquire(ctx)
		r.ends <- result{lease: lease, err: err}
	}()
}

// end ends the race with a winner, or with the reason why there is none. Canceled acquisitions
// end at once, whatever the store does, so none is left that could return a second lease.
func (r *race) end(winner *Lease, err error) (*Lease, error) {
	r.over()
	for ; r.running > 0; r.running-- {
		// Its release continues in the background, because the caller already has a lease.
		if late := <-r.ends; late.lease != nil {
			late.lease.beginRelease("")
		}
	}
	if winner == nil {
		return nil, err
	}
	if err := winner.Err(); err != nil { // lost before the others had ended
		winner.beginRelease("")
		return nil, winner.d.explain(err)
	}
	return winner, nil
}

// try acquires a lock that is free. If it returns no lease and ctx has not ended, a claim may
// still be in progress; it stays in the race.
//
// try polls all locks but claims one at a time, because each loser of a race of claims would
// have written an acquisition and a release for nothing. During a claim it begins no new polls.
func (r *race) try(ctx context.Context, locks []*Lock) (*Lease, error) {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	l := newLooks(locks)
	var errs []error
	late := time.NewTimer(anyPatience) // for the last claim, or for a poll if there is no claim
	defer late.Stop()
	for on := true; l.more() || r.running > 0; {
		if on && len(l.free) > 0 {
			r.enter(ctx, l.free[0].TryAcquire)
			l.free, on = l.free[1:], false
			late.Reset(anyPatience)
		}
		if on {
			l.begin(looking)
		}
		select {
		case s := <-l.seen:
			errs = append(errs, l.take(s))
			if r.running == 0 {
				late.Reset(anyPatience)
			}
		case e := <-r.ends:
			r.running--
			if e.err == nil {
				return r.end(e.lease, nil)
			}
			errs, on = append(errs, e.err), true
		case <-late.C:
			if on || !l.more() { // no answer about one lock, or about all that are left
				return nil, errors.Join(errs...)
			}
			on = true
			late.Reset(anyPatience)
		case <-ctx.Done():
			return r.end(nil, errors.Join(append(errs, ctx.Err())...))
		}
	}
	return nil, errors.Join(errs...)
}

// wait waits for all the locks at once.
func (r *race) wait(ctx context.Context, locks []*Lock) (*Lease, error) {
	var errs []error
	for _, lock := range locks {
		r.enter(ctx, lock.Acquire)
	}
	for r.running > 0 {
		e := <-r.ends
		r.running--
		if e.err == nil {
			return r.end(e.lease, nil)
		}
		errs = append(errs, e.err)
	}
	return nil, errors.Join(errs...)
}

// looks are the polls of AcquireAny before it claims a lock.
type looks struct {
	todo []*Lock // in the random order
	open int     // polls in progress
	seen chan look
	free []*Lock // found free, not claimed yet
}

// A look is the result of a poll: err is nil if the lock is free, and else says why not.
type look struct {
	lock *Lock
	err  error
}

func newLooks(locks []*Lock) *looks {
	first := rand.N(len(locks))
	return &looks{todo: slices.Concat(locks[first:], locks[:first]), seen: make(chan look, len(locks))}
}

// more reports whether there is a lock left to poll or to claim.
func (l *looks) more() bool { return len(l.todo) > 0 || l.open > 0 || len(l.free) > 0 }

// begin polls the next locks, up to the limit.
func (l *looks) begin(ctx context.Context) {
	for ; len(l.todo) > 0 && l.open < asksAtOnce; l.todo = l.todo[1:] {
		lock := l.todo[0]
		l.open++
		go func() { l.seen <- look{lock, lock.taken(ctx)} }()
	}
}

// take adds the result of a poll.
func (l *looks) take(s look) error {
	l.open--
	if s.err == nil {
		l.free = append(l.free, s.lock)
	}
	return s.err
}

// taken returns why the lock is not free, from what is known or from one read.
func (l *Lock) taken(ctx context.Context) error {
	if err := l.underSession(); err != nil {
		return err
	}
	if l.d.queue.Taken() {
		return l.d.heldError(nil)
	}
	if l.d.claimable() {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, anyPatience)
	defer cancel()
	info, err := l.Inspect(short)
	switch {
	case err != nil && short.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("the store has not said within %v whether the lock %v is free", anyPatience, l.d.at)
	case err != nil:
		return err
	case !info.Held && info.Rest == 0, info.Session != "" && info.Abandoned, l.d.claimable():
		return nil
	}
	return &HeldError{Info: info}
}

// claimable reports whether the candidate knows that it can claim the lock now.
func (d *driver) claimable() (yes bool) {
	d.Locked(func() { yes = d.Candidate().Claimable(clock.Now()) })
	return yes
}
