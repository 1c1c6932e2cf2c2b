package candidate

import "time"

// A Role is what a candidate wants with the lock, and its options: [Waiter], [Follower], [Heartbeat]
// or [Reaper].
type Role interface {
	taking() Taking
	pace() pace
}

// A Waiter acquires the lock for a user, and polls it while the user waits. An [Attach] continues a
// Waiter's detached lease.
type Waiter struct {
	Taking
	// PollInterval limits how long the poll intervals become. Zero: see the function PollInterval.
	PollInterval time.Duration
}

// A Follower is a candidate in an election. Its waits are long, so it learns when the leader renews,
// and polls once after each renewal: see pace.follow.
type Follower struct {
	Taking
	// Frequent and Infrequent are the poll intervals: during transitions and failures, and while the
	// leader is stable. Zero: derived from the leader's TTL.
	Frequent, Infrequent time.Duration
	// Peers makes it ask the leader itself, if the leader's record has an address. It asks the store
	// only if the leader does not answer.
	Peers bool
}

// A Heartbeat creates a session's object and renews it. The object must not exist yet, so a name is
// used only once (rule D1).
type Heartbeat struct{}

// A Reaper wants the lock to be free. Where others would take the lock over, it frees it (rule D3),
// and it answers an acquisition with Reaped. It polls as a Follower does, but never relies on the
// store's clock.
type Reaper struct {
	Infrequent time.Duration // as a Follower's
}

// Taking has the options of roles that take a lock, which may have been held before.
type Taking struct {
	// Existing: never create the object.
	Existing bool
	// FastStart: take over at once if the record is old enough by the store's own clock.
	FastStart bool
}

func (t Taking) taking() Taking       { return t }
func (Heartbeat) taking() (no Taking) { return no }
func (Reaper) taking() (no Taking)    { return no }

func (r Waiter) pace() pace      { return pace{longest: r.PollInterval} }
func (r Follower) pace() pace    { return pace{often: r.Frequent, seldom: r.Infrequent} }
func (Heartbeat) pace() (p pace) { return p }
func (r Reaper) pace() pace      { return pace{seldom: r.Infrequent} }

// follows reports whether the candidate polls as a Follower does.
func (c *Machine) follows() bool {
	switch c.cfg.Role.(type) {
	case Follower, Reaper:
		return true
	}
	return false
}

// beats reports whether the candidate is a Heartbeat.
func (c *Machine) beats() bool {
	_, is := c.cfg.Role.(Heartbeat)
	return is
}

// reaps reports whether the candidate is a Reaper.
func (c *Machine) reaps() bool {
	_, is := c.cfg.Role.(Reaper)
	return is
}
