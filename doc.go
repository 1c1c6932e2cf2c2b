// Package leasehold provides distributed locks and leader election on object storage: Amazon S3
// and compatible stores, Google Cloud Storage, Azure Blob Storage, a local directory, memory.
//
//	st, err := storeurl.Open(ctx, "s3://bucket/prefix")
//	lock, err := leasehold.NewLock(st, "jobs/backup", nil)
//	err = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
//		return backup(ctx, lease.Token()) // ctx ends before anyone else can hold the lock
//	})
//
// # How it works
//
// A lock is one small object, the record: its holder, its TTL and a token. A candidate takes the
// lock with a conditional write, which succeeds only if the record still has the version that the
// candidate read. The store accepts exactly one such write. The holder rewrites the record every
// TTL/3. If the record stays unchanged for the TTL and a margin, a candidate may take the lock
// over, again with a conditional write. Records are never deleted.
//
// The holder gets a [Lease]: a context that ends with the lease, a deadline, and a token.
//
// # The guarantee, and its limit
//
// At most one lease is valid at any instant, as long as no clock runs more than 1/12 faster or
// slower than real time, and nothing freezes both clocks of a machine. Clocks need not agree on
// the time of day. See [Lease.Valid].
//
// No lease can stop a request that is already on its way. Send the token with every write that a
// former holder must not make, and have the resource reject a token smaller than the largest it
// has seen. This needs no clock: tokens strictly grow and are never reused, as long as nobody
// deletes the lock's object. Deny deletes under the prefix, or see [LockOptions.Existing]. Package
// fence implements this for objects, logs, services and SQL.
//
// # What callers must do
//
// Stop working when the lease's context ends. Pass the token to whatever can check it. Call
// [Lease.Release] for every lease, including a lost one, after the work has stopped.
//
// # Choosing a type
//
//   - [Lock] for one key, [Locks] for keys known only at run time, such as one per user or file.
//   - [Election] for services: one instance leads, and the others follow at little cost.
//   - [Session] for a process with many locks: one heartbeat keeps all its leases.
//
// Package semaphore has locks for several holders at a time, fair locks and reader/writer locks.
// Package multilock acquires several locks at once. Package shard spreads work over processes.
// Package detached passes a lease on to another process, such as the next step of a pipeline.
// Package store is the contract for stores, and store/storeurl opens them by URL. Package admin
// lists, breaks and cleans up locks. docs/protocol.md explains each rule.
package leasehold
