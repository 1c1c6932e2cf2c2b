package sim

import (
	"fmt"
	"strings"
	"time"
)

// The promises, as Result names them.
const (
	P1       = "P1"       // tokens grow, and each is one lease's
	P2       = "P2"       // at most one lease is valid
	Fence    = "fence"    // the resource never goes back
	Absence  = "existing" // who may not create the object does not
	Ended    = "ended"    // who was told that its lease is over is not told otherwise
	Foreign  = "foreign"  // what is no record of ours is left alone
	Highest  = "highest"  // the highest epoch is never deleted
	Liveness = "liveness" // who waits gets the lock in time
	Budget   = "budget"   // of requests
	Sense    = "sense"    // the state machine does not panic
)

// promises is what is remembered to tell whether they are kept.
type promises struct {
	broken, how string // the first that was not
	claims      []claim
	top         int64         // the largest token of a claim that landed
	last        int64         // the largest token of a lease that was granted
	claimed     time.Duration // when the last claim landed
	deleted     bool          // somebody has deleted the object
	excused     bool          // and then P1 was broken in the one way in which it may be
}

// A claim landed where it counts, and so began a lease.
type claim struct {
	incarnation string
	token       int64
	created     bool // the object
	granted     bool
}

// fault tells of a promise that was broken.
func (w *world) fault(promise, format string, args ...any) {
	if w.promises.broken == "" {
		w.promises.broken = promise
		w.promises.how = fmt.Sprintf("at %.3f s ", w.now.Seconds()) + fmt.Sprintf(format, args...)
		w.logf("BROKEN: %s: %s", promise, w.promises.how)
	}
}

// oneLease checks P2: at most one lease is valid at any instant. A lease can begin to be valid
// only by an event, so it is enough to look after each.
func (w *world) oneLease() {
	var holder *member
	for _, m := range w.members {
		if !m.c.Valid(w.clock(m)) {
			m.ended = m.claim
			continue
		}
		if m.ended == m.claim {
			w.fault(Ended, "the lease of %v is valid once more", m)
		}
		if holder != nil && w.arm != Far && !w.unseen(holder, m) {
			w.fault(P2, "%v and %v hold valid leases", holder, m)
		}
		holder = m
	}
}

// unseen reports that two may hold leases because somebody has deleted the object: one
// of them did not know that there was another. Who has seen the other's record before the
// object vanished waits for the end of its lease before it creates the object.
func (w *world) unseen(a, b *member) bool {
	if !w.promises.deleted || w.existing {
		return false
	}
	if a.claim > b.claim {
		a, b = b, a
	}
	lease, seen := a.c.Lease(), b.vanished
	return !w.promises.claims[b.claim].created || !lease.SameLease(seen) || lease.TTL != seen.TTL
}

// claimed checks P1: the tokens of claims that landed strictly grow.
//
// With the object a deletion by hand takes the token away, and what then is promised is less:
// whoever creates the object starts at the store's time, so its token is the largest if it
// saw that there is no object in a later second than that of the last claim. With
// Existing nobody creates it, and everything is promised.
func (w *world) claimed(r *request, number int64) {
	p := &w.promises
	record := r.from.write.Record
	mark, _, _ := strings.Cut(record.WriteID, ".")
	if len(p.claims) == 0 {
		p.claims = append(p.claims, claim{}) // so that 0 is none
	}
	p.claims = append(p.claims, claim{incarnation: mark, token: record.Token, created: r.only.Absent()})
	late := p.deleted && !w.existing && r.only.Absent() && r.from.absent/time.Second <= p.claimed/time.Second
	p.claimed = w.now
	switch {
	case w.cfg.Tokenless:
	case number > 0 && record.Token != number:
		w.fault(P1, "a claim landed with token %d in epoch %d", record.Token, number)
	case record.Token > p.top:
		p.top = record.Token
	case late || p.excused:
		p.excused = true
	default:
		w.fault(P1, "a claim landed with token %d after %d", record.Token, p.top)
	}
	if w.existing && p.deleted {
		w.fault(Absence, "the object was created by a claim of %s", mark)
	}
}

// grant checks P1 once more, for leases: each has a claim of its own that landed, no two
// have one token, and where no clock is beyond the bound they come in order.
func (w *world) grant(m *member) {
	w.granted++
	r, p := m.c.Lease(), &w.promises
	m.claim = 0
	for i := len(p.claims) - 1; i > 0 && m.claim == 0; i-- {
		if p.claims[i].incarnation == r.Incarnation() && p.claims[i].token == r.Token && !p.claims[i].granted {
			m.claim = i
			p.claims[i].granted = true
		}
	}
	switch {
	case m.claim == 0:
		w.fault(P1, "%v was granted token %d, which no claim has brought or another lease has had", m, r.Token)
	case w.cfg.Tokenless && r.Token != 0:
		w.fault(P1, "%v was granted token %d where there are none", m, r.Token)
	case !w.cfg.Tokenless && r.Token <= p.last && w.arm != Far && !p.excused && (w.existing || !p.deleted):
		w.fault(P1, "%v was granted token %d after %d", m, r.Token, p.last)
	}
	p.last = max(p.last, r.Token)
}

// resource is what the leases protect. It looks at tokens only, and must not go back from
// one lease to one before it.
type resource struct {
	token int64
	claim int // of the last write that it took
}

// work lets a holder write to the resource, if its lease is valid now. The write may
// arrive at any time.
func (w *world) work(m *member) {
	if w.cfg.Tokenless || !m.c.Valid(w.clock(m)) {
		return
	}
	token, claim := m.c.Lease().Token, m.claim
	w.after(w.pick(5*time.Millisecond, 100*time.Millisecond, 2*time.Second, 15*time.Second), nil, func() { w.arrived(token, claim) })
}

func (w *world) arrived(token int64, claim int) {
	s := &w.resource
	if claim < s.claim {
		w.met(StaleWrite, token)
	}
	switch {
	case w.fenced && token < s.token: // refused (rule A11)
		return
	case claim < s.claim && !w.promises.excused:
		w.fault(Fence, "the resource went back to a lease with token %d", token)
	}
	s.token, s.claim = token, claim
	w.logf("the resource takes a write with token %d", token)
}
