// Package turn is shared by adapters for job schedulers: a job is due in several processes at about the same time, and
// one of them must run it.
package turn

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold/leasehold"
)

// DefaultHoldAtLeast is the default minimum hold of a job's lock. It is longer than the usual difference between clocks
// that NTP sets, and shorter than the time between two runs of most jobs.
const DefaultHoldAtLeast = 5 * time.Second

// Take tries to acquire a job's lock and holds it for at least atLeast; zero or less means no minimum. It fails like
// [leasehold.Locks.TryAcquire].
//
// While the holder's record looks abandoned and does not change, Take retries until it takes over, or until the holder's
// TTL and a quarter have passed. TryAcquire alone takes over only from a holder whose record it has watched for long
// enough, and it forgets that record between two runs of an hourly job, so it would never take over. Acquire would also
// wait for a holder that is alive, and then run the job a second time.
func Take(ctx context.Context, locks *leasehold.Locks, key string, atLeast time.Duration) (*leasehold.Lease, error) {
	var first *leasehold.HeldError
	for began := time.Now(); ; {
		lease, err := locks.TryAcquire(ctx, key, leasehold.WithHoldAtLeast(max(atLeast, 0)))
		seen, ok := errors.AsType[*leasehold.HeldError](err)
		switch {
		case !ok || !seen.Info.Abandoned || time.Since(began) > seen.Info.TTL*5/4+time.Second:
			return lease, err
		case first == nil:
			first = seen
		case first.Info.Version != seen.Info.Version:
			return nil, err // the holder is alive, or another process was faster
		}
		select {
		case <-time.After(min(seen.Info.TTL/12, time.Second)):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}
