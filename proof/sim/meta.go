package sim

import (
	"strconv"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// A metas is what a user has asked the record of its lease to carry. No two changes of a history have
// one number, so a record says by its meta data which one it carries.
type metas struct {
	asked, landed int // the last one, and the last one of which it was told
}

const metaName = "change"

// metaOf is the number of the change that a record carries, and 0 if it carries none.
func metaOf(r record.Record) int {
	n, _ := strconv.Atoi(r.Meta[metaName])
	return n
}

// setMeta is a user that changes the meta data of its lease, a few times in a moment.
func (u *users) setMeta(m *member) {
	if u.cfg.WriteOnce || !m.leased || m.releasing {
		return
	}
	m.renew()
	for range 1 + u.choose(3) {
		u.changes++
		m.e.Tell(protocol.SetMeta{Number: u.changes, Meta: map[string]string{metaName: strconv.Itoa(u.changes)}})
	}
}

// metaAsked takes note of a change. One that comes when the lease has ended is none.
func (m *member) metaAsked(ev protocol.SetMeta) {
	if m.c().Lease().Token == 0 && !m.cfg.Tokenless || !m.leased {
		return
	}
	m.terms.Meta, m.terms.metas.asked = ev.Meta, ev.Number
}

// metaLanded checks that a user is told of a change when the record carries that, or a later one.
// A record that was deleted or brought back by hand proves nothing, and neither does that of a
// candidate that has taken the lock since.
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
	r, there := led.returns.server.current(m.on)
	ours := there && r.Held && r.Incarnation() == l.Incarnation() && r.Token == l.Token
	if ours && !m.on.restored && metaOf(r) < number {
		led.violated(Meta, "%v is told that the change %d has landed, and the record carries %d", m, number, metaOf(r))
	}
}

// metaWritten checks that a record of a lease that lands carries the last change of which its user
// was told, or a later one, and none before: so does the last one, which frees the lock.
func (led *ledger) metaWritten(m *member, r record.Record) {
	t, l := &m.terms.metas, m.c().Lease()
	ours := m.leased && r.Incarnation() == l.Incarnation() && r.Token == l.Token && !m.on.restored && !m.on.deleted
	if n := metaOf(r); ours && (n < t.landed || n > t.asked) {
		led.violated(Meta, "a record of %v lands that carries the change %d, where %d has landed and %d is asked for", m, n, t.landed, t.asked)
	}
}

// metaSettled checks, when all is healed and has been for a while, that every change has landed.
func (led *ledger) metaSettled(m *member) {
	if t := &m.terms.metas; m.valid() && !m.releasing && t.asked != t.landed {
		led.violated(Meta, "%v has asked for the change %d, and only %d has landed", m, t.asked, t.landed)
	}
}
