package queue

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// told is what other processes have told this one. A notification only brings a poll forward, and the poll
// decides. So a false one costs a read, and a lost or late one costs time.
type told struct {
	version protocol.Version // of the last notification that named an unknown version
	at      time.Duration    // when it came
	enough  bool             // a notification was heeded since the table last changed
	ahead   bool             // a read that nobody waits for is planned or under way
}

// hear notes a notification from another process.
func (t *Machine) hear(ev Told, now protocol.Now) {
	if ev.Version != t.version && t.busy != writing { // the answer of our write tells more
		t.told.version, t.told.at = ev.Version, now.Clock
	}
}

// behind reports whether the last notification came after the last read was sent, and names another version.
func (t *Machine) behind() bool {
	return t.told.version != t.version && t.told.at > t.seen
}

// heed sends or plans the read that a notification asks for. It heeds one notification until the table has
// changed: an honest one announces a change, and a liar can cause no more reads than there are changes. A
// sole holder is told of everybody who joins, so after the first one these reads are a second apart.
func (t *Machine) heed(now protocol.Now, out *protocol.Actions) {
	if t.busy != none || t.told.enough || !t.behind() {
		return
	}
	at, c := now.Clock, t.alone()
	if c != nil && t.seen > c.began {
		at = max(at, t.seen+headLook)
	}
	switch {
	case t.any(waiting):
		t.fresh, t.due = false, min(t.due, at)
	case !t.wanting():
		t.told.ahead, t.due = true, at
	default:
		return
	}
	t.told.enough = true
	t.advance(now, out)
}

// lookAhead reads for a holder that was told of a change, so that it need not read when it leaves. Nobody waits
// for this read, and nobody is told if it fails.
func (t *Machine) lookAhead(now protocol.Now, out *protocol.Actions) {
	if t.told.ahead = t.told.ahead && t.behind() && t.alone() != nil; t.told.ahead {
		t.optional = t.fresh
		t.look(now, out)
	}
}

// alone returns the caller that is the sole holder and is told of all changes, or nil.
func (t *Machine) alone() *caller {
	if !sole(t.table) {
		return nil
	}
	if c := t.callerOf(t.table.Holders[0]); c != nil && c.state == holding {
		return c
	}
	return nil
}

// sole reports whether the table has one holder and everybody in it can tell that holder what they change:
// a process that receives notifications at an address also sends them.
func sole(t record.Table) bool {
	return len(t.Holders) == 1 && !slices.ContainsFunc(t.Entries(), func(s record.Entry) bool { return s.Address == "" })
}

// announce tells other processes of a successful write: those whose callers got slots from it, and that of
// the sole holder, which will write over it.
func (t *Machine) announce(before record.Table, out *protocol.Actions) {
	var addresses []string
	for _, s := range t.table.Holders {
		concerned := hasEntry(before.Waiters, s.ID) || sole(t.table)
		if concerned && s.Address != "" && !t.mine(s) && !slices.Contains(addresses, s.Address) {
			addresses = append(addresses, s.Address)
			out.Add(Tell{s.Address, t.version})
		}
	}
}
