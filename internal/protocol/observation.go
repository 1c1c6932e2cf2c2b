package protocol

import (
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// observation is what the candidate knows about the object: its own record while it holds or
// frees a lease.
//
// Above all it does not forget. When the object is deleted, the largest token stays, and so
// does the last record, because its holder may go on without noticing.
type observation struct {
	known       bool          // an answer has shown it
	fresh       bool          // it may be acted on; otherwise read first
	version     Version       // empty: there is no object
	record      record.Record // the last one seen, kept when the object vanishes
	claimableAt time.Duration // not before: rule A5
	spread      time.Duration // waiters claim it this much later, not all at once; 0 if claimableAt is Never
	first       time.Duration // when this version was first seen
	expired     bool          // Expired was reported for this version
	top         int64         // the largest token ever seen
	base        int64         // the store's time in milliseconds, if there is no object
	own         uint64        // the largest number ever seen in a record of this candidate
	news        bool          // Seen must be reported
}

// take notes a new version.
func (o *observation) take(cfg *Config, r record.Record, v Version, now time.Duration) {
	o.known, o.fresh, o.expired, o.news = true, true, false, true
	o.version, o.record, o.first = v, r, now
	if r.Token <= record.LastToken { // a larger token has no holder, and somebody may correct it
		o.top = max(o.top, r.Token, r.Epoch)
	}
	if n, ours := cfg.number(r); ours {
		o.own = max(o.own, n)
	}
}

// vanish notes an answer without an object, and reports whether there was one before. Its
// holder may not have noticed, so this candidate does not create the object before that lease
// has ended.
func (o *observation) vanish(date time.Time, now Now, rng *Random) bool {
	was := o.version != ""
	if r := o.record; was && (!r.Held || r.Session == "") { // else its holder does not read the object: see claimable
		o.claimableAt, o.spread = now.Clock+Patience(r.TTL), rng.Spread(r.TTL/10)
	}
	o.news = was
	o.known, o.fresh, o.version = true, true, ""
	o.base = FirstToken(date, now.Wall)
	return was
}

// from returns when such an acquisition may claim the lock. Waiters claim it one after the
// other, in random order, but not a caller that does not wait: it must not hear that a free
// lock is held, and if it tries again and again it must not take over late.
func (o *observation) from(want want) time.Duration {
	if want == atOnce {
		return o.claimableAt
	}
	return o.claimableAt + o.spread
}

// expire reports, once, that a holder is late.
func (o *observation) expire(cfg *Config, want want, now Now, out *Actions) {
	if now.Clock >= o.from(want) && o.version != "" && o.record.Held && !o.expired && !cfg.mine(o.record) {
		o.expired = true
		out.Add(Expired{o.record})
	}
}

// rest returns how long the cooldown of a free lock still lasts.
func (o *observation) rest(now time.Duration) time.Duration {
	if o.version == "" || o.record.Resting() == 0 {
		return 0
	}
	return max(o.claimableAt-now, 0)
}

// rests reports whether the lock is in its cooldown.
func (o *observation) rests(now time.Duration) bool { return o.rest(now) > 0 }

// held reports whether the object names a holder.
func (o *observation) held() bool { return o.version != "" && o.record.Held }

// stuck reports whether such a candidate can never take this record over, however old it is.
func (o *observation) stuck(cfg *Config) bool {
	return cfg.WriteOnce && !cfg.Sweep && o.held()
}

// advances reports whether a new record shows a write not known to have landed. Then the store
// works, and the next request is not a retry. A store that renames the same record at each read
// does not count.
func (o *observation) advances(cfg *Config, r record.Record) bool {
	if n, ours := cfg.number(r); ours {
		return n > o.own
	}
	return max(r.Token, r.Epoch) > o.top || cfg.Tokenless && r.Held
}

// spent reports whether no token can follow the current one.
func (o *observation) spent(cfg *Config) bool {
	return o.version != "" && o.record.Token > record.LastToken || o.next(cfg) > record.LastToken
}

// next returns the next acquisition's token: one more than the largest ever seen (rule A3). It
// never goes back while the object exists. After a deletion it does so only for candidates that
// have seen none larger, which start at the store's time.
func (o *observation) next(cfg *Config) int64 {
	switch {
	case cfg.Tokenless:
		return 0
	case o.version == "" && !cfg.Numbered:
		return max(o.top+1, o.base)
	}
	return o.top + 1
}

// FirstToken returns where a new object's tokens start: at the store's time in milliseconds, or
// else the wall clock's. In practice, they are above those of a deleted object with the same
// name.
func FirstToken(date, wall time.Time) int64 {
	if date.IsZero() {
		date = wall
	}
	return max(date.UnixMilli(), 1)
}

// Claimable reports whether an acquisition that does not wait would claim the lock now, by what
// is known. The store decides.
func (c *Candidate) Claimable(clock time.Duration) bool {
	return c.phase == clear && c.obs.known && (c.obs.version != "" || c.cfg.Tokenless) &&
		clock >= c.obs.from(atOnce) && !c.obs.stuck(&c.cfg)
}

// Observed returns what the candidate last saw: the record, its version, and whether there is
// an object or need not be one. Before the first answer, exists is false.
func (c *Candidate) Observed() (r record.Record, v Version, exists bool) {
	return c.obs.record, c.obs.version, c.obs.known && (c.obs.version != "" || c.cfg.Tokenless)
}
