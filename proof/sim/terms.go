package sim

import (
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// agreed is what the checks remember of an acquisition's terms.
type agreed struct {
	candidate.Terms
	claims  map[string]time.Duration // when each was sent, on the process's clock
	began   time.Duration            // when the lease was claimed, on that clock
	granted time.Duration            // and granted
	ends    time.Duration            // when it must end if it is not renewed
	metas   metas
}

func (m *member) ttlNow() time.Duration {
	if m.terms.TTL > 0 {
		return m.terms.TTL
	}
	return m.ttl
}

// carries reports whether a record has its member's terms, and no others.
func (m *member) carries(r record.Record) bool {
	holder := m.cfg.Holder
	if m.terms.Holder != "" {
		holder = m.terms.Holder
	}
	return r.Holder == holder && maps.Equal(r.Meta, m.terms.Meta) && r.TTL == m.ttlNow()
}

// keeps checks an action against its member's terms.
func (led *ledger) keeps(m *member, action protocol.Action) {
	if m.beats != nil || m.reaps {
		return
	}
	t := &m.terms
	switch a := action.(type) {
	case candidate.Write:
		led.sent(m, a)
	case candidate.Granted:
		t.granted = m.clock()
		began, sent := t.claims[m.c().Lease().WriteID]
		if t.began = began; !sent { // an earlier acquisition's claim, or a range's
			t.began = t.granted
		}
		t.ends = m.c().Deadline()
		if !m.carries(m.c().Lease()) {
			led.violated(Terms, "%v is granted a lease on other terms than its own: %s", m, showRecord(m.c().Lease()))
		}
	case candidate.MetaSet:
		led.metaLanded(m, a.Number)
	case candidate.Lost:
		if errors.Is(a.Err, candidate.ErrTimeUp) {
			if led.met(TimeUp, m); t.MaxHold == 0 && !t.NoRenewal {
				led.violated(Terms, "the time of %v is up, and it has all the time", m)
			}
		}
	case candidate.Detached:
		if !errors.Is(a.Err, protocol.ErrLost) { // otherwise it must still be released
			m.terms = agreed{}
		}
	case candidate.Refused, candidate.Failed, candidate.Released:
		m.terms = agreed{}
	}
}

// sent checks a write against its sender's terms.
func (led *ledger) sent(m *member, a candidate.Write) {
	t, now := &m.terms, m.clock()
	switch a.Op {
	case candidate.Claim:
		if m.wants {
			if t.claims == nil {
				t.claims = map[string]time.Duration{}
			}
			t.claims[a.Record.WriteID] = now
		}
	case candidate.Renew:
		switch change := t.metas.asked != t.metas.landed; {
		case change: // it has something to write
		case m.under != nil:
			led.violated(Terms, "%v renews a lease that is under the session %v", m, m.under)
		case t.NoRenewal || t.MaxHold > 0 && (now >= t.began+t.MaxHold || m.c().Deadline() >= t.began+t.MaxHold):
			led.violated(Terms, "%v renews a lease that its terms let end", m)
		}
	case candidate.Free:
		left := t.granted + t.HoldAtLeast - now
		if !m.leased || t.HoldAtLeast == 0 {
			left = 0
		}
		if rest := a.Record.Resting(); max(left, 0) > rest || rest > max(left, 0)+time.Millisecond {
			led.violated(Terms, "%v leaves a rest of %v, and is to leave %v", m, rest, left)
		}
	}
	// A lease renewed for its owner keeps the owner's name and metadata.
	if r := a.Record; r.Held && (r.Resting() > 0 || r.Rest != nil || (m.wants || m.leased) && (m.attaches == nil || m.using == candidate.ToHold) && !m.carries(r)) {
		led.violated(Terms, "%v writes on other terms than its own: %s", m, showRecord(r))
	}
}

// overtime checks that no lease is valid after its terms have ended it.
func (led *ledger) overtime(m *member) {
	if t := &m.terms; t.MaxHold > 0 && m.clock() >= t.began+t.MaxHold {
		led.violated(Terms, "the lease of %v is valid for longer than %v", m, t.MaxHold)
	} else if t.NoRenewal && m.clock() >= t.ends {
		led.violated(Terms, "the lease of %v is valid for longer than its claim", m)
	}
}

// lasts reports whether the member's lease has no terms of its own, and so lasts until its
// release.
func (m *member) lasts() bool {
	t := m.terms.Terms
	if m.terms.metas.asked > 0 {
		t.Meta = nil
	}
	return t.None()
}

// rests notes the cooldown of a landed release. A fast clock shortens it, within the bound.
func (led *ledger) rests(l *lock, r record.Record) {
	l.restsUntil = 0
	if rest := r.Resting(); rest > 0 {
		led.met(Rests, l.key)
		l.restsUntil = led.now + rest*protocol.Drift/(protocol.Drift+1)
	}
}

// taken checks that no lock is taken during its cooldown, which a deletion makes unknown.
func (led *ledger) taken(l *lock, m *member, creates bool) {
	trusted := led.arm != Far && !led.skewed && !creates
	if led.now < l.restsUntil && trusted {
		led.violated(Rest, "%v takes a lock that rests for %v more", m, l.restsUntil-led.now)
	}
	l.restsUntil = 0
}

// A metas is the metadata a user wants in its lease's record. Changes have unique numbers, so the
// metadata shows which one a record carries.
type metas struct {
	asked, landed int // the last change, and the last one confirmed to the user
}

const metaName = "change"

// metaOf returns the number of a record's change, or 0.
func metaOf(r record.Record) int {
	n, _ := strconv.Atoi(r.Meta[metaName])
	return n
}

func (m *member) metaAsked(ev candidate.SetMeta) {
	if m.c().Lease().Token == 0 && !m.cfg.Tokenless || !m.leased {
		return
	}
	m.terms.Meta, m.terms.metas.asked = ev.Meta, ev.Number
}

// metaLanded checks that the record carries a confirmed change or a later one. A record proves
// nothing if it was deleted, restored or taken over since.
func (led *ledger) metaLanded(m *member, number int) {
	t := &m.terms.metas
	if number <= t.landed || number > t.asked {
		led.violated(Meta, "%v is told that the change %d has landed, after %d, and has asked for %d", m, number, t.landed, t.asked)
	}
	t.landed = number
	if led.met(MetaChanged, m); m.under != nil {
		led.met(MetaUnder, m)
	}
	l := m.c().Lease()
	r, there := led.bucket.current(m.on)
	ours := there && r.Held && r.Incarnation() == l.Incarnation() && r.Token == l.Token
	if ours && !m.on.restored && metaOf(r) < number {
		led.violated(Meta, "%v is told that the change %d has landed, and the record carries %d", m, number, metaOf(r))
	}
}

// metaWritten checks that a lease's landed record, even the last one, carries the last change
// confirmed to the user, or a later one.
func (led *ledger) metaWritten(m *member, r record.Record) {
	t, l := &m.terms.metas, m.c().Lease()
	ours := m.leased && r.Incarnation() == l.Incarnation() && r.Token == l.Token && !m.on.restored && !m.on.deleted
	if n := metaOf(r); ours && (n < t.landed || n > t.asked) {
		led.violated(Meta, "a record of %v lands that carries the change %d, where %d has landed and %d is asked for", m, n, t.landed, t.asked)
	}
}

// metaSettled checks, some time after the faults, that every change has landed.
func (led *ledger) metaSettled(m *member) {
	if t := &m.terms.metas; m.valid() && !m.releasing && t.asked != t.landed {
		led.violated(Meta, "%v has asked for the change %d, and only %d has landed", m, t.asked, t.landed)
	}
}
