//go:build unix

package histories_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/linear"
	"github.com/leasehold/leasehold/multilock"
)

// A tenant is a client that holds several locks, most of the time under a session.
type tenant struct {
	*client
	locks   []*leasehold.Lock // in the order of their keys
	session *leasehold.Session
}

// session takes some of three locks again and again, under one session after another.
func session(ctx context.Context, c *client) error {
	h := &tenant{client: c}
	alone, err := h.make(nil)
	if err != nil {
		return err
	}
	for range 6 {
		c.pause(50 * time.Millisecond)
		if c.rand.IntN(5) == 0 { // who has none of its own is to get on with those who have
			l := alone[c.rand.IntN(len(alone))]
			c.hold(ctx, l, l.Acquire)
			continue
		}
		if err := h.begin(ctx); err != nil {
			return err
		}
		leases := h.take(ctx)
		use(c, leases...)
		switch c.rand.IntN(4) {
		case 0:
			h.end(ctx, leases)
		case 1:
			for _, lease := range leases {
				c.do(of("release", lease), func() linear.Outcome { return released(lease.Release(ctx)) })
			}
		default:
			c.together(leases, func() error { return multilock.ReleaseAll(ctx, leases) })
		}
	}
	h.end(ctx, nil)
	return nil
}

// make makes a candidate for each of the locks, under a session or under none.
func (h *tenant) make(s *leasehold.Session) (locks []*leasehold.Lock, err error) {
	for i := range 3 {
		l, err := leasehold.NewLock(h.st, fmt.Sprintf("%s-%d", h.key, i), &leasehold.LockOptions{TTL: ttl, Session: s})
		if err != nil {
			return nil, err
		}
		locks = append(locks, l)
	}
	return locks, nil
}

// begin begins a session, if there is none that goes on.
func (h *tenant) begin(ctx context.Context) (err error) {
	if h.session != nil && h.session.Err() == nil {
		return nil
	}
	h.end(ctx, nil)
	for range 20 { // the network is bad
		h.session, err = leasehold.NewSession(ctx, h.st, &leasehold.SessionOptions{TTL: ttl})
		if err == nil {
			h.locks, err = h.make(h.session)
			break
		}
	}
	return err
}

// take acquires some of the locks, in the order that keeps those who do so from waiting for
// each other in a circle. Sometimes it gives up.
func (h *tenant) take(ctx context.Context) (leases []*leasehold.Lease) {
	if h.rand.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(h.rand.Int64N(int64(ttl))))
		defer cancel()
	}
	locks := h.locks[h.rand.IntN(2) : 2+h.rand.IntN(2)]
	if h.rand.IntN(2) == 0 {
		h.inspect(ctx, locks[0])
	}
	if h.rand.IntN(2) == 0 {
		return h.all(ctx, locks)
	}
	for _, l := range locks {
		h.do(linear.Command{Op: "acquire", Key: l.Key()}, func() linear.Outcome {
			lease, err := l.Acquire(ctx)
			if err == nil {
				leases = append(leases, lease)
			}
			return acquired(lease, err)
		})
	}
	return leases
}

// all acquires the locks at once: to a history that is one operation on each.
func (h *tenant) all(ctx context.Context, locks []*leasehold.Lock) []*leasehold.Lease {
	ops := make([]func(linear.Outcome), len(locks))
	for i, l := range locks {
		ops[i] = h.begun(linear.Command{Op: "acquire", Key: l.Key()})
	}
	leases, err := multilock.AcquireAll(ctx, locks)
	for i := range locks {
		var lease *leasehold.Lease
		if err == nil {
			lease = leases[i]
		}
		ops[i](acquired(lease, err))
	}
	return leases
}

// together runs what releases all these leases.
func (c *client) together(leases []*leasehold.Lease, release func() error) {
	var ops []func(linear.Outcome)
	for _, lease := range leases {
		ops = append(ops, c.begun(of("release", lease)))
	}
	told := released(release())
	for _, tell := range ops {
		tell(told)
	}
}

// end closes the session, and releases the leases under it as their work has stopped. Then
// each is as good as released: the record still names the session, but that is over.
func (h *tenant) end(ctx context.Context, leases []*leasehold.Lease) {
	if h.session == nil {
		return
	}
	s := h.session
	h.session = nil
	h.together(leases, func() error {
		closed := make(chan error)
		go func() { closed <- s.Close(ctx) }()
		<-s.Done()
		_ = multilock.ReleaseAll(ctx, leases) // which says that the leases were lost
		return <-closed
	})
}
