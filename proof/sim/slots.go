package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
)

// slots checks the promises about the semaphore.
type slots struct {
	*fleet
	bucket  *bucket
	lasting *lasting
	returns *returns
}

// check checks V and O of the model, which must hold at every moment.
func (st *slots) check() {
	t := st.table
	if t == nil {
		return
	}
	sum := int64(0)
	for _, p := range st.processes {
		if p.part == nil {
			continue
		}
		for _, c := range p.part.callers {
			if c.valid() {
				sum += c.weight
			}
		}
	}
	created := !st.existing && t.deleted // see landed
	if sum > t.now.Size && !created && st.arm != Far {
		st.violated(Slots, "slots of the weight %d are used, of %d", sum, t.now.Size)
	}
	if !t.there || t.deleted {
		return
	}
	for _, s := range t.now.Entries() {
		c := st.named(s)
		if c == nil || !c.under.goesOn() {
			continue
		}
		if !c.under.knows(c.part) {
			st.violated(Orphaned, "the entry of %v is under the session %v, which goes on, and its table has left that", c, c.under)
		}
		if c.stands == gone && c.ended {
			st.violated(Orphaned, "the entry of %v is there, and it was told that it is not", c)
		}
	}
}

func (st *slots) named(s record.Entry) *caller {
	for _, c := range slices.Backward(st.table.callers) {
		if c.name == s.Holder {
			return c
		}
	}
	return nil
}

// landed checks V, T, F and L of the model.
func (st *slots) landed(r *request, before object, existed bool) {
	p := r.from.part
	t := p.on
	after, err := record.DecodeTable(r.body)
	if err != nil {
		st.violated(Sense, "%v writes what cannot be read: %v", p, err)
		return
	}
	var was record.Table
	if existed {
		if was, err = record.DecodeTable(before.body); err != nil {
			return // reported elsewhere
		}
		if was.Size != after.Size {
			st.violated(Size, "%v has changed the size from %d to %d", p, was.Size, after.Size)
		}
	} else {
		st.created(r)
	}
	st.entered(p, was, after)
	st.removed(p, was, after)
	st.grants(r, was, after)
	if len(after.Waiters) > 0 && after.Taken()+after.Waiters[0].Weight <= after.Size {
		st.violated(Idle, "%v leaves slots free, and %s waits for some", p, after.Waiters[0].Holder)
	}
	t.now, t.there, t.born = after, true, true
	st.rooms()
	st.changed(after.Token != was.Token)
}

// created checks the creation of the object. After a deletion, some holders may not know about
// it. A Machine that saw them there waits for their sessions to end; another one cannot.
func (st *slots) created(r *request) {
	t := r.from.part.on
	if t.order = nil; !t.born {
		return
	}
	if st.existing {
		st.violated(Absence, "the object was created by %v", r.from.part)
	}
	for _, s := range r.from.vanished {
		if c := st.named(s); c != nil && c.valid() && c.token == s.Token {
			st.violated(Slots, "%v has created the object, and saw it vanish while %v held a slot, which does so still", r.from.part, c)
		}
	}
}

// entered checks new entries: their callers are the writer's, and their sessions exist (rule D2).
func (st *slots) entered(p *part, was, after record.Table) {
	t := p.on
	for _, s := range after.Entries() {
		if has(was.Entries(), s) {
			continue
		}
		// A late write may bring back an entry removed with its session, behind all others.
		t.order = append(slices.DeleteFunc(t.order, func(id string) bool { return id == s.ID }), s.ID)
		if t.room > 0 {
			p.looks.fill(st.now, lookBurst*oneLook)
		}
		c := st.named(s)
		switch {
		case c == nil || c.part.cfg.Incarnation != p.cfg.Incarnation:
			st.violated(Entries, "%v has written an entry for %s", p, s.Holder)
		case !c.under.heartbeat.on.born:
			st.violated(D2, "%v has written an entry under the session %s, which does not exist yet", p, s.Session)
		case s.Weight != c.weight || s.Session != c.under.String():
			st.violated(Entries, "%v has written that %v is under %s with the weight %d", p, c, s.Session, s.Weight)
		case c.stands == leaves || c.stands == gone:
			st.met(LateJoin, c)
		}
	}
}

func has(slots []record.Entry, s record.Entry) bool {
	return slices.ContainsFunc(slots, func(o record.Entry) bool { return o.ID == s.ID })
}

// removed checks L: only its owner removes an entry, after its last use (rule T4), unless its
// session has ended permanently (rule T3).
func (st *slots) removed(p *part, was, after record.Table) {
	for _, s := range was.Entries() {
		if has(after.Entries(), s) {
			continue
		}
		c := st.named(s)
		switch {
		case c == nil:
		case c.part == p:
			if c.valid() {
				st.violated(Entries, "%v has given the slots of %v away, which it uses", p, c)
			}
		case c.under.heartbeat.on.over:
			st.met(DeadEntry, c)
		default:
			st.violated(Live, "%v has taken out %v, whose session %v is not over", p, c, c.under)
		}
	}
}

// grants checks T and F: each token is larger than all before it, and no caller gets a slot
// before an earlier one still waiting.
func (st *slots) grants(r *request, was, after record.Table) {
	p := r.from.part
	t := p.on
	// As for locks: a part that saw no object in the second of the last grant cannot know the
	// last token, whether it grants one or creates the object for leaving callers.
	late := t.deleted && !st.existing && r.only.Absent() && r.from.absent/time.Second <= t.granted/time.Second
	for _, s := range after.Holders {
		if i := slices.IndexFunc(was.Holders, func(o record.Entry) bool { return o.ID == s.ID }); i >= 0 {
			if was.Holders[i].Token != s.Token {
				st.violated(Tokens, "%v has changed the token of %s", p, s.Holder)
			}
			continue
		}
		if late {
			t.excused = true
		}
		if (s.Token <= t.top || s.Token <= was.Token || len(t.tokens[s.Token]) > 0) && !t.excused {
			st.violated(Tokens, "%s is granted the token %d after %d", s.Holder, s.Token, max(t.top, was.Token))
		}
		t.tokens[s.Token] = append(t.tokens[s.Token], s.Holder)
		t.top = max(t.top, s.Token)
		for _, w := range after.Waiters {
			if slices.Index(t.order, w.ID) < slices.Index(t.order, s.ID) {
				st.violated(Fair, "%s gets a slot before %s, which came first", s.Holder, w.Holder)
			}
		}
		if has(was.Waiters, s) {
			if c := st.named(s); c != nil && c.part != p {
				st.met(HandedOver, c)
			}
		}
	}
	if last := max(was.Token, t.top); after.Token < last {
		if t.excused = t.excused || late; !t.excused {
			st.violated(Tokens, "the last token is %d, and then %d", last, after.Token)
		}
	}
	if len(after.Holders) > 0 {
		t.granted = st.now
	}
}

func (st *slots) granted(c *caller) {
	t := c.part.on
	if !slices.Contains(t.tokens[c.token], c.name) {
		st.violated(Tokens, "%v gets the token %d, which was granted to %q", c, c.token, t.tokens[c.token])
	}
	if c.part.cfg.Size != t.now.Size && !t.deleted { // the object may be new
		st.violated(Size, "%v gets a slot of %d, and expects %d", c, t.now.Size, c.part.cfg.Size)
	}
}

// reported checks that each acquisition and each Leave is answered once.
func (st *slots) reported(p *part, action protocol.Action) {
	switch a := action.(type) {
	case queue.Granted:
		st.answers(p.find(a.Caller), action)
	case queue.Refused:
		st.answers(p.find(a.Caller), action)
	case queue.Full:
		c := p.find(a.Caller)
		if st.answers(c, action); c.wait || c.room {
			st.violated(Returns, "%v is refused, and waits or has always had room", c)
		}
	case queue.Lost:
		if c := p.find(a.Caller); c.stands != holds {
			st.violated(Returns, "%v loses slots that it does not hold", c)
		}
	case queue.Vacated:
		if c := p.find(a.Caller); c.stands != leaves {
			st.violated(Returns, "%v is told that it has left", c)
		}
	case queue.Write:
		st.keeps(p, a.Table)
	}
}

func (st *slots) answers(c *caller, action protocol.Action) {
	if c.stands != asks {
		st.violated(Returns, "%v has two answers, the second is %s", c, brief{action})
	}
}

// keeps checks that a write gives away no slot in use.
func (st *slots) keeps(p *part, to record.Table) {
	for _, c := range p.who(holds) {
		if c.valid() && !slices.ContainsFunc(to.Holders, func(s record.Entry) bool { return s.Holder == c.name && s.Token == c.token }) {
			st.violated(Entries, "%v is about to give the slots of %v away, which it uses", p, c)
		}
	}
}

// vacated checks rule T6 when a caller is told that nothing of it is left.
func (st *slots) vacated(c *caller, err error) {
	if err == nil && st.remains(c) {
		st.violated(Orphaned, "%v is told that nothing of it is left, and its entry is there, or may land yet", c)
	}
}

// remains reports whether a caller's entry exists or may still land, under a live session.
func (st *slots) remains(c *caller) bool {
	t := c.part.on
	if !c.under.goesOn() || t.deleted || st.bucket.tablePoisoned() {
		return false
	}
	return slices.ContainsFunc(t.now.Entries(), func(s record.Entry) bool { return s.Holder == c.name }) ||
		slices.ContainsFunc(t.inFlight, func(r *request) bool {
			return r.op == "put" && st.bucket.wouldLand(r) && strings.Contains(string(r.body), `"`+c.name+`"`)
		})
}

// rooms notes which callers have no room. A process's callers come in order.
func (st *slots) rooms() {
	t := st.table
	for _, p := range st.parts() {
		alone := len(p.who(asks)) == 1
		for _, c := range p.who(asks) {
			c.room = c.room && alone && len(t.now.Waiters) == 0 && t.now.Taken()+c.weight <= t.now.Size
		}
	}
}

// within checks that still returns false after a TTL and a second, unless the process stopped
// meanwhile.
func (st *slots) within(p *part, what string, still func() bool) {
	due := p.clock() + p.cfg.TTL + time.Second
	st.returns.until(p.process, due, still, func() {
		st.violated(Returns, "%v: %s in a TTL of %v", p, what, p.cfg.TTL)
	})
}
