// Package terraform keeps the states of Terraform and OpenTofu in a store, behind the protocol of
// their http backend: locked by leases, and fenced by their tokens.
//
//	GET     NAME             200 the state, 404 there is none
//	GET     NAME?versions    200 the states that are kept, as a JSON array of [Version], the newest first
//	GET     NAME?version=7   200 that state, byte for byte
//	LOCK    NAME             200 it is locked, 423 who holds it
//	UNLOCK  NAME             200 it is not locked any more, 409 another holds it
//	POST    NAME?ID=…        200 the state is stored, 409 the lock with that ID is not held
//	DELETE  NAME?ID=…        200 there is no state any more; the earlier ones are kept
//
// PUT is POST. NAME is what follows [Options.Path] in the path of the address: segments of letters,
// digits, dots, dashes and underscores, each beginning with a letter or a digit.
//
// # The guarantee, and its limit
//
// Once a LOCK was answered with 200, no state lands any more that was sent under an earlier lock:
// not by a run that was displaced by force-unlock, not by one whose serving process has died, and
// whatever their requests have met on their way. This rests on no clock, only that nobody deletes the
// lock's object. The later run reads the state that it has locked, and nothing changes it behind its back.
//
// That two runs are not at work at one moment is what a lease can give: the lock is held by the
// process that serves, which renews it, until UNLOCK. If that process dies, others may lock after the
// TTL, although the run goes on. Its resources may then be changed by two runs at a time. Its state is
// refused if another has locked meanwhile, and is taken if none has. What is refused Terraform writes
// to errored.tfstate.
//
// # Without a lock
//
// A write without an ID, as with -lock=false, takes the lock for as long as it takes, and is refused
// with 423 while another holds it. It is also refused, with 409, unless its state follows the one that
// is stored: the same lineage, and a larger serial. So of two such runs that have read one state, the
// second one is told. With a lock all is written, as `terraform state push -force` wants it.
//
// # Access
//
// A [Handler] asks nobody who they are. A state has secrets in it, so whatever mounts the handler must.
// Terraform sends a user name and a password (basic authentication), and no bearer token; it shows the
// statuses 401 and 403 as what they are. A request that names its origin, as a browser's does, is
// refused.
package terraform
