package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// While a failure lasts each candidate has allowances of requests, which follow from what is
// promised (docs/protocol.md) and not from what the code does:
//
//   - A try is a write and the look that settles it. The pauses before the next one at least
//     double from 50 ms and end at a few seconds, so there are no more tries than one a second
//     and those of the first seconds.
//   - A holder may hurry while there is something left of its lease, and so may a candidate that
//     frees what has landed.
//   - A user who wants something else, and a change of the lock, may be followed by tries anew.
//
// An allowance is time that is spent: each request costs some, and each second brings one.

// burst is how many tries may come before there is one a second at most: pauses of 50, 100,
// 200, 400 and 800 ms are between the first six, and two more for those whom chance lets begin
// early. A holder may have more, as long as its lease lasts, and so may what frees a record.
const burst, holding = 8, 16

// An allowance is what may be spent at a time, and what was left then.
type allowance struct{ left, at time.Duration }

// spend takes the cost of one request, and reports that there was enough.
func (a *allowance) spend(now, cost, most time.Duration) bool {
	// A clock that is fast lets its pauses end early.
	a.left = min(a.left+(now-a.at)*(protocol.Drift+1)/protocol.Drift, most) - cost
	a.at = now
	return a.left >= 0
}

// allowances are those of one candidate.
type allowances struct {
	failing, looks, writes, questions allowance
	acts                              int           // that its user has left
	credited                          time.Duration // when a change of the lock was last followed by more
}

// renew lets a candidate begin anew, because its user wants something else.
func (w *world) renew(m *member) { m.may.fill(w.now, m.most()) }

// settles lets it free what has landed of what its user has given up.
func (w *world) settles(m *member) { m.may.fill(w.now, holding*time.Second) }

// most is what a candidate may have saved.
func (m *member) most() time.Duration {
	if m.leased || m.settled < m.failures {
		return holding * time.Second
	}
	return burst * time.Second
}

func (m *allowances) fill(now, most time.Duration) {
	for _, a := range []*allowance{&m.failing, &m.looks, &m.writes, &m.questions} {
		a.left, a.at = max(a.left, most), now
	}
}

// changed lets those who know the lock look, and try once, when a write has landed: the attempts
// before it cannot land any more.
func (w *world) changed(r *request) {
	from := r.from.from
	if c := r.from; c.write != nil && c.write.Op == protocol.Claim && from.claims-c.number >= manyOpen-1 {
		w.met(OldestLands, r.key)
	}
	for _, m := range from.on.all() {
		m.attempts, m.silent = 0, 0
		if l := w.lasting; l == nil || w.now-m.may.credited < min(protocol.Renewal(l.ttl)/4, time.Second) {
			continue // else writes that land without an answer could go on for ever
		}
		m.may.credited = w.now
		for _, a := range []*allowance{&m.may.failing, &m.may.looks, &m.may.writes, &m.may.questions} {
			a.left += 2 * time.Second
		}
	}
}

// all are the candidates for a lock, or for the heartbeat of a session: who keeps it and those
// who wait for its end.
func (l *lock) all() (all []*member) {
	if l.session == nil {
		return l.members
	}
	return append(l.reapers, l.session.heartbeat)
}

// perTry is how many requests a try may take: a write, which may be two and a listing, and the
// look that follows, which may be a get and a listing.
func (w *world) perTry() time.Duration {
	if w.cfg.Numbered || w.cfg.WriteOnce {
		return 6
	}
	return 2
}

// count counts a request against the allowance of its sender.
func (w *world) count(r *request) {
	l, m := w.lasting, r.from.from
	if l == nil || m == nil {
		return
	}
	if r.hit = w.hits(r); !l.on || r.page > 1 {
		return
	}
	one := time.Second / w.perTry()
	renewal := protocol.Renewal(l.ttl)
	a, cost, what := &m.may.failing, time.Second, "requests that fail"
	switch {
	case r.hit:
		w.met(Persists)
		if l.ops == "all" {
			cost /= 2 // the write of a try, and its look
		}
	case r.writes():
		// A lease costs three renewals a TTL.
		a, cost, what = &m.may.writes, per(one, renewal, 3), "writes"
	default:
		// A follower looks eight times in a renewal interval, until it knows when the leader
		// renews, and up to a third more often by chance.
		a, cost, what = &m.may.looks, per(one, renewal, 12), "looks"
	}
	if !a.spend(w.now, cost, m.most()) {
		w.fault(Pace, "%v, TTL %v, sends more %s than its pauses allow while %v to %s of %s lasts: the last is a %s of %q",
			m, m.ttl, what, l.answer, l.ops, l.keys, r.op, r.key)
	}
}

// per makes a request so much cheaper that the allowance is for so many more in a while.
func per(one, while time.Duration, n int64) time.Duration {
	rate := 1 + float64(n)*float64(time.Second)/float64(while)
	return time.Duration(float64(one) / rate)
}

// inquire counts a question to a leader.
func (w *world) inquire(m *member) {
	l := w.lasting
	if l == nil || !l.on {
		return
	}
	if !m.may.questions.spend(w.now, per(time.Second, protocol.Renewal(l.ttl), 12), burst*time.Second) {
		w.fault(Pace, "%v, TTL %v, asks the leader more often than its pauses allow", m, m.ttl)
	}
}

// answered takes note of what came of a call of a candidate's, and of what it does about a refusal
// for good.
func (w *world) answered(c *call, before returns) {
	m := c.from
	l := w.lasting
	if l == nil {
		return
	}
	bad := c.err != nil && !isAnswer(c.err)
	if c.write == nil {
		m.lookFailed = bad
	} else if m.writeFailed = bad; !bad {
		w.renew(m)
	}
	if r, _, exists := m.c().Observed(); c.write == nil && !bad && exists && r.Held && r.Incarnation() != m.cfg.Incarnation {
		m.writeFailed = false // from now on it waits for a holder
	}
	w.silence(m, bad)
	final := bad && c.struck && l.answer.Final && !is(c.err, store.ErrUnknownOutcome)
	for _, waiter := range m.locks {
		if m.reaps && waiter.watcher() == m {
			w.silence(waiter, bad)
			w.hopeless(waiter, final)
		}
	}
	if !final || !before.owes || !m.owes || m.acquisitions != before.acquisitions {
		return
	}
	// An acquisition may have begun while an earlier one was being settled.
	if m.finals++; m.finals > 1 || c.write != nil && c.write.Op == protocol.Claim && c.acquisition == m.acquisitions {
		w.fault(Returns, "%v, TTL %v, goes on after %v to %s", m, m.ttl, l.answer, l.ops)
	}
}

// hopeless checks that an acquisition ends that waits for a session that cannot be looked at until
// a person does something.
func (w *world) hopeless(m *member, final bool) {
	if n := m.acquisitions; final && m.owes {
		w.hasTo(m, 1, "the look at the session that it waits for was refused for good, and it goes on to wait",
			func() bool { return m.owes && m.acquisitions == n })
	}
}

// isAnswer reports that an error is what a store says in the normal course of things.
func isAnswer(err error) bool { return is(err, store.ErrNotModified, store.ErrNotExist) }
