package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// returns is what a candidate owes to its caller.
type returns struct {
	owes         bool // an answer to the last acquisition
	patient      bool // which waits for as long as it takes
	owesRelease  bool // the return of the last release
	passing      bool // which may pass the lease on
	acquisitions int
	releases     int
	failures     int // acquisitions that ended without a lease
	settled      int // of these, so many had been settled when everything last was

	lookFailed, writeFailed bool          // the last one has
	finals                  int           // refusals for good since the acquisition began
	silent                  int           // failures in a row of which the caller has not been told
	silentSince             time.Duration // the first of these
	reminded                time.Duration // when the caller was last told; 0: never
	attempts                int           // claims with an unknown outcome since the lock last changed
	claims                  int           // that were sent
}

// asks takes note of what a caller asks for.
func (w *world) asks(m *member, ev protocol.Event) {
	switch ev := ev.(type) {
	case protocol.Acquire:
		m.owes, m.patient = true, ev.Wait
		m.finals, m.attempts, m.silent, m.lookFailed, m.writeFailed = 0, 0, 0, false, false
		if m.acquisitions++; !ev.Wait {
			n := m.acquisitions
			w.hasTo(m, 1, "TryAcquire has not returned", func() bool { return m.owes && m.acquisitions == n })
		}
	case protocol.Release:
		m.owesRelease, m.passing = true, ev.Pass
		m.releases++
	}
}

// returned checks that each acquisition and each release is answered once.
func (w *world) returned(m *member, action protocol.Action) {
	switch a := action.(type) {
	case protocol.Granted, protocol.Refused, protocol.Failed, protocol.Reaped:
		if !m.owes {
			w.fault(Returns, "%v returns from an acquisition twice: %s", m, brief(a))
		}
		m.owes = false
		if _, failed := a.(protocol.Failed); failed {
			w.settles(m) // what has landed may be freed as quickly as a lease is renewed
			w.settling(m)
		}
	case protocol.Troubled:
		if least := reminder * (protocol.Drift - 1) / protocol.Drift; m.reminded > 0 && w.now-m.reminded < least && w.arm != Far && !m.reaps {
			w.fault(Returns, "%v is told of trouble again after %v", m, w.now-m.reminded)
		}
		m.silent, m.reminded = 0, w.now
	case protocol.Released:
		if !m.owesRelease {
			w.fault(Returns, "%v returns from a release twice: %s", m, brief(a))
		}
		if m.owesRelease = false; a.Err == nil && !m.passing {
			w.reallyFree(m)
		}
	}
}

// afterwards checks what must be so at the end of a step.
func (w *world) afterwards(m *member, ev protocol.Event) {
	switch ev.(type) {
	case protocol.Cancel:
		if m.owes {
			w.fault(Returns, "%v goes on after its caller has given up", m)
		}
	case protocol.Release:
		m.passing = false
		if n := m.releases; m.owesRelease {
			w.hasTo(m, 1, "a release has not returned", func() bool { return m.owesRelease && m.releases == n })
		}
	}
	if m.c().Settled() {
		m.settled = m.failures
		w.reallySettled(m)
	}
}

// hasTo checks in so many times a TTL, a pause and a request that something is not so any more,
// unless the process stood still meanwhile.
func (w *world) hasTo(m *member, ttls time.Duration, what string, still func() bool) {
	p, life, e, ttl, stood := m.process, m.life, m.e, m.ttl, m.stood
	due := w.clock(p) + ttls*(ttl+maxPause+protocol.MaxRequest) + time.Second
	var look func()
	look = func() {
		left := due - w.clock(p)
		switch {
		case w.arm == Far: // the time of a request is by a clock that has changed since
		case p.life != life || m.e != e || m.ttl != ttl || p.stood != stood || !still():
		case left > 0: // at first, and when its clock has become slower
			w.push(event{at: w.now + m.real(left), by: check, do: look})
		default:
			w.fault(Returns, "%v: %s in %d times a TTL of %v, a pause and a request", m, what, ttls, ttl)
		}
	}
	look()
}

// reminder is how often a caller who waits is told that the store still fails: at the third
// failure in a row, and then once a minute.
const reminder = time.Minute

// silence checks that a caller who waits while something fails for a long time is told of it.
func (w *world) silence(m *member, bad bool) {
	switch {
	case !m.owes || !bad && !m.writeFailed:
		m.silent = 0
		return
	case !bad:
		return
	case m.silent == 0:
		m.silentSince = w.now
	}
	most := reminder*(protocol.Drift+1)/protocol.Drift + maxPause + protocol.MaxRequest
	if m.silent++; m.silent > 3 && w.now-max(m.silentSince, m.reminded) > most {
		w.fault(Returns, "%v has failed %d times since %v, and its caller was not told", m, m.silent, m.silentSince)
	}
}

// settling checks that a candidate whose caller has given up makes an end of it: it has a TTL to
// find out what became of its claims, and one to free what stands there then: the record of an
// earlier lease that had been passed on, for one.
func (w *world) settling(m *member) {
	m.failures++
	n, a := m.failures, m.acquisitions
	w.hasTo(m, 2, "it is not settled what became of an acquisition that has failed", func() bool {
		return m.failures == n && m.acquisitions == a && m.settled < n && !m.leased
	})
}

// reallyFree checks, when a release has returned without an error, that the lock is not held by
// the lease that was released, unless its session is over.
func (w *world) reallyFree(m *member) {
	r, there := w.current(m.on)
	if !there || !r.Held || r.Incarnation() != m.cfg.Incarnation || m.on.deleted || m.on.cured || w.cfg.Tokenless {
		return // a marker that was deleted may be created once more by a write that arrives twice
	}
	if r.Session != "" {
		if s := w.find(r.Session); s.Over() != nil || s.doomed || s.heartbeat.on.over {
			return
		}
	}
	w.fault(Returns, "%v has released its lease, and the record says that it is held, token %d", m, r.Token)
}

// reallySettled checks that nothing of a candidate that says it has settled can land yet and
// be kept alive by a session that goes on (rule D6).
func (w *world) reallySettled(m *member) {
	for _, r := range m.on.air {
		if r.from.from != m || r.op != "put" || r.from.write == nil || !r.from.write.Record.Held || r.from.write.Record.Session == "" {
			continue
		}
		s := w.find(r.from.write.Record.Session)
		if s.Over() != nil || s.doomed || s.life != s.of.life || m.on.deleted || !w.wouldLand(r) {
			continue
		}
		w.fault(D6, "%v says that it has settled, and a claim under the session %v, which goes on, may land yet", m, s)
	}
}

// wouldLand reports that a write would begin a lease if it arrived now.
func (w *world) wouldLand(r *request) bool {
	o, exists := w.objects[r.key]
	if of, n, numbered := layout.Epoch(r.key); numbered && (!r.only.Absent() || n <= w.objects.highest(of)) {
		return false
	}
	return r.only.Absent() && !exists || exists && !r.only.Absent() && o.version == r.only.Match()
}

// current is the record of a lock, if there is one that is understood.
func (w *world) current(l *lock) (record.Record, bool) {
	key := l.key
	if w.cfg.Numbered {
		key = layout.EpochKey(key, w.objects.highest(key))
	}
	o, exists := w.objects[key]
	if !exists {
		return record.Record{}, false
	}
	r, err := record.DecodeIn(record.AnyLayout, o.body)
	r.Session = strings.TrimPrefix(r.Session, "../") // the way to it from an epoch
	return r, err == nil
}

// tried takes note of a claim whose outcome is not known.
func (w *world) tried(c *call) {
	if m := c.from; c.write.Op == protocol.Claim && is(c.err, store.ErrUnknownOutcome) {
		if m.attempts++; m.attempts == manyOpen {
			w.met(ManyOpen, m)
		}
	}
}

// manyOpen is more attempts than a small memory of them would hold.
const manyOpen = 9

func is(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
