package engine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/session"
	"github.com/leasehold/leasehold/store"
)

// each calls f for each engine, apart, with no more requests under way than the store takes. Otherwise, a
// process that waits for ten thousand locks of an ended session would send ten thousand requests at
// once, and most would time out. If late is set, f should read first, because another process may have
// been there before.
func each(rt Runtime, engines []member, f func(e member, late bool)) {
	some(rt, engines, func(e member, late bool, done func(outcome)) {
		f(e, late)
		e.whenIdle(func() { done(e.outcome()) })
	})
}

// tell passes an event to each engine, as each does, but does not wait for its effect.
func tell(rt Runtime, engines []member, ev protocol.Event) {
	some(rt, engines, func(e member, _ bool, done func(outcome)) {
		e.Tell(ev)
		done(outcome{})
	})
}

// An outcome is the result of a request.
type outcome struct {
	failed bool // the store asked for fewer requests, or did not answer
	taken  bool // somebody else has the lock
}

// outcome returns what came of the last request of an idle engine.
func (e *Engine) outcome() (o outcome) {
	e.Locked(func() {
		if e.active == nil {
			return // it holds a lease, and rests
		}
		c := e.active.candidate
		err := c.Trouble()
		// A write that a rival's overtook says nothing about the store.
		o.failed = err != nil && !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConflict)
		o.taken = !o.failed && !c.Valid(e.runtime().Now().Clock)
	})
	return o
}

// A crowd is a set of engines that all do the same.
type crowd struct {
	rt Runtime
	do func(e member, late bool, done func(outcome))

	mu     Mutex
	parts  []*part
	window *protocol.Window
}

// A part of a crowd is handled one by one.
type part struct {
	engines []member
	late    bool // the last known one found its lock taken, or none is known
}

// some makes engines do something, as many at a time as the store takes.
func some(rt Runtime, engines []member, do func(e member, late bool, done func(outcome))) {
	c := &crowd{rt: rt, do: do, parts: split(engines, rt.Draw), window: protocol.NewWindow(rt.Parallel())}
	c.more()
}

// A crowd has at most mostParts parts, of at least leastPart engines each.
const mostParts, leastPart = 16, 32

// split divides engines into parts.
//
// Several processes may want the same locks. They all sort them by a hash of their names and cut that order
// into the same parts, and each handles the parts in its own random order. So a process finds a part
// either free, until it meets another process, or taken, and it need not read the locks that it takes,
// except a few of each part. If each process had all locks in its own order, it would find a few more
// taken all the time, and would have to read nearly all.
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
		parts[0].late = false // no other process has been anywhere yet
	}
	return parts
}

// more begins as many as the window allows. It waits for none: each that is done calls it again.
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

// done notes the outcome of one.
func (c *crowd) done(number int, of *part, o outcome) {
	c.mu.Lock()
	c.window.End(number, o.failed)
	if !o.failed {
		of.late = o.taken
	}
	c.mu.Unlock()
	c.more()
}
