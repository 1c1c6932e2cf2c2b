package protocol

import (
	"math"
	"slices"
	"time"
)

// phase is what a candidate has to do with the lock.
type phase int

const (
	clear     phase = iota // it does not hold it
	held                   // it holds a lease, as long as Valid says so
	lost                   // its lease ended, and the user has not stopped the work yet
	freeing                // the user has stopped the work, and the release is on its way
	detaching              // the user has stopped the work, and the lease is to stand as it is
	attaching              // a lease that was detached is to be used
)

func (p phase) String() string {
	return [...]string{"clear", "held", "lost", "freeing", "detaching", "attaching"}[p]
}

// inflight is the one request that is under way (one writer).
// One at a time is what makes the rest simple: an answer can be about one thing only. A request
// that timed out may still be on its way, but no answer to it is waited for any more.
type inflight int

const (
	none inflight = iota
	reading
	checking
	claiming
	renewing
	releasing
	reaping
	attachWriting
)

// done takes note that the request under way, one of these kinds, was answered, and says which.
func (i *inflight) done(kinds ...inflight) (kind inflight) {
	if !slices.Contains(kinds, *i) {
		// The driver has mixed up two requests. Taken for the answer to another one, it could make a
		// lease that nobody holds.
		panic("protocol: an answer to nothing")
	}
	kind, *i = *i, none
	return kind
}

// A Candidate is one competitor for one lock: its whole memory and all its
// decisions. It is not safe for concurrent use. See the package documentation
// for the duties of its driver.
//
// Each part of it has a file, with what needs that part alone as methods. What a Candidate
// does itself needs several of them, or changes the phase.
type Candidate struct {
	cfg   Config // with what the present terms change in it
	terms Terms  // of the acquisition or the lease
	usual Terms  // what holds without them: Holder, Meta and TTL
	// The incarnation with which the candidate began, and how many it has had since: see anew.
	base       string
	generation int

	phase phase
	busy  inflight
	due   time.Duration // the next step, if no request is under way
	until time.Duration // when to give up an acquisition at once, an attachment, or open writes that nobody waits for

	obs        observation // of the object
	writes     writes      // its own, that may land
	trouble    Trouble     // with the store
	acq        acquisition // what the user wants
	pace       pace        // of looking at what another holds
	lease      lease
	release    release
	attachment attachment // of a lease that was detached
	handoff    handoff    // among its own users
	sessions   sessions   // of its process and of others
	peer       pollState  // what the leader itself says
	rng        Random
}

// New makes a candidate that knows nothing of the lock.
// It believes nothing from before its start, so a restart never continues a lease (rule A9).
func New(cfg Config) *Candidate {
	usual := Terms{Holder: cfg.Holder, Meta: cfg.Meta, TTL: cfg.TTL}
	return &Candidate{cfg: cfg, usual: usual, base: cfg.Incarnation, rng: Seeded(cfg.Incarnation)}
}

// Step takes an event at a time and returns what to do, in order. It panics on
// an event that cannot be: an answer to nothing, a second Acquire before the
// first was answered, a Release of no lease.
func (c *Candidate) Step(ev Event, now Now) []Action {
	var out Actions
	if c.phase == held && now.Clock >= c.lease.deadline {
		// Before anything else, even a renewal's good answer: who has been
		// told "no longer" must not be told "again".
		c.lose(c.terms.Expiry(now.Clock, c.lease.end, c.lease.record.TTL), &out)
	}
	c.tooLong(now, &out)
	c.expire(now, &out)
	switch ev := ev.(type) {
	case Acquire:
		c.acquire(ev, now)
	case Cancel:
		c.cancel(ev.Err, now, &out)
	case Release:
		c.resign(ev, now, &out)
	case NameSuccessor:
		c.nameSuccessor(ev, now, &out)
	case Detach:
		c.detach(now, &out)
	case Attach:
		c.attach(ev, now)
	case Drop:
		c.drop(now)
	case Watch:
		c.watch(ev.On)
	case GiveUp:
		c.giveUp(ev.Err, &out)
	case ReadDone:
		c.busy.done(reading)
		c.readDone(ev, now, &out)
	case WriteDone:
		c.writeDone(c.busy.done(claiming, renewing, releasing, reaping, attachWriting), ev, now, &out)
	case Checked:
		c.busy.done(checking)
		c.checked(ev, now, &out)
	case SessionOver:
		c.sessionOver(ev.Session, ev.Err, now, &out)
	case SessionExpired:
		c.sessionExpired(ev.Session, ev.Look, now)
	case SessionTroubled:
		if c.wanting() {
			c.trouble.Report(ev.Err, c.cfg.Reaper, now, &out)
		}
	case Recheck:
		c.recheck(now)
	case RenewSoon:
		c.renewSoon(now)
	case SetMeta:
		c.setMeta(ev, now, &out)
	case Retune:
		c.retune(ev)
	case Sighted:
		c.sighted(ev, now)
	case PeerAnswer:
		c.peerAnswered(ev, now, &out)
	case Tick:
	}
	// Every event ends the same way, with what is due by now. So no event has to remember what
	// follows from it, and a Tick that comes late or too often does no harm.
	c.advance(now, &out)
	c.ask(now, &out)
	// At the end of the step, so that the user sees the object and what the candidate makes of it
	// as one state.
	if c.obs.news {
		c.obs.news = false
		out.Add(Seen{})
	}
	c.memberships(&out)
	c.forgetTerms()
	return out
}

// advance does what is due, if no request is under way.
// The time to give up comes even while a pause lasts, or a long pause would outlast it.
func (c *Candidate) advance(now Now, out *Actions) {
	if c.busy != none || now.Clock < min(c.due, c.settledBy()) {
		return
	}
	if c.stray() {
		c.beginRelease(true, now)
	}
	switch {
	case c.phase == held:
		c.keep(now, out)
	case c.phase == freeing:
		c.free(now, out)
	case c.phase == detaching:
		c.letStand(now, out)
	case c.phase == attaching:
		c.takeUp(now, out)
	case c.wanting():
		c.seek(now, out)
	}
}

// Wake is the reading of the clock at which the driver must pass in a Tick, and
// false if nothing but an event can change anything.
func (c *Candidate) Wake() (time.Duration, bool) {
	wake := time.Duration(math.MaxInt64)
	if c.busy == none && (c.phase != clear && c.phase != lost || c.wanting()) {
		wake = c.due
	}
	if c.peer.open && !c.peer.asking && c.follows() {
		wake = min(wake, c.peer.due)
	}
	if c.phase == held || c.phase == detaching {
		// Even while a request is under way: the lease ends on time, whether or not the store answers
		// (rule A10).
		wake = min(wake, c.lease.deadline)
	}
	if c.acq.want == atOnce || c.phase == attaching {
		wake = min(wake, c.until)
	}
	wake = min(wake, c.settledBy())
	return wake, wake != math.MaxInt64
}

// wanting reports that the candidate, holding nothing, has something to do: get
// the lock, settle a claim that nobody waits for any more, or watch.
func (c *Candidate) wanting() bool {
	return c.phase == clear && (c.acq.want != nothing || c.unsettled() || c.acq.watching)
}

// settledBy is when the candidate gives up a release, or the open writes that nobody waits for. There is no such time
// while a request is under way.
func (c *Candidate) settledBy() time.Duration {
	switch {
	case c.busy != none:
	case c.phase == freeing:
		return c.release.until
	case c.phase == clear && c.acq.want == nothing && len(c.writes.open) > 0:
		return c.until
	}
	return math.MaxInt64
}

// Idle reports that the candidate holds nothing, wants nothing and waits for no
// answer: until the next Acquire there is nothing to drive.
func (c *Candidate) Idle() bool {
	return c.phase == clear && c.busy == none && !c.wanting()
}

// Busy reports that a request is under way.
func (c *Candidate) Busy() bool { return c.busy != none }

// Settled reports that nothing is held, wanted or outstanding.
// A process may end then, and leaves nothing behind that others would have to wait out.
func (c *Candidate) Settled() bool {
	return c.phase == clear && c.acq.want == nothing && !c.Outstanding()
}
