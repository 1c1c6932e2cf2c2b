package queue

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// next is the table as it should be by now, and whether that is for this process to write. Callers who do not
// wait and would have to are answered.
func (t *Machine) next(now protocol.Now, out *protocol.Actions) (record.Table, bool) {
	n := t.table
	n.Token = max(n.Token, t.top) // rule A3: somebody may have put an older version back
	stays := func(s record.Seat) bool {
		if t.dead[s.Session] {
			return false // rule T3: over for good, so anybody may
		}
		if c := t.callerOf(s); c != nil {
			return c.state != leaving
		}
		return !t.mine(s)
	}
	n.Holders, n.Waiters = filter(n.Holders, stays), filter(n.Waiters, stays)
	// Whoever leaves has its entry taken out (rule T4), or it may yet land, and only another write on the same
	// condition settles that (rule T6). What nobody wants any more is taken out too.
	want := t.any(leaving)
	for _, s := range t.table.Seats() {
		switch c := t.callerOf(s); {
		case c == nil:
			want = want || t.mine(s)
		case c.state == leaving && c.seat.Token != 0:
			n.Turn = t.pace.turned(n.Turn, c.until-t.cfg.TTL-c.began) // when it left, however long that takes
		}
	}
	if !t.haunted() {
		want = t.admit(&n, now, out) || want
	}
	promote(&n, now.Wall)
	return n, want || t.watchful(n)
}

// haunted reports that the object vanished, and that some who held seats in it may go on.
func (t *Machine) haunted() bool {
	return t.version == "" && (t.any(ousted) || slices.ContainsFunc(t.ghosts, func(s string) bool { return !t.dead[s] }))
}

// admit adds the entries of those who come. Nobody comes before one that waits (rule T4).
func (t *Machine) admit(n *record.Table, now protocol.Now, out *protocol.Actions) (some bool) {
	if !t.any(coming) {
		return false
	}
	room := n.Room(t.cfg.Room)
	for _, c := range slices.Clone(t.callers) {
		if c.state != coming {
			continue
		}
		with := *n
		with.Waiters = append(slices.Clip(with.Waiters), c.seat)
		promote(&with, now.Wall)
		if c.atOnce && len(with.Waiters) > 0 {
			if t.seen < c.asked { // it is to be told what is so, and not what was
				t.fresh = false
				continue
			}
			out.Add(Full{c.Caller, t.table})
			t.dismiss(c, now, out)
			continue
		}
		need := c.seat.Len()
		if need > room {
			t.turnAway(c, *n, now, out)
			continue
		}
		c.crowded = ""
		*n, some, room = with, true, room-need
	}
	return some
}

// turnAway refuses a caller for whom there is no room (rule T8). But those who take it up may all be dead, and if
// everybody was turned away nobody would find out. So one that waits is told when the last one in the table was seen
// to go on, or somebody has changed the table and there is still no room.
func (t *Machine) turnAway(c *caller, n record.Table, now protocol.Now, out *protocol.Actions) {
	all := n.Seats()
	moved := c.crowded != "" && c.crowded != t.version
	if c.atOnce || moved || len(all) == 0 || t.lives(all[len(all)-1].Session) {
		t.refuse(c, record.ErrTableFull, now, out)
	} else {
		c.crowded = t.version
	}
}

// crowded reports that a caller waits to learn whether a table that is full is so of the dead.
func (t *Machine) crowded() bool {
	return slices.ContainsFunc(t.callers, func(c *caller) bool { return c.state == coming && c.crowded != "" })
}

// Fits reports that a caller that came now would have its seat at once in a table that looks like this, as far
// as is known.
func (t *Machine) Fits(n record.Table, weight int64) bool {
	lives := func(s record.Seat) bool { return !t.dead[s.Session] }
	n.Holders, n.Waiters = filter(n.Holders, lives), append(filter(n.Waiters, lives), record.Seat{Weight: weight})
	promote(&n, time.Time{})
	return len(n.Waiters) == 0
}

// promote gives the seats that are free to those at the head of the line, each with the next token
// (rules T4 and T5). A waiter that needs more than is free keeps those behind it waiting: else one that needs all
// would wait for ever.
func promote(n *record.Table, wall time.Time) {
	taken := n.Taken()
	for len(n.Waiters) > 0 && taken+n.Waiters[0].Weight <= n.Size {
		s := n.Waiters[0]
		n.Token++
		s.Token, s.Since = n.Token, wall
		taken += s.Weight
		n.Holders, n.Waiters = append(slices.Clip(n.Holders), s), n.Waiters[1:]
	}
}

// Without is a table without the entries under a session that is over for good (rule T3). The seats that were
// theirs go to those at the head of the line.
func Without(t record.Table, session, writeID string, wall time.Time) record.Table {
	lives := func(s record.Seat) bool { return s.Session != session }
	t.Holders, t.Waiters, t.WriteID = filter(t.Holders, lives), filter(t.Waiters, lives), writeID
	promote(&t, wall)
	return t
}

func filter(seats []record.Seat, keep func(record.Seat) bool) (kept []record.Seat) {
	for _, s := range seats {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

func seatOf(seats []record.Seat, id string) bool {
	return slices.ContainsFunc(seats, func(s record.Seat) bool { return s.ID == id })
}
