package sim

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
)

// user is what the user of a member does next, until the calm.
func (w *world) user(m *member) {
	if w.calm {
		return
	}
	if w.lasting != nil {
		w.client(m)
		return
	}
	switch {
	case m.releasing:
	case m.leased:
		w.holding(m)
	case m.wants:
		if w.hit(Cancelled) {
			w.cancel(m)
		}
	default:
		w.idle(m)
	}
	w.after(w.pick(4*time.Second, time.Second, 300*time.Millisecond, 50*time.Millisecond), m.process, func() { w.user(m) })
}

// idle is what a user does that holds nothing and waits for nothing.
func (w *world) idle(m *member) {
	switch w.choose(9) {
	case 0:
	case 8:
		if m.inspects == nil {
			w.inspect(m)
		}
	case 1:
		m.e.Watch(w.choose(2) == 1)
	default:
		if s := w.under(m); s != nil || !m.sessions || w.choose(4) == 3 {
			hasty := w.choose(4)
			w.acquire(m, hasty == 0 || hasty < 3 && !m.sessions, s)
		}
	}
}

// holding is what a user does that holds a lease.
func (w *world) holding(m *member) {
	w.retune(m)
	if w.hit(GivenUp) { // its work goes on
		m.e.Tell(protocol.GiveUp{})
		return
	}
	w.work(m)
	if w.valid(m) && w.now < m.busy {
		return
	}
	if !w.valid(m) && w.choose(3) == 2 {
		w.met(Overrun)
		return
	}
	w.release(m)
}

// letGo is a user that lets go of its lease before its time, or gives up waiting for it.
func (w *world) letGo(m *member) {
	switch {
	case w.calm || m.releasing:
	case m.wants && m.beats == nil && !m.reaps:
		w.met(Cancelled)
		w.cancel(m)
	case !m.leased:
	case m.beats != nil:
		w.closeSession(m.beats)
	default:
		w.release(m)
	}
}

// inspect is a user that looks at the lock without wanting it. Its candidate is told what that
// shows, however late.
func (w *world) inspect(m *member) {
	sent := w.clock(m.process)
	var s layout.Snapshot
	var err error
	c := begin(m.process, m, func(ctx context.Context) { s, err = m.lay(network{}).Look(ctx, "") })
	c.done = func() {
		m.inspects = nil
		if seen := layout.ReadDone(s, err); seen.Shown == protocol.Found {
			w.met(Inspected, m)
			m.e.Tell(protocol.Sighted{Answer: seen, Sent: sent})
		}
	}
	m.inspects = c
	w.timeout(m.real(protocol.MaxRequest), m.process, func() { w.giveUp(c) })
	w.resume(c)
}

// comes is a user that comes now, and takes the place of one that waits.
func (w *world) comes(m *member) {
	if w.calm || m.leased {
		return
	}
	if m.wants {
		w.cancel(m)
	}
	w.acquire(m, true, w.under(m))
}

// passBy is a user that tries once, where a session has just ended.
func (w *world) passBy(m *member) {
	w.after(w.pick(10*time.Millisecond, 100*time.Millisecond, time.Second), m.process, func() {
		if !w.calm && !m.leased && !m.wants {
			w.acquire(m, false, w.under(m))
		}
	})
}

// under is the session that an acquisition is to be under, if there is one.
func (w *world) under(m *member) *session {
	if s := m.open; s != nil && w.alive(s) && w.choose(4) != 3 {
		return s
	}
	return nil
}

// retune changes the TTL of whom it belongs to, from the next write on.
func (w *world) retune(m *member) {
	if m.sessions {
		return
	}
	f, to := Shorter, ttls[0]
	if m.ttl == ttls[0] || m.ttl == ttls[1] && w.choose(2) == 1 {
		f, to = Longer, ttls[2]
	}
	if w.hit(f) {
		m.ttl = to
		w.longest = max(w.longest, to)
		m.e.Tell(protocol.Retune{TTL: to})
	}
}

// release ends a lease: for all, for one, or for another user of the same process.
func (w *world) release(m *member) {
	ev := protocol.Release{}
	switch w.choose(4) {
	case 1:
		ev.Successor = w.processes[w.choose(len(w.processes))].String()
	case 2, 3:
		ev.Pass = true
	}
	m.releasing = true
	w.renew(m)
	m.e.Release(func() protocol.Release { return ev })
	switch {
	case !ev.Pass || m.leased: // it is on its way
	case w.choose(8) == 7:
		w.met(Dropped)
		m.e.Tell(protocol.Drop{})
	default:
		w.met(Passed)
		w.acquire(m, true, w.under(m))
	}
}
