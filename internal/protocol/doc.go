// Package protocol decides. It has what every state machine shares: the timing that follows from the
// drift bound, the events and actions that all of them know, [Trouble], which counts a store's
// failures, and [Random]. The machines are in packages of their own:
//
//   - candidate: a candidate for one lock;
//   - queue: a process in the queue of one semaphore;
//   - session: the bookkeeping of a process about the leases under its session.
//
// A machine's Step takes an event and the time, and returns what to do. A machine has no goroutine,
// clock, random source or store, so the same events at the same times always give the same actions,
// and a simulation can drive thousands of machines from one queue of events.
//
// # The driver's duties
//
// The driver of a machine must
//
//   - call Step from one goroutine at a time, with a suspend-aware monotonic clock that never goes
//     back;
//   - carry out each request once, after Step returned it, and report its one answer. A write that
//     times out is reported as failed, because it may still land;
//   - call Step with a [Tick] when the clock reaches Wake;
//   - ask Valid, with the clock's reading, each time before it relies on the lease: an earlier answer
//     says nothing about now;
//   - have stopped all work under the lease before it passes in Release.
//
// Package engine is that driver.
//
// # The rules
//
// The rules A1 to A12 are those of docs/protocol.md. Each stands at the line that keeps it, and each
// has a scenario in the testdata of its machine, whose header names it. A11, that the resource checks
// the token, is kept outside, by package fence and by the user.
package protocol
