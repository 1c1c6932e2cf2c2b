package sim

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/store"
)

// A pacing is what a part of the semaphore may send, and what it owes its waiters. Like a
// candidate's (allowance.go), its allowances are derived from the promises:
//
//   - A waiter reads at most once a second, and some more when a slot was granted: the intervals
//     grow from a few milliseconds by at least 1/8.
//   - A change is tried at most once a second, except in the first seconds and after others'
//     changes. A read follows it.
//   - A caller refused by a full table may read as a new caller when there is room.
//   - A notification is worth one read until the table changes.
//   - While all its callers hold slots, a table sends only one read per notification.
type pacing struct {
	looks, changes, failing allowance
	settles                 time.Duration // until then, on its clock, it settles what no caller waits for
	answered                *call         // the call with the present answer

	writeFailed bool          // the last one did
	lookFailed  bool          // the last one did
	heard       bool          // a notification since the table last changed
	words       int           // notifications not yet followed by a read while all callers held slots
	silent      int           // failures in a row without a report
	silentSince time.Duration // the first of these
	reminded    time.Duration // when they were last reported; 0: never
}

// oneLook is the cost of a read: an interval is a second, and up to a quarter shorter.
const oneLook = 3 * time.Second / 4

// lookBurst is the number of reads in a burst. The head's intervals start at 3 ms, grow by half,
// and reach a second after fifteen reads. The others' are 1/8 of the time waited, and jitter may
// make them a quarter shorter. With answers after 10 ms, that is 37 reads more than one per
// oneLook.
const lookBurst = 40

// acted refills a part's allowances, because a caller wants something.
func (p *part) acted() {
	p.looks.fill(p.now, lookBurst*oneLook)
	p.changes.fill(p.now, burst*time.Second)
	p.failing.fill(p.now, p.most())
}

// most limits the savings for failing tries. A leaving caller has a TTL and more tries.
func (p *part) most() time.Duration {
	if len(p.who(leaves)) > 0 || p.clock() < p.settles {
		return holding * time.Second
	}
	return burst * time.Second
}

// wanted checks that a part sends nothing unrequested, except a read per notification.
func (st *slots) wanted(p *part, a protocol.Action) {
	if len(p.who(asks, leaves)) > 0 || p.clock() <= p.settles {
		return
	}
	if _, look := a.(queue.Read); look && p.words > 0 && len(p.who(holds)) > 0 {
		p.words--
		st.met(LookedAhead, p)
		return
	}
	st.violated(Budget, "%v wants %s, and nobody wants anything of it", p, brief{a})
}

func (st *slots) sent(r *request) {
	p := r.from.part
	if st.arm == Far {
		return
	}
	a, cost, most, what := &p.looks, oneLook, lookBurst*oneLook, "looks"
	switch {
	case r.hit:
		st.met(Persists)
		a, cost, most, what = &p.failing, time.Second, p.most(), "requests that fail"
		if st.lasting.ops == "all" {
			cost /= 2 // a try's write and its read
		}
	case r.writes():
		a, cost, most, what = &p.changes, time.Second, burst*time.Second, "changes"
		p.looks.left += oneLook
	}
	if !a.spend(st.now, cost, most) {
		st.violated(Pace, "%v, TTL %v, sends more %s than its pauses allow", p, p.cfg.TTL, what)
	}
}

// changed credits all parts after a landed change.
func (st *slots) changed(granted bool) {
	for _, p := range st.parts() {
		p.silent, p.heard = 0, false
		p.looks.left += oneLook
		p.changes.left += time.Second
		if granted {
			p.looks.fill(st.now, lookBurst*oneLook)
		}
	}
}

func (st *slots) taken(p *part, ev protocol.Event) {
	switch ev := ev.(type) {
	case protocol.SessionExpired: // it has another try
		p.looks.left += oneLook
		p.changes.left += time.Second
	case queue.Told: // the first counts, whoever sends it
		if !p.heard {
			p.looks.left += oneLook
		}
		p.heard = true
		p.words++
	case protocol.Recheck:
		p.looks.left += oneLook
	case queue.ReadDone:
		p.answered.err = ev.Err
		if p.lookFailed = ev.Err != nil && ev.Shown == protocol.Unread; p.lookFailed && !p.answered.struck {
			p.looks.left += oneLook // it is sent again
		}
		st.failed(p, p.lookFailed)
	case queue.WriteDone:
		p.answered.err = ev.Err
		p.writeFailed = ev.Err != nil
		st.failed(p, p.writeFailed)
	}
}

// failed checks that waiters are told about a lasting failure.
func (st *slots) failed(p *part, bad bool) {
	switch {
	case st.arm != Lasting:
		return
	case len(p.who(asks)) == 0 || !bad && !p.writeFailed:
		p.silent = 0
		return
	case !bad:
		return
	case p.silent == 0:
		p.silentSince = st.now
	}
	most := (reminder + maxPause + protocol.MaxRequest) * protocol.Drift / (protocol.Drift - 1)
	if p.silent++; p.silent > 3 && st.now-max(p.silentSince, p.reminded) > most {
		st.violated(Returns, "%v has failed %d times since %v, and nobody was told", p, p.silent, p.silentSince)
	}
}

// told checks that waiters are told at most once a minute.
func (st *slots) told(p *part) {
	if least := reminder * (protocol.Drift - 1) / protocol.Drift; p.reminded > 0 && st.now-p.reminded < least && st.arm != Far {
		st.violated(Returns, "%v is told of trouble again after %v", p, st.now-p.reminded)
	}
	p.silent, p.reminded = 0, st.now
}

// stepped checks that no caller waits on after a permanent error.
func (st *slots) stepped(p *part) {
	c := p.answered
	if c == nil || !c.struck || !st.lasting.answer.Final || is(c.err, store.ErrUnknownOutcome) {
		return
	}
	for _, c := range p.who(asks) {
		st.violated(Returns, "%v goes on after %v to %s", c, st.lasting.answer, st.lasting.ops)
	}
}

// stuck is called when a failure ends. If all slots are free then, its result returns a part with
// a caller still waiting because of the failure, or nil.
func (st *slots) stuck() func() *part {
	t := st.table
	if t == nil || t.there && len(t.now.Entries()) > 0 || slices.ContainsFunc(t.inFlight, (*request).writes) {
		return func() *part { return nil }
	}
	var kept []*caller
	for _, p := range st.parts() {
		if (p.lookFailed || p.writeFailed) && !st.excused(p) {
			kept = append(kept, p.who(asks)...)
		}
	}
	top := t.top
	return func() *part {
		for _, c := range kept {
			if c.stands == asks && c.wait && c.under.alive() && t.top == top {
				st.lasting.awaited = true
				return c.part
			}
		}
		return nil
	}
}
