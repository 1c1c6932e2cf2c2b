package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// The promises.
const (
	P1       = "P1"       // tokens grow, and each belongs to one lease
	P2       = "P2"       // at most one lease is valid
	D1       = "D1"       // a session's name is used once
	D2       = "D2"       // no lock names a session that does not exist yet
	D3       = "D3"       // no other process ends a valid session
	D6       = "D6"       // no lock names a live session without being held
	D7       = "D7"       // a session's leases end before anything is sent about its end
	Fence    = "fence"    // the protected resource never goes back
	Absence  = "existing" // only candidates that may create the object do so
	Ended    = "ended"    // a lease reported as ended stays ended
	Foreign  = "foreign"  // unrecognized objects are left alone
	Lease    = "lease"    // a detached lease's only owner can continue it
	Highest  = "highest"  // the highest epoch is never deleted
	Liveness = "liveness" // waiters get the lock in time
	Budget   = "budget"   // on requests
	Pace     = "pace"     // while something fails, no more requests than the intervals allow
	Prompt   = "prompt"   // after that, a free lock is taken within seconds
	Looks    = "looks"    // peers do not keep a follower from reading the store
	Returns  = "returns"  // each call returns once, in time, and truthfully
	Remember = "remember" // a record lists the leases before it, and no others
	Sense    = "sense"    // the state machine does not panic
	Terms    = "terms"    // an acquisition's options apply to its lease, and to no other
	Meta     = "meta"     // a record carries the changes that its holder believes landed
	Rest     = "rest"     // no lock is taken during its cooldown
	Slots    = "V"        // no more slots of a semaphore are used than there are
	Tokens   = "T"        // a semaphore's tokens grow, and each belongs to one grant
	Fair     = "F"        // no caller gets a slot before an earlier one that waits
	Live     = "L"        // only its owner removes an entry of a live session
	Orphaned = "O"        // no such entry is left without an owner that settles it
	Entries  = "entries"  // each entry is what its owner asked for, and no owner gives away what it uses
	Idle     = "idle"     // no slot is free while the head of the queue could have it
	Size     = "size"     // a semaphore keeps its size
)

// A ledger checks the promises about locks and sessions, by what has landed and been granted.
type ledger struct {
	*fleet
	bucket *bucket
}

// oneLease checks P2. Only an event can make a lease valid, so a check after each is enough.
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

// oneOwner checks P2 for detached leases.
func (led *ledger) oneOwner(l *lock) {
	if led.arm == Far || l.deleted {
		return
	}
	for _, p := range l.papers {
		if !p.relies() {
			continue
		}
		for _, m := range l.members {
			if m.valid() && m.claim != p.claim {
				led.violated(P2, "%v holds a valid lease, and so does the owner of one with token %d that is detached", m, p.proof.Token)
			}
		}
	}
}

// unseen reports whether two members may hold leases because the object was deleted and one did
// not know about the other. A candidate that saw the other's record before the object vanished
// waits for that lease to end before it creates the object.
//
// A holder under a session does not read the object and never learns about the deletion. So
// another candidate may have created it unknowingly.
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

// orphans checks D6: if a lock names a live session, its process holds the lock or is about to
// settle it, and the session knows about it. After a deletion, a claim to create the object may
// land long after its sender saw the object there and forgot the claim.
func (led *ledger) orphans() {
	for _, l := range led.locks {
		s := l.names
		if s == nil || l.deleted || !s.goesOn() {
			continue
		}
		if !slices.ContainsFunc(l.members, func(m *member) bool {
			return m.process == s.of && (m.leased || !m.c().Settled()) && s.knows(m)
		}) {
			led.violated(D6, "%s names the session %v, which goes on, and nobody holds or settles it under that", l.key, s)
		}
	}
}

// written checks the sessions' promises about a written record. above is the distance from the
// highest epoch. A claim in the highest one ends its lease.
func (led *ledger) written(r *request, above int64) {
	m, record := r.from.from, r.from.write.Record
	if m.on.session == nil && r.from.write.Op == candidate.Free && above >= 0 {
		led.rests(m.on, record)
	}
	if m.on.session == nil && r.from.write.Op != candidate.Claim && above >= 0 {
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
	if r.from.write.Op == candidate.Free && !m.leased && r.from.write.Over.Session != "" {
		led.met(OrphanSettled, m)
	}
	if above < 0 {
		return
	}
	l, claim := m.on, r.from.write.Op == candidate.Claim
	if s := l.names; claim && s != nil && !s.heartbeat.on.over && l.writer != record.Incarnation() && (s.of != m.process || s.Over() == nil) {
		led.violated(D3, "%v has taken a lock that is under the session %v, which is not over", m, s)
	}
	over := led.cfg.Numbered && above == 0 && claim
	if l.names, l.writer = nil, record.Incarnation(); record.Held && record.Session != "" && !over {
		l.names = led.find(record.Session)
	}
}

func (led *ledger) sessionWritten(m *member, r *request, record record.Record) {
	l := m.on
	s := l.session
	if begins := r.only.Absent() || r.from.write.Op == candidate.Claim; begins && (l.born || m != s.heartbeat) {
		led.violated(D1, "%v has begun the session %v, whose name was used", m, s)
	}
	l.born, l.there, l.over = true, true, !record.Held
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

// claimed checks P1: the tokens of landed claims strictly grow.
//
// A deletion removes the token too, so less is promised. A candidate that creates the object
// starts with the store's time. Its token is the largest if it saw the object missing in a later
// second than the last claim's. With Existing no candidate creates it, and everything is
// promised.
func (led *ledger) claimed(r *request, number int64) {
	l := r.from.from.on
	record := r.from.write.Record
	mark, _, _ := strings.Cut(record.WriteID, ".")
	if len(l.claims) == 0 {
		l.claims = append(l.claims, claim{}) // so that 0 means none
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

// grant checks P1 for leases: each has its own landed claim, no two have the same token, and with
// clocks within the bound they come in order. A lease granted after its session ended is never
// valid, and may come late.
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

// attached checks that an attached lease is the one that was detached.
func (led *ledger) attached(m *member, p *paper) {
	m.attaches, m.claim, m.ended = nil, p.claim, 0
	if r := m.c().Lease(); r.Token != p.proof.Token || r.Token != m.on.claims[p.claim].token {
		led.violated(P1, "%v goes on with a lease of token %d as one of token %d", m, p.proof.Token, r.Token)
	}
	m.on.drop(p)
}

// lostPaper checks A12: the only owner of a lease is told about its loss only if it was lost, and
// not because of what this process, or the one before, has sent.
func (led *ledger) lostPaper(m *member, p *paper, err error) {
	r, there := led.bucket.current(m.on)
	l := p.lineage
	if l.copied || l.freed || m.on.deleted || m.on.restored || !there {
		return
	}
	if r.Token == p.proof.Token && r.Ended == "" && r.Session == "" {
		led.violated(Lease, "%v was told %q of the only proof of the lease with token %d, and its record stands, held %t, by %s: proof %+v",
			m, err, r.Token, r.Held, r.WriteID, p.proof)
	}
}

// work writes to the resource under a valid lease. The write may arrive at any time.
func (led *ledger) work(m *member) {
	if led.cfg.Tokenless || !m.valid() {
		return
	}
	token, claim := m.c().Lease().Token, m.claim
	led.after(led.pick(5*time.Millisecond, 100*time.Millisecond, 2*time.Second, 15*time.Second), nil, func() { led.arrived(m.on, token, claim) })
}

// arrived checks a write at the resource, which compares only tokens, and must not go back to an
// earlier lease.
func (led *ledger) arrived(l *lock, token int64, claim int) {
	if claim < l.resourceClaim {
		led.met(StaleWrite, token)
	}
	switch {
	case led.fenced && token < l.resourceToken: // rule A11: refused
		return
	case claim < l.resourceClaim && !l.excused:
		led.violated(Fence, "the resource went back to a lease with token %d", token)
	}
	l.resourceToken, l.resourceClaim = token, claim
	led.logf("the resource takes a write with token %d", token)
}
