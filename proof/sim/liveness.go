package sim

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// liveness is the end of a history: all is healed, and liveness must hold. Beyond the bound
// of clocks it need not, and nobody can have a lease of an object that must exist and does not.
// Nor of one that was deleted by hand and was under a session: a candidate that saw it vanish
// waits for the end of that session, which need not come.
func (w *world) liveness() {
	w.heal()
	locks := slices.DeleteFunc(slices.Clone(w.locks), func(l *lock) bool {
		_, exists := w.server.objects[l.key]
		return w.existing && !exists || l.deleted && len(w.sessions) > 0 || len(l.members) == 0
	})
	if w.arm == Far {
		return
	}
	for _, l := range locks {
		l.members[w.choose(len(l.members))].contends = true
	}
	w.convergeAll()
	turns := w.now + w.tables.patience()
	w.await(locks, "is never taken, though nobody holds it", w.takeover(true))
	if w.awaitTurns(turns); len(locks) == 0 || w.arm == Lasting || w.choose(4) != 3 || w.cfg.WriteOnce || slices.ContainsFunc(w.locks, func(l *lock) bool { return l.deleted }) {
		return
	}
	for _, m := range w.members {
		m.contends = true
	}
	w.convergeAll()
	for _, l := range locks {
		if m := l.holder(); m != nil && w.choose(2) == 1 {
			w.users.setMeta(m)
		}
	}
	w.pass(3 * w.longest)
	for _, m := range w.members {
		w.ledger.metaSettled(m)
	}
	if !w.await(locks, "is never taken, though nobody holds it", w.takeover(true)) {
		return
	}
	w.checkBudget(locks)
	first := locks[0].holder()
	if first == nil {
		return
	}
	crash := w.choose(2) == 1
	if crash {
		for _, m := range first.locks {
			m.contends = false
		}
		w.users.start(first.process)
	} else {
		first.contends = false
		w.users.converge(first)
	}
	locks = slices.DeleteFunc(locks, func(l *lock) bool { // that nobody else wants
		return !slices.ContainsFunc(l.members, func(m *member) bool { return m.contends })
	})
	w.await(locks, "is never taken, though its holder has left it", w.takeover(crash))
}

// heal ends all trouble. Requests on their way arrive soon, and calls that wait in vain end.
func (w *world) heal() {
	w.logf("all is healed")
	w.healed, w.users.paused = true, false
	for _, p := range w.tables.parts() {
		p.turns = 0
	}
	w.server.throttled, w.server.slow = 0, 0
	w.quorum.heal()
	if w.server.poisoned != "" {
		w.server.unpoison()
	}
	for _, p := range w.processes {
		p.paused, p.noRequests, p.noAnswers, p.denied = 0, 0, 0, 0
	}
	waiting := w.events
	w.events = nil
	for _, e := range waiting {
		if e.by != check {
			e.at = min(e.at, w.now+500*time.Millisecond)
		}
		w.events.push(e)
	}
	w.after(0, nil, w.housekeep)
}

// housekeep sweeps now and then.
func (w *world) housekeep() {
	if w.cfg.WriteOnce {
		w.server.sweep()
	}
	w.server.reclaim()
	if w.cfg.WriteOnce || len(w.sessions) > 0 {
		w.after(w.server.sweepInterval(), nil, w.housekeep)
	}
}

func (w *world) convergeAll() {
	for _, p := range w.processes {
		w.users.ensureSession(p)
		w.tables.converge(p)
		for _, m := range p.locks {
			w.users.converge(m)
		}
	}
}

// takeover is how long, in real time, a lock may stay without a holder while somebody
// waits for it. A waiter looks after ten seconds, whatever the TTL. A follower, and whoever asks peers,
// may be kept from looking by a peer's word for as long as a lease is valid, and then looks at its interval. A
// holder that is gone is waited out in full and, where nothing can be written over, until its
// marker is swept.
//
// Under sessions that is no longer: a waiter has looked at the lock, and then waits out the
// session, or hears from it that the lock was released.
func (w *world) takeover(gone bool) time.Duration {
	ttl := w.longest
	look, kept := infrequent, time.Duration(0)
	if len(w.sessions) > 0 || slices.ContainsFunc(w.members, func(m *member) bool { return m.cfg.Follow || m.cfg.Peers }) {
		look, kept = max(protocol.Renewal(ttl), infrequent), protocol.Validity(ttl)
	}
	d := kept + look*5/4
	if gone {
		d += protocol.Patience(ttl) + ttl/10 + look*5/4
	}
	if w.cfg.WriteOnce {
		d += protocol.Stale(ttl) + w.server.sweepInterval()
	}
	return (d+w.longestRest+time.Second)*protocol.Drift/(protocol.Drift-1) + 2*time.Second
}

// await lets time pass until contenders hold the locks, and reports that they do; a
// promise is broken if they do not.
func (w *world) await(locks []*lock, otherwise string, patience time.Duration) bool {
	for end := w.now + patience; w.broken == ""; w.next() {
		missing := slices.IndexFunc(locks, func(l *lock) bool { return l.holder() == nil })
		if missing < 0 {
			return true
		}
		if w.quietUntil(end) {
			w.violated(Liveness, "in %v %s %s", patience, locks[missing].key, otherwise)
			break
		}
	}
	return false
}

// awaitTurns lets time pass until all who wait for seats have had them and have left. Of an object that
// was deleted by hand nothing is promised: those who held seats in it need not know, and who has seen
// that waits for the end of their sessions.
func (w *world) awaitTurns(end time.Duration) {
	for t := w.tables.on; t != nil && !t.deleted && w.broken == ""; w.next() {
		p := w.tables.waits()
		if p == nil {
			return
		}
		if w.quietUntil(end) {
			w.violated(Liveness, "%v has not had its turn, and the object has %s", p, showTable(t.now))
		}
	}
}

func (w *world) pass(d time.Duration) {
	for end := w.now + d; !w.quietUntil(end) && w.broken == ""; {
		w.next()
	}
}

// checkBudget lets the locks be held while the others wait, and counts the requests of each
// process.
func (w *world) checkBudget(locks []*lock) {
	holders := map[*lock]*member{}
	longest := time.Duration(0)
	for _, l := range locks {
		holders[l] = l.holder()
		longest = max(longest, holders[l].ttl)
	}
	window := 3 * longest
	for _, p := range w.processes {
		p.sent = traffic{}
	}
	w.pass(window)
	for _, p := range w.processes {
		if may := w.budget(p, holders, window); p.sent.reads > may.reads || p.sent.writes > may.writes {
			w.violated(Budget, "%v sent %+v in %v, and may send %+v", p, p.sent, window, may)
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
	if t := w.tables.on; t != nil && t.deleted && p.part != nil {
		one := w.lookout(p, watched, window)
		may.reads, may.writes = may.reads+one.reads, may.writes+one.writes
	}
	return may
}

// lookout is what it costs to wait for seats in an object that was deleted, which may last as long as the sessions of
// those who held some (see awaitTurns): a look for one that is new, each second, looks at those sessions, and a few
// writes where there is one.
func (w *world) lookout(p *process, watched []*member, window time.Duration) traffic {
	one := traffic{reads: int(window*(protocol.Drift+1)/protocol.Drift/oneLook) + lookBurst, writes: burst}
	for _, o := range w.processes {
		if o != p && o.open != nil && !slices.Contains(watched, o.open.heartbeat) {
			one.reads += w.looks(p, o.open.heartbeat, window)
		}
	}
	return one
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

// settled is the shortest pause, on average, between the looks of a waiter that has looked ten times.
const settled = 600 * time.Millisecond

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
	if !m.cfg.Follow {
		may.reads = int(window*(protocol.Drift+1)/protocol.Drift*21/20/settled) + 12
	}
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

// outlast plays a history in which one kind of failure persists.
func (w *world) outlast() {
	l := w.lasting
	w.lasting.startAt(first)
	w.after(20*time.Second, nil, w.lasting.start)
	w.after(time.Second, nil, w.housekeep)
	for (l.pending || l.on) && w.broken == "" {
		w.next()
	}
	if w.broken == "" {
		w.checkPrompt()
	}
	if w.broken == "" {
		w.liveness()
	}
}

// promptly is how soon a free lock is taken after the failure has ended: the request that is
// under way must be given up, if it gets no answer, as a write may not in other trouble of its process
// (duringWrite); a waiter for the end of a session has two pauses, its own and that of the look at
// the session; then come a few requests.
func (w *world) promptly() time.Duration {
	d := 2*maxPause + 500*time.Millisecond
	if w.lasting.answer.Status == 0 || slices.ContainsFunc(w.processes, (*process).writing) {
		d += protocol.MaxRequest
	}
	return d*protocol.Drift/(protocol.Drift-1) + 2*time.Second
}

// checkPrompt checks, once the failure has ended, that a lock that is free is taken within seconds
// where somebody waits for it whom the failure has kept from it.
func (w *world) checkPrompt() {
	w.users.paused = true
	most := w.promptly()
	end := w.now + most
	var locks []*lock
	granted := map[*lock]int{}
	for _, l := range w.locks {
		if w.isFree(l) && l.stuck() != nil {
			w.lasting.awaited = true
			w.logf("%s is free, and %v waits for it", l.key, l.stuck())
			locks, granted[l] = append(locks, l), l.granted
		}
	}
	table := w.seats.stuck()
	for w.broken == "" {
		locks = slices.DeleteFunc(locks, func(l *lock) bool { return l.granted > granted[l] || l.stuck() == nil })
		late := w.quietUntil(end)
		switch still := table(); {
		case still != nil && late:
			w.violated(Prompt, "%v ago the failure (%v to %s) ended, all seats are free, and %v, whose TTL is %v, still waits",
				most, w.lasting.answer, w.lasting.ops, still, still.cfg.TTL)
			return
		case still == nil && len(locks) == 0:
			return
		}
		if late {
			w.violated(Prompt, "%v ago the failure (%v to %s) ended, %s is free, and %v, whose TTL is %v, still waits",
				most, w.lasting.answer, w.lasting.ops, locks[0].key, locks[0].stuck(), locks[0].stuck().ttl)
			return
		}
		w.next()
	}
}

// isFree reports that nothing stands in the way of the next claim: no holder, no word of who is
// to go first, and no write that may come yet.
func (w *world) isFree(l *lock) bool {
	if slices.ContainsFunc(l.inFlight, (*request).writes) {
		return false
	}
	r, there := w.server.current(l)
	switch {
	case !there:
		return !w.existing
	case !r.Held:
		return r.Successor == "" && r.Resting() == 0
	case r.Session == "":
		return false
	}
	s := w.find(r.Session)
	return s != nil && s.heartbeat.on.over && !slices.ContainsFunc(s.heartbeat.on.inFlight, (*request).writes)
}
