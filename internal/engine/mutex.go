package engine

// A Rank is the place of a [Mutex] in the order in which mutexes are locked. While one is held, only
// those of smaller ranks may be locked, so two of the same rank are never held together. Under any of
// them, no request is sent and nothing of the user's runs but a Logger.
//
// Built with the tag lockorder, a Mutex panics when it is locked out of order, on whatever path, even if
// that would not have been a deadlock this time. Without the tag it is a sync.Mutex and nothing else. The
// idea is that of lockdep in the Linux kernel.
type Rank int

// The order, from the mutex that is locked last to the one that is locked first.
const (
	RankLeaf      Rank = iota // the default: what engines share, a queue, callbacks, waiters, observers
	RankElection              // what is known of the leader
	RankHeartbeat             // the engine of a heartbeat, and that of a reaper
	RankEngine                // the engine of a lock
	RankWatching              // who wants an Election to poll
	RankKeys                  // the locks of the keys that a process uses
)
