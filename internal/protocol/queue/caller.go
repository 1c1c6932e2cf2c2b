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

// A Caller names one acquisition. The driver never uses a number twice.
type Caller uint64

// caller is one acquisition.
type caller struct {
	Caller
	entry  record.Entry
	state  callerState
	atOnce bool          // it does not wait
	quiet  bool          // the driver has its answer, so the removal of its entry is not reported
	asked  time.Duration // when it joined
	began  time.Duration // when it got its slots
	sent   bool          // a write that adds its entry may have landed, or may still
	there  bool          // the same, except for refused writes that would have created the object
	over   bool          // its session has ended
	until  time.Duration
	place  int // in the queue, as last reported; 0: not reported

	crowded protocol.Version // the version that had no room for it, though all in it may be dead; empty: there was room
}

// callerState is the state of a caller.
type callerState int

const (
	coming  callerState = iota // its entry is not known to be in the object
	waiting                    // it is among the waiters
	holding                    // it holds slots, as last confirmed
	ousted                     // it has lost its slots, and its work has not stopped yet
	leaving                    // its entry must be removed
)

// any reports whether a caller is in one of these states.
func (t *Machine) any(states ...callerState) bool {
	return slices.ContainsFunc(t.callers, func(c *caller) bool { return slices.Contains(states, c.state) })
}

// wanting reports whether there is something to write or to poll for.
func (t *Machine) wanting() bool { return t.any(coming, waiting, leaving) }

func (c *caller) limited() bool {
	return c.state == leaving || c.state == coming && c.atOnce
}

// callerOf returns the caller of an entry, or nil if it is unknown here.
func (t *Machine) callerOf(s record.Entry) *caller {
	for _, c := range t.callers {
		if c.entry.ID == s.ID {
			return c
		}
	}
	return nil
}

// mine reports whether this Machine wrote the entry.
func (t *Machine) mine(s record.Entry) bool {
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

// join adds a caller. Its entry gets a new ID and keeps it, however often it is written, so it can be in
// the object only once.
func (t *Machine) join(ev Join, now protocol.Now) {
	t.callerNo++
	t.closing = 0
	id := t.cfg.Incarnation + "." + strconv.FormatUint(t.callerNo, 10)
	t.callers = append(t.callers, &caller{
		Caller: ev.Caller, atOnce: !ev.Wait, asked: now.Clock, until: now.Clock + t.cfg.TTL,
		entry: record.Entry{ID: id, Session: ev.Session, Weight: ev.Weight, Holder: ev.Holder, Address: t.cfg.Address, Since: now.Wall},
	})
	if !slices.Contains(t.entered, ev.Session) {
		t.entered = append(t.entered, ev.Session)
	}
	if now.Clock > t.seen+recent {
		t.fresh = false // others have probably written since, and a read costs a twelfth of a write
	}
	t.soon(now)
}

// recent is how long the last known table is good enough for a first write, and for leaving a queue.
const recent = 2 * time.Second

// leave notes that a caller wants no slots any more. Its validity has ended (rule T4). What is left is to
// remove its entry and to be sure of that (rule T6).
func (t *Machine) leave(ev Leave, now protocol.Now, out *protocol.Actions) {
	c := t.find(ev.Caller)
	if c == nil {
		panic("protocol: a Leave of a caller who is not there")
	}
	if c.state == coming || c.state == waiting {
		out.Add(Refused{c.Caller, ev.Err})
	}
	if c.state == holding {
		t.lookFirst(now)
	}
	t.vacate(c, now, out)
	t.soon(now)
}

// lookFirst lets a leaving caller read before it writes, if the table is old and there are waiters: with a
// queue, a caller joins at each turn, and a refused write is followed by a read anyway. A sole holder is
// notified of each caller that joins, so it reads only after such a notification. If the read fails, the last known table is
// written over, which is safe (rule T1). And if only another caller's poll is due, it writes at once.
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

// cancel ends the wait of all callers, because it has become pointless.
func (t *Machine) cancel(err error, now protocol.Now, out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		if c.state == coming || c.state == waiting {
			t.refuse(c, err, now, out)
		}
	}
	t.soon(now)
}

// refuse answers a caller that gets no slots, and removes the entry that it may have.
func (t *Machine) refuse(c *caller, err error, now protocol.Now, out *protocol.Actions) {
	out.Add(Refused{c.Caller, err})
	t.dismiss(c, now, out)
}

// dismiss ends a caller that has its answer. No Leave follows.
func (t *Machine) dismiss(c *caller, now protocol.Now, out *protocol.Actions) {
	c.quiet = true
	t.vacate(c, now, out)
}

// vacate has the entry of a caller removed. It ends the caller at once if there is no entry, or if others
// remove it because its session has ended. An entry that was lost otherwise may still be there, or be
// restored by hand.
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

// limit returns when a caller is given up. A leaving caller has a TTL, because giving it up ends its session,
// with everything under it. If nothing else is under the session and the user waits for less, it has half
// of that wait, counted from when the last caller left. A process that exited before would leave an entry
// until its last heartbeat has expired, while ending the session is one uncontended write.
func (t *Machine) limit(c *caller) time.Duration {
	if t.closing == 0 {
		return c.until // the common case, in which the other callers do not matter
	}
	var left time.Duration
	for _, other := range t.callers {
		switch {
		case other.entry.Session != c.entry.Session:
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

// giveUp ends what takes too long: a caller that does not wait, and one whose entry cannot be removed. That
// entry may stay for as long as its session goes on, so the session has to end (rule T6).
func (t *Machine) giveUp(now protocol.Now, out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		switch {
		case !c.limited() || now.Clock < t.limit(c):
		case c.state == coming:
			t.refuse(c, t.trouble.NoAnswer(), now, out)
		default:
			out.Add(protocol.SessionOrphan{Session: c.entry.Session, Closing: now.Clock < c.until})
			t.vacated(c, protocol.ErrUnsettled, out)
		}
	}
}

// sessionOver ends what is under a session of this process (rules T2 and D7). Others remove the entries
// when the session has ended for them too. So a leaving caller learns that its entry may still be there.
func (t *Machine) sessionOver(ev protocol.SessionOver, out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		switch {
		case c.entry.Session != ev.Session:
		case c.state == holding:
			c.state, c.over = ousted, true
			out.Add(Lost{c.Caller, ev.Err})
		case c.state == ousted:
			c.over = true
		case c.state == coming, c.state == waiting:
			out.Add(Refused{c.Caller, ev.Err})
			t.forget(c)
		case c.state == leaving:
			t.vacated(c, ev.Err, out)
		}
	}
}

// memberships reports the sessions of this process under which there is nothing any more.
func (t *Machine) memberships(out *protocol.Actions) {
	t.entered = slices.DeleteFunc(t.entered, func(session string) bool {
		used := slices.ContainsFunc(t.callers, func(c *caller) bool { return c.entry.Session == session })
		if !used {
			out.Add(protocol.Left{Session: session})
		}
		return !used
	})
}

// settle ends the leaving callers that have no entry and cannot get one.
func (t *Machine) settle(out *protocol.Actions) {
	for _, c := range slices.Clone(t.callers) {
		if c.state == leaving && !t.open && !hasEntry(t.table.Entries(), c.entry.ID) {
			t.vacated(c, nil, out)
		}
	}
}

// refuseMisfits answers the callers that can get no slots in this table.
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
		case t.seen < c.asked: // it must not be answered by an old read
			t.fresh = false
		default:
			t.refuse(c, err, now, out)
		}
	}
}
