package engine

import (
	"sync/atomic"

	"github.com/leasehold/leasehold/internal/protocol"
)

// each calls f for each engine, apart and in random order, so that those that want the same
// locks do not want them in the same order; no more of them have a request under way than
// the runtime allows. late is true for those that did not come at once.
// A process that waits for the ten thousand locks of a session that has ended would else send ten
// thousand requests at one moment, and have most of them time out.
func each(rt Runtime, engines []*Engine, f func(e *Engine, late bool)) {
	some(rt, engines, func(e *Engine, late bool, next func()) {
		f(e, late)
		e.whenIdle(next)
	})
}

// tell passes an event to each engine, as each does, and does not wait for what they do
// about it.
func tell(rt Runtime, engines []*Engine, ev protocol.Event) {
	some(rt, engines, func(e *Engine, _ bool, next func()) {
		e.Tell(ev)
		rt.Apart(next)
	})
}

// some calls f for some engines, and for one more whenever next is called.
// The bound holds without a goroutine that waits for its turn: each that is done calls the next.
func some(rt Runtime, engines []*Engine, f func(e *Engine, late bool, next func())) {
	rt.Shuffle(len(engines), func(i, j int) { engines[i], engines[j] = engines[j], engines[i] })
	var begun atomic.Int64
	var next func()
	next = func() {
		if i := int(begun.Add(1)) - 1; i < len(engines) {
			f(engines[i], i >= rt.Parallel(), next)
		}
	}
	for range min(rt.Parallel(), len(engines)) {
		rt.Apart(next)
	}
}
