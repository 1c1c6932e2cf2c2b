package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// A process has a clock, a way to the store, and candidates.
type process struct {
	w      *world
	number int
	life   int // one more with each start

	// Its clock shows base at the real time since, and goes on at rate/rateOne.
	rate        int64
	base, since time.Duration
	wall        time.Duration // how far its wall clock is off
	paused      time.Duration // until then
	stood       int           // how often it has been

	noRequests, noAnswers time.Duration // until then, they do not arrive
	denied                time.Duration // until then, its credentials are
	sent                  traffic

	locks    []*member // one for each lock that it wants at times
	all      []*member // all candidates of this life
	calls    []*call   // of this life
	sessions bool      // its leases are under sessions, mostly
	open     *session  // the present one; nil: none
	acts     int       // that are left to the user of its sessions, in a history with a lasting failure
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

func (p *process) String() string {
	if p == nil {
		return "collector"
	}
	return fmt.Sprintf("m%d", p.number)
}

// rateOne is the rate of a clock that is right.
const rateOne = 1200

// join adds a process that wants these locks.
func (w *world) join(i int, locks []*lock, sessions bool) {
	p := &process{w: w, number: i, rate: rateOne, base: time.Duration(i) * time.Hour, sessions: sessions}
	w.processes = append(w.processes, p)
	if sessions && w.choose(4) == 3 {
		locks = append(slices.Clip(locks), locks[0]) // there may be two candidates in one process
	}
	for _, l := range locks {
		m := &member{process: p, on: l, ttl: w.pick(w.ttls[:]...)}
		if sessions && w.choose(4) > 0 {
			m.ttl = w.ttls[0] // so more comes to its end
		}
		p.locks = append(p.locks, m)
		l.members = append(l.members, m)
		w.members = append(w.members, m)
	}
	w.start(p)
	w.rerate(p)
}

// start begins the life of a process.
func (w *world) start(p *process) {
	p.life++
	p.end()
	p.all, p.open, p.paused = nil, nil, 0
	for _, m := range p.locks {
		w.enlist(m)
	}
	if p.sessions {
		p.acts = 60
		w.soon(p, func() { w.steward(p) })
	}
}

// end leaves nothing of its calls behind.
func (p *process) end() {
	for _, c := range p.calls {
		c.end()
	}
	p.calls = nil
}

func (w *world) clock(p *process) time.Duration {
	return p.base + (w.now-p.since)*time.Duration(p.rate)/rateOne
}

// real is how long a time on its clock is, rounded up.
func (p *process) real(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return (d*rateOne + time.Duration(p.rate) - 1) / time.Duration(p.rate)
}

// rerate gives a clock another rate: often the fastest or the slowest that the bound allows.
func (w *world) rerate(p *process) {
	p.base, p.since = w.clock(p), w.now
	if w.arm == Far && w.choose(2) == 1 {
		w.met(FarDrift)
		p.rate = [...]int64{rateOne / 2, rateOne / 4, rateOne * 2, rateOne * 4}[w.choose(4)]
	} else {
		const bound = rateOne / protocol.Drift
		p.rate = [...]int64{rateOne, rateOne - bound, rateOne + bound, rateOne + bound/4}[w.choose(4)]
		if p.rate == rateOne-bound || p.rate == rateOne+bound {
			w.met(Drift)
		}
	}
	for _, m := range p.all {
		w.plan(m)
	}
}

// cut reports that the process is cut off in one way.
func (w *world) cut(p *process, f Fault) bool {
	switch {
	case p == nil || w.now >= p.noRequests && f == CutRequests || w.now >= p.noAnswers && f == CutAnswers:
		return false
	case w.now < p.noRequests && w.now < p.noAnswers:
		w.met(CutBoth)
	}
	w.met(f)
	return true
}
