package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// AcquireAll acquires all the locks, or none, and returns their leases in the order of the
// locks. It waits for one after the other in the order of their keys, and holds none
// meanwhile that comes after the one that it waits for: so callers that want some of the
// same locks cannot wait for each other in a circle. Those that are free it takes many at a
// time.
//
// If it fails or ctx ends, what it holds is released. Errors are as for [Lock.Acquire], and
// two locks of the same key are one. Put the leases under a session, see [WithSession], if
// they are many.
func AcquireAll(ctx context.Context, locks []*Lock, opts ...AcquireOption) ([]*Lease, error) {
	order := make([]int, len(locks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(locks[i].key, locks[j].key) })
	for n := 1; n < len(order); n++ {
		if key := locks[order[n]].key; key == locks[order[n-1]].key {
			return nil, fmt.Errorf("the lock %s is to be acquired twice, and would wait for itself", key)
		}
	}
	leases := make([]*Lease, len(locks))
	undo := func(err error) ([]*Lease, error) {
		return nil, errors.Join(err, ReleaseAll(context.WithoutCancel(ctx), leases))
	}
	for done := 0; done < len(order); {
		next := order[done:min(done+abreast, len(order))]
		errs := make([]error, len(next))
		var all sync.WaitGroup
		for n, i := range next {
			all.Go(func() { leases[i], errs[n] = locks[i].TryAcquire(ctx, opts...) })
		}
		all.Wait()
		for _, err := range errs {
			if err != nil && !errors.Is(err, ErrHeld) {
				return undo(err)
			}
		}
		got := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		if got < 0 {
			done += len(next)
			continue
		}
		after := make([]*Lease, 0, len(next))
		for _, i := range next[got:] {
			after = append(after, leases[i])
			leases[i] = nil
		}
		err := ReleaseAll(ctx, after)
		if err == nil {
			leases[next[got]], err = locks[next[got]].Acquire(ctx, opts...)
		}
		if err != nil {
			return undo(err)
		}
		done += got + 1
	}
	return leases, nil
}

// AcquireAny acquires one of the locks, whichever it can have first: it tries them one
// after the other, from one that is drawn by lot, so that many callers do not all want the
// same one; and when all are held, it waits for all of them. Errors and the end of ctx are
// as for [Lock.Acquire]; it fails only if no lock can be waited for. While it waits, each
// lock that is not under a session costs what one waiter costs.
func AcquireAny(ctx context.Context, locks []*Lock, opts ...AcquireOption) (*Lease, error) {
	if len(locks) == 0 {
		return nil, errors.New("there is no lock to acquire any of")
	}
	first := rand.N(len(locks))
	for i := range locks {
		lease, err := locks[(first+i)%len(locks)].TryAcquire(ctx, opts...)
		if err == nil || ctx.Err() != nil {
			return lease, err
		}
	}
	ctx, found := context.WithCancel(ctx)
	defer found()
	var mu sync.Mutex
	var winner *Lease
	errs := make([]error, len(locks))
	var all sync.WaitGroup
	for i, lock := range locks {
		all.Go(func() {
			lease, err := lock.Acquire(ctx, opts...)
			mu.Lock()
			first := winner == nil && err == nil
			if first {
				winner = lease
			}
			mu.Unlock()
			if errs[i] = err; err == nil && !first {
				lease.letGo("")
			}
			if first {
				found()
			}
		})
	}
	all.Wait()
	if winner != nil {
		return winner, nil
	}
	return nil, errors.Join(errs...)
}

// ReleaseAll releases leases, many at a time; those that are nil it skips. All work under
// them must have stopped. Errors and the end of ctx are as for [Lease.Release], joined.
func ReleaseAll(ctx context.Context, leases []*Lease) error {
	errs := make([]error, len(leases))
	gate := make(chan struct{}, abreast)
	var all sync.WaitGroup
	for i, l := range leases {
		if l == nil {
			continue
		}
		gate <- struct{}{}
		all.Go(func() {
			errs[i] = l.Release(ctx)
			<-gate
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
