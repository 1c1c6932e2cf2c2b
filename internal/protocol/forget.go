package protocol

import "time"

// keepFor is how long a candidate that does nothing is worth keeping: so many TTLs after its last
// look or write, and after the moment from which on it may take the lock over. Two would do for a
// user who comes back once in a TTL; the rest is for one who is late.
const keepFor = 4

// Forgettable says whether a driver that keeps many candidates may drop this one, because another that
// is made later would do as well; or from which reading of the clock on it may, unless something
// happens before. While something is under way, wanted or held, only an event can make it so.
//
// The knowledge that is kept for a while is worth a request or a wait. A version that was seen saves a read. A holder
// that was seen may be taken over from when he has been seen unchanged for long enough (rule A5), and
// a candidate that is made anew would begin to count again, so that one that is asked now and then would
// never take over. The same holds for an object that was deleted.
//
// It bounds memory and nothing else. A candidate that is dropped is one that has ended, and those that
// come after have another incarnation, so no rule knows the difference (rule A9).
func (c *Candidate) Forgettable(clock time.Duration) (ok bool, at time.Duration) {
	if !c.Idle() || c.handoff.passed || len(c.sessions.entered) > 0 {
		return false, Never
	}
	// A report of trouble that is to come once a minute must not come from each new candidate.
	at = max(c.trouble.reported, c.trouble.LookAt, c.trouble.TryAt)
	if c.obs.known {
		since := max(c.obs.first, c.pace.looked)
		if c.obs.claimableAt != Never {
			since = max(since, c.obs.claimableAt)
		}
		at = max(at, since+keepFor*max(c.cfg.TTL, c.obs.record.TTL))
	}
	return clock >= at, at
}
