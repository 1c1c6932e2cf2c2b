// Package semaphore lets so many work at a time and no more, in the order in which they came: a
// weighted semaphore, a fair lock and a reader/writer lock, each one object in a store.
//
//	sem, err := semaphore.New(st, "licences/solver", 3, nil)
//	err = sem.Do(ctx, 1, func(ctx context.Context, lease *semaphore.Lease) error {
//		return solve(ctx) // ctx ends before anybody else can have the seat
//	})
//
// The object lists who holds seats and who waits, in order. A holder that leaves gives its seats to the head of
// the line in the same write, so a hand-over is one write, nobody is overtaken, and what one turn costs
// does not grow with the number of those who wait. A [Lock] of this package differs from a
// [leasehold.Lock] by that: the latter goes to whoever asks first when it is free, and needs one
// request less when nobody else wants it.
//
// # The guarantee, and its limit
//
// At most so much weight is held by valid leases at any instant, as long as clocks run at nearly the same
// rate: a lease is valid while its session is. Each grant has a token that is larger than those of all
// grants before. Of a [Lock], and of a writer of an [RWLock], a resource can refuse an older one after a
// newer one (see package fence). Of several that work at one time it cannot: there a token only
// names a grant.
//
// # Sessions
//
// All leases are under a [leasehold.Session]: that of the options, or one that is begun with the first
// acquisition and ended when nothing has been held or wanted for a while. A process that is gone loses its
// seats, and its places in the line, a TTL and margin after its last heartbeat.
//
// See docs/semaphores.md, and docs/protocol-tables.md for the rules T1 to T8.
package semaphore
