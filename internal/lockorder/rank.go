// Package lockorder is the order in which the mutexes of leasehold and its engines are locked,
// and a [Mutex] that keeps to it: built with the tag lockorder it panics when it is locked out of
// turn, on whatever path, whether or not that would have been a deadlock this time. Without the tag
// it is a sync.Mutex and nothing else. The tests of all that is driven run with the tag too.
//
// The idea is that of lockdep in the Linux kernel.
package lockorder

// A Rank is the place of a mutex in the order: while one is held, only those of smaller ranks may
// be locked, so two of the same rank are never held together. Only a Logger runs under any of
// them, no callback of a user and no request.
type Rank int

// The order, from what is locked last to what is locked first.
const (
	Leaf      Rank = iota // the default: what engines share, a queue, callbacks, waiters, observers
	Election              // what is known of the leader
	Heartbeat             // the engine of a heartbeat, and that of a reaper
	Engine                // the engine of a lock
	Watching              // who wants an Election to look
	Keys                  // the locks of the keys that a process uses
)
