package protocol

import (
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
)

// A PeerStatus is a leader's answer about itself to a follower that asked it. A
// follower may look at the store sooner because of it, or later; no rule rests on it.
// So an answer that is false, old or lost costs time, and nothing else.
// It may even come from a liar with a valid certificate: see Trusted.
type PeerStatus struct {
	Leading     bool   // its lease is valid, and renewed in time
	Free        bool   // its release is confirmed
	Successor   string // Free: the holder that may go first
	Holder      string
	Token       int64
	Incarnation string        // of the candidate: what its write IDs begin with
	Valid       time.Duration // what is left of its lease unless it is renewed
	Version     string        // another one whenever its leadership has changed
}

// Of reports that the word is that of the candidate and the lease that r tells of.
func (w PeerStatus) Of(r record.Record) bool {
	return w.Incarnation == r.Incarnation() && w.Holder == r.Holder && w.Token == r.Token
}

// pollState is what a follower knows from the leader itself.
type pollState struct {
	asking    bool // a question is under way
	number    int  // of it, or of the last one
	other     bool // and it is about another leader
	open      bool // this leader may be asked
	stale     bool // the store has not been looked at since it may not
	asked     time.Duration
	due       time.Duration // of the next question
	known     string        // the Version of its last word
	fails     int           // of questions, in a row
	quiet     time.Duration // no look is needed before this
	successor bool          // it said that we go first
}

// Trusted is for how many TTLs a leader's word alone may keep a follower from the store. A
// peer with a valid certificate may lie, and a follower that never looked would wait for it
// for ever. Two such times may add up: the first look after the end of a leader shows its last
// renewal, which is news, and the second one that there was none since. One look in two TTLs is a
// sixth of what following the store costs.
const Trusted = 2

// peerTries is how many questions in a row may fail before the store is asked.
const peerTries = 3

// sees takes in that the record has changed. A leader that did not answer may be
// asked again when it has renewed.
func (t *pollState) sees(before, after record.Record, now time.Duration) {
	switch same := before.Held && before.SameLease(after); {
	case !same:
		// A lease that was free and is held again was brought back by hand. Its leader knows
		// of the release only, and to hear of that anew would begin the wait anew, for ever.
		back := !before.Held && before.Token == after.Token && before.Token > 0
		*t = pollState{asking: t.asking, number: t.number, other: t.asking, open: !back}
	case t.stale: // it may have renewed before it fell silent
		t.stale = false
	case !t.open:
		t.open, t.fails, t.due, t.known = true, 0, now, ""
	}
}

// follows reports that there is a leader that can be asked instead of the store.
// A record of our own has nobody behind it to ask.
func (c *Candidate) follows() bool {
	r := c.obs.record
	return c.cfg.Peers && c.wanting() && c.obs.version != "" && r.Held && r.Address != "" && !c.cfg.mine(r)
}

// longPoll is how long the leader may keep a question: what is left of its
// lease when it answers lasts until the next answer is there.
func longPoll(ttl time.Duration) time.Duration { return ttl / 2 }

// ask asks the leader, if that is due, and drops a question that does not matter
// any more.
func (c *Candidate) ask(now Now, out *Actions) {
	t := &c.peer
	follows := c.follows()
	if t.asking && (t.other || !follows) {
		out.Add(CancelPoll{})
		t.asking, t.other = false, false
	}
	if !follows || t.asking || !t.open || now.Clock < t.due {
		return
	}
	t.asking, t.asked = true, now.Clock
	t.number++
	out.Add(PollPeer{Number: t.number, Address: c.obs.record.Address, Known: t.known, Wait: longPoll(c.obs.record.TTL), Waiting: c.acq.want != nothing})
}

// Asks reports that the question of that number is still to be answered.
func (c *Candidate) Asks(number int) bool { return c.peer.asking && c.peer.number == number }

// peerAnswered takes in the leader's word, or its silence. No case makes a lock claimable by that
// alone: at most it moves the next look. The one exception comes with a proof, a record whose
// version is the hash of it, which no liar can make.
func (c *Candidate) peerAnswered(ev PeerAnswer, now Now, out *Actions) {
	t, r := &c.peer, c.obs.record
	if !c.Asks(ev.Number) {
		return // nobody wants to know any more
	}
	t.asking = false
	w := ev.Status
	switch {
	case !c.follows(): // it is about the past
	case ev.Err != nil:
		c.unheard(now)
	case w.Incarnation == r.Incarnation() && w.Token > r.Token:
		c.lookAfter(0, now) // it knows more than we do
	// It speaks for another lease. That is no reason to believe anything of this one, neither
	// that it goes on nor that it is over.
	case !w.Of(r): // a stranger
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
		// Another may go first, and a look of everybody at this moment would only delay that.
		c.lookAfter(FirstPoll+c.rng.Jitter(Renewal(r.TTL)), now)
	default:
		c.distrust(c.rng.Jitter(c.cfg.frequent(r.TTL)), now)
	}
}

// unheard: the leader was silent.
// Silence is no sign that the leader is gone. Once or twice it is a lost packet; after that the
// store is asked, as if there were no peers.
func (c *Candidate) unheard(now Now) {
	t, r := &c.peer, c.obs.record
	t.fails++
	t.due = now.Clock + min(retry.Pause(t.fails, c.cfg.Retries), max(r.TTL/6, retry.Min))
	if t.fails >= peerTries {
		c.distrust(c.rng.Jitter(c.cfg.frequent(r.TTL)), now)
	}
}

// distrust ends the conversation with this leader, because it says nothing of use. If
// its word has kept us from looking, we look; if not, that goes on as it does anyway.
func (c *Candidate) distrust(pause time.Duration, now Now) {
	if c.peer.open = false; now.Clock < c.peer.quiet {
		c.lookAfter(pause, now)
	}
}

// lookAfter ends the conversation with this leader. The store must tell, after the pause, or
// sooner where a look was due anyway, or would be but for that leader's word: after one that failed.
func (c *Candidate) lookAfter(pause time.Duration, now Now) {
	if c.trouble.Reads > 0 {
		pause = 0 // read has it wait for as long as a failure asks for
	}
	c.peer.open, c.peer.stale, c.peer.quiet = false, true, 0
	c.pace.again = c.busy == reading
	c.pace.poll = 0
	c.due = min(c.due, now.Clock+pause)
}

// until is when a look is needed, by the leader's word, if the last one was at looked.
func (t *pollState) until(looked, ttl time.Duration) time.Duration {
	return min(t.quiet, looked+Trusted*ttl)
}

// trust puts off the next look for as long as the leader's lease lasts by its own
// word, and plans the next question. That is at once if the leader kept this one,
// so that it can tell of its end; and it need not be believed that it does.
func (c *Candidate) trust(w PeerStatus, now Now) {
	t, r := &c.peer, c.obs.record
	t.fails = 0
	// No honest leader has more left than a whole validity, so a word that claims more buys nothing.
	t.quiet = now.Clock + min(w.Valid, Validity(r.TTL))
	switch t.known {
	case "":
		t.due = now.Clock
	case w.Version:
		t.due = max(now.Clock, t.asked+longPoll(r.TTL))
	default:
		t.due = max(now.Clock, t.asked+c.cfg.frequent(r.TTL))
	}
	t.known = w.Version
	if c.busy == none {
		c.due = t.until(c.pace.looked, r.TTL)
	}
}

// PeerStatus is the answer of a candidate that leads, or has led, at a reading of the clock. It
// never says more than the record in the store. A lease under a session is valid until limit at
// most, when that is (rule D4); any other reading will do for others.
func (c *Candidate) PeerStatus(clock, limit time.Duration) PeerStatus {
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
		// A release that is not confirmed yet is none of their business: they could only look
		// too soon.
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

// Sound reports that the lease is valid and that nothing has failed since its last renewal.
// It is renewed every third of the TTL, unless its session is, and a follower is not told any
// more that it leads from late on, half a TTL after the last renewal.
func (c *Candidate) Sound(clock time.Duration) (late time.Duration, sound bool) {
	late = Never
	if ttl := c.lease.record.TTL; c.lease.record.Session == "" {
		late = c.lease.deadline - Validity(ttl) + ttl/2
	}
	return late, c.Valid(clock) && c.trouble.Err == nil
}

// Freed is the record that the confirmed release of the last lease has written, and its
// version in the store: where that is a hash of the record, they prove each other.
// A follower that has the pair from the leader can claim at once, without a look.
func (c *Candidate) Freed() (record.Record, Version) {
	return c.release.freed.record, c.release.freed.version
}
