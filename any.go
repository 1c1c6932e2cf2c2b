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
	// asksAtOnce is how many locks AcquireAny looks at at a time.
	asksAtOnce = 8
	// anyPatience is how long it waits for one of them before it goes on with the others.
	anyPatience = time.Second
)

// AcquireAny acquires one of the locks, whichever it can have first. It looks at up to eight at a
// time, in an order that is drawn by lot, so that many callers do not all want the same one, and
// claims those that are free one after the other. A store that has not answered about one lock for
// a second keeps it from none of the others. When none is free it waits for all of them. Errors and
// the end of ctx are as for [Lock.Acquire]; it fails only if no lock can be waited for.
//
// To find a free lock costs one read for each lock that it looks at, which for those that are known
// to be free is none, and the claim. While it waits, each lock that is not under a session costs
// what one waiter costs.
//
// It may win two at the same moment, while it waits or after a claim that took longer than a second.
// It returns one. The other is released in the background, which ends within its TTL: see
// [Lock.Settle]. Its token is used up, which harms nobody.
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
	return r.end(nil, err) // the claim that goes on too
}

// A race is of acquisitions of which one is to win.
type race struct {
	over    context.CancelFunc // ends all that takes part
	ends    chan result        // of acquisitions; has room for all
	running int                // acquisitions that have not ended
}

// enter has an acquisition take part.
func (r *race) enter(ctx context.Context, acquire func(ctx context.Context, opts ...AcquireOption) (*Lease, error)) {
	r.running++
	go func() {
		lease, err := acquire(ctx)
		r.ends <- result{lease: lease, err: err}
	}()
}

// end ends the race with a winner, or with why there is none. Acquisitions that are given up end
// at once, whatever the store does, so none is left that could hand out a second lease.
func (r *race) end(winner *Lease, err error) (*Lease, error) {
	r.over()
	for ; r.running > 0; r.running-- {
		// The second is not waited for: its release goes on in the background, as the caller has
		// what it asked for.
		if late := <-r.ends; late.lease != nil {
			late.lease.beginRelease("")
		}
	}
	if winner == nil {
		return nil, err
	}
	if err := winner.Err(); err != nil { // it was lost before the others had given up
		winner.beginRelease("")
		return nil, winner.d.explain(err)
	}
	return winner, nil
}

// try has one of the locks that can be had at once. If it returns none although its caller still wants
// one, a claim may be under way, which goes on in the race.
//
// All are looked at, and only one is claimed at a time: the losers of a race of claims would each have
// written an acquisition and a release for nothing. While it is claimed no look is begun either.
func (r *race) try(ctx context.Context, locks []*Lock) (*Lease, error) {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	l := newLooks(locks)
	var errs []error
	late := time.NewTimer(anyPatience) // for the last claim, or for a look if none is under way
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
			if on || !l.more() { // the store says nothing, of a lock or of all that are left
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

// looks are what AcquireAny finds out of locks before it claims any.
type looks struct {
	todo []*Lock // in the order that was drawn
	open int     // looks under way
	seen chan look
	free []*Lock // that were seen, and not claimed yet
}

// A look at a lock has shown that it is free, or why it cannot be had at once.
type look struct {
	lock *Lock
	err  error
}

func newLooks(locks []*Lock) *looks {
	first := rand.N(len(locks))
	return &looks{todo: slices.Concat(locks[first:], locks[:first]), seen: make(chan look, len(locks))}
}

// more reports that there is more to come, or to claim.
func (l *looks) more() bool { return len(l.todo) > 0 || l.open > 0 || len(l.free) > 0 }

// begin looks at the next locks, as many at a time as may be.
func (l *looks) begin(ctx context.Context) {
	for ; len(l.todo) > 0 && l.open < asksAtOnce; l.todo = l.todo[1:] {
		lock := l.todo[0]
		l.open++
		go func() { l.seen <- look{lock, lock.taken(ctx)} }()
	}
}

// take takes in a look.
func (l *looks) take(s look) error {
	l.open--
	if s.err == nil {
		l.free = append(l.free, s.lock)
	}
	return s.err
}

// taken says why the lock cannot be had at once, as far as is known or one look shows.
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

// claimable reports that the lock can be claimed now, as far as the candidate knows.
func (d *driver) claimable() (yes bool) {
	d.Locked(func() { yes = d.Candidate().Claimable(clock.Now()) })
	return yes
}
