package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// A Caller names one acquisition: a number that the driver draws, and never twice.
type Caller uint64

// caller is the memory of one acquisition.
type caller struct {
	Caller
	seat   record.Seat // what is written for it
	state  callerState
	atOnce bool          // it does not wait
	quiet  bool          // the driver has had the answer: nobody waits for what is done about the rest
	asked  time.Duration // when it came
	began  time.Duration // when it got its seat
	sent   bool          // a write that adds its entry may have landed, or may yet
	there  bool          // the same, but for writes that were to create the object and were refused: there was one
	over   bool          // its session is
	until  time.Duration
	place  int // in the line, when that was told; 0: it was not told

	crowded protocol.Version // that had no room for it, while those who take it up may all be dead; empty: there was room
}

// callerState is where a caller stands.
type callerState int

const (
	coming  callerState = iota // its entry is not known to be there
	waiting                    // it is among the waiters
	seated                     // it holds a seat, as last confirmed
	ousted                     // it has lost the seat, and the work has not stopped yet
	leaving                    // its entry is to go
)

// any reports that a caller is in one of these states.
func (t *Machine) any(states ...callerState) bool {
	return slices.ContainsFunc(t.callers, func(c *caller) bool { return slices.Contains(states, c.state) })
}

// wanting reports that there is something to do, or to look for.
func (t *Machine) wanting() bool { return t.any(coming, waiting, leaving) }

func (c *caller) limited() bool {
	return c.state == leaving || c.state == coming && c.atOnce
}

// callerOf is the caller that an entry is of; nil: none of this Machine's, or one that is forgotten.
func (t *Machine) callerOf(s record.Seat) *caller {
	for _, c := range t.callers {
		if c.seat.ID == s.ID {
			return c
		}
	}
	return nil
}

// mine reports that this Machine wrote the entry.
func (t *Machine) mine(s record.Seat) bool {
	return strings.HasPrefix(s.ID, t.cfg.Incarnation+".")
}

func (t *Machine) find(n Caller) *caller {
	for _, c := range t.callers {
		if c.Caller == n {
			return c
		}
	}
	return nil
}

func (t *Machine) forget(c *caller) {
	t.callers = slices.DeleteFunc(t.callers, func(other *caller) bool { return other == c })
}

// join takes in a new caller. Its entry gets a name that nobody has had, and keeps it however often it is
// written: so it can be there only once.
func (t *Machine) join(ev Join, now protocol.Now) {
	t.callerNo++
	t.closing = 0
	id := t.cfg.Incarnation + "." + strconv.FormatUint(t.callerNo, 10)
	t.callers = append(t.callers, &caller{
		Caller: ev.Caller, atOnce: !ev.Wait, asked: now.Clock, until: now.Clock + t.cfg.TTL,
		seat: record.Seat{ID: id, Session: ev.Session, Weight: ev.Weight, Holder: ev.Holder, Address: t.cfg.Address, Since: now.Wall},
	})
	if !slices.Contains(t.entered, ev.Session) {
		t.entered = append(t.entered, ev.Session)
	}
	if now.Clock > t.seen+recent {
		t.fresh = false // others have written since, most likely, and a look costs a twelfth of a write
	}
	t.soon(now)
}

// recent is for how long what was seen is believed for a first write, and for one that leaves a line.
const recent = 2 * time.Second

// leave takes in that a caller wants no seat any more. Its validity has ended by now (rule T4), so
// what is left is to take its entry out, and to know that it is out (rule T6).
func (t *Machine) leave(ev Leave, now protocol.Now, out *protocol.Actions) {
	c := t.find(ev.Caller)
	if c == nil {
		panic("protocol: a Leave of a caller who is not there")
	}
	if c.state == coming || c.state == waiting {
		out.Add(Unseated{Caller: c.Caller, Err: ev.Err})
	}
	if c.state == seated {
		t.lookFirst(now)
	}
	t.vacate(c, now, out)
	t.soon(now)
}

// lookFirst has whoever leaves look before it writes, if it has not seen the table for a while and somebody waits:
// where there is a line somebody comes with each turn, and a write that is refused is followed by a look all the
// same. Who hears of all who come looks if it has heard of one. It may write over what it knows (rule T1), so if the
// look fails it does. In the same way it writes at once where only another caller, who waits, was about to look.
func (t *Machine) lookFirst(now protocol.Now) {
	first := len(t.table.Waiters) > 0 && now.Clock > t.seen+recent
	if t.alone() != nil {
		first = t.behind()
	}
	switch {
	case t.busy != none:
	case first && t.fresh:
		t.fresh, t.optional = false, true
	case !first && !t.open:
		t.fresh = true
	}
}

// cancel ends the waiting of all callers, since it makes no sense any more.
func (t *Machine) cancel(err error, now protocol.Now, out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		if c.state == coming || c.state == waiting {
			t.refuse(c, err, now, out)
		}
	}
	t.soon(now)
}

// refuse answers a caller that gets no seat, and takes out what may be there of it.
func (t *Machine) refuse(c *caller, err error, now protocol.Now, out *protocol.Actions) {
	out.Add(Unseated{Caller: c.Caller, Err: err})
	t.dismiss(c, now, out)
}

// dismiss lets a caller go that was answered. No Leave will come.
func (t *Machine) dismiss(c *caller, now protocol.Now, out *protocol.Actions) {
	c.quiet = true
	t.vacate(c, now, out)
}

// vacate has the entry of a caller taken out. It ends the caller at once if there is none, or if others take it
// out because its session is over. A seat that was lost otherwise may still be there, or be brought back by hand.
func (t *Machine) vacate(c *caller, now protocol.Now, out *protocol.Actions) {
	if c.over || c.state == coming && !c.sent {
		t.vacated(c, nil, out)
	} else {
		c.state, c.until = leaving, now.Clock+t.cfg.TTL
	}
}

// vacated ends a caller.
func (t *Machine) vacated(c *caller, err error, out *protocol.Actions) {
	t.forget(c)
	if !c.quiet {
		out.Add(Vacated{c.Caller, err})
	}
}

// limit is when a caller is given up. One that leaves has a TTL, since its session ends with that, and all else under
// it. Where nothing else is, and its user waits for less, there is half of that, from when the last one left: a process
// that ended sooner would leave an entry that nobody takes out until its last heartbeat is old, and a session ends by
// one write of an object that nobody else writes to.
func (t *Machine) limit(c *caller) time.Duration {
	if t.closing == 0 {
		return c.until // the common case, which needs no look at the other callers
	}
	var left time.Duration
	for _, other := range t.callers {
		switch {
		case other.seat.Session != c.seat.Session:
		case other.state != leaving:
			return c.until
		default:
			left = max(left, other.until-t.cfg.TTL)
		}
	}
	if t.closing <= left {
		return c.until
	}
	return min(c.until, (left+t.closing)/2)
}

// giveUp ends what lasts for too long: a caller that does not wait, and one that cannot be settled. The entry
// of the latter may be there for as long as its session goes on, so that has to end (rule T6).
func (t *Machine) giveUp(now protocol.Now, out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		switch {
		case !c.limited() || now.Clock < t.limit(c):
		case c.state == coming:
			t.refuse(c, t.trouble.NoAnswer(), now, out)
		default:
			out.Add(protocol.SessionOrphan{Session: c.seat.Session, Closing: now.Clock < c.until})
			t.vacated(c, protocol.ErrUnsettled, out)
		}
	}
}

// sessionOver ends what is under a session of ours (rules T2 and D7). The entries stay: others take
// them out when the session is over for them too. So one that leaves is told that its entry may still be there.
func (t *Machine) sessionOver(ev protocol.SessionOver, out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		switch {
		case c.seat.Session != ev.Session:
		case c.state == seated:
			c.state, c.over = ousted, true
			out.Add(Unseated{c.Caller, true, ev.Err})
		case c.state == ousted:
			c.over = true
		case c.state == coming, c.state == waiting:
			out.Add(Unseated{c.Caller, false, ev.Err})
			t.forget(c)
		case c.state == leaving:
			t.vacated(c, ev.Err, out)
		}
	}
}

// memberships tells of the sessions of ours under which there is nothing any more.
func (t *Machine) memberships(out *protocol.Actions) {
	t.entered = slices.DeleteFunc(t.entered, func(session string) bool {
		used := slices.ContainsFunc(t.callers, func(c *caller) bool { return c.seat.Session == session })
		if !used {
			out.Add(protocol.Left{Session: session})
		}
		return !used
	})
}

// settle ends the callers who leave and of whom nothing is there, or may yet come.
func (t *Machine) settle(out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		if c.state == leaving && !t.open && !seatOf(t.table.Seats(), c.seat.ID) {
			t.vacated(c, nil, out)
		}
	}
}

// refuseMisfits answers the callers for whom there can be no seat in what was seen.
func (t *Machine) refuseMisfits(now protocol.Now, out *protocol.Actions) {
	var err error
	switch {
	case t.version == "" && t.cfg.Existing:
		err = protocol.ErrAbsent
	case t.table.Size != t.cfg.Size:
		err = fmt.Errorf("%w: %d, and not %d", ErrSize, t.table.Size, t.cfg.Size) // rule T8
	case t.table.Token > record.LastToken:
		err = protocol.ErrTooLarge
	}
	for _, c := range slices.Clone(t.callers) {
		switch {
		case err == nil || c.state != coming && c.state != waiting:
		case t.seen < c.asked: // it is to be told what is so, and not what was
			t.fresh = false
		default:
			t.refuse(c, err, now, out)
		}
	}
}
