package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol"
)

// A runtime is what an engine lives in: the process of its member, and the world's queue of
// events.
type runtime struct{ m *member }

func (rt runtime) Now() protocol.Now {
	w := rt.m.w
	return protocol.Now{Clock: w.clock(rt.m.process), Wall: epoch.Add(w.now + rt.m.wall)}
}

// After is a timer that stands still while its process is suspended.
func (rt runtime) After(d time.Duration, f func()) {
	rt.m.w.timeout(rt.m.real(d), rt.m.process, f)
}

func (rt runtime) Apart(f func()) { rt.m.w.soon(rt.m.process, f) }

func (rt runtime) Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, rt.m.w.choose(min(i+1, 256)))
	}
}

// Parallel is so small that some have to wait.
func (rt runtime) Parallel() int { return 1 }

func (rt runtime) Incarnation() string {
	rt.m.cfg.Incarnation = rt.m.w.incarnation(rt.m)
	return rt.m.cfg.Incarnation
}

// A waker wakes a candidate, by its clock.
type waker struct {
	ring func()
	at   time.Duration // by the clock of its process; 0: it is not set
	tick time.Duration // the event that is the next one
}

func (rt runtime) Alarm(f func()) engine.Alarm {
	rt.m.alarm = waker{ring: f}
	return rt
}

func (rt runtime) Set(at time.Duration) {
	rt.m.alarm.at = max(at, 1)
	rt.m.w.plan(rt.m)
}

func (rt runtime) Stop() {
	rt.m.alarm.at = 0
	rt.m.w.plan(rt.m)
}

// plan lets the alarm go off when the clock of its process shows that.
func (w *world) plan(m *member) {
	a := &m.alarm
	if a.at == 0 {
		a.tick = 0
		return
	}
	at := w.now + max(m.real(a.at-w.clock(m.process)), 0)
	if a.tick == at && at > w.now {
		return
	}
	a.tick = at
	w.push(event{at: at, to: m.process, life: m.life, by: tick, do: func() {
		if a.tick != at { // another was planned since; of a deadline far away there are many
			w.atOnce--
			return
		}
		a.at, a.tick = 0, 0
		a.ring()
	}})
}

// Ask begins a call of a layout, and gives it up when the time for it is over.
func (rt runtime) Ask(r engine.Request) (giveUp func()) {
	m, w := rt.m, rt.m.w
	c := begin(m.process, m, r.Do)
	switch a := r.For.(type) {
	case nil: // a collection, of which nobody waits for the answer
		c.from, c.done = nil, r.Done
	case protocol.Write:
		c.write = &a
		w.worst(c)
		if a.Op == protocol.Claim {
			m.claims++
			c.number = m.claims
		}
	}
	if c.from != nil {
		m.asked, c.absent, c.acquisition = c, m.absent, m.acquisitions
		c.done = func() {
			before := m.returns
			m.asked, m.answers = nil, c
			r.Done()
			m.answers = nil
			w.answered(c, before)
		}
	}
	w.after(0, m.process, func() { w.starts(c) })
	w.timeout(m.real(r.Timeout), m.process, func() { w.giveUp(c) })
	return func() { w.soon(m.process, func() { w.giveUp(c) }) }
}
