package candidate

import (
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// A PeerStatus is a leader's answer about itself to a follower. It may make a follower read the
// store sooner or later, but no rule depends on it: a false, old or lost answer costs only
// time. Even a peer with a valid certificate may lie: see Trusted.
type PeerStatus struct {
	Leading     bool   // its lease is valid, and renewed in time
	Free        bool   // its release is confirmed
	Successor   string // Free: the holder that may go first
	Holder      string
	Token       int64
	Incarnation string        // the candidate's: its write IDs begin with it
	Valid       time.Duration // what is left of its lease unless it is renewed
	Version     string        // changes whenever its leadership does
}

// Of reports whether the answer comes from the candidate in r, about that lease.
func (w PeerStatus) Of(r record.Record) bool {
	return w.Incarnation == r.Incarnation() && w.Holder == r.Holder && w.Token == r.Token
}

// pollState is what a follower knows from the leader itself.
type pollState struct {
	asking    bool // a question is in flight
	number    int  // its number, or the last one's
	other     bool // and it is about another leader
	open      bool // this leader may be asked
	stale     bool // the store was not read since it may not be asked
	asked     time.Duration
	due       time.Duration // of the next question
	known     string        // the Version of its last answer
	fails     int           // failed questions, in a row
	quiet     time.Duration // no read is needed before this
	successor bool          // it said that we go first
}

// Trusted is how many TTLs a leader's word alone may keep a follower from the store. Otherwise
// a follower would wait forever for a liar with a valid certificate. Two such times may add up:
// the first read after a leader died shows its last renewal, which is new, and the second one
// no other. One read in two TTLs is a sixth of the cost of following the store.
const Trusted = 2

// peerTries is how many questions in a row may fail before the follower reads the store.
const peerTries = 3

// sees notes that the record has changed. A leader that did not answer may be asked again when
// it has renewed.
func (t *pollState) sees(before, after record.Record, now time.Duration) {
	switch same := before.Held && before.SameLease(after); {
	case !same:
		// A free lease held again was restored by hand. Its leader knows only of the release,
		// and hearing of it again would restart the wait, forever.
		back := !before.Held && before.Token == after.Token && before.Token > 0
		*t = pollState{asking: t.asking, number: t.number, other: t.asking, open: !back}
	case t.stale: // it may have renewed before it fell silent
		t.stale = false
	case !t.open:
		t.open, t.fails, t.due, t.known = true, 0, now, ""
	}
}

// asksLeader reports whether there is a leader to ask instead of the store. A record of this
// candidate's own has none.
func (c *Machine) asksLeader() bool {
	follower, _ := c.cfg.Role.(Follower)
	r := c.obs.record
	return follower.Peers && c.wanting() && c.obs.version != "" && r.Held && r.Address != "" && !c.cfg.mine(r)
}

// longPoll returns how long the leader may keep a question. What is then left of its lease
// lasts until the next answer.
func longPoll(ttl time.Duration) time.Duration { return ttl / 2 }

// ask sends the leader a question if one is due, and drops one that no longer matters.
func (c *Machine) ask(now protocol.Now, out *protocol.Actions) {
	t := &c.peer
	asks := c.asksLeader()
	if t.asking && (t.other || !asks) {
		out.Add(CancelPoll{})
		t.asking, t.other = false, false
	}
	if !asks || t.asking || !t.open || now.Clock < t.due {
		return
	}
	t.asking, t.asked = true, now.Clock
	t.number++
	out.Add(PollPeer{Number: t.number, Address: c.obs.record.Address, Known: t.known, Wait: longPoll(c.obs.record.TTL), Waiting: c.acq.want != nothing})
}

// Asks reports whether the question with that number is unanswered.
func (c *Machine) Asks(number int) bool { return c.peer.asking && c.peer.number == number }

// peerAnswered handles the leader's answer or its silence. An answer only moves the next read,
// and makes no lock claimable. The exception comes with a proof: a record whose hash is its
// version, which no liar can forge.
func (c *Machine) peerAnswered(ev PeerAnswer, now protocol.Now, out *protocol.Actions) {
	t, r := &c.peer, c.obs.record
	if !c.Asks(ev.Number) {
		return // nobody waits for it any more
	}
	t.asking = false
	w := ev.Status
	switch {
	case !c.asksLeader(): // it is about an earlier leader
	case ev.Err != nil:
		c.unheard(now)
	case w.Incarnation == r.Incarnation() && w.Token > r.Token:
		c.lookAfter(0, now) // it knows more than this candidate
	// It speaks for another lease. This one may be valid or may have ended.
	case !w.Of(r):
		c.distrust(0, now)
	case w.Leading && w.Valid > 0:
		c.trust(w, now)
	case w.Free && (w.Successor == "" || w.Successor == c.cfg.Holder):
		c.lookAfter(0, now)
		t.successor = w.Successor != ""
		if p := ev.Proof; p != nil && c.busy == none && !p.Record.Held && p.Record.Token == r.Token {
			c.found(*p, now, out)
		}
	case w.Free:
		// Another one may go first, and everybody's reads would only delay it.
		c.lookAfter(protocol.FirstPoll+c.rng.Jitter(protocol.Renewal(r.TTL)), now)
	default:
		c.distrust(c.rng.Jitter(c.pace.frequent(r.TTL)), now)
	}
}

// unheard handles a silent leader, which need not be dead. Once or twice it is a lost packet;
// after that the follower reads the store, as if there were no peers.
func (c *Machine) unheard(now protocol.Now) {
	t, r := &c.peer, c.obs.record
	t.fails++
	t.due = now.Clock + min(protocol.Pause(t.fails, c.cfg.Retries), max(r.TTL/6, protocol.MinPause))
	if t.fails >= peerTries {
		c.distrust(c.rng.Jitter(c.pace.frequent(r.TTL)), now)
	}
}

// distrust stops asking this leader, because it says nothing useful. If its word has kept this
// follower from reading, that ends after the pause.
func (c *Machine) distrust(pause time.Duration, now protocol.Now) {
	if c.peer.open = false; now.Clock < c.peer.quiet {
		c.lookAfter(pause, now)
	}
}

// lookAfter stops asking this leader, and reads the store after the pause. It reads sooner if a
// read was due anyway, or would be without the leader's word because the last one failed.
func (c *Machine) lookAfter(pause time.Duration, now protocol.Now) {
	if c.trouble.Reads > 0 {
		pause = 0 // read waits for as long as a failure requires
	}
	c.peer.open, c.peer.stale, c.peer.quiet = false, true, 0
	c.pace.again = c.busy == reading
	c.pace.poll = 0
	c.due = min(c.due, now.Clock+pause)
}

// until returns when the next read is needed, by the leader's word, if the last one was at
// looked.
func (t *pollState) until(looked, ttl time.Duration) time.Duration {
	return min(t.quiet, looked+Trusted*ttl)
}

// trust puts off the next read until the leader's lease ends by its own word, and plans the
// next question. A leader that kept this one is asked again at once, so it can report its end.
// Nothing depends on whether it does.
func (c *Machine) trust(w PeerStatus, now protocol.Now) {
	t, r := &c.peer, c.obs.record
	t.fails = 0
	// No honest leader has more than a whole validity left, so claiming more gains nothing.
	t.quiet = now.Clock + min(w.Valid, protocol.Validity(r.TTL))
	switch t.known {
	case "":
		t.due = now.Clock
	case w.Version:
		t.due = max(now.Clock, t.asked+longPoll(r.TTL))
	default:
		t.due = max(now.Clock, t.asked+c.pace.frequent(r.TTL))
	}
	t.known = w.Version
	if c.busy == none {
		c.due = t.until(c.pace.looked, r.TTL)
	}
}

// PeerStatus returns a leader's answer, or a former leader's, at this reading of the clock. It
// never says more than the stored record. A lease under a session is valid until limit at most:
// the session's end (rule D4). Without a session, limit is ignored.
func (c *Machine) PeerStatus(clock, limit time.Duration) PeerStatus {
	until := c.lease.deadline
	if c.lease.record.Session != "" {
		until = limit
	}
	r := c.lease.record
	w := PeerStatus{Holder: r.Holder, Token: r.Token, Incarnation: r.Incarnation()}
	if r.WriteID == "" {
		w.Version = "none"
		return w
	}
	late, sound := c.Sound(clock)
	w.Leading, w.Free = sound && clock < min(late, until), c.release.freed.confirmed
	state := "over"
	switch {
	case w.Leading, c.phase == freeing && c.release.resigned:
		// An unconfirmed release is not announced: followers could only read too soon.
		state = "leading"
	case c.Valid(clock) && clock < until:
		state = "late"
	case w.Free:
		state = "free"
		w.Successor = c.release.freed.record.Successor
	}
	if w.Leading {
		w.Valid = until - clock
	}
	w.Version = strconv.FormatInt(w.Token, 10) + " " + state
	return w
}

// Sound reports whether the lease is valid and nothing has failed since its last renewal. A
// lease without a session is renewed every third of the TTL. From late on, half a TTL after the
// last renewal, followers no longer hear of its leadership.
func (c *Machine) Sound(clock time.Duration) (late time.Duration, sound bool) {
	late = protocol.Never
	if ttl := c.lease.record.TTL; c.lease.record.Session == "" {
		late = c.lease.deadline - protocol.Validity(ttl) + ttl/2
	}
	return late, c.Valid(clock) && c.trouble.Err == nil
}

// Freed returns the record of the last lease's confirmed release, with its version in the
// store. If the version is the record's hash, they prove each other, and a follower with both
// can claim without a read.
func (c *Machine) Freed() (record.Record, protocol.Version) {
	return c.release.freed.record, c.release.freed.version
}
