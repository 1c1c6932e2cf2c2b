package engine

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

// A Table gives a [queue.Machine] its clock, its alarm and its requests, as an [Engine] does for a
// candidate. It serves all callers in this process of one semaphore, so its requests have the values of
// nobody's context.
type Table struct {
	loop
	mu    Mutex // has the rank of an Engine's
	owner Host
	place Place
	at    layout.Table
	table *queue.Machine

	looked  time.Duration // when the last read was sent
	watches []watch       // of the sessions that the machine awaits
	reapers *reapers      // of the session of the callers
}

// noValues is the context of requests that serve all callers.
var noValues = context.Background()

// Init starts an engine with a new machine.
func (t *Table) Init(owner Host, cfg queue.Config) {
	p := owner.Place()
	t.owner, t.place, t.at, t.table = owner, p, layout.Table{Store: p.Store, Key: p.Key}, queue.New(cfg)
	t.mu.Rank(RankEngine)
}

// Locked calls f while the engine is locked.
func (t *Table) Locked(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// Machine returns the machine of a locked engine, for reading only.
func (t *Table) Machine() *queue.Machine { return t.table }

func (t *Table) host() Host { return t.owner }

func (*Table) values() context.Context { return noValues }

func (t *Table) runtime() Runtime { return t.place.Runtime }

// Tell steps the machine.
func (t *Table) Tell(ev protocol.Event) { t.Locked(func() { t.step(t, ev) }) }

// Join begins an acquisition under a session. It calls before first, while the engine is locked. The owner
// is told the one answer. Join fails if the session has ended, and then begins nothing.
func (t *Table) Join(s *Session, ev queue.Join, before func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := s.enter(t); err != nil {
		return err
	}
	t.reapers = s.reapers
	ev.Session = s.Key()
	before()
	t.step(t, ev)
	return nil
}

// Leave ends a caller's acquisition or frees its slots. It calls before first, while the engine is locked.
// There the owner ends the validity of the lease (rule T4), and reports whether the caller still exists.
func (t *Table) Leave(ev queue.Leave, before func() bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before() {
		t.step(t, ev)
	}
}

func (t *Table) machine() machine { return t.table }

// stored does nothing: a lease of a semaphore is valid while its session is.
func (t *Table) stored(protocol.Now) {}

func (t *Table) settled() bool { return t.table.Idle() }

func (t *Table) wake() (time.Duration, bool) { return t.table.Wake() }

// do carries out the actions that are the engine's.
func (t *Table) do(action protocol.Action) {
	switch a := action.(type) {
	case queue.Read:
		t.read(a)
	case queue.Write:
		t.write(a)
	case protocol.SessionOrphan:
		if s := t.owner.Session(a.Session); a.Closing {
			t.runtime().Apart(func() { s.End(ErrClosed) })
		} else {
			s.orphaned(t.place)
		}
	case protocol.Left:
		t.owner.Session(a.Session).leave(t)
	}
}

func (t *Table) read(a queue.Read) {
	var s layout.TableSnapshot
	var err error
	t.looked = t.runtime().Now().Clock
	t.runtime().Ask(Request{
		For: a, Context: noValues, Timeout: a.Timeout,
		Do:   func(ctx context.Context) { s, err = t.at.Look(ctx, a.Unless) },
		Done: func() { t.Tell(layout.TableRead(s, err)) },
	})
}

func (t *Table) write(a queue.Write) {
	var v protocol.Version
	var err error
	t.runtime().Ask(Request{
		For: a, Context: noValues, Timeout: a.Timeout,
		Do:   func(ctx context.Context) { v, err = t.at.Write(ctx, a) },
		Done: func() { t.Tell(layout.TableWritten(v, err)) },
	})
}

// follow watches by the reapers of the callers' session.
func (t *Table) follow(protocol.Now) {
	awaits := t.table.Awaits()
	t.watches = slices.DeleteFunc(t.watches, func(w watch) bool {
		gone := !slices.Contains(awaits, w.Await)
		if gone {
			w.reaper.leave(t)
		}
		return gone
	})
	for _, a := range awaits {
		if !slices.ContainsFunc(t.watches, func(w watch) bool { return w.Await == a }) {
			t.watches = append(t.watches, watch{a, t.reapers.join(a, t, t.looked, t.owner)})
		}
	}
}

// Settled returns a channel that is closed when nobody waits or leaves, and no request is under way. A
// process waits for it before it exits.
func (t *Table) Settled() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.whenSettled(t)
}

// outcome returns what came of the last request of an idle engine.
func (t *Table) outcome() (o outcome) {
	t.Locked(func() { o.failed = t.table.Trouble() != nil })
	return o
}

func (t *Table) whenIdle(f func()) { t.Locked(func() { t.loop.whenIdle(t, f) }) }
