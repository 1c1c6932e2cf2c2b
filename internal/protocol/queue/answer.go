package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
)

// readDone takes in the answer to a look.
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
			t.same(now, out) // the store need not know conditional reads
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

// same: the object is unchanged. A write that was to replace it may yet land, and only another one on the
// same condition can settle it (rule A6). A write that was refused although nothing was faster has failed.
func (t *Machine) same(now protocol.Now, out *protocol.Actions) {
	t.fresh, t.seen = true, t.begun
	if err := t.refused; err != nil {
		t.refused = nil
		t.tryFailed(err, false, now, out)
	}
}

// unread: the store did not answer. That says nothing of the table, and ends nobody's seat.
func (t *Machine) unread(ev ReadDone, now protocol.Now, out *protocol.Actions) {
	t.trouble.Reads++
	t.trouble.LookAt = now.Clock + t.pause(t.trouble.Reads)
	t.failed(t.trouble.Reads, ev.Err, ev.Fatal, now, out)
}

// failed takes in that a request has failed, the n-th in a row. Where that is for good nobody is let wait for
// a seat, and those who do not wait are told of the third failure.
func (t *Machine) failed(n int, err error, fatal bool, now protocol.Now, out *protocol.Actions) {
	t.trouble.Failed(n, err, false, now, out)
	for _, c := range slices.Clone(t.callers) {
		hopeless := fatal || c.atOnce && n >= protocol.EnoughTries
		if hopeless && (c.state == coming || c.state == waiting) {
			t.refuse(c, err, now, out)
		}
	}
}

// foreign: there is something that we do not understand. It is left alone, and nothing can be
// known of the seats in it, by those who leave later either.
func (t *Machine) foreign(err error, out *protocol.Actions) {
	t.fresh = false
	for _, c := range slices.Clone(t.callers) {
		switch c.state {
		case seated:
			c.state = ousted
			out.Add(Unseated{c.Caller, true, err})
		case coming, waiting:
			out.Add(Unseated{c.Caller, false, err})
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

// gone takes in that the table that was shown last is not there any more. Those who held seats in it may not
// know, so nobody gets one before their sessions are over.
func (t *Machine) gone() {
	for _, h := range t.table.Holders {
		if !t.mine(h) {
			t.ghosts = append(t.ghosts, h.Session)
		}
	}
	t.version, t.table, t.open, t.refused = "", record.Table{Size: t.cfg.Size, Token: t.table.Token}, false, nil
}

// orphan ends the session of a caller whose entry may be in the object that was replaced: if somebody restores that by hand,
// nobody else would remove the entry. If another kind of object was created at the same moment, there was no entry.
func (t *Machine) orphan(c *caller, out *protocol.Actions) {
	if c.there {
		out.Add(protocol.SessionOrphan{Session: c.seat.Session})
	}
}

// absent: there is no object. The tokens of one that is made begin at the store's time.
func (t *Machine) absent(ev ReadDone, now protocol.Now, out *protocol.Actions) {
	if t.version != "" {
		out.Add(Vanished{t.table})
		t.gone()
		t.compare(protocol.ErrVanished, now, out)
	}
	t.same(now, out)
	t.table.Token = max(t.table.Token, protocol.FirstToken(ev.Date, now.Wall))
}

// take takes in a version that was not known. What was sent on the condition of another one cannot land
// any more.
func (t *Machine) take(table record.Table, v protocol.Version, now protocol.Now, out *protocol.Actions) {
	t.pace.saw(t.table, table, now.Clock)
	t.fresh, t.version, t.table, t.seen = true, v, table, t.begun
	t.sight(table.Token)
	t.told.enough = false
	t.open, t.refused, t.ghosts = false, nil, nil
	t.compare(ErrUnlisted, now, out)
	for session := range t.dead { // of those that nothing names any more nothing need be known
		if !slices.ContainsFunc(table.Seats(), func(s record.Seat) bool { return s.Session == session }) {
			delete(t.dead, session)
		}
	}
	out.Add(protocol.Seen{})
}

// sight remembers the largest token ever seen (rule A3). One that is too large is nobody's, and may be put right while we
// look on.
func (t *Machine) sight(token int64) {
	if token <= record.LastToken {
		t.top = max(t.top, token)
	}
}

// compare says what the present table means for each caller. why is how one lost its entry that
// it had.
func (t *Machine) compare(why error, now protocol.Now, out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		held := slices.IndexFunc(t.table.Holders, func(s record.Seat) bool { return s.ID == c.seat.ID })
		line := slices.IndexFunc(t.table.Waiters, func(s record.Seat) bool { return s.ID == c.seat.ID })
		c.sent = held >= 0 || line >= 0 // until it is seen to be gone
		c.there = c.sent
		switch {
		case c.state == seated && (held < 0 || t.table.Holders[held].Token != c.seat.Token):
			c.state = ousted
			out.Add(Unseated{c.Caller, true, why})
		case c.state != coming && c.state != waiting:
		case held >= 0:
			c.state, c.seat.Token, c.began = seated, t.table.Holders[held].Token, now.Clock
			out.Add(Seated{c.Caller, c.seat.Token})
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
	// Whatever the store said, it may have landed, or may yet, and a look must tell (rule A6). That holds for one
	// that was denied for good, too: the same request may be delivered twice, and its double be let through.
	t.fresh, t.open = false, true
	for _, c := range t.callers {
		c.there = c.there || seatOf(t.sent.Seats(), c.seat.ID) && (!ev.Refused || t.version != "")
	}
	t.due = now.Clock
	if ev.Refused {
		t.refused = ev.Err
		t.overtaken(now, out)
		return
	}
	t.tryFailed(ev.Err, ev.Fatal, now, out)
}

// tryFailed takes in that a write has failed, and not because another one was faster.
func (t *Machine) tryFailed(err error, fatal bool, now protocol.Now, out *protocol.Actions) {
	t.trouble.Writes++
	t.trouble.TryAt = now.Clock + t.pause(t.trouble.Writes)
	t.failed(t.trouble.Writes, err, fatal, now, out)
}

// longRow is how long a row of overtaken writes may last before it is reported.
const longRow = 10 * time.Second

// overtaken takes in that another write was faster: once more, perhaps. A user whose writes all are overtaken waits for
// no seat yet, so nothing else says why it waits.
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

// contention is the pause after a write that another one has overtaken, and that took so long. Where many come at
// one moment they spread, or each would make all others try again. A slow answer shows a crowd: a server that does one
// request after the other has served all before this one. They come back with a look and a write each, and there is room
// for those within six times as long. But an answer may be slow for other reasons, so there is a limit. On a store that
// is as fast for many as for few the pauses only save requests. Those who leave give somebody else a seat, so they go
// first, and make room only for as many as may leave when they do: the other holders.
func (t *Machine) contention(trip time.Duration) time.Duration {
	again := t.refusals - 1
	least, room := protocol.FirstPoll<<min(again, 4), 6
	if t.any(leaving) {
		others := filter(t.table.Holders, func(h record.Seat) bool { return !t.mine(h) })
		least, room = protocol.FirstPoll/4<<min(again, 2), min(room, len(others))
	}
	spread := max(least, min(time.Duration(room)*trip, protocol.Renewal(t.cfg.TTL), protocol.MaxRequest/2))
	return spread/8 + t.rng.Jitter(spread)
}

// pause is that after the n-th failure in a row. Whoever leaves has a TTL to settle that; the others
// need not be quicker than a Candidate that waits.
func (t *Machine) pause(n int) time.Duration {
	most := max(protocol.Renewal(t.cfg.TTL), time.Second)
	if t.any(leaving) {
		most = max(t.cfg.TTL/6, retry.Min)
	}
	pause := min(retry.Pause(n, nil), most)
	return pause + t.rng.Jitter(pause/4)
}
