package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// A papers is what users do with detached leases.
type papers struct {
	*fleet
	ledger *ledger
}

func (p *paper) mark(incarnation string) {
	p.proof.Marks = append(slices.Clone(p.proof.Marks), incarnation)
}

func (ps *papers) detach(m *member) bool {
	if ps.cfg.Tokenless || m.under != nil || m.beats != nil || !m.leased {
		return false
	}
	m.releasing, m.owesDetach = true, true
	m.renew()
	m.e.Tell(candidate.Detach{})
	return true
}

// detached makes a paper of a detached or renewed lease.
func (ps *papers) detached(m *member, a candidate.Detached) {
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
		ps.met(Detached, m)
	}
	// The owner uses the clock of the last writer's machine.
	p.deadline = m.c().Deadline()
	p.proof = candidate.Proof{Token: a.Record.Token, WriteID: a.Record.WriteID, Expires: a.Record.ExpiresAt}
	ps.add(p)
}

// add lets the owner use a paper later, and maybe another owner a copy at the same moment.
func (ps *papers) add(p *paper) {
	p.on.papers = append(p.on.papers, p)
	pause := ps.pick(time.Second, 50*time.Millisecond, 5*time.Second, 20*time.Second)
	ps.attachIn(pause, p)
	if !ps.healed && ps.choose(2) == 1 {
		ps.met(Copied, p.on.key)
		p.lineage.copied = true
		other := *p
		p.on.papers = append(p.on.papers, &other)
		ps.attachIn(pause+ps.pick(0, 0, 10*time.Millisecond, time.Second), &other)
	}
}

func (ps *papers) attachIn(pause time.Duration, p *paper) {
	m := p.on.members[ps.choose(len(p.on.members))]
	ps.after(pause, nil, func() {
		if ps.healed || p.tries > 6 {
			return
		}
		p.tries++
		if ps.now < m.paused || m.leased || m.wants || m.releasing || !m.c().Settled() {
			ps.attachIn(ps.pick(time.Second, 100*time.Millisecond), p)
			return
		}
		ps.attach(m, p, candidate.Use(ps.choose(3)))
	})
}

// attach uses a paper. An owner stores the renewal's mark before it sends the renewal, so that a
// crash does not lose the lease.
func (ps *papers) attach(m *member, p *paper, use candidate.Use) {
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
	ps.met(Attached, m, use)
	m.session, m.attaches, m.using, m.wants = nil, p, use, true
	m.renew()
	m.e.Attach(context.Background(), candidate.Attach{Proof: proof, Use: use}, func() {})
}

func (ps *papers) notAttached(m *member, a candidate.Failed) {
	p := m.attaches
	m.attaches = nil
	if a.Open != "" && m.using == candidate.ToHold { // a renewal's mark was stored before it was sent
		p.mark(a.Open)
	}
	for _, lost := range []error{protocol.ErrCopied, protocol.ErrTaken, protocol.ErrFreed, protocol.ErrVanished} {
		if errors.Is(a.Err, lost) {
			ps.ledger.lostPaper(m, p, a.Err)
			p.on.drop(p)
			return
		}
	}
	if errors.Is(a.Err, protocol.ErrExpired) {
		p.on.drop(p)
		return
	}
	ps.attachIn(ps.pick(time.Second, 100*time.Millisecond, 5*time.Second), p)
}
