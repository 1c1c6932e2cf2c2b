// Package sim plays whole fleets of candidates against a store, a network, clocks and users
// that do their worst, and checks what leasehold promises at every step.
//
// The candidates are the real ones: protocol.Candidate over the real layouts, driven by the
// engine that ships, with its sessions and reapers. All around them is made up by a [world],
// which has one queue of events and no goroutine that decides anything. Real time, maps' order
// and the scheduler have no part in it. The library decides; this package has the store, the
// network, the clocks, the users, and the promises.
//
// # One seed, one history
//
// The function choose makes every decision that could go one way or another, in order: the
// network's delays, the faults, what the users do. So a history is a list of choices; a
// seed is one too, made by a generator of random numbers. The choice 0 is always the dull
// one (no fault, nothing is done), and it is what choose gives when the list is at its end.
// That is what [Shrink] rests on: it leaves out parts of the list of a history that breaks
// a promise, and makes others 0, for as long as the promise stays broken.
//
// # A history
//
// First there is trouble: each seed draws which kinds of [Fault] it has and how often, so that
// some histories have a little of everything and others much of one thing. Then all is healed,
// and liveness must hold: a waiter gets the lock in time, and nobody sends more requests than
// docs/cost.md says.
//
// # One kind of failure lasts
//
// In a fifth of the histories there is one failure and no other trouble: every request of some
// kind gets the same answer, or none, for as long as ten TTLs (lasting.go). It is drawn which
// answer: each status that stores are known to give, and some that they are not, as the errors
// that package s3store makes of it (answers.go, and a test compares them); to which operations,
// on locks or on sessions, of one process or of all; and from which moment on: the first contact,
// or when a lease is granted, somebody waits, claims, releases or gives up, or a session begins.
// The TTL is from a second to a day. Ten days of tries are many, so few of the histories with
// TTLs over a minute last for ten of them. One of the first claims may land very late, after
// many others; or somebody answers peers in the leader's name.
//
// Meanwhile each candidate has an allowance of requests, which follows from what is promised and
// not from what the code does (allowance.go). So a storm is noticed after a dozen requests. When
// the failure has ended, a lock that is free is taken within seconds, whatever the TTL.
//
// # Sessions
//
// In three quarters of the histories, those of markers apart, some processes have sessions, and the
// others have not. There are up to three locks then, which a process with sessions wants all,
// at times by two candidates, and mostly under its session. Package engine does all that is to be
// done about them, and what it wants to be done apart happens some time later, in any order. A
// heartbeat names only the last lock that was released, so that it is soon too few, and only one
// of those that wait for a session is told at a time.
//
// # A semaphore
//
// In four fifths of the histories with sessions, which is half of all, the processes that have some share a semaphore
// too (table.go):
// one object, a queue.Machine and an engine.Table for each life of a process, and up to three callers
// under its session, which wait or do not, hold their seats for a while, leave or give up. It is a fair
// lock, has two or three seats, or is a reader/writer lock whose writers take all. Now and then a
// process expects another size. All troubles come to its requests too, and to its object: something
// that is no table in its place, or nothing.
//
// # Detached leases
//
// Where there are tokens and no session, a user may detach its lease (paper.go). The proof is a
// paper: some time later a process uses it, to hold, renew or release the lease, and perhaps
// another one uses a copy at the same moment. Crashes, lost answers and delays happen to them as to
// all others.
//
// # What is checked
//
// At every step: at most one lease is valid (P2). At every claim that lands: its token is
// larger than all before it (P1). At every grant: no other lease has had its token. At every
// write to the resource that the leases protect: it never goes back to a former holder's, which
// is judged by the order in which claims landed, not by the tokens that it looks at itself. A
// lease that has ended stays ended, and a foreign object is left alone. When all is healed: liveness
// and the budget of requests.
//
// At every write that lands (past.go): the record tells of the leases before its own, those whose
// claims have landed, in order, each once, and of none else; there is no gap, and the oldest are
// missing only where there are sixteen entries. Its number is that of claims that landed. No write
// but a claim changes that.
//
// At every return (returns.go): each acquisition and each release returns once. A caller that
// gives up is answered at once, a refusal for good ends an acquisition at once, and TryAcquire,
// a release and the settling of what was given up end in a TTL and the time of a request. A
// caller that waits while the store fails is told of it, and then once a minute. After a
// release without an error the record is not held by that lease. A candidate that reports that
// all is settled has sent no claim that may land yet under a session that goes on (D6). A
// follower looks at the store once in a few TTLs, whatever its peers say.
//
// A lease under a session is valid while both are (D4). The name of a session is used once,
// even if somebody draws it again (D1), and no lock names one that has never existed (D2).
// Nobody ends a session that is valid, or takes a lock of one that is not over (D3), and none
// names one that goes on if its process neither holds it nor is about to settle that (D6). A
// candidate that learns that its session is over ends its lease, and sends nothing for it; and
// when a session ends, so do all leases under it, before anything is sent (D7).
// Sessions that are over are deleted as soon as no request to them is on its way.
//
// A change of meta data of which a user is told that it has landed stands in the record, and in
// each later one of that lease, as the store has it (meta.go); when all is healed, every change lands.
//
// Of the semaphore (seats.go): the seats that are used, by callers whose session is valid, are not more than
// there are (V). At every change that lands: each grant has a token larger than those of all before (T);
// nobody gets a seat before one who came first and still waits (F); no seat is left free that the head of the
// line could have; only its owner takes an entry out, unless its session is over (L), and not while it is
// used; the size stays. Nothing of a session that goes on is in the object that its table does not know or settle
// (O). Each acquisition has one answer, each Leave one, within a TTL, and when a caller is told that
// nothing of it is left, nothing is, and nothing may land. Whoever does not wait is refused only if there was no
// room at some moment since it came. When all is healed, all who wait have their turn. A part sends
// no more than its pauses allow (pacing.go), nothing while all of its callers hold seats but one look for each word of
// others, and those who wait are told of a store that fails.
//
// While the owner of a paper may rely on the lease, by the clock of its machine, no later lease is
// valid. A lease that is attached is the one that was detached. The only owner of a lease is not told
// that it was lost while a record of it stands.
//
// An [Arm] says which of these are promised. Clocks beyond the bound may break P2 only. What
// a deletion by hand may break, and what not, stands in promise.go; of a lock that is under a
// session it may break D6 too, and liveness, for as long as that session lasts. Of a semaphore it may break V,
// O and liveness; but whoever has seen the object vanish does not make it anew while those hold seats
// whom it saw there. Markers promise
// less: no P1, and P2 only if a delete arrives within the lease that it is sent under or never.
// A run without the fence shows that its check can fail.
//
// # The parts
//
// A history is what all parts share: the choices, the queue of events, and what has come of them; a
// fleet is who there is, with what each has. Each part knows these and the few others that it needs
// (newWorld puts them together): the server is what lies in the store, the network brings the calls
// of candidates there, and the failure that lasts counts them (allowance.go). The ledger checks what
// is promised of locks and sessions (promise.go), and returns.go what callers are promised; seats.go
// does both for the semaphore. The
// candidates are the real ones, peers lets them ask each other, users want something of them, and
// the injector makes the faults. sim.go begins a history, and liveness.go ends it.
package sim
