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
// locks. It takes locks in the order of their keys, several at a time while they are free.
// While it waits for a lock, it holds none that comes later in that order, so callers that
// share some locks cannot deadlock. If it loses a lease while it waits for another lock, it
// acquires that lock and the later ones again. When it returns, all leases were valid a moment
// ago.
//
// If AcquireAll fails or ctx ends, it releases the leases it holds and returns none. If a
// release fails, the error names the lock that may still be held. Other errors are as for
// [Lock.Acquire]. Two locks with the same key are an error. If there are many locks, put them
// under a session: see [LockOptions.Session].
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

// A gathering is the progress of AcquireAll: the leases of the first locks in the order. Each
// step below leaves it with no others. This prevents deadlocks, because all callers take shared
// locks in the same order.
type gathering struct {
	locks  []*Lock
	order  []int    // of the locks, by key
	leases []*Lease // of the locks; nil: not held
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
		if err != nil && (ctx.Err() != nil || Final(err)) {
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

// ReleaseAll releases leases, several at a time, and ignores nil ones. All work under them must
// have stopped. Errors and the end of ctx are as for [Lease.Release]; errors are joined. A
// failed release does not keep the others from being sent.
func ReleaseAll(ctx context.Context, leases []*Lease) error {
	return freeAll(leases, func(l *Lease) error { return l.Release(ctx) })
}

// freeAll limits the number of concurrent requests, because ten thousand would time each other
// out.
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
