package sim

import (
	"strconv"

	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

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

func (u *users) setMeta(m *member) {
	if u.cfg.WriteOnce || !m.leased || m.releasing {
		return
	}
	m.renew()
	for range 1 + u.choose(3) {
		u.changes++
		m.e.Tell(candidate.SetMeta{Number: u.changes, Meta: map[string]string{metaName: strconv.Itoa(u.changes)}})
	}
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
