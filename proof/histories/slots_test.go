//go:build unix

package histories_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/semaphore"
)

// slotCount is the size of the semaphore that is fought for.
const slotCount = 3

// slots takes slots of a semaphore again and again, sometimes more of them while it holds some, and gives up where
// that takes long: each of two may wait for the other.
func slots(ctx context.Context, c *client) error {
	s, err := semaphore.New(c.st, c.key, slotCount, &semaphore.Options{TTL: ttl})
	if err != nil {
		return err
	}
	for range 8 {
		c.pause(50 * time.Millisecond)
		c.looked(ctx, s)
		var leases []*leasehold.Lease
		for _, acquire := range []func(context.Context, int, ...leasehold.AcquireOption) (*leasehold.Lease, error){s.Acquire, s.Acquire, s.TryAcquire}[c.rand.IntN(2):] {
			if lease := c.take(ctx, s, 1+c.rand.IntN(slotCount-1), acquire, len(leases) > 0); lease != nil {
				leases = append(leases, lease)
			}
			use(c, leases...)
		}
		c.looked(ctx, s)
		for _, lease := range leases {
			c.do(of("release", lease), func() linear.Outcome { return released(lease.Release(ctx)) })
		}
	}
	closing, cancel := context.WithTimeout(ctx, 2*ttl)
	defer cancel()
	_ = s.Close(closing) // its session may be lost
	return nil
}

// take acquires slots; whoever holds some does not wait for long.
func (c *client) take(ctx context.Context, s *semaphore.Semaphore, weight int, acquire func(context.Context, int, ...leasehold.AcquireOption) (*leasehold.Lease, error), holds bool) (lease *leasehold.Lease) {
	if holds || c.rand.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.rand.Int64N(int64(ttl/2))))
		defer cancel()
	}
	c.do(linear.Command{Op: "acquire", Key: s.Key(), Weight: int64(weight)}, func() linear.Outcome {
		var err error
		if lease, err = acquire(ctx, weight); err != nil {
			return linear.Outcome{Is: linear.Failed} // whatever was sent, nobody has a lease
		}
		return linear.Outcome{Is: linear.Done, Token: int64(lease.Token())}
	})
	return lease
}

// looked looks at the semaphore.
func (c *client) looked(ctx context.Context, s *semaphore.Semaphore) {
	c.do(linear.Command{Op: "inspect", Key: s.Key()}, func() linear.Outcome {
		info, err := s.Inspect(ctx)
		var holders strings.Builder
		for _, h := range info.Holders {
			fmt.Fprintf(&holders, "%d ", h.Token)
		}
		o := judged(holders.String(), err)
		o.Token = int64(info.Token)
		return o
	})
}
