package sim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A users is the users of all processes: what they do with locks and sessions.
type users struct {
	*fleet
	server     *server
	network    *network
	lasting    *lasting
	ledger     *ledger
	papers     *papers
	candidates *candidates
	tables     *tables
	changes    int // of metadata so far
}

// start begins a life of a process.
func (u *users) start(p *process) {
	p.life++
	p.end()
	p.wakers, p.open, p.paused = nil, nil, 0
	for _, m := range p.locks {
		u.candidates.start(m)
		u.after(u.pick(0, 100*time.Millisecond, time.Second, 10*time.Second), m.machine, func() { u.act(m) })
	}
	u.tables.start(p)
	if p.sessions {
		p.acts = 60
		u.after(u.soon(), p.machine, func() { u.actOnSession(p) })
	}
}

func (u *users) act(m *member) {
	if u.healed {
		return
	}
	if u.arm == Lasting {
		u.actLittle(m)
		return
	}
	switch {
	case m.releasing:
	case m.leased:
		u.holding(m)
	case m.wants:
		if u.hit(Cancelled) {
			u.cancel(m)
		}
	default:
		u.idle(m)
	}
	u.after(u.pick(4*time.Second, time.Second, 300*time.Millisecond, 50*time.Millisecond), m.machine, func() { u.act(m) })
}

// actLittle acts while one failure lasts. It does little, so that ten TTLs of a day have few
// actions.
func (u *users) actLittle(m *member) {
	if u.healed || u.calm || m.may.acts == 0 {
		return
	}
	m.may.acts--
	switch {
	case m.releasing:
	case m.leased && u.choose(8) == 7 && u.papers.detach(m):
	case m.leased && u.choose(4) == 3:
		u.setMeta(m)
	case m.leased:
		if u.choose(3) > 0 || !m.valid() {
			u.release(m)
		}
	case m.wants:
		if u.choose(3) == 2 {
			u.lasting.startAt(givesUp)
			u.cancel(m)
		}
	case u.choose(8) == 7:
		m.renew()
		m.e.Watch(u.choose(2) == 1)
	default:
		if s := u.pickSession(m); s != nil || !m.sessions || u.choose(4) == 3 {
			u.acquire(m, u.choose(4) > 0, s)
		}
	}
	ttl := u.lasting.ttl
	u.after(u.pick(4*time.Second, time.Second, 300*time.Millisecond, 20*time.Second, min(ttl/3, time.Minute), ttl, 3*ttl), m.machine, func() { u.actLittle(m) })
}

func (u *users) idle(m *member) {
	switch u.choose(9) {
	case 0:
	case 8:
		if m.inspects == nil {
			u.inspect(m)
		}
	case 1:
		m.e.Watch(u.choose(2) == 1)
	default:
		if s := u.pickSession(m); s != nil || !m.sessions || u.choose(4) == 3 {
			hasty := u.choose(4)
			u.acquire(m, hasty == 0 || hasty < 3 && !m.sessions, s)
		}
	}
}

func (u *users) holding(m *member) {
	u.retune(m)
	if u.hit(GivenUp) { // its work continues
		m.e.Tell(candidate.GiveUp{})
		return
	}
	if u.choose(6) == 5 && u.papers.detach(m) {
		return
	}
	if u.choose(6) == 5 {
		u.setMeta(m)
	}
	if u.choose(6) == 5 {
		m.e.Tell(candidate.NameSuccessor{Successor: u.anybody()})
	}
	u.ledger.work(m)
	if m.valid() && u.now < m.busy {
		return
	}
	if !m.valid() && u.choose(3) == 2 {
		u.met(Overrun)
		return
	}
	u.release(m)
}

// abandon makes a user give up while a write is in flight.
func (u *users) abandon(c *call) {
	m := c.from
	switch {
	case c.part != nil:
		u.tables.abandon(c.part)
	case u.healed || m.releasing:
	case m.wants && m.beats == nil && !m.reaps:
		u.met(Cancelled)
		u.cancel(m)
	case !m.leased:
	case m.beats != nil:
		u.closeSession(m.beats)
	default:
		u.release(m)
	}
}

// inspect reads the lock without acquiring it. The candidate is told the result, however late.
func (u *users) inspect(m *member) {
	sent := m.clock()
	var s layout.Snapshot
	var err error
	c := begin(m.process, m, func(ctx context.Context) { s, err = m.lay(remote{}).Look(ctx, "") })
	c.done = func() {
		m.inspects = nil
		if seen := layout.ReadDone(s, err); seen.Shown == protocol.Found {
			u.met(Inspected, m)
			m.e.Tell(candidate.Sighted{Answer: seen, Sent: sent})
		}
	}
	m.inspects = c
	m.timeout(protocol.MaxRequest, func() { u.network.giveUp(c) })
	u.network.resume(c)
}

// arrive starts an acquisition now, and cancels a waiting one of the same member.
func (u *users) arrive(m *member) {
	if u.healed || m.leased {
		return
	}
	if m.wants {
		u.cancel(m)
	}
	u.acquire(m, true, u.pickSession(m))
}

// rival makes another user want what a call writes to.
func (u *users) rival(c *call) {
	if c.part != nil {
		u.tables.rival()
		return
	}
	m := u.members[u.choose(len(u.members))]
	u.after(u.soon(), m.machine, func() { u.arrive(m) })
}

func (u *users) tryOnce(m *member) {
	if !u.healed && !m.leased && !m.wants {
		u.acquire(m, false, u.pickSession(m))
	}
}

func (u *users) pickSession(m *member) *session {
	if s := m.open; s != nil && s.alive() && u.choose(4) != 3 {
		return s
	}
	return nil
}

func (u *users) retune(m *member) {
	if m.sessions {
		return
	}
	f, to := Shorter, ttls[0]
	if m.ttl == ttls[0] || m.ttl == ttls[1] && u.choose(2) == 1 {
		f, to = Longer, ttls[2]
	}
	if u.hit(f) {
		m.ttl = to
		u.longest = max(u.longest, to)
		m.e.Tell(candidate.Retune{TTL: to})
	}
}

func (u *users) setMeta(m *member) {
	if u.cfg.WriteOnce || !m.leased || m.releasing {
		return
	}
	m.renew()
	for range 1 + u.choose(3) {
		u.changes++
		m.e.Tell(candidate.SetMeta{Number: u.changes, Meta: map[string]string{metaName: strconv.Itoa(u.changes)}})
	}
}

func (u *users) acquire(m *member, wait bool, s *session) {
	m.session = s
	m.renew()
	_ = m.e.Acquire(context.Background(), candidate.Acquire{Wait: wait, Terms: u.drawTerms(s)}, s.engine(), func() {})
}

// drawTerms draws the terms of a lease: one in six has some.
func (u *users) drawTerms(s *session) (t candidate.Terms) {
	if u.healed || u.choose(6) != 5 {
		return t
	}
	if t.MaxHold = u.pick(0, 4*time.Second, time.Second, 20*time.Second); !u.cfg.Tokenless {
		t.HoldAtLeast = u.pick(0, 10*time.Second, 2*time.Second, 30*time.Second)
	}
	if t.MaxHold > 0 {
		t.HoldAtLeast = min(t.HoldAtLeast, t.MaxHold)
	}
	if u.choose(2) == 1 {
		t.Holder, t.Meta = "job", map[string]string{"job": "1"}
	}
	if s == nil {
		t.NoRenewal = u.choose(4) == 3
		t.TTL = u.pick(0, 0, u.ttls[0], u.ttls[1], u.ttls[2])
	}
	u.longest, u.longestRest = max(u.longest, t.TTL), max(u.longestRest, t.HoldAtLeast)
	return t
}

func (u *users) cancel(m *member) {
	m.renew()
	m.e.Cancel()
}

func (u *users) release(m *member) {
	ev := candidate.Release{}
	switch u.choose(4) {
	case 1:
		ev.Successor = u.anybody()
	case 2, 3:
		ev.Pass = true
	}
	m.releasing = true
	m.renew()
	m.e.Release(func() candidate.Release { return ev })
	switch {
	case !ev.Pass || m.leased: // it is in flight
	case u.choose(8) == 7:
		u.met(Dropped)
		m.e.Tell(candidate.Drop{})
	default:
		u.met(Passed)
		u.acquire(m, true, u.pickSession(m))
	}
}

func (u *users) anybody() string { return u.processes[u.choose(len(u.processes))].String() }

// converge acts after the faults. Contenders acquire the lock and keep it, the others release it.
// A member of a process with sessions waits for one.
func (u *users) converge(m *member) {
	switch {
	case !u.healed || m.releasing || m.beats != nil || m.reaps:
	case m.leased && (!m.contends || !m.valid() || !m.lasts()):
		m.releasing = true
		m.e.Release(func() candidate.Release { return candidate.Release{} })
	case m.wants && !m.contends:
		u.cancel(m)
	case m.contends && !m.leased && !m.wants && !m.sessions:
		u.acquire(m, true, nil)
	case m.contends && !m.leased && !m.wants && m.open != nil && m.open.alive():
		u.acquire(m, true, m.open)
	}
}

func (u *users) actOnSession(p *process) {
	if u.healed || u.arm == Lasting && p.acts == 0 {
		return
	}
	p.acts--
	switch s := p.open; {
	case s == nil:
		u.beginSession(p)
	case !s.began && u.hit(Cancelled):
		s.heartbeat.e.Cancel()
	case s.began && u.choose(40) == 39:
		u.closeSession(s)
	}
	u.after(u.pick(time.Second, 300*time.Millisecond, 4*time.Second, 10*time.Second), p.machine, func() { u.actOnSession(p) })
}

func (u *users) ensureSession(p *process) {
	if p.sessions && p.open == nil {
		u.beginSession(p)
	}
}

// beginSession begins a session under a unique name (rule D1).
func (u *users) beginSession(p *process) {
	s := &session{of: p, life: p.life}
	on := &lock{key: fmt.Sprintf("s%d", len(u.sessions)), session: s}
	if used := u.used(); used != nil {
		on, used.reused = used, true
	}
	key := on.key
	m := &member{process: p, on: on, e: new(engine.Engine), ttl: u.pick(u.ttls[0], u.ttls[0], u.ttls[1], u.ttls[2]), beats: s}
	m.lay = func(st store.Store) layout.Layout { return layout.Heartbeat{Store: st, Key: key, Freed: s.Announce} }
	s.heartbeat, p.open = m, s
	u.sessions = append(u.sessions, s)
	u.longest = max(u.longest, m.ttl)
	u.candidates.init(m, candidate.Config{TTL: m.ttl, Holder: p.String(), Register: candidate.Register{Layout: record.Layout{Name: record.LayoutSession}}})
	_ = m.e.Acquire(context.Background(), candidate.Acquire{Wait: true}, nil, func() {}) // no session, so none can have ended
}

// used returns an earlier session's object if its name is drawn again, or nil. The new session
// must notice (rule D1).
func (u *users) used() *lock {
	if len(u.sessions) == 0 || u.healed || u.choose(8) != 7 {
		return nil
	}
	l := u.sessions[u.choose(min(len(u.sessions), 256))].heartbeat.on
	if !l.there || u.server.objects[l.key].body == nil {
		return nil
	}
	return l
}

// closeSession ends the session, and frees it when the work under its leases has stopped. If that
// takes too long, it expires.
func (u *users) closeSession(s *session) {
	if s.Over() != nil {
		return
	}
	if slices.ContainsFunc(s.of.locks, func(m *member) bool { return m.under == s }) {
		u.met(ClosedHeld, s)
	}
	s.End(engine.ErrClosed)
	u.after(u.pick(5*time.Second, time.Second, 40*time.Second), s.of.machine, func() {
		if m := s.heartbeat; m.leased && !m.releasing {
			m.e.Tell(candidate.GiveUp{})
		}
	})
}
