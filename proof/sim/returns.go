package sim

import (
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/store"
)

// A returns checks the promises to callers.
type returns struct {
	*fleet
	bucket  *bucket
	lasting *lasting
}

func (ret *returns) called(m *member, ev protocol.Event) {
	switch ev := ev.(type) {
	case candidate.Acquire:
		m.owes, m.patient = true, ev.Wait
		m.finals, m.attempts, m.silent, m.lookFailed, m.writeFailed = 0, 0, 0, false, false
		if m.acquisitions++; !ev.Wait {
			n := m.acquisitions
			ret.within(m, 1, "TryAcquire has not returned", func() bool { return m.owes && m.acquisitions == n })
		}
	case candidate.Attach:
		m.owes, m.patient = true, false
		m.finals, m.attempts, m.silent, m.lookFailed, m.writeFailed = 0, 0, 0, false, false
		m.acquisitions++
		n := m.acquisitions
		ret.within(m, 1, "an attachment has not returned", func() bool { return m.owes && m.acquisitions == n })
	case candidate.Detach:
		m.detaches++
		n := m.detaches
		// It has until the lease ends, whose TTL may be longer than the next lease's.
		due := m.clock() + max(m.ttl, m.c().Lease().TTL) + maxPause + protocol.MaxRequest + time.Second
		ret.until(m.process, due, func() bool { return m.owesDetach && m.detaches == n }, func() {
			ret.violated(Returns, "%v: a detachment has not returned by the end of its lease", m)
		})
	case candidate.Release:
		m.owesRelease, m.passing = true, ev.Pass
		m.releases++
	}
}

// returned checks that each acquisition and each release is answered once.
func (ret *returns) returned(m *member, action protocol.Action) {
	switch a := action.(type) {
	case candidate.Granted, candidate.Refused, candidate.Failed, candidate.Reaped:
		if !m.owes {
			ret.violated(Returns, "%v returns from an acquisition twice: %s", m, brief{a})
		}
		m.owes = false
		if _, failed := a.(candidate.Failed); failed {
			m.mayFree() // landed claims may be freed as quickly as a lease is renewed
			ret.mustSettle(m)
		}
	case candidate.Detached:
		if m.owes == m.owesDetach {
			ret.violated(Returns, "%v returns twice: %s", m, brief{a})
		}
		m.owes = false
	case protocol.Troubled:
		if least := reminder * (protocol.Drift - 1) / protocol.Drift; m.reminded > 0 && ret.now-m.reminded < least && ret.arm != Far && !m.reaps {
			ret.violated(Returns, "%v is told of trouble again after %v", m, ret.now-m.reminded)
		}
		m.silent, m.reminded = 0, ret.now
	case candidate.Released:
		if !m.owesRelease {
			ret.violated(Returns, "%v returns from a release twice: %s", m, brief{a})
		}
		if m.owesRelease = false; a.Err == nil && !m.passing {
			ret.checkFreed(m)
		}
	}
}

func (ret *returns) stepped(m *member, ev protocol.Event) {
	switch ev.(type) {
	case protocol.Cancel:
		if m.owes {
			ret.violated(Returns, "%v goes on after its caller has given up", m)
		}
	case candidate.Release:
		m.passing = false
		if n := m.releases; m.owesRelease {
			ret.within(m, 1, "a release has not returned", func() bool { return m.owesRelease && m.releases == n })
		}
	}
	if m.c().Settled() {
		m.settled = m.failures
		ret.checkSettled(m)
	}
}

// within checks that still returns false after ttls times a TTL, a backoff and a request, unless
// the process stopped meanwhile.
func (ret *returns) within(m *member, ttls time.Duration, what string, still func() bool) {
	e, ttl := m.e, m.ttl
	due := m.clock() + ttls*(max(ttl, m.ttlNow())+maxPause+protocol.MaxRequest) + time.Second
	ret.until(m.process, due, func() bool { return m.e == e && m.ttl == ttl && still() }, func() {
		ret.violated(Returns, "%v: %s in %d times a TTL of %v, a pause and a request", m, what, ttls, ttl)
	})
}

// until calls otherwise if still returns true at due on the process's clock, unless the process
// stopped meanwhile.
func (ret *returns) until(p *process, due time.Duration, still func() bool, otherwise func()) {
	life, stops := p.life, p.stops
	var look func()
	look = func() {
		left := due - p.clock()
		switch {
		case ret.arm == Far: // the request's time is on a clock that has changed since
		case p.life != life || p.stops != stops || !still():
		case left > 0: // at first, and if its clock slowed down
			ret.push(event{at: ret.now + p.real(left), by: check, do: look})
		default:
			otherwise()
		}
	}
	look()
}

// reminder is the interval of reports about a failing store. The first comes at the third failure
// in a row.
const reminder = time.Minute

// checkReported checks that a waiting caller is told about a lasting failure.
func (ret *returns) checkReported(m *member, bad bool) {
	switch {
	case !m.owes || !bad && !m.writeFailed:
		m.silent = 0
		return
	case !bad:
		return
	case m.silent == 0:
		m.silentSince = ret.now
	}
	// On the slowest clock within the bound, all three take longer.
	most := (reminder + maxPause + protocol.MaxRequest) * protocol.Drift / (protocol.Drift - 1)
	if m.silent++; m.silent > 3 && ret.now-max(m.silentSince, m.reminded) > most {
		ret.violated(Returns, "%v has failed %d times since %v, and its caller was not told", m, m.silent, m.silentSince)
	}
}

// mustSettle checks that a candidate finishes after its caller gave up. It has a TTL to find out
// what became of its claims, and another to free the remaining record, which may be from an
// earlier lease that was passed on.
func (ret *returns) mustSettle(m *member) {
	m.failures++
	n, a := m.failures, m.acquisitions
	ret.within(m, 2, "it is not settled what became of an acquisition that has failed", func() bool {
		return m.failures == n && m.acquisitions == a && m.settled < n && !m.leased
	})
}

// checkFreed checks that a successful release has freed the record, unless the session ended.
func (ret *returns) checkFreed(m *member) {
	r, there := ret.bucket.current(m.on)
	if !there || !r.Held || r.Incarnation() != m.c().Incarnation() || m.on.deleted || m.on.restored || ret.cfg.Tokenless {
		return // a late duplicate write may re-create a deleted marker
	}
	if r.Session != "" {
		if s := ret.find(r.Session); s.Over() != nil || s.mustEnd || s.heartbeat.on.over {
			return
		}
	}
	ret.violated(Returns, "%v has released its lease, and the record says that it is held, token %d", m, r.Token)
}

// checkSettled checks rule D6: a settled candidate has no write in flight that could land and be
// kept alive by a live session.
func (ret *returns) checkSettled(m *member) {
	for _, r := range m.on.inFlight {
		if r.from.from != m || r.op != "put" || r.from.write == nil || !r.from.write.Record.Held || r.from.write.Record.Session == "" {
			continue
		}
		s := ret.find(r.from.write.Record.Session)
		if !s.goesOn() || m.on.deleted || !ret.bucket.wouldLand(r) {
			continue
		}
		ret.violated(D6, "%v says that it has settled, and a claim under the session %v, which goes on, may land yet", m, s)
	}
}

func (ret *returns) tried(c *call) {
	if m := c.from; c.write.Op == candidate.Claim && is(c.err, store.ErrUnknownOutcome) {
		if m.attempts++; m.attempts == manyOpen {
			ret.met(ManyOpen, m)
		}
	}
}

// answered checks a candidate's reaction to a permanent error.
func (ret *returns) answered(c *call, before owed) {
	m := c.from
	l := ret.lasting
	if ret.arm != Lasting {
		return
	}
	bad := c.err != nil && !is(c.err, store.ErrNotModified, store.ErrNotExist) // which are not failures
	if c.write == nil {
		m.lookFailed = bad
	} else if m.writeFailed = bad; !bad {
		m.renew()
	}
	if r, _, exists := m.c().Observed(); c.write == nil && !bad && exists && r.Held && r.Incarnation() != m.c().Incarnation() {
		m.writeFailed = false // from now on it waits for a holder
	}
	ret.checkReported(m, bad)
	final := bad && c.struck && l.answer.Final && !is(c.err, store.ErrUnknownOutcome)
	for _, waiter := range m.locks {
		if m.reaps && waiter.watcher() == m {
			ret.checkReported(waiter, bad)
			ret.mustFail(waiter, final)
		}
	}
	if !final || !before.owes || !m.owes || m.acquisitions != before.acquisitions {
		return
	}
	// An acquisition may have begun while an earlier one was being settled.
	if m.finals++; m.finals > 1 || c.write != nil && c.write.Op == candidate.Claim && c.acquisition == m.acquisitions {
		ret.violated(Returns, "%v, TTL %v, goes on after %v to %s", m, m.ttl, l.answer, l.ops)
	}
}

// mustFail checks that an acquisition ends if reading its holder's session fails permanently.
func (ret *returns) mustFail(m *member, final bool) {
	if n := m.acquisitions; final && m.owes {
		ret.within(m, 1, "the look at the session that it waits for was refused for good, and it goes on to wait",
			func() bool { return m.owes && m.acquisitions == n })
	}
}

// manyOpen is more attempts than a small memory would hold.
const manyOpen = 9
