// Package leasemanager has managers of controller-runtime elect their leader through a bucket.
package leasemanager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
)

// Elect sets what a manager needs to be elected by lock: LeaderElection, LeaderElectionResourceLockInterface, the
// three times of the lock's Timing, and a BaseContext, from which the contexts of all Runnables come, that ends
// when the lease does. The BaseContext that was set is its parent.
//
// With LeaderElectionReleaseOnCancel the manager frees the lock when it has waited for its Runnables. If no
// GracefulShutdownTimeout is set it waits for them without end, since others lead from then on.
//
// The options are for one manager. A lock serves one after the other, if all Runnables of the one have returned
// before the other starts.
func Elect(options *manager.Options, lock *leasekubernetes.Lock) {
	t, parent := lock.Timing(), context.Background
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &t.LeaseDuration, &t.RenewDeadline, &t.RetryPeriod
	if options.LeaderElectionReleaseOnCancel && options.GracefulShutdownTimeout == nil {
		options.GracefulShutdownTimeout = new(time.Duration(-1))
	}
	if options.BaseContext != nil {
		parent = options.BaseContext
	}
	ctx, cancel := context.WithCancelCause(parent())
	options.BaseContext = func() context.Context { return ctx }
	options.LeaderElection, options.LeaderElectionResourceLockInterface = true, &ending{Lock: lock, cancel: cancel}
}

// ending is a lock that ends the Runnables with the first lease that it acquires.
type ending struct {
	*leasekubernetes.Lock
	cancel context.CancelCauseFunc
	once   sync.Once
	failed error // of the last renewal
}

// Create is the lock's.
func (l *ending) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.led(l.Lock.Create(ctx, r))
}

// Update is the lock's. If the elector gives up it is not freed: the Runnables are told to stop afterwards.
func (l *ending) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" && l.failed != nil {
		return fmt.Errorf("%s is left to its TTL: %w", l.Describe(), l.failed)
	}
	l.failed = l.led(l.Lock.Update(ctx, r))
	return l.failed
}

func (l *ending) led(err error) error {
	if lease := l.Lease(); err == nil {
		l.once.Do(func() { context.AfterFunc(lease.Context(), func() { l.cancel(context.Cause(lease.Context())) }) })
	}
	return err
}
