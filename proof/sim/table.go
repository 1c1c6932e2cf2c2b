package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
)

// A tables is the users of the semaphore, which the processes with sessions share.
type tables struct {
	*fleet
	server     *server
	lasting    *lasting
	candidates *candidates
	slots      *slots
	network    *network
}

func (ts *tables) begin() {
	if ts.choose(5) == 0 {
		return
	}
	t := &table{key: "t0", tokens: map[int64][]string{}}
	switch ts.choose(4) {
	case 0: // a fair lock
		t.size, t.heavy = 1, []int64{1}
	case 1:
		t.size, t.heavy = 2, []int64{1, 1, 2}
	case 2:
		t.size, t.heavy = 3, []int64{1, 2, 3}
	default: // a reader/writer lock
		t.size, t.heavy = 1<<20, []int64{1, 1, 1 << 20}
	}
	if ts.choose(4) == 3 {
		t.room = 400 // three or four entries
	}
	t.peers = ts.choose(2) == 1
	ts.table = t
	if ts.existing {
		body, err := record.Table{Size: t.size, WriteID: "init"}.Encode()
		if err != nil {
			panic(err)
		}
		ts.server.put(t.key, body)
		t.now, t.there, t.born = record.Table{Size: t.size}, true, true
	}
	for _, p := range ts.processes {
		ts.start(p)
	}
}

func (ts *tables) start(p *process) {
	p.part = nil
	if ts.table == nil || !p.sessions {
		return
	}
	part := &part{process: p, on: ts.table, e: new(engine.Table), acts: 3 + ts.choose(16)}
	part.cfg = queue.Config{
		Incarnation: ts.candidates.incarnation(p), Size: ts.table.size, TTL: ts.pick(ts.ttls[:]...), Existing: ts.existing, Room: ts.table.room,
	}
	if ts.choose(16) == 15 {
		part.cfg.Size++ // a mistake in its configuration (rule T8)
	}
	if ts.table.peers {
		part.cfg.Address = p.String()
	}
	ts.longest = max(ts.longest, part.cfg.TTL)
	if part.cfg.Size != ts.table.size {
		ts.met(OtherSize, part)
	}
	part.e.Init(host{ts, part}, part.cfg)
	p.part, p.wakers = part, append(p.wakers, &part.alarm)
	ts.logf("%v starts as %s, TTL %v, size %d", part, part.cfg.Incarnation, part.cfg.TTL, part.cfg.Size)
	ts.after(ts.pick(0, 100*time.Millisecond, time.Second, 10*time.Second), p.machine, func() { ts.act(part) })
}

func (ts *tables) act(p *part) {
	if ts.healed {
		return
	}
	pause := ts.pick(time.Second, 3*time.Second, 300*time.Millisecond, 50*time.Millisecond)
	if ts.arm == Lasting {
		if p.acts--; p.acts < 0 {
			return
		}
		ttl := ts.lasting.ttl
		pause = ts.pick(4*time.Second, time.Second, 300*time.Millisecond, 20*time.Second, min(ttl/3, time.Minute), ttl, 3*ttl)
	}
	switch ts.choose(5) {
	case 4:
		ts.giveUp(p)
	default:
		for range 1 + ts.choose(3)/2 {
			ts.join(p)
		}
	}
	ts.after(pause, p.machine, func() { ts.act(p) })
}

const mostCallers = 3

func (ts *tables) join(p *part) {
	s := p.open
	if s == nil || !s.alive() || len(p.who(asks, holds)) == mostCallers {
		return
	}
	p.last++
	c := &caller{Caller: p.last, part: p, under: s, weight: ts.table.heavy[ts.choose(len(ts.table.heavy))], wait: ts.healed || ts.choose(4) > 0}
	c.name = fmt.Sprintf("%v-%d-%d", p.process, p.life, c.Caller)
	if p.acted(); len(p.who(asks)) == 0 {
		p.silent = 0
	}
	// It fails if the session's end has come and no alarm has gone off since.
	_ = p.e.Join(&s.Session, queue.Join{Caller: c.Caller, Weight: c.weight, Holder: c.name, Wait: c.wait}, func() {
		p.callers, ts.table.callers = append(p.callers, c), append(ts.table.callers, c)
		c.room = true
		ts.slots.rooms()
	})
	if !c.wait {
		ts.slots.within(p, "who does not wait has no answer", func() bool { return c.stands == asks })
	}
}

func (ts *tables) giveUp(p *part) {
	for _, c := range p.who(asks) {
		ts.lasting.startAt(givesUp)
		ts.met(OutOfLine, c)
		ts.leave(c, protocol.ErrCancelled)
		return
	}
}

// leave ends what a caller has or waits for. Its validity ends first.
func (ts *tables) leave(c *caller, why error) {
	if c.stands == leaves || c.stands == gone {
		return
	}
	c.part.acted()
	asked := c.stands == asks
	c.part.e.Leave(queue.Leave{Caller: c.Caller, Err: why}, func() bool {
		c.ended = true
		if !asked {
			c.stands = leaves
		}
		return true
	})
	if c.stands == asks {
		ts.violated(Returns, "%v goes on after it has given up", c)
	}
	ts.slots.within(c.part, "it is not settled what became of "+c.name, func() bool { return c.stands == leaves })
	if !ts.healed && ts.choose(8) == 7 { // the user waits for less than a TTL
		ts.met(Hurried, c)
		c.part.e.Tell(queue.Closing{Until: c.part.clock() + ts.pick(5*time.Second, time.Second, 30*time.Millisecond)})
	}
}

func (ts *tables) forget(c *caller) {
	p := c.part
	c.stands = gone
	p.callers = slices.DeleteFunc(p.callers, func(other *caller) bool { return other == c })
	if ts.healed {
		ts.after(time.Second, p.machine, func() { ts.converge(p.process) })
	}
}

// holdCalm is the longest hold of a slot after the faults.
const holdCalm = time.Second

// converge gives a part a turn after the faults, under a live session.
func (ts *tables) converge(p *process) {
	if part := p.part; ts.healed && part != nil && part.turns == 0 && len(part.callers) == 0 && !ts.excused(part) {
		ts.join(part)
	}
}

// dismiss ends a caller without a slot. What it has sent is settled in the background.
func (ts *tables) dismiss(c *caller) {
	p := c.part
	p.settles = p.clock() + p.cfg.TTL + time.Second
	ts.slots.within(p, "something is left of "+c.name, func() bool { return ts.slots.remains(c) })
	ts.forget(c)
}

// A host is the engine.Host of a part.
type host struct {
	*tables
	p *part
}

func (h host) hosts() any { return h.p }

func (h host) Place() engine.Place {
	return engine.Place{Runtime: partRuntime{runtime{h.network, h.p.process, &h.p.alarm}, h}, Store: remote{}, Key: h.p.on.key, Logger: silent}
}

func (h host) Session(name string) *engine.Session { return h.find(name).engine() }

func (h host) Watcher(session string, of *engine.Engine) engine.Owner {
	return h.candidates.watcher(h.p.process, h.p.cfg.TTL, session, of)
}

// EndLease ends the validity of slots under an ended session.
func (h host) EndLease(error) {
	for _, c := range h.p.who(holds) {
		c.ended = c.ended || c.under.Over() != nil
	}
}

func (h host) Stepped(ev protocol.Event, actions []protocol.Action) protocol.Event {
	h.logf("%v  %s", h.p, brief{ev})
	h.slots.taken(h.p, ev)
	for _, action := range actions {
		h.report(action)
	}
	h.slots.stepped(h.p)
	return nil
}

func (h host) report(action protocol.Action) {
	h.logf("%v    -> %s", h.p, brief{action})
	h.slots.reported(h.p, action)
	switch a := action.(type) {
	case queue.Granted:
		c := h.p.find(a.Caller)
		c.stands, c.token = holds, a.Token
		h.p.turns++
		h.lasting.startAt(granted)
		h.slots.granted(c)
		busy := h.pick(300*time.Millisecond, 3*time.Second, 20*time.Millisecond, 10*time.Second)
		if h.healed {
			busy = min(busy, holdCalm)
		}
		h.after(busy, h.p.machine, func() { h.leave(c, nil) })
	case queue.Full:
		h.dismiss(h.p.find(a.Caller))
	case queue.Refused:
		h.refused(h.p.find(a.Caller), a.Err)
	case queue.Lost:
		c := h.p.find(a.Caller)
		c.ended = true
		h.met(SlotLost, c, a.Err)
		h.after(h.pick(10*time.Millisecond, time.Second, 5*time.Second), h.p.machine, func() { h.leave(c, nil) })
	case queue.Vacated:
		c := h.p.find(a.Caller)
		h.slots.vacated(c, a.Err)
		h.p.settles = max(h.p.settles, h.p.clock()) // together with it, others' leftovers may be removed
		h.forget(c)
	case protocol.Troubled:
		h.slots.told(h.p)
	case queue.Tell:
		h.tell(a)
	case queue.Queued:
		h.lasting.startAt(waits)
	case protocol.SessionOrphan:
		h.find(a.Session).mustEnd = true
		h.met(TableOrphan, a.Session)
	case queue.Vanished:
		h.p.vanished = append(h.p.vanished, a.Table.Holders...)
	case protocol.Seen:
		h.p.vanished = nil
	}
}

func (h host) refused(c *caller, err error) {
	if c.ended { // it gave up, and is told when that is settled
		c.stands = leaves
		return
	}
	if is(err, record.ErrTableFull) {
		h.met(NoRoom, c)
	}
	h.dismiss(c)
}

// A partRuntime is the runtime of a part's engine.
type partRuntime struct {
	runtime
	h host
}

func (rt partRuntime) Incarnation() string { return rt.h.candidates.incarnation(rt.of) }

func (rt partRuntime) Ask(r engine.Request) (giveUp func()) {
	p := rt.h.p
	rt.h.slots.wanted(p, r.For)
	c := begin(p.process, nil, r.Do)
	c.part, c.to, c.absent = p, &p.on.flights, p.absent
	c.done = func() {
		p.answered = c
		r.Done()
		p.answered = nil
	}
	if a, is := r.For.(queue.Write); is {
		c.change = &a.Table
		if len(p.who(leaves)) > 0 {
			rt.lasting.startAt(releases)
		} else {
			rt.lasting.startAt(claims)
		}
		c.vanished = slices.Clone(p.vanished)
		rt.disturb(c)
	}
	return rt.send(c, r.Timeout)
}

// abandon makes a user give up.
func (ts *tables) abandon(p *part) {
	for _, c := range p.who(asks, holds) {
		ts.leave(c, protocol.ErrCancelled)
		return
	}
}

// rival makes another caller arrive.
func (ts *tables) rival() {
	others := ts.parts()
	other := others[ts.choose(len(others))]
	ts.after(ts.soon(), other.machine, func() { ts.join(other) })
}

// tell delivers a notification to the process at its address. A liar notifies every process.
func (ts *tables) tell(a queue.Tell) {
	lie := ts.hit(PeerLie)
	for _, p := range ts.processes {
		if p.String() != a.Address && !lie || ts.hit(PeerLost) {
			continue
		}
		n := 1 + ts.choose(4)/3 // it may arrive twice
		if lie {
			n = 4
		}
		for range n {
			if lie {
				a.Version = protocol.Version(fmt.Sprintf("lie%d", ts.choose(1000)))
			}
			ts.after(ts.delay(PeerLate, ts.hit(PeerStale)), p.machine, func() {
				if p.part != nil {
					p.part.e.Tell(queue.Told{Version: a.Version})
				}
			})
		}
	}
}
