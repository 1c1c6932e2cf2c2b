package sim

import (
	"cmp"
	"slices"
	"time"
)

// An event is something that happens at a time. An event of a machine waits while that stands
// still, and is dropped if its process has crashed since.
type event struct {
	at   time.Duration
	seq  uint64
	to   *machine // nil: to nobody
	life int
	by   timer
	do   func()
}

// A timer is what lets an event happen.
type timer int

const (
	none  timer = iota // something from outside
	alarm              // a timer that stands still while its process is suspended
	tick               // one that looks at the clock every second
	check              // the simulation itself, which looks whether a promise was kept
)

// events is a heap: the first is the next one, and none is before its parent.
type events []event

func (q events) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q *events) push(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

// order makes a heap of it again.
func (q events) order() {
	slices.SortFunc(q, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
}

func (q *events) pop() event {
	h := *q
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && h.less(child+1, child) {
			child++
		}
		if child >= last || !h.less(child, i) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	*q = h
	return first
}

// A schedule is real time, and what is to happen in it.
type schedule struct {
	now    time.Duration
	atOnce int // events since that has changed
	seq    uint64
	events events
}

func (q *schedule) push(e event) {
	q.seq++
	e.seq = q.seq
	q.events.push(e)
}

// after lets something happen in a while.
func (q *schedule) after(d time.Duration, to *machine, do func()) {
	e := event{at: q.now + max(d, 0), to: to, do: do}
	if to != nil {
		e.life = to.life
	}
	q.push(e)
}

// quietUntil reports that nothing happens until then, that included.
func (q *schedule) quietUntil(end time.Duration) bool {
	return len(q.events) == 0 || q.events[0].at > end
}

// A machine is what a process runs on: it has a clock, and may stand still.
type machine struct {
	*schedule
	life int // of its process: one more with each start

	// Its clock shows base at the real time since, and goes on at rate/rateOne.
	rate        int64
	base, since time.Duration
	paused      time.Duration // until then
	stops       int           // how often it has been paused
}

// rateOne is the rate of a clock that is right.
const rateOne = 1200

func (p *machine) clock() time.Duration {
	return p.base + (p.now-p.since)*time.Duration(p.rate)/rateOne
}

// real is how long a time on its clock is, rounded up.
func (p *machine) real(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return (d*rateOne + time.Duration(p.rate) - 1) / time.Duration(p.rate)
}

// timeout lets something happen by a timer of a machine, a time on its clock from now.
func (p *machine) timeout(d time.Duration, do func()) {
	p.push(event{at: p.now + max(p.real(d), 0), to: p, life: p.life, by: alarm, do: do})
}
