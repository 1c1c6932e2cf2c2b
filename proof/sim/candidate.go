package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A candidates creates candidates, and carries out the requests and reports of their engines.
type candidates struct {
	*fleet
	network *network
	lasting *lasting
	ledger  *ledger
	returns *returns
	peers   *peers
	papers  *papers
	made    int
}

// start creates a candidate for a lock. Some share a name: names are not incarnations.
func (cs *candidates) start(m *member) {
	cfg := candidate.Config{TTL: m.ttl, Holder: m.process.String(), Address: m.process.String(), Register: cs.cfg}
	if cs.choose(4) == 3 {
		cfg.Holder = "m0"
	}
	cfg.Role = cs.role()
	cs.longest = max(cs.longest, m.ttl)
	lay := func(st store.Store) layout.Layout { return cs.lay(st, m.on.key, m.ttl) }
	acts := 3 + cs.choose(16)
	*m = member{process: m.process, on: m.on, e: new(engine.Engine), ttl: m.ttl, claim: m.claim, ended: m.ended, contends: m.contends, lay: lay, may: allowances{acts: acts}}
	cs.init(m, cfg)
	cs.logf("%v starts as %s, TTL %v, %T%+v, clock %d/%d",
		m, m.cfg.Incarnation, cfg.TTL, cfg.Role, cfg.Role, m.rate, rateOne)
}

// role draws a user's role. Half of the members wait, and half of the others have peers.
func (cs *candidates) role() candidate.Role {
	follows, peers := cs.choose(2) == 1, cs.choose(2) == 1
	taking := candidate.Taking{Existing: cs.existing, FastStart: !cs.skewed && cs.choose(4) == 3}
	own := cs.choose(4) == 3 // intervals
	switch {
	case follows && own:
		return candidate.Follower{Taking: taking, Frequent: time.Second, Infrequent: infrequent, Peers: peers}
	case follows:
		return candidate.Follower{Taking: taking, Peers: peers}
	case own:
		return candidate.Waiter{Taking: taking, PollInterval: infrequent}
	}
	return candidate.Waiter{Taking: taking}
}

// init gives a member a new candidate, with a new incarnation.
func (cs *candidates) init(m *member, cfg candidate.Config) {
	m.cfg = cfg
	m.cfg.Incarnation = cs.incarnation(m.process)
	cs.add(m)
	if s := m.beats; s != nil {
		s.Init(heartbeat{owner{cs, m}}, m.e, m.cfg, 1) // so that waiters miss some
	} else {
		m.e.Init(owner{cs, m}, m.cfg)
	}
}

func (cs *candidates) incarnation(p *process) string {
	cs.made++
	return fmt.Sprintf("i%d-%d-%d", p.number, p.life, cs.made)
}

func (cs *candidates) add(m *member) {
	m.wakers = append(m.wakers, &m.alarm)
	m.renew()
}

// An owner is the engine.Owner of a member.
type owner struct {
	*candidates
	m *member
}

func (o owner) hosts() any { return o.m }

func (o owner) Place() engine.Place {
	return engine.Place{Runtime: memberRuntime{runtime{o.network, o.m.process, &o.m.alarm}, o}, Store: remote{}, Key: o.m.on.key, Layout: o.m.lay(remote{}), Logger: silent}
}

var silent = slog.New(slog.DiscardHandler)

func (o owner) Config() candidate.Config            { return o.m.cfg }
func (o owner) Session(name string) *engine.Session { return o.find(name).engine() }
func (o owner) Context() context.Context            { return context.Background() }
func (o owner) EndLease(error)                      { o.m.stopped = true }

func (o owner) Watcher(session string, of *engine.Engine) engine.Owner {
	return o.watcher(o.m.process, o.m.ttl, session, of)
}

func (cs *candidates) watcher(p *process, ttl time.Duration, session string, of *engine.Engine) engine.Owner {
	r := &member{process: p, on: cs.find(session).heartbeat.on, e: of, ttl: ttl, reaps: true}
	r.lay = func(st store.Store) layout.Layout { return layout.Heartbeat{Store: st, Key: session} }
	r.cfg = candidate.Config{TTL: r.ttl, Holder: r.process.String(), Register: candidate.Register{Layout: record.Layout{Name: record.LayoutSession}}}
	r.on.reapers = append(r.on.reapers, r)
	cs.add(r)
	return owner{cs, r}
}

func (o owner) Rest(on bool) {
	if on {
		o.met(Rested, o.m)
		o.m.reminded = 0
	}
}

func (o owner) Stepped(ev protocol.Event, actions []protocol.Action) protocol.Event {
	o.taken(ev)
	for _, action := range actions {
		o.logf("%v    -> %s", o.m, brief{action})
		o.returns.returned(o.m, action)
		o.do(o.m, action)
	}
	o.stepped(ev)
	return nil
}

func (o owner) taken(ev protocol.Event) {
	m := o.m
	o.logf("%v  %s", m, brief{ev})
	if asked, is := ev.(candidate.Acquire); is {
		m.terms = agreed{Terms: asked.Terms}
	}
	o.returns.called(m, ev)
	switch ev := ev.(type) {
	case candidate.SetMeta:
		m.metaAsked(ev)
	case candidate.Acquire:
		m.wants = true
	case protocol.Cancel:
		if m.reaps {
			m.renew()
		}
	case protocol.SessionOver:
		m.told = o.find(ev.Session)
		m.renew()
	case candidate.ReadDone:
		m.answers.err = ev.Err
	case candidate.Checked:
		if m.answers.err = ev.Err; ev.Err == nil {
			o.met(Judged, ev.Session)
		}
	case candidate.WriteDone:
		m.answers.err = ev.Err
		o.returns.tried(m.answers)
	}
}

func (o owner) stepped(ev protocol.Event) {
	m := o.m
	o.returns.stepped(m, ev)
	if over, is := ev.(protocol.SessionOver); is && m.under != nil && m.under.Key() == over.Session && m.c().Valid(m.clock()) {
		o.violated(Ended, "the session %v is over, and %v does not end its lease", m.under, m)
	}
	o.peers.answer(m)
	if o.healed {
		o.demand(0, m.machine, convergence{m})
	}
}

func (cs *candidates) do(m *member, action protocol.Action) {
	cs.ledger.keeps(m, action)
	switch a := action.(type) {
	case candidate.Read:
		m.blind = 0
	case candidate.NoticeGiven:
		if a.Known > m.clock() {
			cs.met(Noticed, m)
		}
	case candidate.Write:
		if a.Op == candidate.Free && m.told != nil && a.Over.Session == m.told.String() {
			cs.violated(Budget, "%v frees a lock that it has left under the session %v, which is over", m, m.told)
		}
	case candidate.Granted:
		m.wants, m.leased, m.stopped, m.under = false, true, false, m.session
		m.busy = cs.now + cs.pick(40*time.Second, 8*time.Second, time.Second, 0)
		cs.ledger.grant(m)
		cs.lasting.startAt(granted)
	case candidate.Failed:
		m.wants = false
		if m.attaches != nil {
			cs.papers.notAttached(m, a)
		}
	case candidate.Refused, candidate.Reaped:
		m.wants = false
	case candidate.Detached:
		cs.papers.detached(m, a)
	case candidate.Lost:
		m.ended = m.claim
	case candidate.Released:
		m.ended, m.leased, m.releasing, m.under = m.claim, false, false, nil
	case protocol.SessionOrphan:
		cs.find(a.Session).mustEnd = true
		cs.met(OrphanEnds, a.Session)
	case candidate.Waiting:
		cs.lasting.startAt(waits)
	case candidate.Vanished:
		m.vanished = a.Record
	case candidate.PollPeer:
		cs.peers.poll(m, a)
	}
	switch {
	case m.beats != nil:
		cs.noteBegun(m.beats, action)
	case m.reaps:
		cs.noteMissed(m, action)
	}
}

// noteBegun notes whether a session has begun, and asks its user to go on.
func (cs *candidates) noteBegun(s *session, action protocol.Action) {
	p := s.of
	switch a := action.(type) {
	case candidate.Granted:
		s.began = true
		cs.lasting.startAt(begins)
		for _, m := range p.locks {
			cs.demand(cs.soon(), p.machine, convergence{m})
		}
		cs.demand(cs.soon(), p.machine, turn{p})
	case candidate.Failed:
		if p.open = nil; cs.healed || errors.Is(a.Err, protocol.ErrUsed) {
			cs.demand(cs.soon(), p.machine, beginning{p})
		}
	}
}

// noteMissed notes heartbeats with more releases than names.
func (cs *candidates) noteMissed(m *member, action protocol.Action) {
	if _, is := action.(protocol.Seen); !is {
		return
	}
	if r, _, _ := m.c().Observed(); r.Freed != nil {
		if r.Freed.Count-m.heard > int64(len(r.Freed.Last)) {
			cs.met(HintMissed, r.Freed)
		}
		m.heard = r.Freed.Count
	}
}

// A heartbeat is the owner of a session's engine.
type heartbeat struct{ owner }

func (h heartbeat) Over(why error) {
	s := h.m.beats
	h.logf("the session %v ends: %v", s, why)
	for _, m := range s.of.locks {
		if m.under == s && (m.valid() || !m.stopped) {
			h.violated(D7, "the session %v is over, and the lease of %v is not", s, m)
		}
	}
	if s.of.part != nil {
		for _, c := range s.of.part.who(holds) {
			if c.under == s && !c.ended {
				h.violated(D7, "the session %v is over, and the slots of %v are not", s, c)
			}
		}
	}
	if s.of.open == s {
		s.of.open = nil
	}
	if h.healed {
		h.demand(h.soon(), s.of.machine, beginning{s.of})
	}
}

func (h heartbeat) Unused() {
	h.m.releasing = true
	h.m.renew()
	h.m.e.Release(func() candidate.Release { return candidate.Release{} })
}

// A runtime is an engine's runtime: its process, and the world's queue of events.
type runtime struct {
	*network
	of    *process
	alarm *waker
}

func (rt runtime) Now() protocol.Now {
	return protocol.Now{Clock: rt.of.clock(), Wall: epoch.Add(rt.now + rt.of.wall)}
}

// After uses a timer of the process, which stops during a suspension.
func (rt runtime) After(d time.Duration, f func()) { rt.of.timeout(d, f) }

func (rt runtime) Apart(f func()) { rt.after(rt.soon(), rt.of.machine, f) }

func (rt runtime) Draw(n int) int { return rt.choose(min(max(n, 1), 256)) }

// Parallel returns 1, to make some wait.
func (rt runtime) Parallel() int { return 1 }

func (rt runtime) Alarm(f func()) engine.Alarm {
	*rt.alarm = waker{of: rt.of, ring: f}
	return rt
}

func (rt runtime) Set(at time.Duration) {
	rt.alarm.at = max(at, 1)
	rt.plan(rt.alarm)
}

func (rt runtime) Stop() {
	rt.alarm.at = 0
	rt.plan(rt.alarm)
}

// send starts a call, and gives it up after the timeout.
func (rt runtime) send(c *call, timeout time.Duration) (giveUp func()) {
	rt.after(0, rt.of.machine, func() {
		if !c.begun { // and not given up
			rt.resume(c)
		}
	})
	rt.of.timeout(timeout, func() { rt.giveUp(c) })
	return func() { rt.after(rt.soon(), rt.of.machine, func() { rt.giveUp(c) }) }
}

// A memberRuntime is the runtime of a member's engine.
type memberRuntime struct {
	runtime
	o owner
}

func (rt memberRuntime) Incarnation() string {
	m := rt.o.m
	m.cfg.Incarnation = rt.o.incarnation(m.process)
	return m.cfg.Incarnation
}

func (rt memberRuntime) Ask(r engine.Request) (giveUp func()) {
	m := rt.o.m
	c := begin(m.process, m, r.Do)
	switch a := r.For.(type) {
	case nil: // a collection, whose answer no candidate awaits
		c.from, c.done = nil, r.Done
	case candidate.Write:
		c.write = &a
		rt.disturb(c)
		if a.Op == candidate.Claim {
			m.claims++
			c.number = m.claims
		}
	}
	if c.from != nil {
		m.asked, c.absent, c.acquisition = c, m.absent, m.acquisitions
		c.done = func() {
			before := m.owed
			m.asked, m.answers = nil, c
			r.Done()
			m.answers = nil
			rt.o.returns.answered(c, before)
		}
	}
	return rt.send(c, r.Timeout)
}
