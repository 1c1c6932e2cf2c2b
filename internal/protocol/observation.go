package protocol

import (
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// observation is what the candidate knows of the object. While it holds a lease,
// or frees one, that is its own record.
//
// Above all it does not forget: the largest token stays when the object is deleted, and so does
// the last record, by which a holder that has not noticed goes on.
type observation struct {
	known       bool          // some answer has shown it
	fresh       bool          // it may be acted on; if not, look first
	version     Version       // empty: there is no object
	record      record.Record // the last record seen, kept when the object vanishes
	claimableAt time.Duration // not before: rule A5
	spread      time.Duration // how much later a waiter claims it, so that not all do at once; 0 beside never
	first       time.Duration // when this version was first seen
	expired     bool          // Expired has told of this version
	top         int64         // the largest token ever seen
	base        int64         // where there is no object, the store's time in milliseconds
	own         uint64        // the largest number of a record of our own ever seen
	news        bool          // Seen is to tell of it
}

// take takes in a version that was not known.
func (o *observation) take(cfg *Config, r record.Record, v Version, now time.Duration) {
	o.known, o.fresh, o.expired, o.news = true, true, false, true
	o.version, o.record, o.first = v, r, now
	if r.Token <= record.LastToken { // else it is nobody's, and may be put right while we look on
		o.top = max(o.top, r.Token, r.Epoch)
	}
	if n, ours := cfg.number(r); ours {
		o.own = max(o.own, n)
	}
}

// vanish takes in an answer that showed no object, and reports whether there was
// one before: then its holder may not know yet that it is gone.
// So this candidate does not create the object anew before that holder's lease has ended.
func (o *observation) vanish(date time.Time, now Now, rng *Random) bool {
	was := o.version != ""
	if r := o.record; was && (!r.Held || r.Session == "") { // else its holder does not look at the object: see claimable
		o.claimableAt, o.spread = now.Clock+Patience(r.TTL), rng.Spread(r.TTL/10)
	}
	o.news = was
	o.known, o.fresh, o.version = true, true, ""
	o.base = FirstToken(date, now.Wall)
	return was
}

// from is from when on an acquisition of that kind may claim the lock. Waiters claim it one after the
// other, by lot. A caller that does not wait is none of them: to hear that a free lock is held would be
// wrong, and a caller that tries again and again would take over late.
func (o *observation) from(want want) time.Duration {
	if want == atOnce {
		return o.claimableAt
	}
	return o.claimableAt + o.spread
}

// expire tells, once, that a holder is late.
func (o *observation) expire(cfg *Config, want want, now Now, out *Actions) {
	if now.Clock >= o.from(want) && o.version != "" && o.record.Held && !o.expired && !cfg.mine(o.record) {
		o.expired = true
		out.Add(Expired{o.record})
	}
}

// rest is how long the lock is to be left alone yet, if it is free.
func (o *observation) rest(now time.Duration) time.Duration {
	if o.version == "" || o.record.Resting() == 0 {
		return 0
	}
	return max(o.claimableAt-now, 0)
}

// rests reports that it is to be left alone.
func (o *observation) rests(now time.Duration) bool { return o.rest(now) > 0 }

// held reports that the object says of a holder.
func (o *observation) held() bool { return o.version != "" && o.record.Held }

// stuck reports that there is a record which a candidate with that configuration cannot take over, however
// old it is.
func (o *observation) stuck(cfg *Config) bool {
	return cfg.WriteOnce && !cfg.Sweep && o.held()
}

// advances reports that a record that is new tells of a write that was not known to have
// landed: then the store works, and the next request is no repetition. A store that names
// the same record anew each time does not.
func (o *observation) advances(cfg *Config, r record.Record) bool {
	if n, ours := cfg.number(r); ours {
		return n > o.own
	}
	return max(r.Token, r.Epoch) > o.top || cfg.Tokenless && r.Held
}

// spent reports that no token can follow the one that is there.
func (o *observation) spent(cfg *Config) bool {
	return o.version != "" && o.record.Token > record.LastToken || o.next(cfg) > record.LastToken
}

// next is the token of the next acquisition: one more than the largest one ever
// seen (rule A3).
// It never goes back while the object is there, and for a candidate that has seen a larger one not
// even when it was deleted. The store's time is for the candidates that have not.
func (o *observation) next(cfg *Config) int64 {
	switch {
	case cfg.Tokenless:
		return 0
	case o.version == "" && !cfg.Numbered:
		return max(o.top+1, o.base)
	}
	return o.top + 1
}

// FirstToken returns where the tokens of a new object start: at the store's time in milliseconds, or
// else the wall clock's. So in practice, they are above those of a deleted object of the same name.
func FirstToken(date, wall time.Time) int64 {
	if date.IsZero() {
		date = wall
	}
	return max(date.UnixMilli(), 1)
}

// Claimable reports that an acquisition that does not wait would claim the lock now, as far as is
// known. That may be old: the store decides.
func (c *Candidate) Claimable(clock time.Duration) bool {
	return c.phase == clear && c.obs.known && (c.obs.version != "" || c.cfg.Tokenless) &&
		clock >= c.obs.from(atOnce) && !c.obs.stuck(&c.cfg)
}

// Observed is what the candidate last saw: the record, its version, and whether
// there is an object, or need not be one. Before the first answer there is none.
func (c *Candidate) Observed() (r record.Record, v Version, exists bool) {
	return c.obs.record, c.obs.version, c.obs.known && (c.obs.version != "" || c.cfg.Tokenless)
}
