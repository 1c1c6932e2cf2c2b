package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// The promises, as Result names them.
const (
	P1       = "P1"       // tokens grow, and each is one lease's
	P2       = "P2"       // at most one lease is valid
	D1       = "D1"       // the name of a session is used once
	D2       = "D2"       // no lock names a session before that exists
	D3       = "D3"       // a session that is valid is ended by nobody else
	D6       = "D6"       // no lock names a session that goes on, while nobody holds it
	D7       = "D7"       // all leases under a session end before anything is sent about its end
	Fence    = "fence"    // the resource never goes back
	Absence  = "existing" // who may not create the object does not
	Ended    = "ended"    // who was told that its lease is over is not told otherwise
	Foreign  = "foreign"  // what is no record of ours is left alone
	Lease    = "lease"    // the only owner of a detached lease can go on with it
	Highest  = "highest"  // the highest epoch is never deleted
	Liveness = "liveness" // who waits gets the lock in time
	Budget   = "budget"   // of requests
	Pace     = "pace"     // no more requests than the pauses allow, while something fails
	Prompt   = "prompt"   // then a free lock is taken within seconds
	Looks    = "looks"    // peers do not keep a follower from looking at the store
	Returns  = "returns"  // each call returns once, in time, and says what is so
	Remember = "remember" // a record tells of the leases before it, and of none else
	Sense    = "sense"    // the state machine does not panic
	Terms    = "terms"    // what an acquisition asks for holds for its lease, and for no other
	Meta     = "meta"     // a record carries the changes of which its holder is told that they have landed
	Rest     = "rest"     // a lock that rests is left alone
	Seats    = "V"        // the seats of a semaphore that are used are not more than there are
	Tokens   = "T"        // the tokens of its grants grow, and each is one grant's
	Fair     = "F"        // nobody is granted a seat before one who came first and waits
	Live     = "L"        // an entry of a session that goes on is taken out by its owner only
	Orphaned = "O"        // nothing of such a session is there that nobody settles
	Entries  = "entries"  // each entry is what its owner asked for, and it gives nothing away that it uses
	Idle     = "idle"     // no seat is free while somebody waits for it
	Size     = "size"     // a semaphore keeps its size
)

// A ledger checks what is promised of locks and sessions, by what has landed and been granted.
type ledger struct {
	*fleet
	returns     *returns
	sessionOver func(*member) // is called for somebody, when a record says that its session is over
}

// oneLease checks P2: at most one lease of a lock is valid at any instant. A lease can begin to
// be valid only by an event, so it is enough to look after each.
func (led *ledger) oneLease() {
	for _, l := range led.locks {
		var holder *member
		for _, m := range l.members {
			if !m.valid() {
				m.ended = m.claim
				continue
			}
			led.overtime(m)
			if m.ended == m.claim {
				led.violated(Ended, "the lease of %v is valid once more", m)
			}
			if holder != nil && led.arm != Far && !led.unseen(holder, m) {
				led.violated(P2, "%v and %v hold valid leases", holder, m)
			}
			holder = m
		}
		led.oneOwner(l)
	}
}

// unseen reports that two may hold leases because somebody has deleted the object: one of
// them did not know that there was another. A candidate that saw the other's record before
// the object vanished waits for the end of that lease before it creates the object.
//
// A holder under a session does not look at the object, and so never learns that it was
// deleted. Then another candidate may have created it without knowing that.
func (led *ledger) unseen(a, b *member) bool {
	l := a.on
	if !l.deleted || led.existing {
		return false
	}
	if a.claim > b.claim {
		a, b = b, a
	}
	lease, seen := a.c().Lease(), b.vanished
	ignorant := !lease.SameLease(seen) || lease.TTL != seen.TTL
	if a.under == nil {
		return !l.claims[b.claim].created || ignorant
	}
	return slices.ContainsFunc(l.claims[a.claim+1:b.claim], func(c claim) bool { return c.created }) ||
		l.claims[b.claim].created && ignorant
}

// orphans checks D6: a lock that names a session of a process that goes on with it is held, or
// about to be settled, and the session knows of that. Once somebody has deleted its object, a claim that was to create it may
// land long after its sender has seen it there, and forgotten the claim.
func (led *ledger) orphans() {
	for _, l := range led.locks {
		s := l.names
		if s == nil || l.deleted || s.mustEnd || s.Over() != nil || s.life != s.of.life {
			continue
		}
		if !slices.ContainsFunc(l.members, func(m *member) bool {
			return m.process == s.of && (m.leased || !m.c().Settled()) && s.knows(m)
		}) {
			led.violated(D6, "%s names the session %v, which goes on, and nobody holds or settles it under that", l.key, s)
		}
	}
}

// written checks what sessions promise of the record that a candidate has written, in the epoch
// that is above the highest by so many. A claim in the highest one says that its lease is over.
func (led *ledger) written(r *request, above int64) {
	m, record := r.from.from, r.from.write.Record
	if m.on.session == nil && r.from.write.Op == protocol.Free && above >= 0 {
		led.rests(m.on, record)
	}
	if m.on.session == nil && r.from.write.Op != protocol.Claim && above >= 0 {
		led.metaWritten(m, record)
	}
	if len(led.sessions) == 0 {
		return
	}
	if m.on.session != nil {
		led.sessionWritten(m, r, record)
		return
	}
	if record.Session != "" && !led.find(record.Session).heartbeat.on.born {
		led.violated(D2, "%v wrote that it is under the session %s, which does not exist yet", m, record.Session)
	}
	if r.from.write.Op == protocol.Free && !m.leased && r.from.write.Over.Session != "" {
		led.met(OrphanSettled, m)
	}
	if above < 0 {
		return
	}
	l, claim := m.on, r.from.write.Op == protocol.Claim
	if s := l.names; claim && s != nil && !s.heartbeat.on.over && l.writer != record.Incarnation() && (s.of != m.process || s.Over() == nil) {
		led.violated(D3, "%v has taken a lock that is under the session %v, which is not over", m, s)
	}
	over := led.cfg.Numbered && above == 0 && claim
	if l.names, l.writer = nil, record.Incarnation(); record.Held && record.Session != "" && !over {
		l.names = led.find(record.Session)
	}
}

// sessionWritten checks D1 and D3, in the object of a session.
func (led *ledger) sessionWritten(m *member, r *request, record record.Record) {
	l := m.on
	s := l.session
	if begins := r.only.Absent() || r.from.write.Op == protocol.Claim; begins && (l.born || m != s.heartbeat) {
		led.violated(D1, "%v has begun the session %v, whose name was used", m, s)
	}
	l.born, l.there, l.over = true, true, !record.Held
	if l.over && !led.healed {
		led.sessionOver(led.members[led.choose(len(led.members))])
	}
	if !m.reaps || s.life != s.of.life {
		return
	}
	if s.alive() && led.arm != Far {
		led.violated(D3, "%v has ended the session %v, which is valid", m, s)
	}
	if !errors.Is(s.Over(), engine.ErrClosed) {
		led.met(Killed, s)
	}
}

// claimed checks P1: the tokens of claims that landed strictly grow.
//
// With the object a deletion by hand takes the token away, and then less is promised: a
// candidate that creates the object starts at the store's time, so its token is the largest
// if it saw that there is no object in a later second than that of the last claim. With
// Existing nobody creates it, and everything is promised.
func (led *ledger) claimed(r *request, number int64) {
	l := r.from.from.on
	record := r.from.write.Record
	mark, _, _ := strings.Cut(record.WriteID, ".")
	if len(l.claims) == 0 {
		l.claims = append(l.claims, claim{}) // so that 0 is none
	}
	l.claims = append(l.claims, claim{incarnation: mark, token: record.Token, created: r.only.Absent()})
	late := l.deleted && !led.existing && r.only.Absent() && r.from.absent/time.Second <= l.claimed/time.Second
	l.claimed = led.now
	led.taken(l, r.from.from, r.only.Absent() && number == 0)
	switch {
	case led.cfg.Tokenless:
	case number > 0 && record.Token != number:
		led.violated(P1, "a claim landed with token %d in epoch %d", record.Token, number)
	case record.Token > l.top:
		l.top = record.Token
	case late || l.excused:
		l.excused = true
	default:
		led.violated(P1, "a claim landed with token %d after %d", record.Token, l.top)
	}
	if led.existing && l.deleted {
		led.violated(Absence, "the object was created by a claim of %s", mark)
	}
}

// grant checks P1 once more, for leases: each has a claim of its own that landed, no two
// have one token, and where no clock is beyond the bound they come in order. One that is granted
// when its session is over already is never valid, and may come late.
func (led *ledger) grant(m *member) {
	r, l := m.c().Lease(), m.on
	if p := m.attaches; p != nil {
		led.attached(m, p)
		return
	}
	m.claim = 0
	for i := len(l.claims) - 1; i > 0 && m.claim == 0; i-- {
		if l.claims[i].incarnation == r.Incarnation() && l.claims[i].token == r.Token && !l.claims[i].granted {
			m.claim = i
			l.claims[i].granted = true
		}
	}
	switch {
	case m.claim == 0:
		led.violated(P1, "%v was granted token %d, which no claim has brought or another lease has had", m, r.Token)
	case led.cfg.Tokenless && r.Token != 0:
		led.violated(P1, "%v was granted token %d where there are none", m, r.Token)
	case !led.cfg.Tokenless && r.Token <= l.last && m.valid() && led.arm != Far && !l.excused && (led.existing || !l.deleted):
		led.violated(P1, "%v was granted token %d after %d", m, r.Token, l.last)
	}
	l.granted++
	l.last = max(l.last, r.Token)
	if l.session == nil {
		led.granted++
	}
}

// attached checks of a lease that was detached and goes on here that it is the same one.
func (led *ledger) attached(m *member, p *paper) {
	m.attaches, m.claim, m.ended = nil, p.claim, 0
	if r := m.c().Lease(); r.Token != p.proof.Token || r.Token != m.on.claims[p.claim].token {
		led.violated(P1, "%v goes on with a lease of token %d as one of token %d", m, p.proof.Token, r.Token)
	}
	m.on.drop(p)
}

// work lets a holder write to the resource, if its lease is valid now. The write may
// arrive at any time.
func (led *ledger) work(m *member) {
	if led.cfg.Tokenless || !m.valid() {
		return
	}
	token, claim := m.c().Lease().Token, m.claim
	led.after(led.pick(5*time.Millisecond, 100*time.Millisecond, 2*time.Second, 15*time.Second), nil, func() { led.arrived(m.on, token, claim) })
}

// arrived is a write at the resource, which looks at tokens only, and must not go back from one
// lease to one before it.
func (led *ledger) arrived(l *lock, token int64, claim int) {
	if claim < l.resourceClaim {
		led.met(StaleWrite, token)
	}
	switch {
	case led.fenced && token < l.resourceToken: // refused (rule A11)
		return
	case claim < l.resourceClaim && !l.excused:
		led.violated(Fence, "the resource went back to a lease with token %d", token)
	}
	l.resourceToken, l.resourceClaim = token, claim
	led.logf("the resource takes a write with token %d", token)
}
