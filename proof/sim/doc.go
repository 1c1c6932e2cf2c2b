// Package sim plays whole fleets of candidates against the worst behaviour of a store, a network,
// clocks and users, and checks leasehold's promises at every step.
//
// The candidates are real: protocol.Candidate over the real layouts, driven by the engine that
// ships, with its sessions and reapers. Everything around them is simulated by a [world], which
// has one queue of events. No result depends on real time, map order or the scheduler.
//
// # One seed, one history
//
// The function choose makes every decision, in order: network delays, faults, what users do. So a
// history is a list of choices, and a seed stands for such a list, drawn by a random number
// generator. Choice 0 is always the dull one (no fault, no action), and choose returns it when
// the list is exhausted. [Shrink] relies on that: starting from a history with a broken promise,
// it drops parts of the list and sets others to 0 for as long as the promise stays broken.
//
// # A history
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
//   - the answer: any status known from real stores and a few others, as the errors that package
//     s3store makes of them (answers.go; a test compares them);
//   - the operations, on locks or on sessions, of one process or of all;
//   - when it begins: at first contact, or when a lease is granted, a candidate waits, claims,
//     releases or gives up, or a session begins;
//   - the TTL, from a second to a day. Only a few histories with TTLs over a minute last for ten
//     TTLs, because that takes many tries.
//
// One of the first claims may land very late, after many others, or a forger may answer peers in
// the leader's name.
//
// Meanwhile each candidate has an allowance of requests, derived from the promises and not from
// the code (allowance.go), so a storm is noticed after a dozen requests. After the failure, a
// free lock is taken within seconds, whatever the TTL.
//
// # Sessions
//
// In 3/4 of the histories without markers, some processes have sessions and others do not. There
// are then one to three locks. A process with sessions wants all of them, sometimes with two
// candidates, and mostly under its session. Package engine does the work, and what it runs apart
// happens a little later, in any order. A heartbeat names only the last released lock, so that it
// soon names too few, and only one waiter for a session is told at a time.
//
// # Semaphores
//
// In 4/5 of the histories with sessions, the processes that have some also share a semaphore
// (table.go): one object, a queue.Machine and an engine.Table per process life, and up to three
// callers under its session. Callers wait or not, hold their slots for a while, leave or give up.
// The semaphore is a fair lock, has two or three slots, or is a reader/writer lock whose writers
// take all slots. Sometimes a process expects another size. All faults also affect the
// semaphore's requests and its object, which may be deleted or replaced with something that is no
// table.
//
// # Detached leases
//
// In histories with tokens, a user may detach a lease that is not under a session (paper.go).
// Later some process uses the proof to hold, renew or release the lease, and another may use a
// copy at the same moment. Detached leases meet the same crashes, lost answers and delays.
//
// # Checks on locks
//
//   - At every step, at most one lease is valid (P2).
//   - When a claim lands, its token is larger than all before it (P1). When a lease is granted,
//     no other lease has had its token.
//   - The protected resource never goes back to a former holder's writes. The order is that of
//     landed claims, not of the tokens that the resource itself compares.
//   - A lease that has ended stays ended. Unrecognized objects are left alone.
//   - A landed record lists the earlier leases whose claims landed, and no others, each once and
//     in order (past.go). There are no gaps, and the oldest are missing only if the list is full.
//     The record's term counts the landed claims, and only a claim changes it.
//   - Once a user is told that its metadata has landed, the stored record and each later one of
//     that lease carry it (meta.go). After the faults, every change lands.
//   - While the owner of a detached lease may rely on it, by its machine's clock, no later lease
//     is valid. An attached lease is the one that was detached. Its only owner is not told that
//     the lease was lost while the record exists.
//
// # Checks on calls
//
//   - Each acquisition and each release returns once (returns.go).
//   - A caller that gives up is answered at once, and a permanent error ends an acquisition at
//     once.
//   - TryAcquire, releases, and settling an abandoned acquisition end within a TTL and a
//     request's time.
//   - A waiting caller is told about a failing store, and then once a minute.
//   - After a successful release, the record is not held by that lease.
//   - A candidate that reports itself settled has no claim in flight that could still land under
//     a live session (D6).
//   - A follower reads the store once in a few TTLs, whatever its peers say.
//
// # Checks on sessions
//
//   - A session's name is used once, even if it is drawn again (D1), and no lock names a session
//     that never existed (D2).
//   - No other process ends a valid session, or takes a lock whose session has not ended (D3).
//   - A lease is valid only while its session is (D4).
//   - No lock names a live session whose process neither holds the lock nor is about to settle it
//     (D6).
//   - A candidate ends its lease when it learns that its session ended, and sends nothing for it.
//     When a session ends, its leases end before anything is sent (D7).
//
// The simulation deletes the objects of ended sessions as soon as no request to them is in
// flight.
//
// # Checks on semaphores
//
// See seats.go and pacing.go:
//
//   - Callers with a valid session never use more slots than there are (V).
//   - The token of each grant is larger than all before it (T).
//   - No caller gets a slot before an earlier one that still waits (F).
//   - No slot stays free that the head of the queue could have, and the size stays the same.
//   - Only its owner removes an entry, and not while using it, unless the entry's session ended
//     (L).
//   - The object has no entry under a live session unless its table knows or settles it (O).
//   - Each acquisition and each Leave has one answer. A Leave, or an acquisition that does not
//     wait, has it within a TTL. A caller that has been told of its end has no entry, and none
//     may land.
//   - A caller that does not wait is refused only if at some moment there was no room for it.
//   - After the faults, every waiter has its turn.
//   - A part sends no more than its intervals allow. While all its callers hold slots, it sends
//     nothing except one read per notification. Waiters are told about a failing store.
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
// processes, and what each of them has. Every part knows these and the few others that it needs;
// see newWorld. The server is the store, the network carries the candidates' calls there, and the
// lasting failure counts them (allowance.go). The ledger checks the promises about locks and
// sessions (promise.go), returns.go those to callers, and seats.go both for the semaphore. Peers
// carry the candidates' questions to each other, users make demands on them, and the injector
// causes faults. sim.go starts a history and liveness.go ends it.
package sim
