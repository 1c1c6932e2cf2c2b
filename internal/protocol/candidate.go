package protocol

import (
	"math"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// phase is what a candidate has to do with the lock.
type phase int

const (
	clear   phase = iota // it does not hold it
	held                 // it holds a lease, as long as Valid says so
	lost                 // its lease ended, and the user has not stopped the work yet
	freeing              // the user has stopped the work, and the release is on its way
)

func (p phase) String() string { return [...]string{"clear", "held", "lost", "freeing"}[p] }

// inflight is the one request that is under way (one writer).
type inflight int

const (
	none inflight = iota
	reading
	checking
	claiming
	renewing
	releasing
	reaping
)

// A Candidate is one competitor for one lock: its whole memory and all its
// decisions. It is not safe for concurrent use. See the package documentation
// for the duties of its driver.
type Candidate struct {
	cfg Config

	phase phase
	busy  inflight
	due   time.Duration // the next step, if no request is under way
	until time.Duration // when to give up settling what nobody waits for

	obs      observation // of the object
	writes   writes      // its own, that may land
	trouble  trouble     // with the store
	acq      acquisition // what the user wants
	pace     pace        // of looking at what another holds
	lease    lease
	release  release
	handoff  handoff   // among its own users
	sessions sessions  // of its process and of others
	peer     pollState // what the leader itself says
	rng      random
}

// New makes a candidate that knows nothing of the lock.
func New(cfg Config) *Candidate {
	return &Candidate{cfg: cfg, rng: seeded(cfg.Incarnation)}
}

// Valid reports whether the candidate holds a lease that is valid at the given
// reading of the clock (rule A10).
func (c *Candidate) Valid(clock time.Duration) bool {
	return c.phase == held && clock < c.lease.deadline
}

// Deadline is the reading of the clock from which on the lease is no longer
// valid. It is meaningful while a lease is held.
func (c *Candidate) Deadline() time.Duration { return c.lease.deadline }

// Lease is the record of the lease that is held, or was held last.
func (c *Candidate) Lease() record.Record { return c.lease.record }

// Observed is what the candidate last saw: the record, its version, and whether
// there is an object, or need not be one. Before the first answer there is none.
func (c *Candidate) Observed() (r record.Record, v Version, exists bool) {
	return c.obs.record, c.obs.version, c.obs.known && (c.obs.version != "" || c.cfg.Tokenless)
}

// Idle reports that the candidate holds nothing, wants nothing and waits for no
// answer: until the next Acquire there is nothing to drive.
func (c *Candidate) Idle() bool {
	return c.phase == clear && c.busy == none && !c.wanting()
}

// Busy reports that a request is under way.
func (c *Candidate) Busy() bool { return c.busy != none }

// Settled reports that nothing is held, wanted or outstanding.
func (c *Candidate) Settled() bool {
	return c.phase == clear && c.acq.want == nothing && !c.Outstanding()
}

// Outstanding reports that a release is under way, or a claim that has not become a lease,
// or that such a claim may yet land: somebody has to free it.
func (c *Candidate) Outstanding() bool {
	if c.phase == held || c.phase == lost {
		return false // it is the user who has to
	}
	return c.phase == freeing || c.unsettled() || c.busy != none && c.busy != reading && c.busy != checking
}

// Wake is the reading of the clock at which the driver must pass in a Tick, and
// false if nothing but an event can change anything.
func (c *Candidate) Wake() (time.Duration, bool) {
	wake := time.Duration(math.MaxInt64)
	if c.busy == none && (c.phase == held || c.phase == freeing || c.wanting()) {
		wake = c.due
	}
	if c.peer.open && !c.peer.asking && c.follows() {
		wake = min(wake, c.peer.due)
	}
	if c.phase == held {
		wake = min(wake, c.lease.deadline)
	}
	if c.acq.want == atOnce || c.settling() {
		wake = min(wake, c.until)
	}
	return wake, wake != math.MaxInt64
}

// wanting reports that the candidate, holding nothing, has something to do: get
// the lock, settle a claim that nobody waits for any more, or watch.
func (c *Candidate) wanting() bool {
	return c.phase == clear && (c.acq.want != nothing || c.unsettled() || c.acq.watching)
}

// unsettled reports that a claim of ours that nobody wants may land yet, or has landed.
func (c *Candidate) unsettled() bool { return len(c.writes.open) > 0 || c.stray() }

// settling reports that nobody waits for the open writes, that there is time until c.until
// to find out whether they landed, and that no request is under way.
func (c *Candidate) settling() bool {
	return c.busy == none && (c.phase == freeing || c.phase == clear && c.acq.want == nothing && len(c.writes.open) > 0)
}

// stray reports that the object is a record of our own that nobody wants, and that no
// claim is on its way to replace. It must be freed wherever it comes from: under a session
// it would stand for as long as that lasts (rule D6), and without one others would wait
// out a holder that there is not.
func (c *Candidate) stray() bool {
	r := c.obs.record
	return c.phase == clear && c.acq.want == nothing && len(c.writes.open) == 0 && !c.handoff.passed && c.obs.held() && c.obs.version != c.release.left &&
		c.cfg.mine(r) && !c.sessions.gone(r.Session)
}

// observe takes in a version that was not known. The time until the lock may be
// taken counts from now, the receipt of the answer that first showed it (rule A5).
func (c *Candidate) observe(r record.Record, v Version, now time.Duration) {
	heir := c.peer.heir // a layout without tokens does not keep it
	c.pace.renewed(c.obs.record, r)
	c.peer.sees(c.obs.record, r, now)
	lookedOn := c.acq.reported.WriteID != "" && c.acq.reported.SameLease(c.obs.record)
	c.obs.take(&c.cfg, r, v, now)
	if !c.cfg.mine(r) {
		c.handoff.rested = false
	}
	c.obs.claimableAt = c.claimable(r, now, lookedOn && !heir)
}

// claimable says from when on the lock may be taken of which r was seen first now. wakes: many
// followers may have waited for it to be free.
func (c *Candidate) claimable(r record.Record, now time.Duration, wakes bool) time.Duration {
	switch {
	case c.cfg.mine(r): // of a record of our own nobody else can hold a lease
	case r.Opaque:
		return never
	case r.Held && r.Session != "":
		if r.Session == c.sessions.over {
			return now
		}
		// Its holder keeps the lease for as long as its session lasts, and does not look at the
		// object meanwhile. So no patience is enough, and no clock: the session must be over
		// (rule D3).
		return never
	case r.Held:
		// The record's TTL, not ours: its holder counts by that.
		return now + Patience(r.TTL) + c.rng.spread(r.TTL/10)
	case r.Successor != "" && r.Successor != c.cfg.Holder:
		// Only a courtesy: the conditional write decides.
		return now + Renewal(r.TTL) + Margin(r.TTL) + c.rng.spread(r.TTL/10)
	case c.cfg.Follow && wakes && r.Successor == "":
		return now + c.rng.spread(c.cfg.frequent(r.TTL)) // they all look at about this time
	}
	return now
}

// never is a reading that no clock comes to.
const never = time.Duration(math.MaxInt64)

// vanish takes in an answer that showed no object, and reports whether there was
// one before: then its holder may not know yet that it is gone.
func (c *Candidate) vanish(date time.Time, now Now) bool {
	was := c.obs.version != ""
	if r := c.obs.record; was && (!r.Held || r.Session == "") { // else its holder does not look at the object: see claimable
		c.obs.claimableAt = now.Clock + Patience(r.TTL) + c.rng.spread(r.TTL/10)
	}
	c.obs.news = was
	c.obs.known, c.obs.fresh, c.obs.version = true, true, ""
	c.obs.base = base(date, now.Wall)
	return was
}

// base is where the tokens of a lock that is created start: at the store's own
// time in milliseconds, so that in practice they are above those of an object that
// somebody deleted. Where the store does not tell the time, the wall clock must do.
func base(date, wall time.Time) int64 {
	if date.IsZero() {
		date = wall
	}
	return max(date.UnixMilli(), 1)
}

// First is the record of a lock that is made free, to be acquired later. The write
// ID must be new.
func First(cfg Config, writeID string, date, wall time.Time) record.Record {
	token := int64(1)
	if !cfg.Numbered {
		token = base(date, wall)
	}
	return record.Record{
		Token: token, Layout: cfg.Layout, Holder: cfg.Holder, TTL: cfg.TTL, WriteID: writeID,
		RenewedAt: wall, ExpiresAt: wall,
	}
}
