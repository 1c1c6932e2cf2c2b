// Package serve offers locks over HTTP, to programs in any language on one machine. The command
// `leasehold serve` runs it on a socket.
//
//	POST   /v1/locks/{key}/acquire          200 a lease, 409 who holds it
//	POST   /v1/elections/{key}/campaign     the same, and the key counts as an election
//	POST   /v1/leases/{id}/keepalive        200 how long it lasts, 410 it has ended
//	GET    /v1/leases/{id}?wait=30s         200 it is still valid, 410 as soon as it has ended
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
// A key is the path after /v1/locks/; write its slashes as they are or as %2F. To read a key
// whose last segment is history, write that segment's slash as %2F: GET /v1/locks/a%2Fhistory.
//
// # The guarantee and its limit
//
// All leases share one [leasehold.Session], so a thousand callers cost one heartbeat, and a
// keepalive sends nothing to the store. Each caller is told how long its lease is valid
// (left_ms). This never exceeds its own TTL or the validity of the session. Until then no one
// else gets the lock, whatever happens to the server, as long as the caller counts from when it
// sent the request and no clock runs more than 1/12 faster or slower than real time. The caller
// must have stopped its work by then.
//
// No lease can stop a request that is already on its way: pass the token to the systems that
// can check it.
//
// # Leases
//
// The body of acquire is a JSON object. All members are optional:
//
//	id      the lease's ID; choose one to be able to repeat the request
//	wait    how long to wait for the lock, such as "30s"; default: do not wait
//	ttl     how long the lease lasts without a keepalive: 1s to 24h, default 15s
//	holder  the holder's name, for people
//	meta    strings by name, stored in a lock's record; not for semaphores
//	slots   acquire slots of a semaphore of this size: as many as weight says, default 1
//	shared  a reader/writer lock, true for reading and false for writing; default: a lock
//	fair    true: a lock that is granted in order of arrival
//
// The answer is a [LeaseAnswer]. Send a keepalive every third of left_ms, whatever the TTL is,
// because the session may end earlier. After an acquisition that has waited, count from a
// keepalive.
//
// A lease ends when it is released, when its caller has sent nothing for its TTL, when the
// session is lost, and when the server stops. For ten minutes after that, its ID is answered
// with 410; later, like an unknown ID, with 404.
//
// # Repeating a request
//
// A caller that gets no answer to acquire does not know whether it holds the lock. If it has
// chosen the lease's ID, it can send the same request again and gets the same lease. While the
// first request waits, both share its wait and its position in the queue. If the lease already
// exists, the answer describes it; this is not a keepalive, and sends nothing to the store. A
// lease whose answer was lost is kept for its TTL.
//
// An ID has 22 to 64 letters, digits, - and _. Choose it at random, with at least 128 bits, for
// one lease only. Keep it secret, because anyone who knows it can use the lease. If an ID is in
// use, requests with it may differ only in wait; others are answered with 422 (value). The ID
// of a lease that has ended is answered with 410 (over) for ten minutes, as long as at most
// [Options.Leases] leases have ended since. If a wait ends without a lease, its ID stays
// unused. A restarted server knows no IDs.
//
// # Stopping
//
// When the server is told to stop, GET and keepalive of a lease are answered with 410 (over) at
// once. Each lease is released when its caller deletes it, or at the end of the time that the
// caller was told.
//
// # Breaking a lock
//
// With [Options.AllowBreak], POST /v1/locks/{key}/break force-releases a lock if its token is
// the one in the body, like [admin.Break], or [admin.BreakHolder] for a semaphore. The holder may
// continue until it notices. If the lock is under a session, that session ends, with all its
// leases; for a lease of this server, only that lease ends. A free lock is not an error; freed
// is then false.
//
// # Events
//
// GET /v1/events is a stream of server-sent events. The first is snapshot. It is sent again
// whenever the stream cannot continue from the last one, for example after trouble. Each has
// one line of JSON:
//
//	snapshot  a [Snapshot]
//	change    a [Change]
//	gone      a [Gone]
//	trouble   a [Trouble]
//	looked    a [Looked], after each read of all objects
//
// A client that reads too slowly is disconnected, and gets a snapshot when it reconnects. A
// comment line, which starts with a colon, is sent every 15 s.
//
// All subscribers and all requests for /v1/locks share one watcher. While there are
// subscribers, it reads all objects every [Options.Every], and also as soon as this server has
// granted or released a lease, but not twice within a second. [Options.Budget] can delay these
// reads, but does not shorten them. Requests that arrive during a read share its result, or its
// failure after at most half a minute. Changes in who waits at this server are sent within a
// second or two, without a read.
//
// # Problems
//
// Requests that are refused or fail are answered with a [Problem]. Its type is
// urn:leasehold:problem: and one of these words:
//
//	held         409  another caller holds the lock; the answer says which, as a [Report]
//	over         410  the lease has ended
//	unknown      404  there is no such lease, lock or path
//	method       405  the path has other methods
//	body         400  the body is not what is expected
//	key          400  this is not a key
//	query        400  the query is not what is expected
//	left         400  the caller closed the connection, or its sending half, before the answer
//	slow         408  the body did not arrive in time
//	media-type   415  the body is not JSON
//	too-large    413  the body is too large
//	value        422  a member of the body has an invalid value
//	foreign      422  the object under the key is not such a lock
//	origin       403  the request comes from a page that this server did not serve
//	break        403  this server does not break locks
//	host         421  the request is for another host
//	token        401  the token is missing or wrong
//	too-many     429  the limit on leases, waiting callers, subscribers or reads is reached
//	store        503  the store fails
//	stopping     503  the server is stopping, or has no session now
//
// Such a request changes nothing, with one exception: with 503, a claim may have landed, and is
// released in the background.
package serve
