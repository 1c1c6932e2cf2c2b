package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// voice is what a member says to its peers.
type voice struct {
	parked []question
	said   *protocol.PeerAnswer // the first that it said in its life
}

// A question came from a member, and is answered when there is news or its time is over.
type question struct {
	from   *member
	life   int
	number int
	known  string
	spent  bool
}

// ask sends a question to the candidate at the address. Without an answer its sender
// gives up.
func (w *world) ask(m *member, a protocol.PollPeer) {
	w.inquire(m)
	q := question{from: m, life: m.life, number: a.Number, known: a.Known}
	w.timeout(m.real(a.Wait+time.Second), m.process, func() {
		if m.c().Asks(q.number) {
			w.hear(q, protocol.PeerAnswer{Err: errLost})
		}
	})
	if l := w.lasting; l != nil && l.on && l.forges {
		w.met(PeerForged, m)
		w.forge(q)
		return
	}
	for _, p := range w.processes {
		if p.String() == a.Address && !w.hit(PeerLost) {
			w.after(w.delay(PeerLate, false), p, func() { w.receive(p, q, a.Wait) })
		}
	}
}

// receive passes a question on to the member of the process that holds the lock, or may
// have held it.
func (w *world) receive(p *process, q question, wait time.Duration) {
	var to *member
	for _, m := range q.from.on.members {
		if m.process == p && (to == nil || m.leased) {
			to = m
		}
	}
	if to != nil {
		w.asked(to, q, wait)
	}
}

// asked is a question at the leader, which keeps it for as long as there is no news.
func (w *world) asked(m *member, q question, wait time.Duration) {
	m.voice.parked = append(m.voice.parked, q)
	w.after(m.real(wait), m.process, func() {
		for i := range m.voice.parked {
			if p := &m.voice.parked[i]; p.from == q.from && p.life == q.life && p.number == q.number {
				p.spent = true
			}
		}
		w.speak(m)
	})
	w.speak(m)
}

// speak answers the questions for which there is news, or no time left.
func (w *world) speak(m *member) {
	v := &m.voice
	if len(v.parked) == 0 {
		return
	}
	heard := w.word(m)
	if v.said == nil {
		v.said = &heard
	}
	v.parked = slices.DeleteFunc(v.parked, func(q question) bool {
		if !q.spent && q.known == heard.Status.Version {
			return false
		}
		w.reply(m, q, heard)
		return true
	})
}

// reply sends a word: the truth of this moment, mostly.
func (w *world) reply(m *member, q question, heard protocol.PeerAnswer) {
	switch {
	case w.hit(PeerLost):
		return
	case w.hit(PeerStale):
		heard = *m.voice.said
	case w.hit(PeerLie):
		seen, _, _ := q.from.c().Observed()
		heard = protocol.PeerAnswer{Status: protocol.PeerStatus{
			Leading: w.choose(2) == 1, Free: w.choose(2) == 1, Holder: seen.Holder, Token: seen.Token + int64(w.choose(2)),
			Incarnation: seen.Incarnation(), Valid: time.Duration(w.choose(40)) * 10 * time.Second, Version: fmt.Sprint(w.choose(3)),
		}}
	}
	w.after(w.delay(PeerLate, false), q.from.process, func() { w.hear(q, heard) })
}

func (w *world) hear(q question, heard protocol.PeerAnswer) {
	m := q.from
	if m.life != q.life {
		return
	}
	if m.c().Asks(q.number) {
		w.blinded(m, heard)
	} else {
		w.met(PeerLate)
	}
	heard.Number = q.number
	m.e.Tell(heard)
}

// fewTTLs is for how many TTLs peers alone may keep a candidate from looking at the store.
const fewTTLs = 5

// blinded checks that a candidate that wants to know who holds the lock looks at the store now
// and then, whatever its peers say: their words prove nothing.
func (w *world) blinded(m *member, heard protocol.PeerAnswer) {
	seen, _, _ := m.c().Observed()
	now := w.clock(m.process)
	switch {
	case m.leased || heard.Err != nil || !heard.Status.Leading || m.asked != nil || m.watcher() != nil: // that looks
		m.blind = 0
	case m.blind == 0:
		m.blind, m.blindStood = now, m.stood
	case m.blindStood == m.stood && now-m.blind > fewTTLs*max(seen.TTL, m.ttl):
		w.fault(Looks, "%v, TTL %v, has not looked at the store for %v, because of what peers say", m, m.ttl, now-m.blind)
	}
}

// word is what a member can say of itself.
func (w *world) word(m *member) protocol.PeerAnswer {
	heard := protocol.PeerAnswer{Status: m.c().PeerStatus(w.clock(m.process), m.limit())}
	if heard.Status.Free && w.name == "object" {
		record, version := m.c().Freed()
		heard.Proof = &protocol.ReadDone{Shown: protocol.Found, Version: version, Record: record}
	}
	return heard
}
