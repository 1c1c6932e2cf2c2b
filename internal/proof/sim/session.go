package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A session is a heartbeat, and the leases under it.
type session struct {
	of        *process
	life      int // of that
	heartbeat *member
	reapers   reapers
	began     bool // that is confirmed
	doomed    bool // it is to end at once
	protocol.Membership[*member]
}

// A membership is what a candidate has to do with sessions.
type membership struct {
	session *session      // of the acquisition; nil: none
	under   *session      // of the lease
	told    *session      // the last one of whose end it was told
	own     reapers       // of acquisitions without a session
	vigil   *reaper       // for the session that the candidate waits for
	looked  time.Duration // when the last read was sent
}

var errClosed = errors.New("it was closed")

// begin begins a session, under a name that is used once (rule D1).
func (w *world) beginSession(p *process) {
	s := &session{of: p, life: p.life}
	s.Last = 1 // so that those who wait miss some
	on := &lock{key: fmt.Sprintf("s%d", len(w.sessions)), session: s}
	if used := w.used(); used != nil {
		on, used.reused = used, true
	}
	key := on.key
	m := &member{process: p, on: on, ttl: w.pick(w.ttls[0], w.ttls[0], w.ttls[1], w.ttls[2]), beats: s, wants: true}
	m.lay = func(st store.Store) layout.Layout { return layout.Heartbeat{Store: st, Key: key, Freed: s.Announce} }
	s.heartbeat, p.open = m, s
	w.sessions = append(w.sessions, s)
	w.longest = max(w.longest, m.ttl)
	w.candidate(m, protocol.Config{TTL: m.ttl, Holder: p.String(), Layout: record.LayoutSession, Fresh: true})
	w.step(m, protocol.Acquire{Wait: true})
}

// used is the object of an earlier session, whose name somebody has drawn again, or nil. Who
// begins another one has to find that out (rule D1).
func (w *world) used() *lock {
	if len(w.sessions) == 0 || w.calm || w.choose(8) != 7 {
		return nil
	}
	l := w.sessions[w.choose(min(len(w.sessions), 256))].heartbeat.on
	if !l.there || w.objects[l.key].body == nil {
		return nil
	}
	return l
}

func (s *session) String() string { return s.heartbeat.on.key }

// find is the session of that name.
func (w *world) find(key string) *session {
	for _, s := range w.sessions {
		if s.String() == key {
			return s
		}
	}
	return nil
}

// alive reports that the session is valid now.
func (w *world) alive(s *session) bool {
	return s.began && s.Over() == nil && s.heartbeat.c.Valid(w.clock(s.of))
}

// beaten is what the session does about its heartbeat.
func (w *world) beaten(s *session, action protocol.Action) {
	p := s.of
	switch a := action.(type) {
	case protocol.Granted:
		s.began = true
		w.momentOf(begins)
		for _, m := range p.locks {
			w.soon(p, func() { w.ease(m) })
		}
	case protocol.Failed:
		if p.open = nil; w.calm || errors.Is(a.Err, protocol.ErrUsed) {
			w.soon(p, func() { w.tend(p) })
		}
	case protocol.Renewed:
		if s.Renewed() {
			w.soon(p, func() { w.step(s.heartbeat, protocol.RenewSoon{}) })
		}
	case protocol.Lost:
		w.soon(p, func() { w.endSession(s, a.Err) })
	}
}

// steward is what the user of sessions does, until the calm.
func (w *world) steward(p *process) {
	if w.calm || w.lasting != nil && p.acts == 0 {
		return
	}
	p.acts--
	switch s := p.open; {
	case s == nil:
		w.beginSession(p)
	case !s.began && w.hit(Cancelled):
		w.step(s.heartbeat, protocol.Cancel{})
	case s.began && w.choose(40) == 39:
		w.closeSession(s)
	}
	w.after(w.pick(time.Second, 300*time.Millisecond, 4*time.Second, 10*time.Second), p, func() { w.steward(p) })
}

// tend lets a process have a session.
func (w *world) tend(p *process) {
	if p.sessions && p.open == nil {
		w.beginSession(p)
	}
}

// closeSession ends the session, and frees it when the work under its leases has stopped. If
// that takes too long it is left to run out.
func (w *world) closeSession(s *session) {
	if s.Over() != nil {
		return
	}
	if slices.ContainsFunc(s.Members(), func(m *member) bool { return m.under == s }) {
		w.met(ClosedHeld, s)
	}
	w.endSession(s, errClosed)
	w.after(w.pick(5*time.Second, time.Second, 40*time.Second), s.of, func() {
		if m := s.heartbeat; m.leased && !m.releasing {
			w.step(m, protocol.GiveUp{})
		}
	})
}

// endSession ends all leases, their validity before anything is sent (rule D7).
func (w *world) endSession(s *session, why error) {
	members, first := s.End(why)
	if !first {
		return
	}
	w.logf("the session %v ends: %v", s, why)
	if s.of.open == s {
		s.of.open = nil
	}
	for _, m := range members {
		w.soon(s.of, func() { w.sessionOver(m, s) })
	}
	w.use(s)
	if w.calm {
		w.soon(s.of, func() { w.tend(s.of) })
	}
}

// expire ends a session that has run out, should nothing have noticed that yet.
func (w *world) expire(s *session) {
	if s != nil && !w.alive(s) {
		w.endSession(s, protocol.ErrExpired)
	}
}

// sessionOver tells a candidate of the end of a session that it is or was under.
func (w *world) sessionOver(m *member, s *session) {
	m.told = s
	w.renew(m)
	w.step(m, protocol.SessionOver{Session: s.String(), Err: s.Over()})
	if m.under == s && m.c.Valid(w.clock(m.process)) {
		w.fault(Ended, "the session %v is over, and %v does not end its lease", s, m)
	}
}

// use frees the session's object when it is over and its last lease was released.
func (w *world) use(s *session) {
	if !s.Unused() {
		return
	}
	w.soon(s.of, func() {
		s.heartbeat.releasing = true
		w.renew(s.heartbeat)
		w.step(s.heartbeat, protocol.Release{})
	})
}

// unnamed takes in that a lock that was under the session is not any more.
func (w *world) unnamed(m *member, s *session) {
	if s.Released(m.on.key) {
		w.step(s.heartbeat, protocol.RenewSoon{})
	}
}

// left takes in that nothing of the candidate is under the session any more.
func (w *world) left(m *member, s *session) {
	s.Leave(m)
	w.use(s)
}

// orphaned ends a session of ours that a lock may name for ever (rule D6).
func (w *world) orphaned(s *session) {
	s.doomed = true
	w.met(OrphanEnds, s)
	w.soon(s.of, func() { w.endSession(s, errors.New("a lock may name it for ever")) })
}

// acquire begins an acquisition, under the session of the process if that is to be.
func (w *world) acquire(m *member, wait bool, s *session) {
	if s != nil && s.Enter(m) != nil {
		return
	}
	m.wants, m.session = true, s
	w.renew(m)
	w.want(m, wait)
}

func (w *world) want(m *member, wait bool) {
	ev := protocol.Acquire{Wait: wait}
	if m.session != nil {
		ev.Session = m.session.String()
	}
	w.step(m, ev)
}

// cancel ends an acquisition.
func (w *world) cancel(m *member) {
	if c := m.asked; c != nil && c.write == nil && w.choose(2) == 1 {
		w.giveUp(c) // nobody waits for what it would show
	}
	w.renew(m)
	w.step(m, protocol.Cancel{})
}

// rest lets a candidate rest that holds a lease under a session, and go on from what there
// is to remember of it.
func (w *world) rest(m *member) {
	if m.cfg.Follow || m.wants { // an election is watched
		return
	}
	if rest, can := m.c.Save(); can {
		w.met(Rested, m)
		m.c, m.reminded = protocol.Restore(m.cfg, rest), 0
		m.session, m.looked = m.under, 0
	}
}

// reclaim deletes sessions that are over, when nothing is on its way to them any more.
func (w *world) reclaim() {
	for _, s := range w.sessions {
		l := s.heartbeat.on
		if l.there && l.over && !l.reused && l.flying == 0 && l.key != w.weather.poisoned && w.choose(2) == 1 {
			w.met(Reclaimed, s)
			delete(w.objects, l.key)
			l.there = false
		}
	}
}
