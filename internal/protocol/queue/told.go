package queue

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// told is what this process has heard from others. A word only brings a look forward, and the look decides. So one
// that is false costs a look, and one that is lost or late costs time.
type told struct {
	version protocol.Version // of the last word that told of another one than was known
	at      time.Duration    // when it came
	enough  bool             // a word was heeded since the table has last changed
	ahead   bool             // a look that nobody waits for is planned, or under way
}

// hear takes in the word of another process.
func (t *Machine) hear(ev Told, now protocol.Now) {
	if ev.Version != t.version && t.busy != writing { // its answer tells
		t.told.version, t.told.at = ev.Version, now.Clock
	}
}

// behind reports that the last word came after that was sent which has shown the table, and tells of another one.
func (t *Machine) behind() bool {
	return t.told.version != t.version && t.told.at > t.seen
}

// heed has the look sent, or planned, that a word asks for. Until the table has changed one word is heeded: an honest
// one tells of a change, and whoever lies can make this process look no more often than there are changes. Who holds
// alone hears of all who come, so after the first one those looks are a second apart.
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

// lookAhead looks for a holder who has heard of a change, so that it need not when it leaves. Nobody waits for that,
// and nobody hears of it if it fails.
func (t *Machine) lookAhead(now protocol.Now, out *protocol.Actions) {
	if t.told.ahead = t.told.ahead && t.behind() && t.alone() != nil; t.told.ahead {
		t.optional = t.fresh
		t.look(now, out)
	}
}

// alone is the caller that holds its seat alone, and hears of all who change the table; nil: there is none.
func (t *Machine) alone() *caller {
	if !sole(t.table) {
		return nil
	}
	if c := t.callerOf(t.table.Holders[0]); c != nil && c.state == seated {
		return c
	}
	return nil
}

// sole reports that a table has one holder, and that all in it can tell it of what they change: those who hear at an
// address tell others too.
func sole(t record.Table) bool {
	return len(t.Holders) == 1 && !slices.ContainsFunc(t.Seats(), func(s record.Seat) bool { return s.Address == "" })
}

// announce tells the processes of others that a write which has succeeded has changed the table: those whose callers it
// gave seats, and that of the sole holder, which will write over it.
func (t *Machine) announce(before record.Table, out *protocol.Actions) {
	var addresses []string
	for _, s := range t.table.Holders {
		concerned := seatOf(before.Waiters, s.ID) || sole(t.table)
		if concerned && s.Address != "" && !t.mine(s) && !slices.Contains(addresses, s.Address) {
			addresses = append(addresses, s.Address)
			out.Add(Tell{s.Address, t.version})
		}
	}
}
