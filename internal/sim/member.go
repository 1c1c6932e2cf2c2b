package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// A member is one process: a candidate, its clock, and the user that it works for.
type member struct {
	number int
	life   int // one more with each start
	c      *protocol.Candidate
	ttl    time.Duration
	claim  int // of its lease: which claim began it, in the order in which they landed; 0: none has
	ended  int // the claim of the last lease that was seen to be over

	// Its clock shows base at the real time since, and goes on at rate/rateOne.
	rate        int64
	base, since time.Duration
	wall        time.Duration // how far its wall clock is off
	tick        time.Duration // the event that is the next Tick
	paused      time.Duration // until then

	asked                 *call           // that it waits for
	absent                time.Duration   // when it was last shown that there is no object
	vanished              protocol.Record // of the object that it last saw vanish
	noRequests, noAnswers time.Duration   // until then, they do not arrive
	denied                time.Duration   // until then, its credentials are
	sent                  traffic

	wants     bool
	leased    bool          // its user holds a lease, valid or not, or its release is not settled
	releasing bool          // that
	busy      time.Duration // until then its user needs the lease
	hopeful   bool          // in the calm: its user wants the lock, and keeps it
	voice     voice
}

// traffic counts requests. Of a listing the first page counts, since a page shows few objects
// here and a thousand elsewhere.
type traffic struct{ reads, writes int }

func (t *traffic) add(r *request) {
	switch {
	case r.writes():
		t.writes++
	case r.page <= 1:
		t.reads++
	}
}

func (m *member) String() string {
	if m == nil {
		return "collector"
	}
	return fmt.Sprintf("m%d", m.number)
}

// ttls are far apart, so that who counts by the wrong one is wrong by far.
var ttls = [...]time.Duration{3 * time.Second, 9 * time.Second, 30 * time.Second}

// infrequent is the interval of some followers of a steady leader.
const infrequent = 10 * time.Second

// rateOne is the rate of a clock that is right.
const rateOne = 1200

// join adds a member.
func (w *world) join(i int) {
	m := &member{number: i, ttl: w.pick(ttls[:]...), rate: rateOne, base: time.Duration(i) * time.Hour}
	w.members = append(w.members, m)
	w.start(m)
	w.rerate(m)
}

// start begins the life of a process. Names are not incarnations: some have that of
// another.
func (w *world) start(m *member) {
	m.life++
	if m.asked != nil {
		m.asked.end()
	}
	cfg := w.cfg
	cfg.Incarnation = fmt.Sprintf("i%d-%d", m.number, m.life)
	cfg.TTL, cfg.Holder, cfg.Address = m.ttl, m.String(), m.String()
	if w.choose(4) == 3 {
		cfg.Holder = "m0"
	}
	cfg.Existing = w.existing
	cfg.Follow, cfg.Peers, cfg.FastStart = w.choose(2) == 1, w.choose(2) == 1, !w.skewed && w.choose(4) == 3
	if cfg.Follow && w.choose(4) == 3 {
		cfg.Frequent, cfg.Infrequent = time.Second, infrequent
	}
	w.longest = max(w.longest, m.ttl)
	m.c = protocol.New(cfg)
	m.asked, m.wants, m.leased, m.releasing, m.voice, m.paused = nil, false, false, false, voice{}, 0
	m.vanished = protocol.Record{}
	w.logf("%v starts as %s, TTL %v, follows %t, peers %t, fast start %t, clock %d/%d",
		m, cfg.Incarnation, cfg.TTL, cfg.Follow, cfg.Peers, cfg.FastStart, m.rate, rateOne)
	w.after(w.pick(0, 100*time.Millisecond, time.Second, 10*time.Second), m, func() { w.user(m) })
}

func (w *world) clock(m *member) time.Duration {
	return m.base + (w.now-m.since)*time.Duration(m.rate)/rateOne
}

// real is how long a time on the member's clock is, rounded up.
func (m *member) real(d time.Duration) time.Duration {
	if m == nil || d <= 0 {
		return d
	}
	return (d*rateOne + time.Duration(m.rate) - 1) / time.Duration(m.rate)
}

// rerate gives a clock another rate: often the fastest or the slowest that the bound allows.
func (w *world) rerate(m *member) {
	m.base, m.since = w.clock(m), w.now
	if w.arm == Far && w.choose(2) == 1 {
		w.met(FarDrift)
		m.rate = [...]int64{rateOne / 2, rateOne / 4, rateOne * 2, rateOne * 4}[w.choose(4)]
	} else {
		const bound = rateOne / protocol.Drift
		m.rate = [...]int64{rateOne, rateOne - bound, rateOne + bound, rateOne + bound/4}[w.choose(4)]
		if m.rate == rateOne-bound || m.rate == rateOne+bound {
			w.met(Drift)
		}
	}
	w.plan(m)
}

// cut reports that the member is cut off in one way.
func (w *world) cut(m *member, f Fault) bool {
	switch {
	case m == nil || w.now >= m.noRequests && f == CutRequests || w.now >= m.noAnswers && f == CutAnswers:
		return false
	case w.now < m.noRequests && w.now < m.noAnswers:
		w.met(CutBoth)
	}
	w.met(f)
	return true
}

// step gives a member an event and carries out what it answers.
func (w *world) step(m *member, ev protocol.Event) {
	if w.verbose {
		w.logf("%v  %s", m, brief(ev))
	}
	for _, action := range m.c.Step(ev, protocol.Now{Clock: w.clock(m), Wall: epoch.Add(w.now + m.wall)}) {
		if w.verbose {
			w.logf("%v    -> %s", m, brief(action))
		}
		w.do(m, action)
	}
	w.plan(m)
	w.speak(m)
	if c := m.asked; c != nil && c.waits == nil {
		w.resume(c)
	}
	w.ease(m)
}

func (w *world) do(m *member, action protocol.Action) {
	switch a := action.(type) {
	case protocol.Read:
		w.call(m, nil, a.Timeout, func(c *call) {
			c.reading, c.err = w.lay(c, m.ttl).Look(context.Background(), a.Unless)
		})
	case protocol.Write:
		w.call(m, &a, a.Timeout, func(c *call) {
			c.reading, c.err = w.lay(c, m.ttl).Write(context.Background(), a)
		})
	case protocol.Granted:
		m.wants, m.leased, m.voice.freed = false, true, nil
		m.busy = w.now + w.pick(40*time.Second, 8*time.Second, time.Second, 0)
		w.grant(m)
	case protocol.Refused, protocol.Failed:
		m.wants = false
	case protocol.Lost:
		m.ended = m.claim
	case protocol.Released:
		m.ended, m.leased, m.releasing = m.claim, false, false
		m.voice.release(m, a.Err)
	case protocol.Vanished:
		m.vanished = a.Record
	case protocol.Ask:
		w.ask(m, a)
	case protocol.Hush:
		m.voice.asking = 0
	}
}

// plan lets the next Tick come when the candidate's clock wakes it.
func (w *world) plan(m *member) {
	wake, ok := m.c.Wake()
	if !ok {
		m.tick = 0
		return
	}
	at := w.now + max(m.real(wake-w.clock(m)), 0)
	if m.tick == at && at > w.now {
		return
	}
	m.tick = at
	w.after(at-w.now, m, func() {
		if m.tick == at {
			m.tick = 0
			w.step(m, protocol.Tick{})
		}
	})
}
