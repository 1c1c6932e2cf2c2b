package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// readDone takes in the answer to a read.
func (t *Machine) readDone(ev ReadDone, now protocol.Now, out *protocol.Actions) {
	optional, ahead := t.optional, t.told.ahead
	t.optional, t.told.ahead = false, false
	switch ev.Shown {
	case protocol.Unread:
		if t.fresh = optional; !ahead {
			t.unread(ev, now, out)
		}
		return
	case protocol.Foreign:
		t.foreign(ev.Err, out)
	case protocol.Absent:
		t.absent(ev, now, out)
	case protocol.Same:
		t.same(now, out)
	case protocol.Found:
		if ev.Version == t.version {
			t.same(now, out) // the store may ignore conditions on reads
			break
		}
		if ours := strings.HasPrefix(ev.Table.WriteID, t.cfg.Incarnation+"."); ours || t.refused != nil {
			t.trouble.Progress()
		} else {
			t.trouble.OthersWrite(now)
		}
		t.take(ev.Table, ev.Version, now, out)
	}
	t.pace.look = now.Clock - t.begun
	t.trouble.Looked()
}

// same: the object is unchanged. A write that was to replace it may still land, and only another write on the
// same condition can settle that (rule A6). A write that was refused although no other was faster has failed.
func (t *Machine) same(now protocol.Now, out *protocol.Actions) {
	t.fresh, t.seen = true, t.begun
	if err := t.refused; err != nil {
		t.refused = nil
		t.tryFailed(err, false, now, out)
	}
}

// unread: the store did not answer. That says nothing about the table, and nobody loses slots.
func (t *Machine) unread(ev ReadDone, now protocol.Now, out *protocol.Actions) {
	t.trouble.Reads++
	t.trouble.LookAt = now.Clock + t.pause(t.trouble.Reads)
	t.failed(t.trouble.Reads, ev.Err, ev.Fatal, now, out)
}

// failed notes that a request has failed, the n-th in a row. If retrying is pointless, nobody is left
// waiting. Callers that do not wait get the third failure.
func (t *Machine) failed(n int, err error, fatal bool, now protocol.Now, out *protocol.Actions) {
	t.trouble.Failed(n, err, false, now, out)
	for _, c := range slices.Clone(t.callers) {
		hopeless := fatal || c.atOnce && n >= protocol.EnoughTries
		if hopeless && (c.state == coming || c.state == waiting) {
			t.refuse(c, err, now, out)
		}
	}
}

// foreign: the object is not one that we understand. It is left alone. Nothing is known about the slots in
// it, now or when callers leave later.
func (t *Machine) foreign(err error, out *protocol.Actions) {
	t.fresh = false
	for _, c := range slices.Clone(t.callers) {
		switch c.state {
		case holding:
			c.state = ousted
			out.Add(Lost{c.Caller, err})
		case coming, waiting:
			out.Add(Refused{c.Caller, err})
			t.orphan(c, out)
			t.forget(c)
		case leaving:
			t.orphan(c, out)
			t.vacated(c, err, out)
		case ousted:
		}
	}
	t.gone()
}

// gone notes that the last known table was deleted. Its holders may not know, so no slot is granted before
// their sessions have ended.
func (t *Machine) gone() {
	for _, h := range t.table.Holders {
		if !t.mine(h) {
			t.ghosts = append(t.ghosts, h.Session)
		}
	}
	t.version, t.table, t.open, t.refused = "", record.Table{Size: t.cfg.Size, Token: t.table.Token}, false, nil
}

// orphan ends the session of a caller whose entry may be in the object that was replaced: if an operator restores that
// object, no other caller would remove the entry. If another kind of object was created at the same moment, there was no entry.
func (t *Machine) orphan(c *caller, out *protocol.Actions) {
	if c.there {
		out.Add(protocol.SessionOrphan{Session: c.entry.Session})
	}
}

// absent: there is no object. The tokens of a new one start at the store's time.
func (t *Machine) absent(ev ReadDone, now protocol.Now, out *protocol.Actions) {
	if t.version != "" {
		out.Add(Vanished{t.table})
		t.gone()
		t.compare(protocol.ErrVanished, now, out)
	}
	t.same(now, out)
	t.table.Token = max(t.table.Token, protocol.FirstToken(ev.Date, now.Wall))
}

// take takes in a new version. Writes conditional on another version cannot land any more.
func (t *Machine) take(table record.Table, v protocol.Version, now protocol.Now, out *protocol.Actions) {
	t.pace.saw(t.table, table, now.Clock)
	t.fresh, t.version, t.table, t.seen = true, v, table, t.begun
	t.sight(table.Token)
	t.told.enough = false
	t.open, t.refused, t.ghosts = false, nil, nil
	t.compare(ErrUnlisted, now, out)
	for session := range t.dead { // nothing names it any more
		if !slices.ContainsFunc(table.Entries(), func(s record.Entry) bool { return s.Session == session }) {
			delete(t.dead, session)
		}
	}
	out.Add(protocol.Seen{})
}

// sight remembers the largest token ever seen (rule A3). A token that is too large has no holder, and an operator
// may correct it.
func (t *Machine) sight(token int64) {
	if token <= record.LastToken {
		t.top = max(t.top, token)
	}
}

// compare tells each caller what the table means for it. why is how a caller lost its entry.
func (t *Machine) compare(why error, now protocol.Now, out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		held := slices.IndexFunc(t.table.Holders, func(s record.Entry) bool { return s.ID == c.entry.ID })
		line := slices.IndexFunc(t.table.Waiters, func(s record.Entry) bool { return s.ID == c.entry.ID })
		c.sent = held >= 0 || line >= 0 // until a read shows that it is gone
		c.there = c.sent
		switch {
		case c.state == holding && (held < 0 || t.table.Holders[held].Token != c.entry.Token):
			c.state = ousted
			out.Add(Lost{c.Caller, why})
		case c.state != coming && c.state != waiting:
		case held >= 0:
			c.state, c.entry.Token, c.began = holding, t.table.Holders[held].Token, now.Clock
			out.Add(Granted{c.Caller, c.entry.Token})
		case line >= 0:
			c.state = waiting
		default:
			c.state = coming // it joins again, behind all others
		}
	}
}

// written takes in the answer to a write.
func (t *Machine) written(ev WriteDone, now protocol.Now, out *protocol.Actions) {
	if ev.Err == nil {
		t.trouble.Progress()
		t.refusals, t.pace.trip = 0, now.Clock-t.begun
		before := t.table
		t.take(t.sent, ev.Version, now, out)
		t.announce(before, out)
		return
	}
	// Whatever the store said, the write may have landed, or may still land, and a read must tell (rule A6).
	// That holds even for a denied write: the request may be delivered twice, and the second one accepted.
	t.fresh, t.open = false, true
	for _, c := range t.callers {
		c.there = c.there || hasEntry(t.sent.Entries(), c.entry.ID) && (!ev.Refused || t.version != "")
	}
	t.due = now.Clock
	if ev.Refused {
		t.refused = ev.Err
		t.overtaken(now, out)
		return
	}
	t.tryFailed(ev.Err, ev.Fatal, now, out)
}

// tryFailed notes that a write has failed, and not because another one was faster.
func (t *Machine) tryFailed(err error, fatal bool, now protocol.Now, out *protocol.Actions) {
	t.trouble.Writes++
	t.trouble.TryAt = now.Clock + t.pause(t.trouble.Writes)
	t.failed(t.trouble.Writes, err, fatal, now, out)
}

// longRow is how long a row of overtaken writes may last before it is reported.
const longRow = 10 * time.Second

// overtaken notes that another write was faster, perhaps again. A caller whose writes are all overtaken is not
// in the queue yet, so nothing else says why it waits.
func (t *Machine) overtaken(now protocol.Now, out *protocol.Actions) {
	if t.refusals == 0 {
		t.row = t.begun
	}
	t.refusals++
	t.due += t.contention(now.Clock - t.begun)
	if lasted := now.Clock - t.row; lasted >= longRow && t.refusals >= protocol.EnoughTries {
		err := fmt.Errorf("it has refused %d writes in a row, for %v, since others were faster: %w", t.refusals, lasted.Round(time.Second), t.refused)
		t.trouble.Report(err, false, now, out)
	}
}

// contention returns the pause after an overtaken write that took that long. If many come at the same moment,
// they must spread out, or each would make all others retry. A slow answer shows a crowd: a server that
// serves requests one by one has served all others first. Each of them comes back with a read and a write,
// and there is room for those within six times as long. An answer may also be slow for other reasons, so
// there is a limit. On a store that serves many as fast as few, the pauses only save requests. Leaving
// callers free slots, so they go first, and make room only for those that may leave at the same moment:
// the other holders.
func (t *Machine) contention(trip time.Duration) time.Duration {
	again := t.refusals - 1
	least, room := protocol.FirstPoll<<min(again, 4), 6
	if t.any(leaving) {
		others := filter(t.table.Holders, func(h record.Entry) bool { return !t.mine(h) })
		least, room = protocol.FirstPoll/4<<min(again, 2), min(room, len(others))
	}
	spread := max(least, min(time.Duration(room)*trip, protocol.Renewal(t.cfg.TTL), protocol.MaxRequest/2))
	return spread/8 + t.rng.Jitter(spread)
}

// pause returns the pause after the n-th failure in a row. A leaving caller has a TTL to have its entry
// removed. The others need not be quicker than a Candidate that waits.
func (t *Machine) pause(n int) time.Duration {
	most := max(protocol.Renewal(t.cfg.TTL), time.Second)
	if t.any(leaving) {
		most = max(t.cfg.TTL/6, protocol.MinPause)
	}
	pause := min(protocol.Pause(n, nil), most)
	return pause + t.rng.Jitter(pause/4)
}
