// Package semaphore limits how many callers work at a time, and serves them in order of
// arrival. It has a weighted semaphore, a fair lock and a reader/writer lock. Each is one
// object in a store.
//
//	sem, err := semaphore.New(st, "licences/solver", 3, nil)
//	err = sem.Do(ctx, 1, func(ctx context.Context, lease *leasehold.Lease) error {
//		return solve(ctx) // ctx ends before another caller can get the slot
//	})
//
// The object lists holders and waiters in order. A holder that leaves passes its slots to
// the head of the queue in the same write. So a hand-over is one write, nothing overtakes
// in the queue, and the cost per turn does not grow with the number of waiters. By
// contrast, a free [leasehold.Lock] goes to the first candidate that asks. Without
// contention it needs one request less than a [Lock] of this package.
//
// # The guarantee, and its limit
//
// At any instant, valid leases hold at most the semaphore's size, as long as clocks run at
// nearly the same rate. A lease is valid while its session is. Each grant has a larger
// token than all earlier grants. A resource can use the tokens of a [Lock], and of writers
// of an [RWLock], to reject an older lease after a newer one (see package fence). If
// several leases are held at a time, a token only identifies a grant.
//
// # Sessions
//
// All leases belong to a [leasehold.Session]: the one in the options, or one that the
// semaphore begins with the first acquisition and ends when it has not been used for a
// while. A process that died loses its slots, and its positions in the queue, a TTL and
// margin after its last heartbeat.
//
// See docs/semaphores.md, and docs/protocol-tables.md for the rules T1 to T8.
package semaphore
