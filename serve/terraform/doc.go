// Package terraform stores the states of Terraform and OpenTofu, and serves them by the
// protocol of the http backend. States are locked by leases and fenced by their tokens.
//
//	GET     NAME             200 the state, 404 there is none
//	GET     NAME?versions    200 the stored states, as a JSON array of [Version], the newest first
//	GET     NAME?version=7   200 that state, byte for byte
//	LOCK    NAME             200 it is locked, 423 who holds it
//	UNLOCK  NAME             200 it is not locked any more, 409 another run holds it
//	POST    NAME?ID=…        200 the state is stored, 409 the lock with that ID is not held
//	DELETE  NAME?ID=…        200 there is no state any more; earlier ones are kept
//
// PUT is the same as POST. NAME is what follows [Options.Path] in the path of the URL: segments
// of letters, digits, dots, dashes and underscores, each beginning with a letter or a digit.
//
// # The guarantee and its limit
//
// After a LOCK was answered with 200, no state sent under an earlier lock is stored any more.
// This holds for runs displaced by force-unlock, for runs whose serving process has died, and
// whatever happens to their requests on the way. It does not depend on any clock, only on the
// lock's object not being deleted. So the later run reads the state it has locked, and no
// earlier run changes that state.
//
// Only the lease keeps two runs from working at the same time: the serving process holds the
// lock and renews it until UNLOCK. But if that process dies, others may lock after the TTL
// although the run continues, and two runs may change its resources. Its state is refused if
// another run has locked meanwhile, and otherwise accepted. Terraform writes a refused state to
// errored.tfstate.
//
// # Without a lock
//
// A write without an ID, as with -lock=false, holds the lock while it is stored. It is refused
// with 423 if another run holds the lock, and with 409 unless its state follows the stored one:
// the same lineage and a larger serial. So if two such runs have read the same state, the
// second one is refused. With a lock, any state is accepted, because `terraform state push
// -force` needs that.
//
// # Access
//
// A [Handler] does not authenticate clients. Because states contain secrets, the code that
// mounts the handler must. Terraform sends a user name and a password (basic authentication),
// but no bearer token; it reports statuses 401 and 403 as what they are. Requests with an
// Origin header, which browsers send, are refused.
package terraform
