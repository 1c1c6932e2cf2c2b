package sim

import (
	"cmp"
	"slices"
	"time"
)

// An event happens at a time. A machine's event waits while the machine is stopped, and is
// dropped if the process has crashed.
type event struct {
	at   time.Duration
	seq  uint64
	to   *machine // nil: no machine
	life int
	by   timer
	do   func()

	demand any // instead of do: see world.happen
}

// A timer is the cause of an event.
type timer int

const (
	none  timer = iota // an outside event
	alarm              // a timer that stops while its process is suspended
	tick               // a timer that reads the clock every second
	check              // a check of a promise
)

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

type schedule struct {
	now    time.Duration
	atOnce int // events since now last changed
	seq    uint64
	events events
}

func (q *schedule) push(e event) {
	q.seq++
	e.seq = q.seq
	q.events.push(e)
}

func (q *schedule) after(d time.Duration, to *machine, do func()) {
	e := q.in(d, to)
	e.do = do
	q.push(e)
}

// demand is after, for what a part above the caller does.
func (q *schedule) demand(d time.Duration, to *machine, what any) {
	e := q.in(d, to)
	e.demand = what
	q.push(e)
}

func (q *schedule) in(d time.Duration, to *machine) event {
	e := event{at: q.now + max(d, 0), to: to}
	if to != nil {
		e.life = to.life
	}
	return e
}

func (q *schedule) quietUntil(end time.Duration) bool {
	return len(q.events) == 0 || q.events[0].at > end
}

type machine struct {
	*schedule
	life int // the number of the process's starts

	// The clock shows base at the real time since, and runs at rate/rateOne.
	rate        int64
	base, since time.Duration
	paused      time.Duration // until then
	stops       int           // how often it was paused
}

const rateOne = 1200

func (p *machine) clock() time.Duration {
	return p.base + (p.now-p.since)*time.Duration(p.rate)/rateOne
}

// real converts a duration on its clock to real time, rounded up.
func (p *machine) real(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return (d*rateOne + time.Duration(p.rate) - 1) / time.Duration(p.rate)
}

// timeout schedules do by a timer of the machine, after d on its clock.
func (p *machine) timeout(d time.Duration, do func()) {
	p.push(event{at: p.now + max(p.real(d), 0), to: p, life: p.life, by: alarm, do: do})
}
