// Package leaseelector runs client-go's LeaderElector on a lock in a bucket, and ends the work with the lease.
package leaseelector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
)

// Run campaigns for the lock once, as client-go's RunOrDie does, and leads until the lease or ctx ends. The
// config's Lock is lock, and times that are not set are those of its Timing. Beside what client-go does,
//
//   - the context of OnStartedLeading ends when the lease does, at once, with that as its cause;
//   - with ReleaseOnCancel the lock is renewed until OnStartedLeading has returned, and freed then;
//   - Run returns when OnStartedLeading has. OnStoppedLeading is called before if the lease was lost.
//
// The error says what of the config cannot be, or why the leadership has ended; it matches leasehold.ErrLost if the
// lease was lost. It is nil if ctx has ended.
func Run(ctx context.Context, lock *leasekubernetes.Lock, c leaderelection.LeaderElectionConfig) error {
	t := lock.Timing()
	l := &waiting{Lock: lock, worked: make(chan struct{})}
	l.ending, l.end = context.WithCancelCause(context.Background())
	c.Lock, c.LeaseDuration = l, cmp.Or(c.LeaseDuration, t.LeaseDuration)
	c.RenewDeadline, c.RetryPeriod = cmp.Or(c.RenewDeadline, t.RenewDeadline), cmp.Or(c.RetryPeriod, t.RetryPeriod)
	if work := c.Callbacks.OnStartedLeading; work != nil {
		c.Callbacks.OnStartedLeading = func(ctx context.Context) { l.lead(ctx, work) }
	}
	elector, err := leaderelection.NewLeaderElector(c)
	if err == nil && (c.RenewDeadline > t.RenewDeadline || c.Coordinated) {
		err = fmt.Errorf("a RenewDeadline of %v is too long, want at most %v, or the election is a coordinated one", c.RenewDeadline, t.RenewDeadline)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", lock.Describe(), err)
	}
	if c.WatchDog != nil {
		c.WatchDog.SetLeaderElection(elector)
	}
	before := lock.Lease()
	elector.Run(ctx)
	lease := lock.Lease()
	if lease == before {
		return nil
	}
	<-l.worked
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s is not led any more: %w", lock.Describe(), lease.Err())
}

// waiting is a lock whose release waits for the work.
type waiting struct {
	*leasekubernetes.Lock
	worked chan struct{}   // closed when OnStartedLeading has returned
	ending context.Context // ends when that is to return since the lock is to be released
	end    context.CancelCauseFunc
}

// lead calls OnStartedLeading, unless the lease has ended before the elector came to that.
func (l *waiting) lead(ctx context.Context, work func(context.Context)) {
	defer close(l.worked)
	lease := l.Lease()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, end := range []context.Context{lease.Context(), l.ending} {
		defer context.AfterFunc(end, func() { cancel(context.Cause(end)) })()
	}
	if lease.Err() == nil {
		work(ctx)
	}
}

// Update goes on with the term while a release waits, as the elector does not any more. client-go releases before
// it ends the context of OnStartedLeading, so that is done here.
func (l *waiting) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity != "" {
		return l.Lock.Update(ctx, r)
	}
	l.end(errors.New("the elector has stopped leading"))
	going, _, err := l.Get(ctx)
	tick := time.NewTicker(l.Timing().RetryPeriod)
	defer tick.Stop()
	for err == nil {
		select {
		case <-l.worked:
			return l.Lock.Update(ctx, r)
		case <-l.Lease().Done():
			return l.Lease().Err()
		case <-tick.C:
			going.HolderIdentity = l.Identity() + " (releasing)"  // which acquires nothing if the term is over
			_ = l.Lock.Update(context.WithoutCancel(ctx), *going) // Done tells when that has failed for too long
		}
	}
	return err
}
