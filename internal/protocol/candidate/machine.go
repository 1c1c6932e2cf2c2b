package candidate

import (
	"math"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// phase is the candidate's relation to the lock.
type phase int

const (
	clear     phase = iota // it does not hold the lock
	held                   // it holds a lease, while Valid says so
	lost                   // the lease has ended, but its user has not stopped yet
	freeing                // the user has stopped, and the lock is being released
	detaching              // the user has stopped, and the record must stay
	attaching              // a detached lease is about to be used
)

func (p phase) String() string {
	return [...]string{"clear", "held", "lost", "freeing", "detaching", "attaching"}[p]
}

// inflight is the kind of request under way. There is at most one, so an answer can only be about
// this one. After a timeout, a request may still arrive, but its answer no longer matters.
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

// done checks that a request of these kinds is under way, notes its answer, and returns its kind.
func (i *inflight) done(kinds ...inflight) (kind inflight) {
	if !slices.Contains(kinds, *i) {
		// The driver mixed up two requests. The wrong answer could make a lease that nobody holds.
		panic("protocol: an answer to nothing")
	}
	kind, *i = *i, none
	return kind
}

// A Machine competes for one lock. It remembers and decides, and its driver does the rest (see
// package protocol). It is not safe for concurrent use.
//
// Each part has a file with the methods for that part alone. The methods of Machine need several
// parts, or change the phase.
type Machine struct {
	cfg    Config // with the present options applied
	taking Taking // the role's
	terms  Terms  // the options of the acquisition or lease
	usual  Terms  // the defaults: Holder, Meta and TTL
	// The first incarnation, and the number of later ones: see anew.
	base       string
	generation int

	phase phase
	busy  inflight
	due   time.Duration // the next step, if no request is under way
	until time.Duration // when to give up: an acquisition without Wait, an Attach, or unwanted open writes

	obs        observation      // the object, as last seen
	writes     writes           // its own, if they may land
	trouble    protocol.Trouble // the store's failures
	acq        acquisition      // what the user wants
	pace       pace             // when to poll
	lease      lease
	release    release
	attachment attachment // the use of a detached lease
	handoff    handoff    // among its own users
	sessions   sessions   // of its process and of others
	peer       pollState  // what the leader itself says
	rng        protocol.Random
}

// New returns a candidate that knows nothing about the lock, not even from an earlier start. So a
// restart never continues a lease (rule A9).
func New(cfg Config) *Machine {
	if cfg.Role == nil {
		cfg.Role = Waiter{}
	}
	usual := Terms{Holder: cfg.Holder, Meta: cfg.Meta, TTL: cfg.TTL}
	return &Machine{
		cfg: cfg, taking: cfg.Role.taking(), pace: cfg.Role.pace(), usual: usual,
		base: cfg.Incarnation, rng: protocol.Seeded(cfg.Incarnation),
	}
}

// Step handles one event and returns what the driver must do, in order. It panics if the event is
// impossible: an answer without a request, an Acquire before the last one was answered, or a
// Release without a lease.
func (c *Machine) Step(ev protocol.Event, now protocol.Now) []protocol.Action {
	var out protocol.Actions
	if c.phase == held && now.Clock >= c.lease.deadline {
		// This comes first, even before a good answer to a renewal: once told to stop, a user
		// cannot continue.
		c.lose(c.terms.Expiry(now.Clock, c.lease.end, c.lease.record.TTL), &out)
	}
	c.tooLong(now, &out)
	c.expire(now, &out)
	switch ev := ev.(type) {
	case Acquire:
		c.acquire(ev, now)
	case protocol.Cancel:
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
	case protocol.SessionOver:
		c.sessionOver(ev.Session, ev.Err, now, &out)
	case protocol.SessionExpired:
		c.sessionExpired(ev.Session, ev.Look, now)
	case protocol.SessionTroubled:
		if c.wanting() {
			c.trouble.Report(ev.Err, c.reaps(), now, &out)
		}
	case protocol.Recheck:
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
	case protocol.Tick:
	}
	// Every event ends with whatever is due by now. So no event has to trigger what follows from
	// it, and late or extra Ticks do no harm.
	c.advance(now, &out)
	c.ask(now, &out)
	// This comes last, so the user sees the object and the candidate's conclusions as one state.
	if c.obs.news {
		c.obs.news = false
		out.Add(protocol.Seen{})
	}
	c.memberships(&out)
	c.forgetTerms()
	return out
}

// advance does what is due, if no request is under way. The time to give up comes even during a
// longer backoff.
func (c *Machine) advance(now protocol.Now, out *protocol.Actions) {
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

// Wake returns when, by its clock, the driver must pass in a Tick. It returns false if only an
// event can change anything.
func (c *Machine) Wake() (time.Duration, bool) {
	wake := time.Duration(math.MaxInt64)
	if c.busy == none && (c.phase != clear && c.phase != lost || c.wanting()) {
		wake = c.due
	}
	if c.peer.open && !c.peer.asking && c.asksLeader() {
		wake = min(wake, c.peer.due)
	}
	if c.phase == held || c.phase == detaching {
		// The lease ends on time, whether or not the store has answered (rule A10).
		wake = min(wake, c.lease.deadline)
	}
	if c.acq.want == atOnce || c.phase == attaching {
		wake = min(wake, c.until)
	}
	wake = min(wake, c.settledBy())
	return wake, wake != math.MaxInt64
}

// wanting reports whether the candidate holds nothing but has work to do: get the lock, settle an
// abandoned claim, or poll.
func (c *Machine) wanting() bool {
	return c.phase == clear && (c.acq.want != nothing || c.unsettled() || c.acq.watching)
}

// settledBy returns when the candidate gives up a release or unwanted open writes. It returns the
// largest duration if there are none or a request is under way.
func (c *Machine) settledBy() time.Duration {
	switch {
	case c.busy != none:
	case c.phase == freeing:
		return c.release.until
	case c.phase == clear && c.acq.want == nothing && len(c.writes.open) > 0:
		return c.until
	}
	return math.MaxInt64
}

// Idle reports whether the candidate needs no driving until the next Acquire: it holds nothing,
// wants nothing and waits for no answer.
func (c *Machine) Idle() bool {
	return c.phase == clear && c.busy == none && !c.wanting()
}

// Busy reports whether a request is under way.
func (c *Machine) Busy() bool { return c.busy != none }

// Settled reports whether nothing is held, wanted or outstanding. The process may then exit without
// leaving anything that others must wait out.
func (c *Machine) Settled() bool {
	return c.phase == clear && c.acq.want == nothing && !c.Outstanding()
}

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
func (c *Machine) Forgettable(clock time.Duration) (ok bool, at time.Duration) {
	if !c.Idle() || c.handoff.passed || len(c.sessions.entered) > 0 {
		return false, protocol.Never
	}
	// New candidates must not repeat an error report that is due once a minute.
	at = max(c.trouble.Quiet, c.trouble.LookAt, c.trouble.TryAt)
	if c.obs.known {
		since := max(c.obs.first, c.pace.looked)
		if c.obs.claimableAt != protocol.Never {
			since = max(since, c.obs.claimableAt)
		}
		at = max(at, since+keepFor*max(c.cfg.TTL, c.obs.record.TTL))
	}
	return clock >= at, at
}
