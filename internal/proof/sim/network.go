package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// starts lets a call begin, unless it was given up before.
func (w *world) starts(c *call) {
	if !c.begun {
		w.resume(c)
	}
}

// giveUp ends a call whose answer nobody waits for any more.
func (w *world) giveUp(c *call) {
	if !c.finished {
		c.over = true
		w.resume(c)
	}
}

// resume lets a call go on to its next request, or to its end.
func (w *world) resume(c *call) {
	c.begun = true
	if r, more := c.next(); more {
		c.waits = r
		w.send(r)
		c.struck = r.hit
		return
	}
	c.finished = true
	c.done()
}

// send puts a request on its way. A delete of a marker must arrive once, within the lease that
// it is sent under, or never: less is promised of markers.
func (w *world) send(r *request) {
	m, p := r.from.from, r.from.by
	marker := r.op == "delete" && w.cfg.Tokenless
	if marker {
		r.expires = w.now + m.real(m.c().Deadline()-w.clock(p))
	}
	if m != nil {
		p.sent.add(r)
	}
	w.logf("%v  %s %q %v", m, r.op, r.key, r.only)
	w.moments(r)
	w.count(r)
	if w.struck(r) {
		return
	}
	if w.cut(p, CutRequests) {
		return
	}
	if !w.hit(LostRequest) {
		w.fly(r, w.delay(LateRequest, r.from.lateRequest))
	}
	if r.writes() && !marker && w.meets(Duplicate) {
		w.fly(r, w.pick(10*time.Millisecond, time.Second, 8*time.Second, 30*time.Second))
	}
}

// fly brings a request to the store.
func (w *world) fly(r *request, delay time.Duration) {
	if m := r.from.from; m != nil {
		m.on.flying++
		if r.writes() {
			m.on.air = append(m.on.air, r)
		}
	}
	w.after(delay, nil, func() {
		if m := r.from.from; m != nil {
			m.on.flying--
			if i := slices.Index(m.on.air, r); i >= 0 {
				m.on.air = slices.Delete(m.on.air, i, i+1)
			}
		}
		w.arrive(r)
	})
}

// delay is how long the network takes. A late message is late by seconds or by a minute.
func (w *world) delay(f Fault, late bool) time.Duration {
	if w.meets(f) || late {
		return w.pick(500*time.Millisecond, time.Second, 2500*time.Millisecond, 8*time.Second, 60*time.Second)
	}
	slow := time.Duration(0)
	if w.now < w.weather.slow {
		slow = w.pick(200*time.Millisecond, time.Second, 4*time.Second)
	}
	return slow + time.Duration(1+w.choose(30))*time.Millisecond
}

// arrive is the request at the store, and the answer on its way back.
func (w *world) arrive(r *request) {
	if r.expires != 0 && w.now >= r.expires {
		return
	}
	if r.arrived {
		w.met(Duplicate, r.op, r.key)
	}
	r.arrived = true
	a := w.serve(r)
	p := r.from.by
	if r.hit && w.lasting.answer.Status == 0 {
		return
	}
	if w.hit(LostAnswer) || w.cut(p, CutAnswers) {
		return
	}
	w.after(w.delay(LateAnswer, r.from.lateAnswer), p, func() { w.deliver(r, a) })
}

// deliver brings an answer to its call, if that still waits for it.
func (w *world) deliver(r *request, a answer) {
	c := r.from
	switch {
	case c.over:
		w.met(LateAnswer)
	case c.waits == r: // and not the answer to its double
		if c.from != nil && errors.Is(a.error(), store.ErrNotExist) {
			c.from.absent = a.at
		}
		c.waits, c.answer = nil, a
		w.resume(c)
	}
}

// serve is what the store does, and what it says.
func (w *world) serve(r *request) answer {
	refused := func(kind error) answer { return answer{err: r.fails(kind)} }
	var a answer
	switch {
	case r.hit && w.lasting.answer.Status != 0:
		a = w.refuses(r)
	case w.now < w.weather.throttled:
		w.met(Throttled)
		a = refused(store.ErrThrottled)
	case w.hit(Unavailable):
		a = refused(store.ErrUnavailable)
	case r.from.by != nil && w.now < r.from.by.denied:
		w.met(Denied, r.op)
		a = refused(store.ErrDenied)
	case r.op == "put" && w.hit(Conflict):
		a = refused(store.ErrConflict)
	default:
		a = w.land(r)
		if r.writes() && a.err == nil && w.hit(Unknown) {
			a = refused(store.ErrUnknownOutcome)
		}
	}
	a.at = w.now
	if w.dated {
		if a.err != nil {
			a.err.Date = w.date()
		}
		if a.object != nil {
			a.object.Date = w.date()
		}
	}
	return a
}

// land carries out a request, and looks at what that does to the promises.
func (w *world) land(r *request) answer {
	of, number, numbered := layout.Epoch(r.key)
	top := int64(0)
	if numbered {
		top = w.highest(of)
	}
	before, existed := w.objects[r.key]
	a := w.objects.serve(r, w.date())
	w.logf("    lands: %s %q %v: %v", r.op, r.key, r.only, a.error())
	if !r.writes() || a.err != nil {
		return a
	}
	w.mix(sum(r.body))
	if r.from.from != nil {
		w.changed(r)
	}
	if r.from.over {
		w.met(LateRequest, r.op)
	}
	if r.op == "put" && existed && r.key == w.weather.poisoned && before.version == w.weather.poison {
		w.fault(Foreign, "%q was written over", r.key)
	}
	if r.op == "put" && r.from.from != nil {
		w.written(r, number-top)
	}
	claim := r.op == "put" && r.from.write != nil && r.from.write.Op == protocol.Claim
	switch {
	case r.op == "delete" && numbered && existed:
		w.met(Collected, r.key)
		if number == top {
			w.fault(Highest, "epoch %d was deleted", number)
		}
	case r.op == "put" && numbered && number < top && r.only.Absent():
		w.met(Recreated, r.key) // it must not count, and its sender must find out
	case !claim, numbered && number <= top: // that one says that a lease is over
	default:
		w.claimed(r, number)
	}
	return a
}

// highest is the number of the highest epoch of a lock that is a record.
func (w *world) highest(lock string) int64 {
	top := w.objects.highest(lock)
	if of, n, ok := layout.Epoch(w.weather.poisoned); ok && of == lock && n == top {
		top--
	}
	return top
}

// collect begins to collect epochs, with no regard to how old they are.
func (w *world) collect() {
	if !w.cfg.Numbered || w.collector != nil {
		return
	}
	l := w.locks[w.choose(len(w.locks))]
	what := layout.Collection{Keep: w.choose(3) / 2, Limit: 12 - 4*w.choose(5)}
	collection := begin(nil, nil, func(ctx context.Context) {
		epochs, _ := w.lay(network{}, l.key, 0).(layout.Epochs)
		for _, err := range epochs.Collect(ctx, what) {
			_ = err // what it cannot collect stays
		}
	})
	collection.done = func() { w.collector = nil }
	w.collector = collection
	w.after(2*time.Second, nil, func() { w.giveUp(collection) })
	w.resume(collection)
}
