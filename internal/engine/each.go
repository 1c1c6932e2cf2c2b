package engine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/leasehold/leasehold/internal/lockorder"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/session"
	"github.com/leasehold/leasehold/store"
)

// each calls f for each engine, apart; no more of them have a request under way than the store takes.
// late: it is better to look first, since another may have been there before.
// A process that waits for the ten thousand locks of a session that has ended would else send ten
// thousand requests at one moment, and have most of them time out.
func each(rt Runtime, engines []member, f func(e member, late bool)) {
	some(rt, engines, func(e member, late bool, done func(outcome)) {
		f(e, late)
		e.whenIdle(func() { done(e.outcome()) })
	})
}

// tell passes an event to each engine, as each does, and does not wait for what they do
// about it.
func tell(rt Runtime, engines []member, ev protocol.Event) {
	some(rt, engines, func(e member, _ bool, done func(outcome)) {
		e.Tell(ev)
		done(outcome{})
	})
}

// An outcome is what came of a request.
type outcome struct {
	failed bool // the store has asked for fewer, or has not answered
	taken  bool // another has the lock
}

// outcome is what came of the last request of an engine, which is idle.
func (e *Engine) outcome() (o outcome) {
	e.Locked(func() {
		if e.active == nil {
			return // it holds a lease, and rests
		}
		c := e.active.candidate
		err := c.Trouble()
		// A write that is refused because of a rival's says nothing of the store.
		o.failed = err != nil && !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConflict)
		o.taken = !o.failed && !c.Valid(e.runtime().Now().Clock)
	})
	return o
}

// A crowd are engines that are to do the same.
type crowd struct {
	rt Runtime
	do func(e member, late bool, done func(outcome))

	mu     lockorder.Mutex
	parts  []*part
	window *protocol.Window
}

// A part of a crowd comes one after the other.
type part struct {
	engines []member
	late    bool // the last one of which that is known has found its lock taken, or none is known
}

// some has some engines do something, as many at a time as the store takes.
func some(rt Runtime, engines []member, do func(e member, late bool, done func(outcome))) {
	c := &crowd{rt: rt, do: do, parts: split(engines, rt.Draw), window: protocol.NewWindow(rt.Parallel())}
	c.more()
}

// A crowd has so many parts at most, of so many each at least.
const mostParts, leastPart = 16, 32

// split brings engines into parts.
//
// Several processes may want the same locks. So they all have them in one order, that of a hash of their
// names, which is cut into parts, and each has the parts in an order of its own. Then a process finds a part
// free, until it comes to where another is, or taken, and little of both; and none looks at locks that
// it takes, but for some of each part. In an order of its own of all locks, each would find a few
// more taken all the time, and have to look at nearly all.
func split(engines []member, draw func(n int) int) (parts []*part) {
	hashes := make(map[member]string, len(engines))
	for _, e := range engines {
		hashes[e] = session.KeyHash(e.host().Place().Key)
	}
	slices.SortStableFunc(engines, func(a, b member) int { return cmp.Compare(hashes[a], hashes[b]) })
	n := min(max(len(engines)/leastPart, 1), mostParts)
	for some := range slices.Chunk(engines, max((len(engines)+n-1)/n, 1)) {
		parts = append(parts, &part{engines: some, late: true})
	}
	for i := range parts {
		j := i + draw(len(parts)-i)
		parts[i], parts[j] = parts[j], parts[i]
	}
	if len(parts) > 0 {
		parts[0].late = false // nobody has been anywhere yet
	}
	return parts
}

// more begins as many as may begin. It waits for none of them: each that is done calls it again.
func (c *crowd) more() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.parts) > 0 {
		number, ok := c.window.Begin()
		if !ok {
			return
		}
		p := c.parts[0]
		e, late := p.engines[0], p.late
		if p.engines = p.engines[1:]; len(p.engines) == 0 {
			c.parts = c.parts[1:]
		}
		c.rt.Apart(func() { c.do(e, late, func(o outcome) { c.done(number, p, o) }) })
	}
}

// done takes in what came of one.
func (c *crowd) done(number int, of *part, o outcome) {
	c.mu.Lock()
	c.window.End(number, o.failed)
	if !o.failed {
		of.late = o.taken
	}
	c.mu.Unlock()
	c.more()
}
