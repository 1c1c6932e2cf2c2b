package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A network carries requests to the store and answers back.
type network struct {
	*fleet
	server  *server
	lasting *lasting
	slots   *slots
	quorum  *quorum
}

// giveUp ends a call.
func (n *network) giveUp(c *call) {
	if !c.finished {
		c.over = true
		n.quorum.giveUp(c.waits)
		n.resume(c)
	}
}

func (n *network) resume(c *call) {
	c.begun = true
	if r, more := c.next(); more {
		c.waits = r
		n.send(r)
		c.struck = r.hit
		return
	}
	c.finished = true
	c.done()
}

// send sends a request. A marker's delete must arrive once, within its lease, or never, because
// markers promise less.
func (n *network) send(r *request) {
	m, p := r.from.from, r.from.by
	marker := r.op == "delete" && n.cfg.Tokenless
	if marker {
		r.expires = n.now + m.real(m.c().Promised()-p.clock())
	}
	if m != nil {
		p.sent.add(r)
	}
	n.logf("%v  %s %q %v", r.from, r.op, r.key, r.only)
	n.lasting.startWith(r)
	n.lasting.count(r)
	if r.from.part != nil {
		n.slots.sent(r)
	}
	if n.quorum.on() {
		n.quorum.call(r, func(a answer) { n.deliver(r, a) })
		return
	}
	if r.hit && n.lasting.answer.Status == 0 {
		n.strike(r, func() { n.fly(r, 5*time.Millisecond) })
		return
	}
	if n.cut(p, CutRequests) {
		return
	}
	if !n.hit(LostRequest) {
		n.fly(r, n.delay(LateRequest, r.from.lateRequest))
	}
	if r.writes() && !marker && n.meets(Duplicate) {
		n.fly(r, n.pick(10*time.Millisecond, time.Second, 8*time.Second, 30*time.Second))
	}
}

// disturb plans trouble at the worst moment: while a write is in flight.
func (n *network) disturb(c *call) {
	m, f := c.from, processFaults[n.choose(7)]
	if p := c.part; p != nil {
		if m = p.locks[0]; p.open != nil {
			m = p.open.heartbeat
		}
	}
	if n.healed || n.calm || n.choose(4) != 3 {
		return
	}
	c.lateRequest, c.lateAnswer = n.choose(8) == 7, n.choose(8) == 7
	soon := n.pick(0, 5*time.Millisecond, 30*time.Millisecond, 2*time.Second)
	n.demand(soon, nil, injection{m, f})
	if n.choose(2) == 1 {
		n.demand(soon, m.machine, abandonment{c})
		return
	}
	n.demand(soon+5*time.Millisecond, nil, rivalry{c})
}

// strike is the failure's effect, whatever the answer: a write may land, and one of the first
// claims lands late.
func (n *network) strike(r *request, land func()) {
	l := n.lasting
	if l.lands && r.writes() {
		land()
	}
	if m := r.from.from; l.straggler == 0 || !r.claims() || m != nil && m.on.session != nil {
		return
	}
	if l.straggler--; l.straggler == 0 {
		n.logf("    this one is slow")
		late := *r
		late.hit = false
		n.fly(&late, l.late)
	}
}

func (n *network) fly(r *request, delay time.Duration) {
	to := r.from.to
	if to != nil {
		to.inFlight = append(to.inFlight, r)
	}
	n.after(delay, nil, func() {
		if to != nil {
			i := slices.Index(to.inFlight, r)
			to.inFlight = slices.Delete(to.inFlight, i, i+1)
		}
		n.arrive(r)
	})
}

func (n *network) arrive(r *request) {
	if r.expires != 0 && n.now >= r.expires {
		return
	}
	if r.arrived {
		n.met(Duplicate, r.op, r.key)
	}
	r.arrived = true
	a := n.serve(r)
	p := r.from.by
	if r.hit && n.lasting.answer.Status == 0 {
		return
	}
	if n.hit(LostAnswer) || n.cut(p, CutAnswers) {
		return
	}
	n.after(n.delay(LateAnswer, r.from.lateAnswer), r.from.on, func() { n.deliver(r, a) })
}

func (n *network) deliver(r *request, a answer) {
	c := r.from
	switch {
	case c.over:
		n.met(LateAnswer)
	case c.waits == r: // and not for the duplicate's answer
		switch absent := errors.Is(a.error(), store.ErrNotExist); {
		case absent && c.from != nil:
			c.from.absent = a.at
		case absent && c.part != nil:
			c.part.absent = a.at
		}
		c.waits, c.answer = nil, a
		n.resume(c)
	}
}

func (n *network) serve(r *request) answer {
	refused := func(kind error) answer { return answer{err: r.fails(kind)} }
	var a answer
	switch {
	case r.hit && n.lasting.answer.Status != 0:
		n.strike(r, func() { n.server.land(r) })
		a = answer{err: n.lasting.answer.to(r)}
	case n.now < n.server.throttled:
		n.met(Throttled)
		a = refused(store.ErrThrottled)
	case n.hit(Unavailable):
		a = refused(store.ErrUnavailable)
	case r.from.by != nil && n.now < r.from.by.denied:
		n.met(Denied, r.op)
		a = refused(store.ErrDenied)
	case r.op == "put" && n.hit(Conflict):
		a = refused(store.ErrConflict)
	default:
		a = n.server.land(r)
		if r.writes() && a.err == nil && n.hit(Unknown) {
			a = refused(store.ErrUnknownOutcome)
		}
	}
	a.at = n.now
	if n.dated {
		if a.err != nil {
			a.err.Date = n.server.date()
		}
		if a.object != nil {
			a.object.Date = n.server.date()
		}
	}
	return a
}
