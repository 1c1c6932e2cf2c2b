package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/store"
)

// A world is one history while it is played.
type world struct {
	way
	arm      Arm
	existing bool // candidates never create the object
	dated    bool // the store tells its time
	skewed   bool // which may jump, and then nobody starts fast
	fenced   bool
	without  []string
	choose   func(n int) int // from 0 to n-1, for n up to 256

	now       time.Duration // real time
	atOnce    int           // events since that has changed
	queue     queue
	seq       uint64
	processes []*process
	locks     []*lock
	members   []*member // the candidates for locks
	sessions  []*session
	made      int // candidates
	objects   bucket
	collector *call
	weather   weather
	lasting   *lasting // what fails for a long time, in a history of that
	resting   bool     // then users do nothing, for the moment
	odds      [Faults]int
	calm      bool
	ttls      [3]time.Duration
	longest   time.Duration // of all TTLs

	broken, how string // the first promise that was not kept

	faults  Counts
	granted int
	hash    uint64
	verbose bool
	history strings.Builder
}

// weather is what the store is like at present, for everybody.
type weather struct {
	throttled, slow time.Duration // until then
	skew            time.Duration // of the store's clock
	poisoned        string        // the key of what is no record of ours
	poison          store.Version // which is this
	instead         *object       // of this, if there was anything
}

// An event is something that happens at a time. An event of a process waits while the
// process is paused, and is dropped if it has crashed since.
type event struct {
	at   time.Duration
	seq  uint64
	to   *process // nil: to nobody
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

// queue is a heap: the first event is the next one, and no event is before its parent.
type queue []event

func (q queue) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q *queue) push(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

// order makes a heap of it again.
func (q queue) order() {
	slices.SortFunc(q, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
}

func (q *queue) pop() event {
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

// after lets something happen in a while.
func (w *world) after(d time.Duration, to *process, do func()) {
	e := event{at: w.now + max(d, 0), to: to, do: do}
	if to != nil {
		e.life = to.life
	}
	w.push(e)
}

// timeout lets something happen by a timer of a process.
func (w *world) timeout(d time.Duration, to *process, do func()) {
	w.push(event{at: w.now + max(d, 0), to: to, life: to.life, by: alarm, do: do})
}

// soon lets something happen that is done apart, and so in any order.
func (w *world) soon(to *process, do func()) {
	w.after(time.Duration(w.choose(3))*time.Millisecond, to, do)
}

func (w *world) push(e event) {
	w.seq++
	e.seq = w.seq
	w.queue.push(e)
}

// next lets the next event happen.
func (w *world) next() {
	e := w.queue.pop()
	if w.atOnce++; e.at > w.now {
		w.now, w.atOnce = e.at, 0
	}
	if w.atOnce > 10_000 {
		w.fault(Sense, "somebody is busy, and no time passes")
		return
	}
	switch p := e.to; {
	case p == nil:
		e.do()
	case e.life != p.life:
		return
	case w.now < p.paused:
		// All at once when it goes on, in any order.
		e.at = p.paused + time.Duration(w.choose(3))*time.Millisecond
		w.push(e)
		return
	default:
		e.do()
	}
	w.mix(uint64(w.now), e.seq)
	w.oneLease()
	w.orphans()
}

// mix adds to the hash of the history.
func (w *world) mix(values ...uint64) {
	for _, v := range values {
		w.hash = (w.hash ^ v) * 0x9e3779b97f4a7c15
		w.hash ^= w.hash >> 29
	}
}

// epoch is when the world began, by its own clock and by the store's.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// date is the store's clock, which shows whole seconds.
func (w *world) date() time.Time {
	return epoch.Add(w.now + w.weather.skew).Truncate(time.Second)
}

func (w *world) logf(format string, args ...any) {
	if w.verbose {
		fmt.Fprintf(&w.history, "%10.3fs  "+format+"\n", append([]any{w.now.Seconds()}, args...)...)
	}
}

// pick chooses one of some durations.
func (w *world) pick(of ...time.Duration) time.Duration { return of[w.choose(len(of))] }

// end leaves nothing of the coroutines behind.
func (w *world) end() {
	for _, p := range w.processes {
		p.end()
	}
	if w.collector != nil {
		w.collector.end()
	}
}
