package sim

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

// liveness heals everything and checks liveness. It need not hold with clocks beyond the bound,
// for missing objects that must exist, and for deleted objects under a session: after seeing one
// vanish, a candidate waits for the session to end, which need not happen.
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
	turns := w.now + w.patience()
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
	locks = slices.DeleteFunc(locks, func(l *lock) bool { // that no other member wants
		return !slices.ContainsFunc(l.members, func(m *member) bool { return m.contends })
	})
	w.await(locks, "is never taken, though its holder has left it", w.takeover(crash))
}

// heal ends all faults. Requests in flight arrive soon, and calls without an answer end.
func (w *world) heal() {
	w.logf("all is healed")
	w.healed, w.calm = true, false
	for _, p := range w.parts() {
		p.turns = 0
	}
	w.server.throttled, w.slow = 0, 0
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

// takeover returns how long, in real time, a wanted lock may have no holder. A waiter reads after
// ten seconds, whatever the TTL. A peer's answer may keep a candidate from reading while a lease
// is valid, and then for its interval. A dead holder is waited out in full and, if objects cannot
// be overwritten, until its marker is swept.
//
// Sessions do not take longer. After reading the lock, a waiter waits out the session, or learns
// from it about the release.
func (w *world) takeover(gone bool) time.Duration {
	ttl := w.longest
	look, kept := infrequent, time.Duration(0)
	if len(w.sessions) > 0 || slices.ContainsFunc(w.members, (*member).follows) {
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

// follows reports whether the member polls as candidates in an election do.
func (m *member) follows() bool {
	_, follows := m.cfg.Role.(candidate.Follower)
	return follows
}

// await waits until contenders hold the locks, and reports whether they do. Otherwise liveness is
// broken.
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

// awaitTurns waits until all waiters for slots have had their turn. A deleted object promises
// nothing: its holders need not know, and callers wait for those holders' sessions to end.
func (w *world) awaitTurns(end time.Duration) {
	for t := w.table; t != nil && !t.deleted && w.broken == ""; w.next() {
		p := w.waits()
		if p == nil {
			return
		}
		if w.quietUntil(end) {
			w.violated(Liveness, "%v has not had its turn, and the object has %s", p, showTable(t.now))
		}
	}
}

// waits returns a part with an unfinished turn, or nil.
func (w *world) waits() *part {
	for _, p := range w.parts() {
		if len(p.callers) > 0 || p.turns == 0 && !w.excused(p) {
			return p
		}
	}
	return nil
}

// patience returns how long, in real time, the turns of all waiters take, one after the other.
// The dead are waited out together: a waiter behind them notices within a TTL. A waiter that is
// not at the head reads once in five minutes, and may learn about its slot that late.
func (w *world) patience() time.Duration {
	turns := time.Duration(0)
	for _, p := range w.parts() {
		turns += time.Duration(len(p.callers)) + 1
	}
	ttl := w.longest
	dead := ttl + protocol.Patience(ttl) + protocol.Renewal(ttl)*5/4
	turn := queue.LineLook*5/4 + holdCalm + time.Second
	return (dead+turns*turn)*protocol.Drift/(protocol.Drift-1) + 2*time.Second
}

func (w *world) pass(d time.Duration) {
	for end := w.now + d; !w.quietUntil(end) && w.broken == ""; {
		w.next()
	}
}

// checkBudget counts each process's requests while the locks are held and the others wait.
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

// renewals returns the most renewals of a lease in a window.
func renewals(ttl, window time.Duration) int {
	return int(window*(protocol.Drift+1)/protocol.Drift/protocol.Renewal(ttl)) + 1
}

// budget returns what a process may send in a window: a write per renewal of its session, a read
// per renewal of each session it waits for, and the cost of each other lock.
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
	if t := w.table; t != nil && t.deleted && p.part != nil {
		one := w.lookout(p, watched, window)
		may.reads, may.writes = may.reads+one.reads, may.writes+one.writes
	}
	return may
}

// lookout returns the cost of waiting for slots in a deleted object (see awaitTurns): a read a
// second for a new object, reads of the holders' sessions, and a few writes if there is an
// object.
func (w *world) lookout(p *process, watched []*member, window time.Duration) traffic {
	one := traffic{reads: int(window*(protocol.Drift+1)/protocol.Drift/oneLook) + lookBurst, writes: burst}
	for _, o := range w.processes {
		if o != p && o.open != nil && !slices.Contains(watched, o.open.heartbeat) {
			one.reads += w.looks(p, o.open.heartbeat, window)
		}
	}
	return one
}

// looks returns a waiter's reads: one per renewal, and a few more until it knows when the holder
// renews. With a faster clock than the holder's, it sometimes reads too early and then again.
func (w *world) looks(p *process, holder *member, window time.Duration) int {
	n := renewals(holder.ttl, window)
	if p.rate > holder.rate {
		n *= 2
	}
	return n + 8
}

// settled is the shortest average interval of a waiter after ten reads.
const settled = 600 * time.Millisecond

// plain returns the cost of a lock without a session: a write per renewal for the holder, reads
// for a waiter.
func (w *world) plain(m, holder *member, window time.Duration) traffic {
	n := renewals(holder.ttl, window)
	listed := w.name == "epochs without If-Match" // a listing per renewal, by the sender and by its readers
	if m == holder {
		if listed {
			return traffic{reads: n, writes: n}
		}
		return traffic{writes: n}
	}
	may := traffic{reads: w.looks(m.process, holder, window)}
	if !m.follows() {
		may.reads = int(window*(protocol.Drift+1)/protocol.Drift*21/20/settled) + 12
	}
	if listed {
		may.reads += n
	}
	if w.cfg.Numbered {
		// Epochs are collected at once here, not after a day. A candidate looking for a missing
		// or re-created epoch claims in vain before it starts again.
		may.reads += 8
		may.writes = 2
	}
	return may
}

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

// promptly returns how soon after the failure a free lock is taken. First, a request without an
// answer must be given up; other faults can also leave a write without one (disturb). A
// waiter for a session has two backoffs, its own and the one for reading the session.
func (w *world) promptly() time.Duration {
	d := 2*maxPause + 500*time.Millisecond
	if w.lasting.answer.Status == 0 || slices.ContainsFunc(w.processes, (*process).writing) {
		d += protocol.MaxRequest
	}
	return d*protocol.Drift/(protocol.Drift-1) + 2*time.Second
}

func (p *process) writing() bool {
	return slices.ContainsFunc(p.calls, func(c *call) bool { return !c.finished && !c.over && c.waits != nil && c.waits.writes() })
}

// checkPrompt checks that free locks are taken within seconds if the failure had kept a waiter
// from them.
func (w *world) checkPrompt() {
	w.calm = true
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
	table := w.slots.stuck()
	for w.broken == "" {
		locks = slices.DeleteFunc(locks, func(l *lock) bool { return l.granted > granted[l] || l.stuck() == nil })
		late := w.quietUntil(end)
		switch still := table(); {
		case still != nil && late:
			w.violated(Prompt, "%v ago the failure (%v to %s) ended, all slots are free, and %v, whose TTL is %v, still waits",
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

// isFree reports whether a claim can succeed: no holder, no successor, no cooldown, and no write
// in flight.
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

// holder returns the contender with a valid lease, or nil.
func (l *lock) holder() *member {
	for _, m := range l.members {
		if m.contends && m.valid() {
			return m
		}
	}
	return nil
}

// stuck returns a candidate still waiting for the lock after a failed read or write, or nil.
func (l *lock) stuck() *member {
	for _, m := range l.members {
		if m.wants && m.patient && (m.failed() || m.watcher() != nil && m.watcher().failed()) {
			return m
		}
	}
	return nil
}
