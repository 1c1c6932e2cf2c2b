package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
)

// AcquireAll acquires all the locks, or none, and returns their leases in the order of the
// locks. It waits for one after the other in the order of their keys, and holds none
// meanwhile that comes after the one that it waits for: so callers that want some of the
// same locks cannot wait for each other in a circle. Those that are free it takes many at a
// time. A lease that is lost while it waits for another lock it acquires anew, and those
// after it; when it returns, all have been valid a moment ago.
//
// If it fails or ctx ends, it releases the leases that it holds. Errors are as for [Lock.Acquire], and
// two locks of the same key are one. Put the locks under a session, see
// [LockOptions.Session], if they are many.
//
// It returns no leases with an error: those that it had are released by then, or the error says
// which one may still be taken for held.
func AcquireAll(ctx context.Context, locks []*Lock) ([]*Lease, error) {
	order := make([]int, len(locks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(locks[i].d.key, locks[j].d.key) })
	for n := 1; n < len(order); n++ {
		if key := locks[order[n]].d.key; key == locks[order[n-1]].d.key {
			return nil, fmt.Errorf("the lock %s is to be acquired twice, and would wait for itself", key)
		}
	}
	g := &gathering{locks, order, make([]*Lease, len(locks))}
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

// A gathering is what AcquireAll has so far: the leases of the first locks in the order. That
// it has a first part of the order and nothing else is what keeps callers from waiting for
// each other in a circle, and every step below keeps it so.
// The rule is the classic one against deadlock, known from the dining philosophers: everybody
// takes what they share in one order.
type gathering struct {
	locks  []*Lock
	order  []int    // of the locks, by their keys
	leases []*Lease // of the locks; nil: none
}

// more tries the next locks at once, or waits for the first of them that it cannot have at
// once: it is held, or the store does not say. It returns how far it has come.
func (g *gathering) more(ctx context.Context, done int) (int, error) {
	next := g.order[done:min(done+engine.Process{}.Parallel(), len(g.order))]
	errs := make([]error, len(next))
	var all sync.WaitGroup
	for n, i := range next {
		all.Go(func() { g.leases[i], errs[n] = g.locks[i].TryAcquire(ctx) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && (ctx.Err() != nil || Final(err)) {
			return done, err
		}
	}
	got := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if got < 0 {
		return done + len(next), nil
	}
	// Those that come after the one that is held were had out of order, so they go back before
	// the wait begins: another caller may hold that one and wait for these.
	if err := g.giveBack(ctx, done+got, done+len(next)); err != nil {
		return done, err
	}
	i := next[got]
	lease, err := g.locks[i].Acquire(ctx)
	g.leases[i] = lease
	return done + got + 1, err
}

// keep gives back what comes from the first lease on that has ended, and returns how far
// that leaves it.
func (g *gathering) keep(ctx context.Context, done int) (int, error) {
	for n, i := range g.order[:done] {
		if g.leases[i].Err() != nil {
			return n, g.giveBack(ctx, n, done)
		}
	}
	return done, nil
}

// giveBack releases the leases that there are from one place in the order to another. That
// one of them was lost is no failure: it was to end.
func (g *gathering) giveBack(ctx context.Context, from, to int) error {
	var leases []*Lease
	for _, i := range g.order[from:to] {
		if g.leases[i] != nil {
			leases = append(leases, g.leases[i])
			g.leases[i] = nil
		}
	}
	return freeAll(leases, func(l *Lease) error {
		last, cancel := lock.Grace(ctx)
		defer cancel()
		return l.free(last, "")
	})
}

// ReleaseAll releases leases, many at a time; those that are nil it skips. All work under
// them must have stopped. Errors and the end of ctx are as for [Lease.Release], joined.
// A release that fails keeps none of the others from being sent.
func ReleaseAll(ctx context.Context, leases []*Lease) error {
	return freeAll(leases, func(l *Lease) error { return l.Release(ctx) })
}

// freeAll bounds how many requests are sent at once: ten thousand would time each other out.
func freeAll(leases []*Lease, free func(*Lease) error) error {
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
