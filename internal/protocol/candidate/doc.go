// Package candidate has the state machine of a lock. A [Machine] is one candidate: [Machine.Step]
// takes an event and the time, and returns what to do. Package protocol has what it shares with other
// machines, and the duties of its driver.
//
// # Sessions and peers
//
// A session of this process is a session.Membership beside the Machine of its heartbeat. Each
// candidate that wants a lease under it enters. Unnamed and Left go to the Membership, and the
// driver carries out what that returns. If Awaits names another process's session, one Machine
// polls its heartbeat for all that wait, a Reaper, and a session.Watch says whom to tell. They learn
// of the Reaper's failures by SessionTroubled. A leader answers followers' questions with
// [Machine.PeerStatus].
//
// # Files
//
// events.go has the vocabulary: what a machine is told, and what it asks for. machine.go has its
// memory and Step, which calls what is due. config.go has what a candidate and a lease are
// configured with, and role.go what different candidates want with a lock. Each phase has a file,
// with its requests and what their answers mean:
//
//   - acquire.go: read, wait and claim, until there is a lease or an error; pass the lock on to another
//     user of the same candidate. pace.go plans the polls;
//   - lease.go: the lease that is held, its renewals and metadata, and how it is lost;
//   - release.go: free it, and free what nobody wants;
//   - attach.go: leave a lease as it stands for another candidate, and go on with such a lease;
//   - move.go: move a lock to another name.
//
// The two kinds of request are reads (look.go, with what they show) and conditional writes
// (writes.go, with those that may still land). session.go and peer.go are for sessions and peers.
package candidate
