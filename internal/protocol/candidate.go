package protocol

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Version names one state of the object, as the store names it. The empty
// Version stands for "no object".
type Version string

// Now is what the driver's clocks show.
type Now struct {
	Clock time.Duration // suspend-aware and monotonic: all decisions rest on it
	Wall  time.Time     // for the times in a record that are for people, and nothing else
}

// Config is what makes a candidate. Incarnation must be new for each candidate
// and each start, 128 random bits in any text form (rule A9): it makes write IDs
// unique and seeds the jitter.
type Config struct {
	Incarnation string
	TTL         time.Duration
	Holder      string
	Address     string
	Meta        map[string]string
	Existing    bool   // never create the object
	Layout      string // as it stands in records

	// Numbered: the tokens are the numbers of objects, which begin with 1.
	Numbered bool
	// Tokenless: there are no tokens, and a lock that is free is no object at all.
	Tokenless bool
	// WriteOnce: a record cannot be written over, so no lease is renewed. Unless
	// Sweep is set none is taken over either: its record must be gone first.
	WriteOnce, Sweep bool

	// Fresh: the object must not exist yet, so a name is used once (rule D1).
	Fresh bool
	// Reaper: the candidate does not want the lock, but that nobody holds it any more.
	// Where it would take the lock over it frees it (rule D3), and an acquisition is
	// answered by Reaped.
	Reaper bool

	// FastStart lets the candidate take over without waiting when the store's
	// own clock says that the record is old enough.
	FastStart bool
	// Follow paces the waiting as for an election, which is long: see follow.
	Follow bool
	// Frequent and Infrequent are the intervals of a follower, in transition and
	// trouble, and while the leader is stable. Zero: from the leader's TTL.
	Frequent, Infrequent time.Duration
	// Peers makes a follower ask the leader itself, where its record has an
	// address, and the store only when it does not answer.
	Peers bool
	// Retries are the pauses after failures in a row, as far as package retry allows
	// them. Nil: its own.
	Retries []time.Duration
}

// phase is what a candidate has to do with the lock.
type phase int

const (
	clear   phase = iota // it does not hold it
	held                 // it holds a lease, as long as Valid says so
	lost                 // its lease ended, and the user has not stopped the work yet
	freeing              // the user has stopped the work, and the release is on its way
)

func (p phase) String() string { return [...]string{"clear", "held", "lost", "freeing"}[p] }

// want is what the user waits for.
type want int

const (
	nothing want = iota
	atOnce       // the lock, or the word that another has it
	eventually
)

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

// attempt is a write that has landed, may have landed, or may yet land. A later
// read of the record decides which (rule A6). Where there are many they are kept
// together, as the range of their numbers with the first one's time: see remember.
type attempt struct {
	first, last uint64 // the numbers in their write IDs
	expect      Version
	record      record.Record // the first one's
	t0          time.Duration // the clock before its first byte (rule A4)
}

// maxAttempts bounds the memory of attempts.
const maxAttempts = 8

// observation is what the candidate knows of the object. While it holds a lease,
// or frees one, that is its own record.
type observation struct {
	known       bool          // some answer has shown it
	fresh       bool          // it may be acted on; if not, look first
	version     Version       // empty: there is no object
	record      record.Record // the last record seen, kept when the object vanishes
	claimableAt time.Duration
	first       time.Duration // when this version was first seen
	expired     bool          // Expired has told of this version
	top         int64         // the largest token ever seen
	base        int64         // where there is no object, the store's time in milliseconds
	own         uint64        // the largest number of a record of our own ever seen
}

// A Candidate is one competitor for one lock: its whole memory and all its
// decisions. It is not safe for concurrent use. See the package documentation
// for the duties of its driver.
type Candidate struct {
	cfg Config

	phase    phase
	want     want
	busy     inflight
	answered inflight // the kind of the last request answered
	sent     attempt  // the write that is under way
	attempts []attempt
	obs      observation

	lease    record.Record // the lease held, or held last
	deadline time.Duration // it is valid before this
	passed   bool          // it is over, and its record stands until the next user claims
	left     Version       // a record of our own that could not be freed
	resigned bool          // the release came while it was held
	freed    freed         // by the release of the last lease
	handoff  handoff
	deleting bool          // its object may be on its way to be deleted
	orphan   bool          // the lease came after its user had gone
	until    time.Duration // when to give up settling what nobody waits for

	due       time.Duration // the next step, if no request is under way
	pace      pace          // of looking at what another holds
	peer      pollState     // with the leader itself
	again     bool          // what the look under way shows is too old
	watching  bool          // look, even if nobody wants the lock
	session   string        // that the lease is under, or the acquisition wants it under; empty: none
	over      string        // a session that is over for good, the last one known
	ended     string        // a session of ours under which nothing is valid any more, the last one
	member    membership    // in sessions of ours
	successor string        // whom the release is to name
	news      bool          // Seen is to tell of the observation
	reported  record.Record // the holder that Waiting told of
	trouble   trouble       // with the store
	seq       uint64
	rng       random
}

// New makes a candidate that knows nothing of the lock.
func New(cfg Config) *Candidate {
	return &Candidate{cfg: cfg, rng: seeded(cfg.Incarnation)}
}

// Valid reports whether the candidate holds a lease that is valid at the given
// reading of the clock (rule A10).
func (c *Candidate) Valid(clock time.Duration) bool {
	return c.phase == held && clock < c.deadline
}

// Deadline is the reading of the clock from which on the lease is no longer
// valid. It is meaningful while a lease is held.
func (c *Candidate) Deadline() time.Duration { return c.deadline }

// Lease is the record of the lease that is held, or was held last.
func (c *Candidate) Lease() record.Record { return c.lease }

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
	return c.phase == clear && c.want == nothing && !c.Outstanding()
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
		wake = min(wake, c.deadline)
	}
	if c.want == atOnce || c.settling() {
		wake = min(wake, c.until)
	}
	return wake, wake != math.MaxInt64
}

// wanting reports that the candidate, holding nothing, has something to do: get
// the lock, settle a claim that nobody waits for any more, or watch.
func (c *Candidate) wanting() bool {
	return c.phase == clear && (c.want != nothing || c.unsettled() || c.watching)
}

// unsettled reports that a claim of ours that nobody wants may land yet, or has landed.
func (c *Candidate) unsettled() bool { return len(c.attempts) > 0 || c.stray() }

// settling reports that nobody waits for the open writes, that there is time until c.until
// to find out whether they landed, and that no request is under way.
func (c *Candidate) settling() bool {
	return c.busy == none && (c.phase == freeing || c.phase == clear && c.want == nothing && len(c.attempts) > 0)
}

// stray reports that the object is a record of our own that nobody wants, and that no
// claim is on its way to replace. It must be freed wherever it comes from: under a session
// it would stand for as long as that lasts (rule D6), and without one others would wait
// out a holder that there is not.
func (c *Candidate) stray() bool {
	r := c.obs.record
	return c.phase == clear && c.want == nothing && len(c.attempts) == 0 && !c.passed && c.obs.held() && c.obs.version != c.left &&
		c.mine(r) && (r.Session == "" || r.Session != c.over && r.Session != c.ended)
}

// mine reports that a record was written by this candidate. That is never
// ownership (rule A9): it says that nobody else relies on the record.
func (c *Candidate) mine(r record.Record) bool {
	_, ours := c.number(r)
	return ours
}

// number is the number in the record's write ID, if this candidate made that.
func (c *Candidate) number(r record.Record) (n uint64, ours bool) {
	text, marked := strings.CutPrefix(r.WriteID, c.cfg.Incarnation+".")
	n, err := strconv.ParseUint(text, 10, 64)
	return n, marked && err == nil
}

// writeID makes the name of the next attempt to write (rule A2).
func (c *Candidate) writeID() string {
	c.seq++
	return c.cfg.Incarnation + "." + strconv.FormatUint(c.seq, 10)
}

// remember keeps an attempt that may land. None is forgotten, because under a session
// one that lands unnoticed is held for as long as the session lives (rule D6). Where
// there are too many, the two oldest become one range, which counts from the first
// one's t0: that is earlier than any other's, so a write that lands is believed for too
// short a time and never for too long (rule A4).
func (c *Candidate) remember(a attempt, out *actions) {
	if len(c.attempts) == maxAttempts {
		c.merge(out)
	}
	c.attempts = append(c.attempts, a)
}

func (c *Candidate) merge(out *actions) {
	for i, a := range c.attempts {
		for j := i + 1; j < len(c.attempts); j++ {
			if b := c.attempts[j]; a.expect == b.expect && a.record.Session == b.record.Session {
				c.attempts[i].last = b.last
				c.attempts = slices.Delete(c.attempts, j, j+1)
				return
			}
		}
	}
	// All of different sessions: only the end of one makes its claim harmless.
	if session := c.attempts[0].record.Session; session != "" {
		out.add(SessionOrphan{session})
	}
	c.attempts = slices.Delete(c.attempts, 0, 1)
}

// landed finds the attempt that wrote r.
func (c *Candidate) landed(r record.Record) (attempt, bool) {
	for _, a := range c.attempts {
		if r.Held && c.wrote(a, r) {
			a.record = r // of a range it need not be the first one's
			return a, true
		}
	}
	return attempt{}, false
}

// wrote reports that one of these attempts has written r. Ranges of different sessions may
// overlap, and the record does not always tell which it is of: see settle. Each begins before
// its attempts, so the first one will do.
func (c *Candidate) wrote(a attempt, r record.Record) bool {
	n, ours := c.number(r)
	return ours && a.first <= n && n <= a.last
}

// settle forgets the attempts that can no longer land, because the version that
// they were conditional on is gone and write IDs keep it from coming back.
//
// A claim may be two writes, of which only the first has landed, as r, which names the session of
// the holder that it is over with: then the second may yet.
func (c *Candidate) settle(current Version, r record.Record) {
	c.attempts = slices.DeleteFunc(c.attempts, func(a attempt) bool { return a.expect != current && !c.wrote(a, r) })
}

// observe takes in a version that was not known. The time until the lock may be
// taken counts from now, the receipt of the answer that first showed it (rule A5).
func (c *Candidate) observe(r record.Record, v Version, now time.Duration) {
	c.obs.known, c.obs.fresh = true, true
	heir := c.peer.heir // a layout without tokens does not keep it
	c.pace.renewed(c.obs.record, r)
	c.peer.sees(c.obs.record, r, now)
	lookedOn := c.reported.WriteID != "" && c.reported.SameLease(c.obs.record)
	c.obs.version, c.obs.record, c.obs.claimableAt, c.obs.first, c.obs.expired = v, r, now, now, false
	if r.Token <= record.LastToken { // else it is nobody's, and may be put right while we look on
		c.obs.top = max(c.obs.top, r.Token, r.Epoch)
	}
	if n, ours := c.number(r); ours {
		c.obs.own = max(c.obs.own, n)
	}
	c.news = true
	if !c.mine(r) {
		c.handoff.rested = false
	}
	switch {
	case c.mine(r): // of a record of our own nobody else can hold a lease
	case r.Opaque:
		c.obs.claimableAt = never
	case r.Held && r.Session != "":
		c.awaitSession(now)
	case r.Held:
		// The record's TTL, not ours: its holder counts by that.
		c.obs.claimableAt += Patience(r.TTL) + c.rng.spread(r.TTL/10)
	case r.Successor != "" && r.Successor != c.cfg.Holder:
		// Only a courtesy: the conditional write decides.
		c.obs.claimableAt += Renewal(r.TTL) + Margin(r.TTL) + c.rng.spread(r.TTL/10)
	case c.cfg.Follow && lookedOn && r.Successor == "" && !heir:
		c.obs.claimableAt += c.rng.spread(c.frequent(r)) // they all look at about this time
	}
}

// never is a reading that no clock comes to.
const never = time.Duration(math.MaxInt64)

// vanish takes in an answer that showed no object, and reports whether there was
// one before: then its holder may not know yet that it is gone.
func (c *Candidate) vanish(date time.Time, now Now) bool {
	was := c.obs.version != ""
	if r := c.obs.record; was && (!r.Held || r.Session == "") { // else its holder does not look at the object: see awaitSession
		c.obs.claimableAt = now.Clock + Patience(r.TTL) + c.rng.spread(r.TTL/10)
	}
	c.news = was
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

// spent reports that no token can follow the one that is there.
func (c *Candidate) spent() bool {
	return c.obs.version != "" && c.obs.record.Token > record.LastToken || c.next() > record.LastToken
}

// next is the token of the next acquisition: one more than the largest one ever
// seen (rule A3).
func (c *Candidate) next() int64 {
	switch {
	case c.cfg.Tokenless:
		return 0
	case c.obs.version == "" && !c.cfg.Numbered:
		return max(c.obs.top+1, c.obs.base)
	}
	return c.obs.top + 1
}
