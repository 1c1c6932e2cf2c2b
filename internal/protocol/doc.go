// Package protocol decides. It holds the timing that follows from the drift
// bound, and the whole behaviour of a candidate as a state machine:
// [Candidate.Step] takes an event and the time and returns what to do. It has no
// goroutine, no clock, no random source and no store inside, so the same events
// at the same times always give the same actions, and a simulation can drive
// thousands of candidates from one queue.
//
// # The driver's duties
//
// The driver of a Candidate must
//
//   - call Step from one goroutine at a time, with a suspend-aware monotonic
//     clock that never goes back;
//   - carry out each Read, Check and Write once, after Step returned it, and report
//     its one answer with ReadDone, Checked or WriteDone: a write that is given up
//     by its time-out is reported as failed, since it may yet land;
//   - call Step with a Tick when the clock reaches Wake;
//   - ask Valid, with the clock's reading, each time before it relies on the
//     lease: what Valid said a moment ago says nothing about now;
//   - have stopped all work under the lease before it passes in Release.
//
// Package engine is that driver.
//
// # Sessions and peers
//
// A session of this process is a [Membership] beside the Candidate of its heartbeat:
// each candidate that wants a lease under it enters, Unnamed and Left go to
// Membership.Released and Leave, and the driver carries out what they return. Where
// Awaits names a session of others, one Candidate for all that wait for it, a Reaper,
// looks at its heartbeat, and a [SessionWatch] says whom to tell. What keeps the Reaper
// from looking they are told by SessionTroubled. A leader answers the
// questions of followers with [Candidate.PeerStatus].
//
// # Where what is
//
// events.go has the vocabulary: what a Candidate is told, and what it says. candidate.go has its
// memory and [Candidate.Step], which calls what is due. Its phases have a file each, with the
// requests and with what their answers mean:
//
//   - acquire.go: looking, waiting, claiming, until there is a lease or an error; pace.go says
//     when a candidate that waits looks again;
//   - lease.go: the lease that is held, its renewals and how it is lost;
//   - release.go: freeing it, and freeing what nobody wants;
//   - attach.go: leaving a lease as it stands for another candidate, and going on with such a one;
//   - handoff.go: passing it on to another user of the same candidate.
//
// The two kinds of request are looks (look.go, with what they show in observation.go) and
// conditional writes (writes.go, with those that may yet land); trouble.go counts their failures.
// window.go bounds how many requests there are at a time for something that concerns many candidates.
// session.go, saved.go, membership.go and peer.go are for sessions and peers. What decides alone,
// without memory, is in timing.go and config.go; random.go is the chance, which replays.
//
// # The rules
//
// The names A1 to A12 are those of docs/protocol.md. Each stands at the line
// that keeps it, and each has a scenario in testdata whose header names it. A11,
// that the resource checks the token, is kept outside, by package fence and by
// the user.
package protocol
