package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// A paper is a detached lease in its owner's hands. The owner works under it until a time on its
// machine's clock. Papers of one lease are copies.
type paper struct {
	on       *lock
	claim    int // the one that began the lease
	proof    candidate.Proof
	owner    *process
	deadline time.Duration // on the owner's clock, the owner relies on it until then
	tries    int
	lineage  *lineage
}

// A lineage is shared by all papers of one lease.
type lineage struct {
	copied bool // it has several owners
	ended  bool // an owner has begun to hold or free the lease, and none relies on its paper any more
	freed  bool // an owner has begun to free it
}

func (p *paper) relies() bool { return !p.lineage.ended && p.owner.clock() < p.deadline }

func (p *paper) mark(incarnation string) {
	p.proof.Marks = append(slices.Clone(p.proof.Marks), incarnation)
}

func (l *lock) drop(p *paper) {
	l.papers = slices.DeleteFunc(l.papers, func(other *paper) bool { return other == p })
}

func (u *users) detach(m *member) bool {
	if u.cfg.Tokenless || m.under != nil || m.beats != nil || !m.leased {
		return false
	}
	m.releasing, m.owesDetach = true, true
	m.renew()
	m.e.Tell(candidate.Detach{})
	return true
}

// detached makes a paper of a detached or renewed lease.
func (u *users) detached(m *member, a candidate.Detached) {
	p := &paper{on: m.on, claim: m.claim, owner: m.process, lineage: &lineage{}}
	if from := m.attaches; from != nil {
		m.attaches, m.wants = nil, false
		if from.lineage.freed {
			return
		}
		p.claim, p.lineage = from.claim, from.lineage
		from.on.drop(from)
	} else {
		m.owesDetach, m.releasing = false, false
		if errors.Is(a.Err, protocol.ErrLost) {
			return // it must still be released
		}
		m.ended, m.leased = m.claim, false
		if a.Err != nil {
			return
		}
		u.met(Detached, m)
	}
	// The owner uses the clock of the last writer's machine.
	p.deadline = m.c().Deadline()
	p.proof = candidate.Proof{Token: a.Record.Token, WriteID: a.Record.WriteID, Expires: a.Record.ExpiresAt}
	u.papers(p)
}

// papers lets the owner use a paper later, and maybe another owner a copy at the same moment.
func (u *users) papers(p *paper) {
	p.on.papers = append(p.on.papers, p)
	pause := u.pick(time.Second, 50*time.Millisecond, 5*time.Second, 20*time.Second)
	u.attachIn(pause, p)
	if !u.healed && u.choose(2) == 1 {
		u.met(Copied, p.on.key)
		p.lineage.copied = true
		other := *p
		p.on.papers = append(p.on.papers, &other)
		u.attachIn(pause+u.pick(0, 0, 10*time.Millisecond, time.Second), &other)
	}
}

func (u *users) attachIn(pause time.Duration, p *paper) {
	m := p.on.members[u.choose(len(p.on.members))]
	u.after(pause, nil, func() {
		if u.healed || p.tries > 6 {
			return
		}
		p.tries++
		if u.now < m.paused || m.leased || m.wants || m.releasing || !m.c().Settled() {
			u.attachIn(u.pick(time.Second, 100*time.Millisecond), p)
			return
		}
		u.attach(m, p, candidate.Use(u.choose(3)))
	})
}

// attach uses a paper. An owner stores the renewal's mark before it sends the renewal, so that a
// crash does not lose the lease.
func (u *users) attach(m *member, p *paper, use candidate.Use) {
	proof := p.proof
	switch use {
	case candidate.ToRenew:
		p.mark(m.c().NextIncarnation())
		for _, other := range p.on.papers { // a shorter promise also shortens the others' (A7)
			if other.claim == p.claim {
				other.deadline = min(other.deadline, other.owner.clock()+protocol.Validity(m.ttl))
			}
		}
	case candidate.ToRelease:
		p.lineage.ended, p.lineage.freed = true, true
	case candidate.ToHold:
		p.lineage.ended = true
	}
	u.met(Attached, m, use)
	m.session, m.attaches, m.using, m.wants = nil, p, use, true
	m.renew()
	m.e.Attach(context.Background(), candidate.Attach{Proof: proof, Use: use}, func() {})
}

func (u *users) notAttached(m *member, a candidate.Failed) {
	p := m.attaches
	m.attaches = nil
	if a.Open != "" && m.using == candidate.ToHold { // a renewal's mark was stored before it was sent
		p.mark(a.Open)
	}
	for _, lost := range []error{protocol.ErrCopied, protocol.ErrTaken, protocol.ErrFreed, protocol.ErrVanished} {
		if errors.Is(a.Err, lost) {
			u.ledger.lostPaper(m, p, a.Err)
			p.on.drop(p)
			return
		}
	}
	if errors.Is(a.Err, protocol.ErrExpired) {
		p.on.drop(p)
		return
	}
	u.attachIn(u.pick(time.Second, 100*time.Millisecond, 5*time.Second), p)
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
