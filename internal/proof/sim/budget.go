package sim

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// steady lets the locks be held while the others wait, and counts the requests of each
// process.
func (w *world) steady(locks []*lock) {
	holders := map[*lock]*member{}
	longest := time.Duration(0)
	for _, l := range locks {
		holders[l] = w.holder(l)
		longest = max(longest, holders[l].ttl)
	}
	window := 3 * longest
	for _, p := range w.processes {
		p.sent = traffic{}
	}
	w.pass(window)
	for _, p := range w.processes {
		if may := w.budget(p, holders, window); p.sent.reads > may.reads || p.sent.writes > may.writes {
			w.fault(Budget, "%v sent %+v in %v, and may send %+v", p, p.sent, window, may)
		}
	}
}

// renewals is how many there may be of a lease in a window of time.
func renewals(ttl, window time.Duration) int {
	return int(window*(protocol.Drift+1)/protocol.Drift/protocol.Renewal(ttl)) + 1
}

// budget is what a process may send in a window of time: for its session a write for each
// renewal, whatever it holds under it; for each session that it waits for a look for each
// renewal of that, however many locks it wants; and for other locks what each costs.
func (w *world) budget(p *process, holders map[*lock]*member, window time.Duration) (may traffic) {
	if p.open != nil {
		may.writes += renewals(p.open.heartbeat.ttl, window)
	}
	var watched []*member
	for _, m := range p.locks {
		holder := holders[m.on]
		switch {
		case holder == nil:
		case holder.under == nil:
			one := w.plain(m, holder, window)
			may.reads, may.writes = may.reads+one.reads, may.writes+one.writes
		case m.watcher() != nil && !slices.Contains(watched, m.watcher()):
			watched = append(watched, m.watcher())
			may.reads += w.looks(p, holder.under.heartbeat, window)
		}
	}
	return may
}

// looks are those of one who waits: one for each renewal, and a few more until it knows when
// the holder renews. One whose clock is faster than the holder's looks too early at times,
// and once more then.
func (w *world) looks(p *process, holder *member, window time.Duration) int {
	n := renewals(holder.ttl, window)
	if p.rate > holder.rate {
		n *= 2
	}
	return n + 8
}

// plain is what a lock costs that is held under no session: for the holder a write for
// each renewal, for a waiter its looks.
func (w *world) plain(m, holder *member, window time.Duration) traffic {
	n := renewals(holder.ttl, window)
	listed := w.name == "epochs" // with each renewal, by who sends it and by who sees it
	if m == holder {
		if listed {
			return traffic{reads: n, writes: n}
		}
		return traffic{writes: n}
	}
	may := traffic{reads: w.looks(m.process, holder, window)}
	if listed {
		may.reads += n
	}
	if w.cfg.Numbered {
		// Epochs are collected at once here, and not after a day. A candidate that looks
		// for one that is gone, or was created again, claims in vain before it begins anew.
		may.reads += 8
		may.writes = 2
	}
	return may
}
