// Package serve gives locks to programs in any language, over HTTP on one machine. The command `leasehold
// serve` is this package on a socket.
//
//	POST   /v1/locks/{key}/acquire          200 a lease, 409 who holds it
//	POST   /v1/elections/{key}/campaign     the same, and the key counts as an election
//	POST   /v1/leases/{id}/keepalive        200 how long it lasts, 410 it is over
//	GET    /v1/leases/{id}?wait=30s         200 it goes on, 410 as soon as it is over
//	DELETE /v1/leases/{id}                  204 it is released
//	POST   /v1/locks/{key}/break            {"token": N}: a [Broken]
//	GET    /v1/locks                        a [Snapshot]
//	GET    /v1/locks/{key}                  an [Object]
//	GET    /v1/locks/{key}/history          {"history": [Term…]}
//	GET    /v1/elections/{key}              a [Leader]
//	GET    /v1/events                       server-sent events
//	GET    /healthz, /readyz, /metrics, /openapi.json
//	GET    /ui/                             a page for people
//
// A key is the path after /v1/locks/, with its slashes as they are or as %2F. One that ends in the segment
// history is read with that segment's slash as %2F: GET /v1/locks/a%2Fhistory.
//
// # The guarantee, and its limit
//
// All leases are under one [leasehold.Session], so a thousand callers cost one heartbeat, and a keepalive costs
// no request at all. A caller is told for how long its lease is valid (left_ms): never longer than its own TTL,
// nor than the session is valid that its lease is under. Whatever happens to the server, nobody else gets the
// lock before that, as long as the caller counts from the moment in which it sent the request, and no clock runs
// more than a twelfth faster or slower than real time. The caller must have stopped its work by then.
//
// No lease can stop a request that is already on its way: pass the token on to whatever can check it.
//
// # Leases
//
// The body of acquire is a JSON object, all of whose members are optional:
//
//	id      the ID of the lease, which a caller may choose to be able to ask again
//	wait    how long to wait for the lock, such as "30s"; without it there is no wait
//	ttl     how long the lease lives without a keepalive of its caller: 1s to 24h, 15s if it is not said
//	holder  who holds it, for people
//	meta    strings by name, kept in the record of a lock; not of a semaphore
//	slots   take a seat of a semaphore with so many, and weight seats of them, 1 if it is not said
//	shared  true: a reader/writer lock for reading; false: for writing; without it: a lock
//	fair    true: a lock that goes to whoever came first
//
// The answer is a [LeaseAnswer]. Send a keepalive each third of left_ms, whatever the TTL is: the session may
// last for less. After an acquisition that has waited, count from a keepalive.
//
// A lease is over when it is released, when its caller has not been heard of for its TTL, when the session is
// lost, and when the server stops. Its ID is known for ten minutes after that, and answered with 410; after that,
// and if it never was one, with 404.
//
// # Asking again
//
// A caller that gets no answer to acquire does not know whether it holds the lock. One that has chosen the ID of the lease
// sends the same request again, and gets the same lease: while the first request waits, the two share its wait and its place;
// when the lease is there already, it is answered with it as it stands, which is no keepalive and costs no request to the
// store. A lease whose answer was lost is kept for its TTL.
//
// An ID has 22 to 64 letters, digits, - and _. Choose it at random, with 128 bits or more, for one lease alone, and keep it
// secret: it is the right to the lease, whoever asks. Only wait may differ in a request with an ID that is in use; anything else
// is answered with 422 (value). Once the lease has ended, its ID gives no other: it is answered with 410 (over) for ten
// minutes, as long as no more than [Options.Leases] leases have ended since. A wait that ended without a lease leaves the ID
// unused. A server that is started again knows no IDs.
//
// # Stopping
//
// When the server is told to stop, all leases are over at once for those who ask, and no keepalive prolongs
// them. Each is released when its caller deletes it, or when the time is over that its caller was told.
//
// # Breaking a lock
//
// With [Options.AllowBreak], POST /v1/locks/{key}/break frees a lock by hand whose token is still the one in the body, as
// [admin.Break] does, and [admin.BreakSeat] for a semaphore: its holder may work on until it finds out. A lock under a
// session takes the session with it, and all that is under that; but of what this server holds only the one lease is
// ended. A lock that is free is no error, and freed is false.
//
// # Events
//
// GET /v1/events is a stream of server-sent events. The first is snapshot, and it comes again whenever the stream
// cannot go on from the last: after trouble, for one. The data of each is one line of JSON:
//
//	snapshot  a [Snapshot]
//	change    a [Change]
//	gone      a [Gone]
//	trouble   a [Trouble]
//	looked    a [Looked], after each look
//
// A client that does not read is cut off, and gets a snapshot when it comes again. A line that begins with a colon
// comes every 15 s.
//
// All who subscribe, and all who ask for /v1/locks, share one watcher. It looks every [Options.Every] while
// somebody subscribes, at once when this server has given or released a lease, though not twice within a
// second, and no more often than [Options.Budget] allows: what it does then is later, and not less. All who ask while
// it looks are answered by that look, also if it fails, which takes half a minute at most. Which callers wait here is
// told within a second or two, without a look.
//
// # Problems
//
// All that is refused, or fails, is answered with a [Problem]. Its type is urn:leasehold:problem: and a word:
//
//	held         409  somebody else holds the lock; the answer says who, as a [Report]
//	over         410  the lease is over
//	unknown      404  there is no such lease, lock or path
//	method       405  the path has other methods
//	body         400  the body is not what is expected
//	key          400  the key is not one
//	query        400  the query is not what is expected
//	left         400  the caller has closed the connection, or its sending half, before the answer
//	slow         408  the body has not come in time
//	media-type   415  the body is not JSON
//	too-large    413  the body is too large
//	value        422  a member of the body has a value that cannot be
//	foreign      422  what lies under the key is not such a lock
//	origin       403  the request comes from a page that this server did not serve
//	break        403  this server breaks no locks
//	host         421  the request is for another host
//	token        401  the token is missing or wrong
//	too-many     429  there are as many leases, waiting callers or subscribers, or as many looks, as there may be
//	store        503  the store fails
//	stopping     503  the server stops, or has no session now
//
// Nothing is changed by a request that is answered so, but for 503: a claim may have landed then, and is freed
// in the background.
package serve
