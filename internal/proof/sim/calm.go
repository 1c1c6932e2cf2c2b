package sim

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// settle is the end of a history: all trouble is over, and liveness must hold. Beyond the bound
// of clocks it need not, and nobody can have a lease of an object that must exist and does not.
// Nor of one that was deleted by hand and was under a session: a candidate that saw it vanish
// waits for the end of that session, which need not come.
func (w *world) settle() {
	w.soothe()
	locks := slices.DeleteFunc(slices.Clone(w.locks), func(l *lock) bool {
		_, exists := w.objects[l.key]
		return w.existing && !exists || l.deleted && len(w.sessions) > 0 || len(l.members) == 0
	})
	if w.arm == Far || len(locks) == 0 {
		return
	}
	for _, l := range locks {
		l.members[w.choose(len(l.members))].hopeful = true
	}
	w.easeAll()
	w.await(locks, "is never taken, though nobody holds it", w.patience(true))
	if w.lasting != nil || w.choose(4) != 3 || w.cfg.WriteOnce || slices.ContainsFunc(w.locks, func(l *lock) bool { return l.deleted }) {
		return
	}
	for _, m := range w.members {
		m.hopeful = true
	}
	w.easeAll()
	w.pass(3 * w.longest)
	if !w.await(locks, "is never taken, though nobody holds it", w.patience(true)) {
		return
	}
	w.steady(locks)
	first := w.holder(locks[0])
	if first == nil {
		return
	}
	crash := w.choose(2) == 1
	if crash {
		for _, m := range first.locks {
			m.hopeful = false
		}
		w.start(first.process)
	} else {
		first.hopeful = false
		w.ease(first)
	}
	locks = slices.DeleteFunc(locks, func(l *lock) bool { // that nobody else wants
		return !slices.ContainsFunc(l.members, func(m *member) bool { return m.hopeful })
	})
	w.await(locks, "is never taken, though its holder has left it", w.patience(crash))
}

// soothe ends all trouble. Requests on their way arrive soon, and calls that wait in vain end.
func (w *world) soothe() {
	w.logf("it is calm")
	w.calm, w.resting = true, false
	w.weather.throttled, w.weather.slow = 0, 0
	if w.weather.poisoned != "" {
		w.cure()
	}
	for _, p := range w.processes {
		p.paused, p.noRequests, p.noAnswers, p.denied = 0, 0, 0, 0
	}
	waiting := w.queue
	w.queue = nil
	for _, e := range waiting {
		if e.by != check {
			e.at = min(e.at, w.now+500*time.Millisecond)
		}
		w.queue.push(e)
	}
	w.after(0, nil, w.tidy)
}

// tidy sweeps now and then.
func (w *world) tidy() {
	if w.cfg.WriteOnce {
		w.sweep()
	}
	w.reclaim()
	if w.cfg.WriteOnce || len(w.sessions) > 0 {
		w.after(w.broom(), nil, w.tidy)
	}
}

// broom is how often it is swept.
func (w *world) broom() time.Duration { return max(time.Second, w.longest/1000) }

// easeAll eases everybody.
func (w *world) easeAll() {
	for _, p := range w.processes {
		w.tend(p)
		for _, m := range p.locks {
			w.ease(m)
		}
	}
}

// ease is what the user of a lock does in the calm: the hopeful want it and keep it, the
// others release it. A member of a process with sessions waits for one.
func (w *world) ease(m *member) {
	switch {
	case !w.calm || m.releasing || m.beats != nil || m.reaps:
	case m.leased && (!m.hopeful || !w.valid(m)):
		m.releasing = true
		m.e.Release(func() protocol.Release { return protocol.Release{} })
	case m.wants && !m.hopeful:
		w.cancel(m)
	case m.hopeful && !m.leased && !m.wants && !m.sessions:
		w.acquire(m, true, nil)
	case m.hopeful && !m.leased && !m.wants && m.open != nil && w.alive(m.open):
		w.acquire(m, true, m.open)
	}
}

// holder is the hopeful member whose lease of a lock is valid.
func (w *world) holder(l *lock) *member {
	for _, m := range l.members {
		if m.hopeful && w.valid(m) {
			return m
		}
	}
	return nil
}

// patience is how long, in real time, a lock may stay without a holder while somebody
// waits for it. Somebody may be kept from looking by a peer's word for as long as a lease
// is valid, and then looks at its interval. A holder that is gone is waited out in full
// and, where nothing can be written over, until its marker is swept.
//
// Under sessions that is no longer: a waiter has looked at the lock, and then waits out the
// session, or hears from it that the lock was released.
func (w *world) patience(gone bool) time.Duration {
	ttl := w.longest
	look := max(protocol.Renewal(ttl), infrequent)
	d := protocol.Validity(ttl) + look*5/4
	if gone {
		d += protocol.Patience(ttl) + ttl/10 + look*5/4
	}
	if w.cfg.WriteOnce {
		d += protocol.Stale(ttl) + w.broom()
	}
	return d*protocol.Drift/(protocol.Drift-1) + 2*time.Second
}

// await lets time pass until hopeful members hold the locks, and reports that they do; a
// promise is broken if they do not.
func (w *world) await(locks []*lock, otherwise string, patience time.Duration) bool {
	for end := w.now + patience; w.broken == ""; w.next() {
		missing := slices.IndexFunc(locks, func(l *lock) bool { return w.holder(l) == nil })
		if missing < 0 {
			return true
		}
		if len(w.queue) == 0 || w.queue[0].at > end {
			w.fault(Liveness, "in %v %s %s", patience, locks[missing].key, otherwise)
			break
		}
	}
	return false
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	for end := w.now + d; len(w.queue) > 0 && w.queue[0].at <= end && w.broken == ""; {
		w.next()
	}
}
