// Package sim plays whole fleets of candidates against a store, a network, clocks and users
// that do their worst, and checks what leasehold promises at every step.
//
// The candidates are the real ones: protocol.Candidate over the real layouts. All around
// them is made up by a [world], which has one queue of events and no goroutine that decides
// anything. Real time, maps' order and the scheduler have no part in it.
//
// # One seed, one history
//
// Whatever could go one way or another is asked of choose, in order: the network's delays,
// the faults, what the users do. So a history is a list of choices; a seed is one too, made
// by a generator of random numbers. The choice 0 is always the dull one (no fault, nothing
// is done), and it is what choose gives when the list is at its end. That is what [Shrink]
// rests on: it leaves out parts of the list of a history that breaks a promise, and makes
// others 0, for as long as the promise stays broken.
//
// # A history
//
// First there is trouble: each seed draws which kinds of [Fault] it has and how often, so that
// some histories have a little of everything and others much of one thing. Then it is
// calm, and what must come to pass has to: whoever waits gets the lock in time, and nobody
// sends more requests than docs/cost.md says.
//
// # What is checked
//
// At every step: at most one lease is valid (P2). At every claim that lands: its token
// is larger than all before it (P1). At every grant: no other lease has had its token. At every
// write to the resource that the leases protect: it never goes back to a former holder's,
// which is judged by the order in which claims landed, not by the tokens that it looks
// at itself. A lease that has ended stays ended, and what is no record of ours is left alone.
// In the calm: liveness and the budget of requests.
//
// An [Arm] says which of these are promised. Clocks beyond the bound may break P2 only. What
// a deletion by hand may break, and what not, stands in promise.go. Markers promise less: no
// P1, and P2 only if a delete arrives within the lease that it is sent under or never. A run
// without the fence shows that its check can fail.
//
// # Files
//
// sim.go begins a history and says what came of it; world.go is the queue; member.go is a
// candidate and its clock, and user.go who it works for; call.go, network.go and bucket.go
// bring requests to the store, and peer.go questions to leaders; fault.go names the trouble
// and trouble.go makes it; promise.go has the promises; calm.go is the end of a history;
// tell.go and shrink.go tell of one, and make it short.
package sim
