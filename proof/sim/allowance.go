package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
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

func (a *allowance) fill(now, most time.Duration) { a.left, a.at = max(a.left, most), now }

// allowances are those of one candidate.
type allowances struct {
	failing, looks, writes, questions allowance
	acts                              int           // that its user has left
	credited                          time.Duration // when a change of the lock was last followed by more
}

func (m *allowances) fill(now, most time.Duration) {
	for _, a := range []*allowance{&m.failing, &m.looks, &m.writes, &m.questions} {
		a.fill(now, most)
	}
}

// credit brings more of each, because the lock has changed.
func (m *allowances) credit(more time.Duration) {
	for _, a := range []*allowance{&m.failing, &m.looks, &m.writes, &m.questions} {
		a.left += more
	}
}

// per makes a request so much cheaper that the allowance is for so many more in a while.
func per(one, while time.Duration, n int64) time.Duration {
	rate := 1 + float64(n)*float64(time.Second)/float64(while)
	return time.Duration(float64(one) / rate)
}

// changed lets those who know the lock look, and try once, when a write has landed: the attempts
// before it cannot land any more.
func (l *lasting) changed(r *request) {
	from := r.from.from
	if c := r.from; c.write != nil && c.write.Op == protocol.Claim && from.claims-c.number >= manyOpen-1 {
		l.met(OldestLands, r.key)
	}
	for _, m := range from.on.all() {
		m.attempts, m.silent = 0, 0
		if l.arm != Lasting || l.now-m.may.credited < min(protocol.Renewal(l.ttl)/4, time.Second) {
			continue // else writes that land without an answer could go on for ever
		}
		m.may.credited = l.now
		m.may.credit(2 * time.Second)
	}
}

// perTry is how many requests a try may take: a write, which may be two and a listing, and the
// look that follows, which may be a get and a listing.
func (l *lasting) perTry() time.Duration {
	if l.cfg.Numbered || l.cfg.WriteOnce {
		return 6
	}
	return 2
}

// count counts a request against the allowance of its sender.
func (l *lasting) count(r *request) {
	m := r.from.from
	if l.arm != Lasting {
		return
	}
	if r.hit = l.hits(r); m == nil || !l.on || r.page > 1 {
		return
	}
	one := time.Second / l.perTry()
	renewal := protocol.Renewal(l.ttl)
	a, cost, what := &m.may.failing, time.Second, "requests that fail"
	switch {
	case r.hit:
		l.met(Persists)
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
	if !a.spend(l.now, cost, m.most()) {
		l.violated(Pace, "%v, TTL %v, sends more %s than its pauses allow while %v to %s of %s lasts: the last is a %s of %q",
			m, m.ttl, what, l.answer, l.ops, l.keys, r.op, r.key)
	}
}

func (l *lasting) countPoll(m *member) {
	if !l.on {
		return
	}
	if !m.may.questions.spend(l.now, per(time.Second, protocol.Renewal(l.ttl), 12), burst*time.Second) {
		l.violated(Pace, "%v, TTL %v, asks the leader more often than its pauses allow", m, m.ttl)
	}
}
