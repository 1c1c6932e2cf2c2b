package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
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
