package sim

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/store"
)

// A pacing is what a part of the semaphore may send, and what it owes to those who wait: allowances as
// those of candidates (allowance.go), which follow from what is promised.
//
//   - Whoever waits looks once a second at most, but for some looks when a seat was granted to
//     somebody: the pauses grow from some milliseconds, by an eighth at least.
//   - A change is tried once a second at most, but for those of the first seconds, and when others were
//     faster. It is followed by a look.
//   - One that was not let into a full table looks as one that comes when it is.
//   - A word of a change is worth one look, until the table has changed.
//   - A table all of whose callers hold seats sends nothing, but for one look for each word.
type pacing struct {
	looks, changes, failing allowance
	settles                 time.Duration // until then, by its clock, it settles what nobody waits for
	answered                *call         // its answer is being taken in

	writeFailed bool          // the last one has
	lookFailed  bool          // the last one has
	heard       bool          // a word of a change, since the table has last changed
	words       int           // that it has heard, and has not looked for while all of its callers held seats
	silent      int           // failures in a row of which nobody has been told
	silentSince time.Duration // the first of these
	reminded    time.Duration // when they were last told; 0: never
}

// oneLook is what a look costs: the pauses of whoever waits are of a second, and up to a quarter shorter.
const oneLook = 3 * time.Second / 4

// lookBurst is how many looks there may be at a time. The head's pauses of 3 ms grow by a half, and come to a
// second after fifteen. Those of the others are an eighth of the time waited, or chance makes them a quarter
// shorter: with answers after 10 ms that is 37 looks more than one in oneLook when they come to that.
const lookBurst = 40

// acted lets a part send requests anew, because somebody wants something.
func (p *part) acted() {
	p.looks.fill(p.now, lookBurst*oneLook)
	p.changes.fill(p.now, burst*time.Second)
	p.failing.fill(p.now, p.most())
}

// most is what may be saved of tries that fail. A caller that leaves has a TTL to settle that, and more tries
// in it.
func (p *part) most() time.Duration {
	if len(p.who(leaves)) > 0 || p.clock() < p.settles {
		return holding * time.Second
	}
	return burst * time.Second
}

// wanted checks that a part sends nothing if all of its callers hold seats, but for a look when it was told something.
func (st *seats) wanted(p *part, a protocol.Action) {
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

// sent checks that a part may send this.
func (st *seats) sent(r *request) {
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
			cost /= 2 // the write of a try, and its look
		}
	case r.writes():
		a, cost, most, what = &p.changes, time.Second, burst*time.Second, "changes"
		p.looks.left += oneLook
	}
	if !a.spend(st.now, cost, most) {
		st.violated(Pace, "%v, TTL %v, sends more %s than its pauses allow", p, p.cfg.TTL, what)
	}
}

// changed lets all look and try again, because somebody's change has landed.
func (st *seats) changed(granted bool) {
	for _, p := range st.tables.parts() {
		p.silent, p.heard = 0, false
		p.looks.left += oneLook
		p.changes.left += time.Second
		if granted {
			p.looks.fill(st.now, lookBurst*oneLook)
		}
	}
}

// taken takes note of what a part hears.
func (st *seats) taken(p *part, ev protocol.Event) {
	switch ev := ev.(type) {
	case protocol.SessionExpired: // it has another try
		p.looks.left += oneLook
		p.changes.left += time.Second
	case queue.Told: // the first one is heeded, whoever says it
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

// failed checks that those who wait while something fails for a long time are told of it.
func (st *seats) failed(p *part, bad bool) {
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

// told takes note of trouble that those who wait are told of: once a minute.
func (st *seats) told(p *part) {
	if least := reminder * (protocol.Drift - 1) / protocol.Drift; p.reminded > 0 && st.now-p.reminded < least && st.arm != Far {
		st.violated(Returns, "%v is told of trouble again after %v", p, st.now-p.reminded)
	}
	p.silent, p.reminded = 0, st.now
}

// stepped checks that nobody goes on to wait after a refusal for good.
func (st *seats) stepped(p *part) {
	c := p.answered
	if c == nil || !c.struck || !st.lasting.answer.Final || is(c.err, store.ErrUnknownOutcome) {
		return
	}
	for _, c := range p.who(asks) {
		st.violated(Returns, "%v goes on after %v to %s", c, st.lasting.answer, st.lasting.ops)
	}
}

// stuck is for the moment when a failure has ended: what it returns is a part with somebody who still
// waits whom the failure has kept from a seat, although all seats are free; nil: there is none.
func (st *seats) stuck() func() *part {
	t := st.tables.on
	if t == nil || t.there && len(t.now.Seats()) > 0 || slices.ContainsFunc(t.inFlight, (*request).writes) {
		return func() *part { return nil }
	}
	var kept []*caller
	for _, p := range st.tables.parts() {
		if (p.lookFailed || p.writeFailed) && !st.tables.excused(p) {
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
