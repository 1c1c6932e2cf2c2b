// Package leasehold is leader election and distributed locks on object storage: Amazon S3
// and everything that speaks its conditional writes, Google Cloud Storage, Azure Blob Storage,
// a local directory, memory.
//
// A lock is one small object, the record: who holds it, for how long, and a token. A
// candidate writes it on the condition that it is still the version that the candidate has
// read; the store lets exactly one such write land. The holder writes it again every third
// of the TTL. A candidate that sees it unchanged for the TTL and a margin may take the lock
// over, again by a conditional write. Nothing is ever deleted. The holder gets a [Lease]: a
// context that ends when the lease does, a deadline, and a token.
//
// # The guarantee, and its limit
//
// At most one lease is valid at any instant, as long as no clock involved runs more than a
// twelfth faster or slower than real time and nothing freezes both clocks of a machine. The
// clocks need not agree on the time. See [Lease.Valid].
//
// No lease can stop a request that is already on its way. So every write also carries the
// token, and anything that a former holder must never overwrite rejects a token smaller than
// the largest it has seen. This needs no clock: tokens of acquisitions strictly grow, and each
// belongs to one lease only, as long as nobody deletes the lock's object: deny that under the
// prefix, or see [LockOptions.Existing]. Package fence does it for objects, logs, services and
// SQL.
//
// # Use
//
//	st, err := storeurl.Open(ctx, "s3://bucket/prefix")
//	lock, err := leasehold.NewLock(st, "jobs/backup", nil)
//	err = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
//		return backup(ctx, lease.Token()) // ctx ends before anybody else can hold the lock
//	})
//
// [Locks] are for keys that are known only when they are needed, one for each user or file. [Locks.Group]
// is an errgroup whose members hold locks, and [Locks.Locker] a [sync.Locker].
// [Election.Run] does the same again and again, for services of which one instance leads and
// the others follow at next to no cost. A process that holds many locks puts them under one
// [Session]: one heartbeat, however many leases.
//
// A lease that is to outlive its process, for the steps of a pipeline, is taken out of it by
// [Lease.Detach] and used elsewhere by [Lock.Attach], [Lock.RenewDetached] or
// [Lock.ReleaseDetached].
//
// The duties of the user: stop working when the lease's context ends; pass the token on to
// whatever can check it; call [Lease.Release] for every lease, also for one that was lost,
// after the work has stopped.
//
// Package store is the contract for stores, and store/storeurl opens them all by URL; package
// shard spreads work over processes; package admin is for tools that list, break or clean up
// locks; the command leasehold is for shell scripts. docs/protocol.md says which rule
// prevents what.
package leasehold
