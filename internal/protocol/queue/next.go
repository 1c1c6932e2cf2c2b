package queue

import (
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// next returns the table as it should be now, and whether this process should write it. It answers callers
// that do not wait and would have to.
func (t *Machine) next(now protocol.Now, out *protocol.Actions) (record.Table, bool) {
	n := t.table
	n.Token = max(n.Token, t.top) // rule A3: somebody may have restored an older version
	stays := func(s record.Entry) bool {
		if t.dead[s.Session] {
			return false // rule T3: it has ended for good, so anybody may remove it
		}
		if c := t.callerOf(s); c != nil {
			return c.state != leaving
		}
		return !t.mine(s)
	}
	n.Holders, n.Waiters = filter(n.Holders, stays), filter(n.Waiters, stays)
	// The entry of a leaving caller is removed (rule T4). If it may still land, only another write on the
	// same condition settles that (rule T6). Entries that nobody wants any more are removed too.
	want := t.any(leaving)
	for _, s := range t.table.Entries() {
		switch c := t.callerOf(s); {
		case c == nil:
			want = want || t.mine(s)
		case c.state == leaving && c.entry.Token != 0:
			n.Turn = t.pace.turned(n.Turn, c.until-t.cfg.TTL-c.began) // until it left, however long the write takes
		}
	}
	if !t.haunted() {
		want = t.admit(&n, now, out) || want
	}
	promote(&n, now.Wall)
	return n, want || t.watchful(n)
}

// haunted reports whether the object vanished and some of its holders may still be at work.
func (t *Machine) haunted() bool {
	return t.version == "" && (t.any(ousted) || slices.ContainsFunc(t.ghosts, func(s string) bool { return !t.dead[s] }))
}

// admit adds the entries of new callers, behind everybody who waits (rule T4).
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
		with.Waiters = append(slices.Clip(with.Waiters), c.entry)
		promote(&with, now.Wall)
		if c.atOnce && len(with.Waiters) > 0 {
			if t.seen < c.asked { // it must not be answered by an old read
				t.fresh = false
				continue
			}
			out.Add(Full{c.Caller, t.table})
			t.dismiss(c, now, out)
			continue
		}
		need := c.entry.Len()
		if need > room {
			t.turnAway(c, *n, now, out)
			continue
		}
		c.crowded = ""
		*n, some, room = with, true, room-need
	}
	return some
}

// turnAway refuses a caller for which there is no room (rule T8). But all entries may belong to dead
// processes, and if everybody were refused, nobody would find out. So a waiting caller is refused only
// when the session of the last entry was seen alive, or when the table has changed and is still full.
func (t *Machine) turnAway(c *caller, n record.Table, now protocol.Now, out *protocol.Actions) {
	all := n.Entries()
	moved := c.crowded != "" && c.crowded != t.version
	if c.atOnce || moved || len(all) == 0 || t.lives(all[len(all)-1].Session) {
		t.refuse(c, record.ErrTableFull, now, out)
	} else {
		c.crowded = t.version
	}
}

// crowded reports whether a caller waits to learn if a full table is full of dead entries.
func (t *Machine) crowded() bool {
	return slices.ContainsFunc(t.callers, func(c *caller) bool { return c.state == coming && c.crowded != "" })
}

// Fits reports whether a caller that joined this table now would get its slots at once, as far as we know.
func (t *Machine) Fits(n record.Table, weight int64) bool {
	lives := func(s record.Entry) bool { return !t.dead[s.Session] }
	n.Holders, n.Waiters = filter(n.Holders, lives), append(filter(n.Waiters, lives), record.Entry{Weight: weight})
	promote(&n, time.Time{})
	return len(n.Waiters) == 0
}

// promote gives free slots to the head of the queue, each entry with the next token (rules T4 and T5). A
// waiter that needs more than is free blocks those behind it: otherwise one that needs all might wait
// forever.
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

// Without returns the table without the entries under a session that has ended for good (rule T3). Their
// slots go to the head of the queue.
func Without(t record.Table, session, writeID string, wall time.Time) record.Table {
	lives := func(s record.Entry) bool { return s.Session != session }
	t.Holders, t.Waiters, t.WriteID = filter(t.Holders, lives), filter(t.Waiters, lives), writeID
	promote(&t, wall)
	return t
}

func filter(entries []record.Entry, keep func(record.Entry) bool) (kept []record.Entry) {
	for _, s := range entries {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

func hasEntry(entries []record.Entry, id string) bool {
	return slices.ContainsFunc(entries, func(s record.Entry) bool { return s.ID == id })
}
