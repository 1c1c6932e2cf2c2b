// Package protocol decides. It has the timing that follows from the drift bound, and the state machine
// of locks: [Candidate.Step] takes an event and the time, and returns what to do. A machine has no
// goroutine, clock, random source or store, so the same events at the same times always give the
// same actions, and a simulation can drive thousands of machines from one queue of events.
//
// Package queue is the machine of semaphores, and package session the bookkeeping of sessions. They
// share this package's vocabulary, its timing, [Trouble] and [Random].
//
// # The driver's duties
//
// The driver of a machine must
//
//   - call Step from one goroutine at a time, with a suspend-aware monotonic clock that never goes
//     back;
//   - carry out each Read, Check and Write once, after Step returned it, and report its one answer
//     with ReadDone, Checked or WriteDone. A write that times out is reported as failed, because it
//     may still land;
//   - call Step with a Tick when the clock reaches Wake;
//   - ask Valid, with the clock's reading, each time before it relies on the lease: an earlier answer
//     says nothing about now;
//   - have stopped all work under the lease before it passes in Release.
//
// Package engine is that driver.
//
// # Sessions and peers
//
// A session of this process is a session.Membership beside the Candidate of its heartbeat. Each
// candidate that wants a lease under it enters. Unnamed and Left go to the Membership, and the
// driver carries out what that returns. If Awaits names another process's session, one Candidate
// polls its heartbeat for all that wait, a Reaper, and a session.Watch says whom to tell. They learn
// of the Reaper's failures by SessionTroubled. A leader answers followers' questions with
// [Candidate.PeerStatus].
//
// # Files
//
// events.go has the vocabulary: what a machine is told, and what it asks for. candidate.go has the
// memory of a Candidate and Step, which calls what is due. Each phase has a file, with its requests
// and what their answers mean:
//
//   - acquire.go: read, wait and claim, until there is a lease or an error; pace.go plans the polls;
//   - lease.go: the lease that is held, its renewals, and how it is lost;
//   - release.go: free it, and free what nobody wants;
//   - attach.go: leave a lease as it stands for another candidate, and go on with such a lease;
//   - handoff.go: pass it on to another user of the same candidate.
//
// The two kinds of request are reads (look.go, with what they show in observation.go) and
// conditional writes (writes.go, with those that may still land). trouble.go counts their failures.
// window.go bounds the requests in flight for something that concerns many candidates. session.go,
// saved.go and peer.go are for sessions and peers. timing.go and config.go decide without memory.
//
// # The rules
//
// The rules A1 to A12 are those of docs/protocol.md. Each stands at the line that keeps it, and each
// has a scenario in testdata whose header names it. A11, that the resource checks the token, is kept
// outside, by package fence and by the user.
package protocol
