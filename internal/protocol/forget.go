package protocol

import "time"

// keepFor is how many TTLs an idle candidate is worth keeping, from its last read or write and from
// when it may take over. Two would do for a user that returns once per TTL. The others allow for a
// late one.
const keepFor = 4

// Forgettable reports whether the driver may drop the candidate to save memory, because a new one
// would do as well. If not, at is when it may, unless something happens first. While anything is
// under way, wanted or held, at is Never.
//
// What the candidate knows saves a read or a wait. A known version saves a read. A holder, or a
// deleted object, must be seen unchanged for a while before the lock may be taken (rule A5), and a
// new candidate would count from the start. If it were dropped too early, one used now and then
// would never take over.
//
// Dropping one breaks no rule: it has ended, and any later one has another incarnation (rule A9).
func (c *Candidate) Forgettable(clock time.Duration) (ok bool, at time.Duration) {
	if !c.Idle() || c.handoff.passed || len(c.sessions.entered) > 0 {
		return false, Never
	}
	// New candidates must not repeat an error report that is due once a minute.
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
