package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// rest is the end of a history: all trouble is over, and what must come to pass has to.
// Beyond the bound of clocks nothing has to, and of an object that must exist and does
// not nobody can have a lease.
func (w *world) rest() {
	w.soothe()
	_, exists := w.objects[lockKey]
	if w.arm == Far || w.existing && !exists {
		return
	}
	first := w.members[w.choose(len(w.members))]
	first.hopeful = true
	for _, m := range w.members {
		w.ease(m)
	}
	w.await("a lock that nobody holds is never taken", w.patience(true))
	if w.choose(4) != 3 || w.cfg.WriteOnce || w.promises.deleted {
		return
	}
	for _, m := range w.members {
		m.hopeful = true
		w.ease(m)
	}
	w.pass(3 * first.ttl)
	holder := w.await("a lock that nobody holds is never taken", w.patience(true))
	if holder == nil {
		return
	}
	w.steady(holder)
	holder.hopeful = false
	crash := w.choose(2) == 1
	if crash {
		w.start(holder)
	} else {
		w.ease(holder)
	}
	w.await("a lock that its holder has left is never taken", w.patience(crash))
}

// soothe ends all trouble. What is on its way comes soon, and calls that wait in vain end.
func (w *world) soothe() {
	w.logf("it is calm")
	w.calm = true
	w.weather.throttled, w.weather.slow = 0, 0
	if w.weather.poisoned != "" {
		w.cure()
	}
	for _, m := range w.members {
		m.paused, m.noRequests, m.noAnswers, m.denied = 0, 0, 0, 0
	}
	waiting := w.queue
	w.queue = nil
	for _, e := range waiting {
		e.at = min(e.at, w.now+500*time.Millisecond)
		w.queue.push(e)
	}
	if w.cfg.WriteOnce {
		w.after(0, nil, w.tidy)
	}
}

// tidy sweeps every second.
func (w *world) tidy() {
	w.sweep()
	w.after(time.Second, nil, w.tidy)
}

// ease is what the user of a member does in the calm: the hopeful want the lock and keep
// it, the others let go.
func (w *world) ease(m *member) {
	switch {
	case !w.calm || m.releasing:
	case m.leased && (!m.hopeful || !m.c.Valid(w.clock(m))):
		m.releasing = true
		w.step(m, protocol.Release{})
	case m.wants && !m.hopeful:
		w.step(m, protocol.Cancel{})
	case m.hopeful && !m.leased && !m.wants:
		m.wants = true
		w.step(m, protocol.Acquire{Wait: true})
	}
}

// holder is the hopeful member whose lease is valid.
func (w *world) holder() *member {
	for _, m := range w.members {
		if m.hopeful && m.c.Valid(w.clock(m)) {
			return m
		}
	}
	return nil
}

// patience is how long, in real time, a lock may stay without a holder while somebody
// waits for it. Somebody may be kept from looking by a peer's word for as long as a lease
// is valid, and then looks at its interval. A holder that is gone is waited out in full
// and, where nothing can be written over, until its marker is swept.
func (w *world) patience(gone bool) time.Duration {
	ttl := w.longest
	look := max(protocol.Renewal(ttl), infrequent)
	d := protocol.Validity(ttl) + look*5/4
	if gone {
		d += protocol.Patience(ttl) + ttl/10 + look*5/4
	}
	if w.cfg.WriteOnce {
		d += protocol.Stale(ttl)
	}
	return d*protocol.Drift/(protocol.Drift-1) + 2*time.Second
}

// await lets time pass until a hopeful member holds the lock, and returns it; nil if a
// promise is broken.
func (w *world) await(otherwise string, patience time.Duration) *member {
	for end := w.now + patience; w.promises.broken == ""; w.next() {
		if holder := w.holder(); holder != nil {
			return holder
		}
		if len(w.queue) == 0 || w.queue[0].at > end {
			w.fault(Liveness, "%s in %v", otherwise, patience)
			break
		}
	}
	return nil
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	for end := w.now + d; len(w.queue) > 0 && w.queue[0].at <= end && w.promises.broken == ""; {
		w.next()
	}
}

// steady lets one member hold the lock while the others wait, and counts their requests.
func (w *world) steady(holder *member) {
	window := 3 * holder.ttl
	for _, m := range w.members {
		m.sent = traffic{}
	}
	w.pass(window)
	for _, m := range w.members {
		if may := w.budget(m, holder, window); m.sent.reads > may.reads || m.sent.writes > may.writes {
			w.fault(Budget, "%v, where %v holds the lock, sent %+v in %v, and may send %+v", m, holder, m.sent, window, may)
		}
	}
}

// budget is what a member may send in a window of time: who holds, a write for each renewal;
// who waits, a look, and a few more until it knows when the holder renews. One whose
// clock is faster than the holder's looks too early at times, and once more then.
func (w *world) budget(m, holder *member, window time.Duration) traffic {
	renewals := int(window*(protocol.Drift+1)/protocol.Drift/protocol.Renewal(holder.ttl)) + 1
	listed := w.name == "epochs" // with each renewal, by who sends it and by who sees it
	if m == holder {
		if listed {
			return traffic{reads: renewals, writes: renewals}
		}
		return traffic{writes: renewals}
	}
	may := traffic{reads: renewals + 8}
	if m.rate > holder.rate {
		may.reads += renewals
	}
	if listed {
		may.reads += renewals
	}
	if w.cfg.Numbered {
		// Epochs are collected at once here, and not after a day. Who looks for one that
		// is gone, or was created again, claims in vain before it begins anew.
		may.reads += 8
		may.writes = 2
	}
	return may
}
