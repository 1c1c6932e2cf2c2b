// Package sim plays fleets of candidates against the worst behaviour of a store, a network,
// clocks and users, and checks leasehold's promises at every step.
//
// The candidates are real: candidate.Machine over the real layouts, driven by the engine that
// ships, with its sessions and reapers. Everything around them is simulated by a [world] with one
// queue of events. No result depends on real time, map order or the scheduler.
//
// # One seed, one history
//
// The function choose makes every decision, in order: network delays, faults, what users do. So a
// history is a list of choices, and a seed draws such a list. Choice 0 is always the dull one (no
// fault, no action), and choose returns it at the end of the list. [Shrink] relies on that: it
// drops parts of a list and sets others to 0 for as long as the same promise stays broken.
//
// A history starts with faults. Each seed draws which kinds of [Fault] it has and how often, so
// some histories have a little of everything, others a lot of one thing. Then everything is
// healed and liveness must hold: a waiter gets the lock in time, and no process sends more
// requests than docs/cost.md says.
//
// # Lasting failures
//
// One history in five has a single failure and no other faults: every request of some kind gets
// the same answer, or none, usually for ten TTLs or more (lasting.go). The seed draws
//
//   - the answer: any status known from real stores and a few others, as the errors of package
//     s3store (answers.go; a test compares them);
//   - the operations, on locks or on sessions, of one process or of all;
//   - when it begins: at first contact, or when a lease is granted, a candidate waits, claims,
//     releases or gives up, or a session begins;
//   - the TTL, from a second to a day. Failures of ten TTLs take many tries, so they are rare if
//     the TTL exceeds a minute.
//
// One of the first claims may land very late, or a forger may answer peers in the leader's name.
//
// Meanwhile each candidate has an allowance of requests, derived from the promises and not from
// the code (allowance.go), so a storm is noticed after a dozen requests. After the failure, a
// free lock is taken within seconds, whatever the TTL.
//
// # Sessions and semaphores
//
// In 3/4 of the histories without markers, some processes have sessions and others do not. There
// are then one to three locks. A process with sessions wants all of them, sometimes with two
// candidates, and mostly under its session. A heartbeat names only the last released lock, so
// that it soon names too few. What package engine runs apart happens a little later, in any
// order, and only one waiter for a session is told at a time.
//
// In 4/5 of these histories, the processes with sessions also share a semaphore (table.go): one
// object, a queue.Machine and an engine.Table per process life, and up to three callers under its
// session. It is a fair lock, has two or three slots, or is a reader/writer lock whose writers
// take all slots. Sometimes a process expects another size. All faults also affect its requests
// and its object, which may be deleted or replaced with something else.
//
// # Detached leases
//
// In histories with tokens, a user may detach a lease that is not under a session (paper.go).
// Later some process uses the proof to hold, renew or release the lease, and another may use a
// copy at the same moment.
//
// # Checks
//
// The promises in promise.go are checked at every step, or at the events that could break them.
//
// Locks: the order of leases is that of landed claims, not of the tokens that the protected
// resource compares. A record's history has no gaps, lacks the oldest leases only if it is full,
// and changes only with a claim. Its term counts the landed claims (past.go). Once a user is told
// that its metadata has landed, the stored record and each later one of that lease carry it
// (terms.go). While the owner of a detached lease may rely on it, on its machine's clock, no later
// lease is valid.
//
// Calls: a caller that gives up is answered at once, and a permanent error ends an acquisition at
// once. TryAcquire, releases and settling an abandoned acquisition take at most a TTL and a
// request. A waiting caller is told about a failing store, and then once a minute (returns.go).
//
// Sessions: a lease is valid only while its session is (D4). A candidate whose session ended ends
// its lease, and sends nothing for it.
//
// Semaphores: a Leave, or an acquisition that does not wait, is answered within a TTL. A caller
// that does not wait is refused only if at some moment there was no room (slots.go).
//
// # Exceptions
//
// An [Arm] says which promises hold. Clocks beyond the bound may break only P2. What the deletion
// of a lock's object may break is in promise.go; under a session it may also break D6, and
// liveness for as long as the session lasts. Deleting a semaphore's object may break V, O and
// liveness, but a machine that saw the object vanish does not re-create it while the holders it
// saw there still hold slots. Markers do not promise P1, and promise P2 only if a delete arrives
// within the lease that it is sent under, or never. A run without the fence shows that its check
// can fail.
//
// # Parts
//
// All parts share a history: the choices, the queue of events and the outcome. A fleet has the
// processes and locks, and what the checks remember of them. newWorld makes the parts from the
// bottom to the top, and each knows only parts below it:
//
//   - The injector causes faults.
//   - Users acquire locks and begin sessions. Tables are the users of the semaphore.
//   - Candidates host the engines. Peers carry questions between them, and papers are what
//     users do with detached leases.
//   - The network carries calls to the server, or to a quorum, whose results land there.
//   - The server is the store: it serves requests from a bucket, and tells the checks.
//   - The ledger checks the promises about locks and sessions, returns those to callers, and
//     slots both for the semaphore.
//   - A bucket has the objects, and a lasting says what fails while a failure lasts.
//
// Sometimes a part needs one above it: while a candidate's write is in flight, the injector may
// cause a fault. Then the part puts a demand into the queue of events, and the world passes it on
// when it is due.
package sim
