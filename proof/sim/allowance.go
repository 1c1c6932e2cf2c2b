package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// While a failure lasts, each candidate has allowances of requests. They are derived from the
// promises in docs/protocol.md, not from the code:
//
//   - A try is a write and the read that settles it. Backoffs start at 50 ms, at least double,
//     and end at a few seconds, so after the first seconds there is at most one try a second.
//   - A candidate may hurry while part of its lease is left, or to free what has landed.
//   - New tries may follow when the user wants something else, or the lock changes.
//
// An allowance is a budget of time: a request costs some, and each second adds one second.

// burst is the number of tries before the limit of one a second applies: six with backoffs of 50,
// 100, 200, 400 and 800 ms, and two more because of jitter. holding is the number while a lease
// lasts, and for freeing a record.
const burst, holding = 8, 16

// An allowance is the budget left at a time.
type allowance struct{ left, at time.Duration }

// spend subtracts a request's cost, and reports whether the budget was enough.
func (a *allowance) spend(now, cost, most time.Duration) bool {
	// A fast clock ends its backoffs early.
	a.left = min(a.left+(now-a.at)*(protocol.Drift+1)/protocol.Drift, most) - cost
	a.at = now
	return a.left >= 0
}

func (a *allowance) fill(now, most time.Duration) { a.left, a.at = max(a.left, most), now }

type allowances struct {
	failing, looks, writes, questions allowance
	acts                              int           // left to its user
	credited                          time.Duration // when a change of the lock last added credit
}

func (m *allowances) fill(now, most time.Duration) {
	for _, a := range []*allowance{&m.failing, &m.looks, &m.writes, &m.questions} {
		a.fill(now, most)
	}
}

// credit adds to each budget.
func (m *allowances) credit(more time.Duration) {
	for _, a := range []*allowance{&m.failing, &m.looks, &m.writes, &m.questions} {
		a.left += more
	}
}

// per returns the reduced cost of a request of which n more are allowed per while.
func per(one, while time.Duration, n int64) time.Duration {
	rate := 1 + float64(n)*float64(time.Second)/float64(while)
	return time.Duration(float64(one) / rate)
}

// changed credits the lock's candidates, which may read and try once more after a landed write:
// earlier attempts cannot land any more.
func (l *lasting) changed(r *request) {
	from := r.from.from
	if c := r.from; c.write != nil && c.write.Op == candidate.Claim && from.claims-c.number >= manyOpen-1 {
		l.met(OldestLands, r.key)
	}
	for _, m := range from.on.all() {
		m.attempts, m.silent = 0, 0
		if l.arm != Lasting || l.now-m.may.credited < min(protocol.Renewal(l.ttl)/4, time.Second) {
			continue // otherwise writes that land without an answer could go on forever
		}
		m.may.credited = l.now
		m.may.credit(2 * time.Second)
	}
}

// perTry returns how many requests a try may take: two writes and a listing, a get and a listing.
func (l *lasting) perTry() time.Duration {
	if l.cfg.Numbered || l.cfg.WriteOnce {
		return 6
	}
	return 2
}

// count charges a request to its sender.
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
			cost /= 2 // a try's write and its read
		}
	case r.writes():
		// A lease costs three renewals per TTL.
		a, cost, what = &m.may.writes, per(one, renewal, 3), "writes"
	default:
		// Until it knows when the leader renews, a follower reads eight times per renewal
		// interval, and with jitter up to a third more often.
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
