package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// A peers carries followers' questions to leaders, and answers back.
type peers struct {
	*fleet
	lasting *lasting
}

// poll asks the candidate at an address. Without an answer, the sender gives up.
func (ps *peers) poll(m *member, a candidate.PollPeer) {
	ps.lasting.countPoll(m)
	q := question{from: m, life: m.life, number: a.Number, known: a.Known}
	m.timeout(a.Wait+time.Second, func() {
		if m.c().Asks(q.number) {
			ps.deliver(q, candidate.PeerAnswer{Err: errLost})
		}
	})
	if l := ps.lasting; l.on && l.forges {
		ps.met(PeerForged, m)
		ps.forge(q)
		return
	}
	for _, p := range ps.processes {
		if p.String() == a.Address && !ps.hit(PeerLost) {
			ps.after(ps.delay(PeerLate, false), p.machine, func() { ps.receive(p, q, a.Wait) })
		}
	}
}

// receive passes a question to the process's member that holds the lock, or may have held it. The
// member keeps it until there is news.
func (ps *peers) receive(p *process, q question, wait time.Duration) {
	var to *member
	for _, m := range q.from.on.members {
		if m.process == p && (to == nil || m.leased) {
			to = m
		}
	}
	if to == nil {
		return
	}
	to.parked = append(to.parked, q)
	ps.after(to.real(wait), to.machine, func() {
		for i := range to.parked {
			if p := &to.parked[i]; p.from == q.from && p.life == q.life && p.number == q.number {
				p.spent = true
			}
		}
		ps.answer(to)
	})
	ps.answer(to)
}

func (ps *peers) answer(m *member) {
	if len(m.parked) == 0 {
		return
	}
	heard := ps.truth(m)
	if m.said == nil {
		m.said = &heard
	}
	m.parked = slices.DeleteFunc(m.parked, func(q question) bool {
		if !q.spent && q.known == heard.Status.Version {
			return false
		}
		ps.reply(m, q, heard)
		return true
	})
}

// reply sends an answer, usually the truth.
func (ps *peers) reply(m *member, q question, heard candidate.PeerAnswer) {
	switch {
	case ps.hit(PeerLost):
		return
	case ps.hit(PeerStale):
		heard = *m.said
	case ps.hit(PeerLie):
		seen, _, _ := q.from.c().Observed()
		heard = candidate.PeerAnswer{Status: candidate.PeerStatus{
			Leading: ps.choose(2) == 1, Free: ps.choose(2) == 1, Holder: seen.Holder, Token: seen.Token + int64(ps.choose(2)),
			Incarnation: seen.Incarnation(), Valid: time.Duration(ps.choose(40)) * 10 * time.Second, Version: fmt.Sprint(ps.choose(3)),
		}}
	}
	ps.after(ps.delay(PeerLate, false), q.from.machine, func() { ps.deliver(q, heard) })
}

func (ps *peers) deliver(q question, heard candidate.PeerAnswer) {
	m := q.from
	if m.life != q.life {
		return
	}
	if m.c().Asks(q.number) {
		ps.checkLooks(m, heard)
	} else {
		ps.met(PeerLate)
	}
	heard.Number = q.number
	m.e.Tell(heard)
}

// fewTTLs is how many TTLs peers alone may keep a candidate from reading the store.
const fewTTLs = 3

// checkLooks checks that a candidate interested in the holder sometimes reads the store, because
// its peers' answers prove nothing.
func (ps *peers) checkLooks(m *member, heard candidate.PeerAnswer) {
	seen, _, _ := m.c().Observed()
	now := m.clock()
	switch {
	case m.leased || heard.Err != nil || !heard.Status.Leading || m.asked != nil || m.watcher() != nil: // which reads
		m.blind = 0
	case m.blind == 0:
		m.blind, m.blindStops = now, m.stops
	case m.blindStops == m.stops && now-m.blind > fewTTLs*max(seen.TTL, m.ttl):
		ps.violated(Looks, "%v, TTL %v, has not looked at the store for %v, because of what peers say", m, m.ttl, now-m.blind)
	}
}

func (ps *peers) truth(m *member) candidate.PeerAnswer {
	limit := time.Duration(0) // when its session ends, on its clock
	if m.under != nil {
		limit = m.under.Until()
	}
	heard := candidate.PeerAnswer{Status: m.c().PeerStatus(m.clock(), limit)}
	if heard.Status.Free && ps.name == "object" {
		record, version := m.c().Freed()
		heard.Proof = &candidate.ReadDone{Shown: protocol.Found, Version: version, Record: record}
	}
	return heard
}

// forge answers in the leader's name that it leads, and will for a long time.
func (ps *peers) forge(q question) {
	seen, _, _ := q.from.c().Observed()
	word := candidate.PeerStatus{
		Leading: true, Holder: seen.Holder, Token: seen.Token, Incarnation: seen.Incarnation(),
		Valid: 10 * seen.TTL, Version: fmt.Sprint(seen.Token),
	}
	pause := 5 * time.Millisecond
	if q.known == word.Version {
		pause = seen.TTL / 2
	}
	ps.after(pause, q.from.machine, func() { ps.deliver(q, candidate.PeerAnswer{Status: word}) })
}
