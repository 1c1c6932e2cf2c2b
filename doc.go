// Package leasehold is leader election and distributed locks on object storage:
// Amazon S3 and everything that speaks its conditional writes, a local directory,
// memory. If you already have a bucket, you need no etcd, ZooKeeper or Redis to agree
// on who goes first.
//
// # The concept
//
// A lock is one small object, the record: who holds it, for how long, and a
// token. To acquire, a candidate writes the record on the condition that it is
// still the version that the candidate has read; the store lets exactly one such
// write land. The holder writes it again every third of the TTL. A candidate that
// sees the record unchanged for the TTL and a margin may take the lock over, again by
// a conditional write. Nothing is ever deleted.
//
// The holder gets a [Lease]: a context that ends when the lease does, a deadline,
// and a token that grows with every acquisition.
//
// # The guarantee, and its limit
//
// Two promises, and they rest on different things.
//
// At most one lease is valid at any instant, as long as no clock involved runs
// more than a twelfth faster or slower than real time and nothing freezes both
// clocks of a machine. The clocks need not agree on the time: no time in a record
// decides anything. The holder stops early by the margin and the others wait longer
// by it; see [Lease.Valid].
//
// No lease can stop a request that is already on its way: a process may be
// paused after a look at its lease and before its next step. So every write also
// carries the token, and anything that a former holder must never overwrite rejects a
// token smaller than the largest it has seen. This promise needs no clock: tokens of
// acquisitions strictly grow, and each belongs to one lease only. It holds as long as
// nobody deletes the lock's object: deny that under the prefix, or see
// [LockOptions.Existing]. Package fence does it for objects, logs, services and SQL.
//
// # Use
//
//	st, err := storeurl.Open(ctx, "s3://bucket/prefix")
//	lock, err := leasehold.NewLock(st, "jobs/backup", nil)
//	err = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
//		return backup(ctx, lease.Token()) // ctx ends before anybody else can hold the lock
//	})
//
// An [Election] is the same for services that run all the time: it campaigns,
// calls the work while it leads, and follows at next to no cost while another does.
//
//	el, err := leasehold.NewElection(st, "leaders/scheduler", nil)
//	err = el.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
//		return schedule(ctx, lease.Token())
//	})
//
// A process that holds many locks puts them under one [Session]: one heartbeat, however
// many leases. Package shard spreads work over processes that way.
//
// The duties of the user: stop working when the lease's context ends; pass the
// token on to whatever can check it; call [Lease.Release] for every lease, also
// for one that was lost, after the work has stopped.
//
// # Where things are
//
// Package store is the contract for stores and store/storeurl opens them all by
// URL. internal/protocol is the state machine that decides, and docs/protocol.md
// says which rule prevents what. The command leasehold does the same for shell
// scripts.
package leasehold
