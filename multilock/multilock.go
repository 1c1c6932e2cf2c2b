// Package multilock acquires several locks at once: all of them, for example those of both
// accounts in a transfer, or any one of them, for example that of the first free machine.
//
//	leases, err := multilock.AcquireAll(ctx, []*leasehold.Lock{from, to})
//	err = multilock.ReleaseAll(ctx, leases)
//
//	lease, err := multilock.AcquireAny(ctx, machines)
//	err = lease.Release(ctx)
//
// Callers that need the same locks in different orders cannot deadlock.
package multilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
)

// AcquireAll acquires all the locks, or none, and returns their leases in the order of the
// locks. It takes locks in the order of their keys, several at a time while they are free.
// While it waits for a lock, it holds none that comes later in that order, so callers that
// share some locks cannot deadlock. If it loses a lease while it waits for another lock, it
// acquires that lock and the later ones again. When it returns, all leases were valid a moment
// ago.
//
// If AcquireAll fails or ctx ends, it releases the leases it holds and returns none. If a
// release fails, the error names the lock that may still be held. Other errors are as for
// [leasehold.Lock.Acquire]. Two locks with the same key are an error. If there are many locks,
// put them under a session: see [leasehold.LockOptions.Session].
func AcquireAll(ctx context.Context, locks []*leasehold.Lock) ([]*leasehold.Lease, error) {
	order := make([]int, len(locks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(locks[i].Key(), locks[j].Key()) })
	for n := 1; n < len(order); n++ {
		if key := locks[order[n]].Key(); key == locks[order[n-1]].Key() {
			return nil, fmt.Errorf("the lock %s is to be acquired twice, and would wait for itself", key)
		}
	}
	g := &gathering{locks, order, make([]*leasehold.Lease, len(locks))}
	for done := 0; done < len(order); {
		next, err := g.more(ctx, done)
		if err == nil {
			done, err = g.keep(ctx, next)
		}
		if err != nil {
			return nil, errors.Join(err, g.giveBack(context.WithoutCancel(ctx), 0, len(order)))
		}
	}
	return g.leases, nil
}

// A gathering is the progress of AcquireAll: the leases of the first locks in the order. Each
// step below leaves it with no others. This prevents deadlocks, because all callers take shared
// locks in the same order.
type gathering struct {
	locks  []*leasehold.Lock
	order  []int              // of the locks, by key
	leases []*leasehold.Lease // of the locks; nil: not held
}

// more tries the next locks at once, and waits for the first one that it cannot get: the lock
// is held, or the store does not say. It returns how many of the order it has now.
func (g *gathering) more(ctx context.Context, done int) (int, error) {
	next := g.order[done:min(done+engine.Process{}.Parallel(), len(g.order))]
	errs := make([]error, len(next))
	var all sync.WaitGroup
	for n, i := range next {
		all.Go(func() { g.leases[i], errs[n] = g.locks[i].TryAcquire(ctx) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && (ctx.Err() != nil || leasehold.Final(err)) {
			return done, err
		}
	}
	got := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if got < 0 {
		return done + len(next), nil
	}
	// Release the locks after the held one before the wait begins: another caller may hold that
	// one and wait for these.
	if err := g.giveBack(ctx, done+got, done+len(next)); err != nil {
		return done, err
	}
	i := next[got]
	lease, err := g.locks[i].Acquire(ctx)
	g.leases[i] = lease
	return done + got + 1, err
}

// keep releases the leases from the first ended one on, and returns how many are left.
func (g *gathering) keep(ctx context.Context, done int) (int, error) {
	for n, i := range g.order[:done] {
		if g.leases[i].Err() != nil {
			return n, g.giveBack(ctx, n, done)
		}
	}
	return done, nil
}

// giveBack releases the leases of a range of the order. A lost lease is not an error, because
// it had to end.
func (g *gathering) giveBack(ctx context.Context, from, to int) error {
	var leases []*leasehold.Lease
	for _, i := range g.order[from:to] {
		if g.leases[i] != nil {
			leases = append(leases, g.leases[i])
			g.leases[i] = nil
		}
	}
	return freeAll(leases, func(l *leasehold.Lease) error {
		last, cancel := lock.Grace(ctx)
		defer cancel()
		return leasehold.Internal.Core(l).Free(last, "")
	})
}

// ReleaseAll releases leases, several at a time, and ignores nil ones. All work under them must
// have stopped. Errors and the end of ctx are as for [leasehold.Lease.Release]; errors are
// joined. A failed release does not keep the others from being sent.
func ReleaseAll(ctx context.Context, leases []*leasehold.Lease) error {
	return freeAll(leases, func(l *leasehold.Lease) error { return l.Release(ctx) })
}

// freeAll limits the number of concurrent requests, because ten thousand would time each other
// out.
func freeAll(leases []*leasehold.Lease, free func(*leasehold.Lease) error) error {
	errs := make([]error, len(leases))
	gate := make(chan struct{}, engine.Process{}.Parallel())
	var all sync.WaitGroup
	for i, l := range leases {
		if l == nil {
			continue
		}
		gate <- struct{}{}
		all.Go(func() {
			errs[i] = free(l)
			<-gate
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

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
// and the end of ctx are as for [leasehold.Lock.Acquire]; AcquireAny fails only if it cannot
// wait for any lock.
//
// The search costs one read per lock, or none for a lock known to be free, and the claim.
// During the wait, each lock that is not under a session costs as much as one waiter.
//
// AcquireAny may win two locks at the same moment, during the wait or if a claim takes longer
// than a second. It returns one and releases the other in the background, which ends within
// that lock's TTL: see [leasehold.Lock.Settle]. The other's token is used up, which does no harm.
func AcquireAny(ctx context.Context, locks []*leasehold.Lock) (*leasehold.Lease, error) {
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
	return r.end(result{err: err}) // ends the claim in progress too
}

// A race is a set of acquisitions, of which one wins.
type race struct {
	over    context.CancelFunc // ends all acquisitions
	ends    chan result        // of acquisitions; has room for all
	running int                // acquisitions that have not ended
}

// A result is the end of an acquisition.
type result struct {
	lock  *leasehold.Lock
	lease *leasehold.Lease
	err   error
}

// enter adds an acquisition.
func (r *race) enter(ctx context.Context, l *leasehold.Lock, acquire func(*leasehold.Lock, context.Context, ...leasehold.AcquireOption) (*leasehold.Lease, error)) {
	r.running++
	go func() {
		lease, err := acquire(l, ctx)
		r.ends <- result{l, lease, err}
	}()
}

// end ends the race with a winner, or with the reason why there is none. Canceled acquisitions
// end at once, whatever the store does, so none is left that could return a second lease.
func (r *race) end(last result) (*leasehold.Lease, error) {
	r.over()
	for ; r.running > 0; r.running-- {
		// Its release continues in the background, because the caller already has a lease.
		if late := <-r.ends; late.lease != nil {
			leasehold.Internal.Core(late.lease).BeginRelease("")
		}
	}
	if last.lease == nil {
		return nil, last.err
	}
	if err := last.lease.Err(); err != nil { // lost before the others had ended
		leasehold.Internal.Core(last.lease).BeginRelease("")
		return nil, leasehold.Internal.Explain(last.lock, err)
	}
	return last.lease, nil
}

// try acquires a lock that is free. If it returns no lease and ctx has not ended, a claim may
// still be in progress; it stays in the race.
//
// try polls all locks but claims one at a time, because each loser of a race of claims would
// have written an acquisition and a release for nothing. During a claim it begins no new polls.
func (r *race) try(ctx context.Context, locks []*leasehold.Lock) (*leasehold.Lease, error) {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	l := newLooks(locks)
	var errs []error
	late := time.NewTimer(anyPatience) // for the last claim, or for a poll if there is no claim
	defer late.Stop()
	for on := true; l.more() || r.running > 0; {
		if on && len(l.free) > 0 {
			r.enter(ctx, l.free[0], (*leasehold.Lock).TryAcquire)
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
				return r.end(e)
			}
			errs, on = append(errs, e.err), true
		case <-late.C:
			if on || !l.more() { // no answer about one lock, or about all that are left
				return nil, errors.Join(errs...)
			}
			on = true
			late.Reset(anyPatience)
		case <-ctx.Done():
			return r.end(result{err: errors.Join(append(errs, ctx.Err())...)})
		}
	}
	return nil, errors.Join(errs...)
}

// wait waits for all the locks at once.
func (r *race) wait(ctx context.Context, locks []*leasehold.Lock) (*leasehold.Lease, error) {
	var errs []error
	for _, lock := range locks {
		r.enter(ctx, lock, (*leasehold.Lock).Acquire)
	}
	for r.running > 0 {
		e := <-r.ends
		r.running--
		if e.err == nil {
			return r.end(e)
		}
		errs = append(errs, e.err)
	}
	return nil, errors.Join(errs...)
}

// looks are the polls of AcquireAny before it claims a lock.
type looks struct {
	todo []*leasehold.Lock // in the random order
	open int               // polls in progress
	seen chan look
	free []*leasehold.Lock // found free, not claimed yet
}

// A look is the result of a poll: err is nil if the lock is free, and else says why not.
type look struct {
	lock *leasehold.Lock
	err  error
}

func newLooks(locks []*leasehold.Lock) *looks {
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
		go func() { l.seen <- look{lock, taken(ctx, lock)} }()
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
func taken(ctx context.Context, l *leasehold.Lock) error {
	if free, err := leasehold.Internal.Known(l); free || err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, anyPatience)
	defer cancel()
	info, err := l.Inspect(short)
	switch {
	case err != nil && short.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("the store has not said within %v whether the lock %v is free", anyPatience, leasehold.Internal.Layout(l))
	case err != nil:
		return err
	case !info.Held && info.Rest == 0, info.Session != "" && info.Abandoned:
		return nil
	}
	if free, err := leasehold.Internal.Known(l); free || err != nil { // from that read
		return err
	}
	return &leasehold.HeldError{Info: info}
}
