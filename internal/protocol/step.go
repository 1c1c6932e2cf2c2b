package protocol

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// An Event is something that happened: the user asked, the store answered, time
// passed.
type Event interface{ event() }

// The events.
type (
	// Acquire: the user wants the lock; with Wait, even if that takes long. The
	// candidate answers with one Granted, Refused or Failed.
	Acquire struct {
		Wait bool
		// Session is the name of the session that the lease is to be under: it is valid,
		// and has been confirmed to exist (rule D2). Empty: the lease is renewed by itself.
		Session string
	}
	// Cancel: the user no longer waits for an acquisition, or it makes no sense any
	// more, because of Err.
	Cancel struct{ Err error }
	// Release: the user has stopped all work under the lease. The candidate
	// answers with one Released.
	Release struct {
		Successor string // the holder that may go first; empty: none
		// Pass: another user of this candidate waits, and will Acquire next.
		Pass bool
	}
	// Drop: nobody is there after all to take what a Release has passed on.
	Drop struct{}
	// Watch: look at the lock even while nobody wants it, or no longer.
	Watch struct{ On bool }
	// GiveUp: the lease is no longer valid, though the work under it has not
	// stopped. It is not renewed, and a Release must still come.
	GiveUp struct{ Err error } // why, if there is more to say
	// ReadDone is the answer to a Read.
	ReadDone struct {
		Shown   Shown
		Version Version       // Found
		Record  record.Record // Found
		Date    time.Time     // Absent: the store's own time, if it said
		Age     time.Duration // Found: since the record was written, by the store's own clock; 0 if it does not say
		Err     error         // Foreign, Unread
		Fatal   bool          // Unread: to try again is pointless (access denied)
	}
	// WriteDone is the answer to a Write. Only a clean success has no Err: all
	// else, a refusal included, leaves it open whether the write has landed
	// (rule A6).
	WriteDone struct {
		Version Version
		Epoch   int64 // the number of the object that was written, if it has one
		Err     error
		Void    bool // nothing of it has landed, or will
		Fatal   bool // and to try again is pointless
	}
	// Checked is the answer to a Check: whether the session's heartbeat says that it goes on.
	Checked struct {
		Session   string
		Held      bool
		Abandoned bool  // Held: it looks as if its sender was gone, which is for people only
		Err       error // it is not known
	}
	// SessionOver: nothing is valid any more under a session of ours, because of Err.
	// This candidate's lease is under it, or was to be, or once was.
	SessionOver struct {
		Session string
		Err     error
	}
	// SessionExpired: a session of others is over for good (rule D3): it was closed, or
	// killed, or does not exist. Look: that was a while ago, so that others may have
	// taken the lock since.
	SessionExpired struct {
		Session string
		Look    bool
	}
	// SessionTroubled: the store does not say whether the session goes on whose end is waited
	// for. Nothing was asked for this candidate, but it is its user who waits.
	SessionTroubled struct{ Err error }
	// Recheck: the lock may have changed, so it is worth a look.
	Recheck struct{}
	// RenewSoon: the next renewal has something to tell, and is to come soon.
	RenewSoon struct{}
	// Retune: from the next write and the next pause on, these are the TTL and
	// the intervals.
	Retune struct{ TTL, Frequent, Infrequent time.Duration }
	// Sighted: somebody else's look, which was sent at that time, had this answer.
	Sighted struct {
		Answer ReadDone
		Sent   time.Duration
	}
	// PeerAnswer is the answer to an PollPeer. One that comes after a CancelPoll is ignored.
	PeerAnswer struct {
		Number int // of the PollPeer
		Status PeerStatus
		Err    error // there was none
		// Proof is what the store held when the release was confirmed, if that came
		// with the word and its version is the hash of it: as good as a look.
		Proof *ReadDone
	}
	// Tick: the clock has reached Wake.
	Tick struct{}
)

func (Acquire) event()         {}
func (Cancel) event()          {}
func (Release) event()         {}
func (Drop) event()            {}
func (Watch) event()           {}
func (GiveUp) event()          {}
func (ReadDone) event()        {}
func (WriteDone) event()       {}
func (Checked) event()         {}
func (SessionOver) event()     {}
func (SessionExpired) event()  {}
func (SessionTroubled) event() {}
func (Recheck) event()         {}
func (RenewSoon) event()       {}
func (Retune) event()          {}
func (Sighted) event()         {}
func (PeerAnswer) event()      {}
func (Tick) event()            {}

// Shown is what the answer to a Read showed.
type Shown int

// The results of a Read.
const (
	Unread  Shown = iota // nothing: the read failed
	Found                // a record
	Same                 // the version that Read.Unless named
	Absent               // no object
	Foreign              // an object that is not a record we understand
)

// An Action is something for the driver to do or to pass on to the user.
type Action interface{ action() }

// The actions.
type (
	// Read asks for the object, unless its version is still Unless.
	Read struct {
		Unless  Version
		Timeout time.Duration
	}
	// Write asks for a conditional write of Record over exactly the version
	// Expect, which showed Over; where Expect is empty, only if there is no object
	// (rule A1).
	Write struct {
		Op      Op
		Record  record.Record
		Over    record.Record
		Expect  Version
		Timeout time.Duration
	}
	// Check asks for the heartbeat of the session that the lock is held under, for an
	// acquisition that does not wait.
	Check struct {
		Session string
		Timeout time.Duration
	}
	// Granted: the lease has begun. Lease, Valid and Deadline tell of it.
	Granted struct{}
	// Renewed: the lease's deadline has moved.
	Renewed struct{}
	// Troubled: the store has failed for the third time in a row, or has gone on to
	// fail for a minute since that was told. A Reaper says so at each further failure.
	Troubled struct{ Err error }
	// Refused: the lock is another's, and the user did not want to wait. Abandoned is what
	// Checked has said.
	Refused struct {
		Record    record.Record
		Abandoned bool
	}
	// Failed: the acquisition ended without the lock.
	Failed struct{ Err error }
	// Waiting: the acquisition waits for this holder. Once for each holder.
	Waiting struct{ Record record.Record }
	// Seen: the object is in a state that was not seen before, which Observed
	// tells.
	Seen struct{}
	// Expired: this record has not been renewed in time, so the lock may be
	// taken. Once for each version.
	Expired struct{ Record record.Record }
	// Unreadable: a look failed, or showed what is not a record.
	Unreadable struct{ Err error }
	// Vanished: somebody deleted the object of which this was the last record.
	Vanished struct{ Record record.Record }
	// Lost: the lease ended, because of Err. The work must stop now.
	Lost struct{ Err error }
	// Released: the release is settled; Err says why the lock may not be free.
	Released struct{ Err error }
	// Reaped: the lock that a Reaper wanted to be over is, and this is its last record.
	Reaped struct{ Record record.Record }
	// SessionOrphan: a record that names this session of ours may be there, or may come,
	// and nobody will free it: only the end of the session does (rule D6).
	SessionOrphan struct{ Session string }
	// Unnamed: the lock does not name this session of ours any more: see Membership.Released.
	Unnamed struct{ Session string }
	// Left: nothing of this candidate is under this session of ours any more, or may yet be.
	Left struct{ Session string }
	// PollPeer asks the leader at Address for its PeerStatus, which it may keep for as long
	// as Wait while that is still Known. Waiting: the user waits for the lock.
	PollPeer struct {
		Number  int
		Address string
		Known   string
		Wait    time.Duration
		Waiting bool
	}
	// CancelPoll: the PollPeer under way does not matter any more, and gets no PeerAnswer.
	CancelPoll struct{}
)

func (Read) action()          {}
func (Write) action()         {}
func (Check) action()         {}
func (Granted) action()       {}
func (Renewed) action()       {}
func (Troubled) action()      {}
func (Refused) action()       {}
func (Failed) action()        {}
func (Waiting) action()       {}
func (Vanished) action()      {}
func (Seen) action()          {}
func (Expired) action()       {}
func (Unreadable) action()    {}
func (Lost) action()          {}
func (Released) action()      {}
func (Reaped) action()        {}
func (SessionOrphan) action() {}
func (Unnamed) action()       {}
func (Left) action()          {}
func (PollPeer) action()      {}
func (CancelPoll) action()    {}

// Op is what a Write means. All are conditional writes of one record; a layout
// may carry them out differently.
type Op int

// The kinds of Write.
const (
	Claim Op = iota // acquire: a new token
	Renew           // the same lease, for another TTL
	Free            // release, the token kept
)

func (o Op) String() string { return [...]string{"claim", "renew", "free"}[o] }

// Step takes an event at a time and returns what to do, in order. It panics on
// an event that cannot be: an answer to nothing, a second Acquire before the
// first was answered, a Release of no lease.
func (c *Candidate) Step(ev Event, now Now) []Action {
	var out actions
	if c.phase == held && now.Clock >= c.deadline {
		// Before anything else, even a renewal's good answer: who has been
		// told "no longer" must not be told "again".
		c.lose(ErrExpired, &out)
	}
	c.tooLong(now, &out)
	switch ev := ev.(type) {
	case Acquire:
		c.acquire(ev, now)
	case Cancel:
		c.cancel(ev.Err, now, &out)
	case Release:
		c.successor = ev.Successor
		if !ev.Pass || !c.pass(now, &out) {
			c.handoff.on = ev.Pass
			c.release(now)
		}
	case Drop:
		c.drop(now)
	case Watch:
		c.watch(ev.On)
	case GiveUp:
		if c.phase == held {
			why := ErrGivenUp
			if ev.Err != nil {
				why = fmt.Errorf("%w: %w", ErrGivenUp, ev.Err)
			}
			c.lose(why, &out)
		}
	case ReadDone:
		c.finish(reading)
		c.readDone(ev, now, &out)
	case WriteDone:
		c.finish(claiming, renewing, releasing, reaping)
		c.writeDone(ev, now, &out)
	case Checked:
		c.finish(checking)
		c.checked(ev, now, &out)
	case SessionOver:
		c.sessionOver(ev.Session, ev.Err, now, &out)
	case SessionExpired:
		c.sessionExpired(ev.Session, ev.Look, now)
	case SessionTroubled:
		if c.wanting() {
			c.report(ev.Err, now, &out)
		}
	case Recheck:
		if c.wanting() {
			c.obs.fresh, c.due, c.again = false, now.Clock, c.busy == reading
		}
	case RenewSoon:
		c.renewSoon(now)
	case Retune:
		c.cfg.TTL, c.cfg.Frequent, c.cfg.Infrequent = ev.TTL, ev.Frequent, ev.Infrequent
	case Sighted:
		c.sighted(ev, now)
	case PeerAnswer:
		c.peerAnswered(ev, now, &out)
	case Tick:
	}
	c.advance(now, &out)
	c.ask(now, &out)
	if c.news {
		c.news = false
		out.add(Seen{})
	}
	c.memberships(&out)
	return out
}

type actions []Action

func (a *actions) add(x Action) { *a = append(*a, x) }

// finish takes note that the request under way, one of these kinds, was answered.
func (c *Candidate) finish(kinds ...inflight) {
	if !slices.Contains(kinds, c.busy) {
		panic("protocol: an answer to nothing")
	}
	c.answered, c.busy = c.busy, none
}

func (c *Candidate) acquire(ev Acquire, now Now) {
	if c.want != nothing || c.phase == held || c.phase == lost {
		panic("protocol: Acquire while " + c.phase.String())
	}
	c.want, c.session = atOnce, ev.Session
	c.member.enter(ev.Session)
	if ev.Wait {
		c.want = eventually
	}
	// Knowledge of a free lock may be old, but then the write is refused and tells;
	// so a lock that nobody else uses costs one request. Knowledge of a holder may
	// be old too, so the lock is read again before the caller is told.
	c.obs.fresh = c.obs.known && (c.obs.version != "" || c.cfg.Tokenless) && !c.obs.record.Held
	if c.spent() {
		c.obs.fresh = false // no write would tell that it has been put right
	}
	if c.passed && c.mine(c.obs.record) {
		c.obs.fresh = true // for a moment it is nobody's
	}
	if c.cfg.Numbered && now.Clock-max(c.obs.first, c.pace.looked) > recent {
		c.obs.fresh = false // the next number may have been used and collected since
	}
	c.trouble.forget()
	c.until = now.Clock + c.cfg.TTL // if it does not wait
	c.reported, c.due, c.pace.poll, c.passed, c.again = record.Record{}, 0, 0, false, false
	if s := &c.handoff; ev.Wait && s.on && s.over(c.rest()) {
		// Those who wait elsewhere cannot see a lock that is free for a moment only.
		c.obs.fresh, c.due = false, s.ended+c.rest()
		s.on, s.rested = false, true
	}
}

func (c *Candidate) watch(on bool) {
	if on && !c.watching && c.want == nothing && c.phase == clear {
		c.obs.fresh, c.due = false, 0
	}
	c.watching = on
}

func (c *Candidate) cancel(err error, now Now, out *actions) {
	if err == nil {
		err = ErrCancelled
	}
	if c.want != nothing { // else the answer and the cancellation crossed
		c.fail(err, now, out)
	}
}

// fail ends an acquisition. A claim that may have landed, or may yet land, is
// settled all the same: if it lands, it is released.
func (c *Candidate) fail(err error, now Now, out *actions) {
	c.want = nothing
	c.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	out.add(Failed{err})
}

func (c *Candidate) release(now Now) {
	if c.phase != held && c.phase != lost {
		panic("protocol: Release while " + c.phase.String())
	}
	c.resigned = c.phase == held
	// A release promises a TTL of zero, so validity ends first (rule A7), by the
	// change of phase. A lease that was lost because time ran out may still stand
	// in the record, and to free it spares the next holder the wait.
	c.startFreeing(now)
}

func (c *Candidate) startFreeing(now Now) {
	c.phase = freeing
	// From here on no earlier write may be taken for a lease again: the release
	// may land after we have looked, and the next lease needs a token of its own
	// (rule A8).
	c.attempts = nil
	c.until = now.Clock + c.cfg.TTL
	c.due = now.Clock
	c.trouble.forget()
	c.deleting = false
}

func (c *Candidate) lose(cause error, out *actions) {
	c.phase = lost
	out.add(Lost{cause})
}

// advance does what is due, if no request is under way.
func (c *Candidate) advance(now Now, out *actions) {
	if c.busy != none || now.Clock < c.due && (!c.settling() || now.Clock < c.until) {
		return
	}
	if c.stray() {
		c.orphan = true
		c.startFreeing(now)
	}
	switch {
	case c.phase == held:
		c.keep(now, out)
	case c.phase == freeing:
		c.free(now, out)
	case c.wanting():
		c.seek(now, out)
	}
}

// seek takes the next step towards the lock, or towards the certainty that an
// abandoned claim cannot land any more.
func (c *Candidate) seek(now Now, out *actions) {
	switch {
	case c.want == nothing && len(c.attempts) > 0 && now.Clock >= c.until:
		c.abandon(out)
		c.attempts = nil // should it land yet, the others wait out its TTL
	case !c.obs.fresh:
		c.read(MaxRequest, now, out)
	case c.want == nothing && len(c.attempts) == 0:
		c.expired(now, out)
		c.wait(now, out)
	case c.cfg.Reaper && !c.obs.held():
		c.want = nothing
		out.add(Reaped{c.obs.record})
	case c.obs.version == "" && c.cfg.Existing:
		c.fail(ErrAbsent, now, out)
	case c.obs.version != "" && c.cfg.Fresh:
		c.fail(ErrUsed, now, out)
	case c.spent() && !c.cfg.Reaper:
		c.fail(fmt.Errorf("%w: it is %d, and %d is the last one", ErrTooLarge, c.obs.record.Token, int64(record.LastToken)), now, out)
	case c.tired():
		c.fail(c.trouble.err, now, out)
	case now.Clock >= c.obs.claimableAt && !c.stuck():
		c.expired(now, out)
		if !c.resting(now) {
			c.claim(now, out)
		}
	case c.want == atOnce && c.obs.version == "":
		c.fail(ErrVanished, now, out)
	case c.want == atOnce && c.uncertain():
		c.busy = checking
		out.add(Check{Session: c.obs.record.Session, Timeout: min(MaxRequest, c.cfg.TTL)})
	case c.want == atOnce:
		c.want = nothing
		out.add(Refused{Record: c.obs.record})
	default:
		c.expired(now, out)
		c.wait(now, out)
	}
}

// stuck reports that there is a record which this candidate cannot take over, however
// old it is.
func (c *Candidate) stuck() bool {
	return c.cfg.WriteOnce && !c.cfg.Sweep && c.obs.held()
}

// expired tells, once, that a holder is late.
func (c *Candidate) expired(now Now, out *actions) {
	if o := &c.obs; now.Clock >= o.claimableAt && o.version != "" && o.record.Held && !o.expired && !c.mine(o.record) {
		o.expired = true
		out.add(Expired{o.record})
	}
}

func (c *Candidate) read(timeout time.Duration, now Now, out *actions) {
	if c.due = c.trouble.lookAt; now.Clock < c.due {
		return
	}
	c.busy = reading
	unless := c.obs.version
	if c.cfg.Numbered && c.spent() {
		unless = "" // what is put right is written over, and is not the next number
	}
	if c.cfg.Numbered && c.phase == clear && len(c.attempts) > 0 {
		// Where the number that was seen was collected, a request that was late may have made it
		// anew. It says nothing of a claim of ours with the next one: the highest number does.
		unless = ""
	}
	if c.cfg.Numbered && c.obs.held() && c.obs.record.Session != "" {
		// "The next number is not there" may mean that it was collected. Otherwise a claim
		// would find that out, but under a session none is sent before it is over.
		unless = ""
	}
	out.add(Read{Unless: unless, Timeout: timeout})
}

// claim writes a record with the next token over exactly what was seen.
func (c *Candidate) claim(now Now, out *actions) {
	if c.cfg.Reaper {
		c.reap(now, out)
		return
	}
	r := c.record(now)
	r.Session = c.session
	r.Token, r.AcquiredAt, r.Unknown, r.Previous = c.next(), now.Wall, c.obs.record.Unknown, c.obs.record.Epoch
	// An answer that takes longer than half a TTL is no use: see adopt.
	c.write(claiming, Write{Op: Claim, Record: r, Timeout: min(MaxRequest, c.cfg.TTL/2)}, now, out)
}

// keep takes the next step to keep the lease: a renewal, or the look that tells
// what became of the last one.
func (c *Candidate) keep(now Now, out *actions) {
	left := c.deadline - now.Clock
	if c.cfg.WriteOnce || c.session != "" {
		c.due = c.deadline
		return
	}
	if !c.obs.fresh {
		c.read(min(MaxRequest, c.cfg.TTL/6, left), now, out)
		return
	}
	if c.resting(now) {
		return
	}
	r := c.record(now)
	r.Token, r.AcquiredAt, r.Unknown, r.Previous = c.lease.Token, c.lease.AcquiredAt, c.lease.Unknown, c.lease.Previous
	// The write may land at once and its answer never come, and from then on the
	// others count by it. If it promises less, believe it from now on (rule A7).
	c.deadline = min(c.deadline, now.Clock+Validity(r.TTL))
	c.write(renewing, Write{Op: Renew, Record: r, Timeout: min(MaxRequest, Renewal(r.TTL), left)}, now, out)
}

// free sends the release, or the look that tells what became of the last one.
func (c *Candidate) free(now Now, out *actions) {
	switch {
	case now.Clock >= c.until:
		c.abandon(out)
		c.released(ErrUnsettled, out)
	case !c.obs.fresh:
		c.read(MaxRequest, now, out)
	case !c.obs.held() || !c.mine(c.obs.record):
		c.released(nil, out) // it is free, or it has passed to another
	case c.obs.record.Session != "" && (c.obs.record.Session == c.over || c.obs.record.Session == c.ended):
		c.released(nil, out) // what it names ends without that
	case c.cfg.Tokenless && (c.deleting || c.deadline-now.Clock < c.cfg.TTL/enoughLeft):
		// The record is deleted, and no condition would keep a delete that comes
		// late from removing the next holder's. So none is sent when too little is
		// left, no second one while the first may still be on its way, and till then
		// not even we take the lock anew.
		c.released(ErrTooLate, out)
	case c.resting(now):
	default:
		r := c.obs.record
		r.Held, r.Session, r.WriteID, r.RenewedAt, r.ExpiresAt = false, "", c.writeID(), now.Wall, now.Wall
		r.Successor = c.successor
		timeout := min(MaxRequest, Renewal(r.TTL))
		if c.cfg.Tokenless {
			timeout, c.deleting = min(timeout, (c.deadline-now.Clock)/2), true
		}
		c.write(releasing, Write{Op: Free, Record: r, Timeout: timeout}, now, out)
	}
}

func (c *Candidate) released(err error, out *actions) {
	c.phase, c.due, c.left = clear, 0, ""
	if err != nil {
		c.left = c.obs.version
	}
	if err != nil && c.deleting {
		// A delete that is on its way lands within the lease that it was sent under or never. It
		// would remove the next holder's marker, so till then not even we take the lock anew.
		c.obs.claimableAt = max(c.obs.claimableAt, c.deadline)
	}
	if !c.orphan {
		if err == nil {
			c.announce()
		}
		out.add(Released{err})
	}
	c.orphan = false
}

// record is what every record that is written begins with.
func (c *Candidate) record(now Now) record.Record {
	return record.Record{
		Held: true, Holder: c.cfg.Holder, Address: c.cfg.Address, TTL: c.cfg.TTL, Meta: c.cfg.Meta,
		Layout: c.cfg.Layout, WriteID: c.writeID(), RenewedAt: now.Wall, ExpiresAt: now.Wall.Add(c.cfg.TTL),
	}
}

// write sends w on the condition that the object has the version that was seen (rule A1).
func (c *Candidate) write(kind inflight, w Write, now Now, out *actions) {
	w.Expect, w.Over = c.obs.version, c.obs.record
	// This reading of the clock is older than the first byte (rule A4).
	c.sent = attempt{first: c.seq, last: c.seq, expect: w.Expect, record: w.Record, t0: now.Clock}
	if kind != releasing && kind != reaping { // a free record needs no owner
		c.remember(c.sent, out)
	}
	c.busy = kind
	out.add(w)
}
