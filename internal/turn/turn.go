// Package turn is what adapters share that try for a lock once in a while: a job is due, in several processes at about
// the same moment, and one of them is to run it.
package turn

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold/leasehold"
)

// DefaultHoldAtLeast is how long such a job's lock is held at least if nothing else is asked for: more than the clocks
// of machines differ that set them by NTP, and less than most jobs have between two runs.
const DefaultHoldAtLeast = 5 * time.Second

// Take tries for the lock of a job once, to hold it at least for so long; 0 and less are none. It fails as
// [leasehold.Locks.TryAcquire] does.
//
// While the lock is held by one whose record looks abandoned, and stays as it is, Take tries again, until it takes over
// or that holder's TTL and a quarter are over. TryAcquire takes over only from a holder whose record it has seen for long
// enough, and has forgotten that from one run of a job to the next: so nobody would ever take over a job that is run
// once an hour. Acquire would wait for a holder that is alive too, and run the job once more after it.
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
			return nil, err // it is alive, or another has come first
		}
		select {
		case <-time.After(min(seen.Info.TTL/12, time.Second)):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}
