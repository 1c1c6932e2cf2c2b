package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A session is a heartbeat, and what the library knows of the leases under it.
type session struct {
	of        *process
	life      int // of that
	heartbeat *member
	began     bool // that is confirmed
	doomed    bool // it is to end at once
	engine.Session
}

func (s *session) engine() *engine.Session {
	if s == nil {
		return nil
	}
	return &s.Session
}

// begin begins a session, under a name that is used once (rule D1).
func (w *world) beginSession(p *process) {
	s := &session{of: p, life: p.life}
	on := &lock{key: fmt.Sprintf("s%d", len(w.sessions)), session: s}
	if used := w.used(); used != nil {
		on, used.reused = used, true
	}
	key := on.key
	m := &member{process: p, on: on, e: new(engine.Engine), ttl: w.pick(w.ttls[0], w.ttls[0], w.ttls[1], w.ttls[2]), beats: s}
	m.lay = func(st store.Store) layout.Layout { return layout.Heartbeat{Store: st, Key: key, Freed: s.Announce} }
	s.heartbeat, p.open = m, s
	w.sessions = append(w.sessions, s)
	w.longest = max(w.longest, m.ttl)
	w.candidate(m, protocol.Config{TTL: m.ttl, Holder: p.String(), Layout: record.LayoutSession})
	_ = m.e.Acquire(true, nil) // no session can be over
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
	return s.began && s.Valid()
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
		s.heartbeat.e.Cancel()
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
	if slices.ContainsFunc(s.of.locks, func(m *member) bool { return m.under == s }) {
		w.met(ClosedHeld, s)
	}
	s.End(engine.ErrClosed)
	w.after(w.pick(5*time.Second, time.Second, 40*time.Second), s.of, func() {
		if m := s.heartbeat; m.leased && !m.releasing {
			m.e.Tell(protocol.GiveUp{})
		}
	})
}

// A heartbeat is what the engine of a session works for.
type heartbeat struct{ *member }

func (h heartbeat) Over(why error) {
	w, s := h.w, h.beats
	w.logf("the session %v ends: %v", s, why)
	for _, m := range s.of.locks {
		if m.under == s && (w.valid(m) || !m.stopped) {
			w.fault(D7, "the session %v is over, and the lease of %v is not", s, m)
		}
	}
	if s.of.open == s {
		s.of.open = nil
	}
	if w.calm {
		w.soon(s.of, func() { w.tend(s.of) })
	}
}

func (h heartbeat) Unused() {
	h.releasing = true
	h.w.renew(h.member)
	h.e.Release(func() protocol.Release { return protocol.Release{} })
}

// acquire begins an acquisition, under the session of the process if that is to be and goes on.
func (w *world) acquire(m *member, wait bool, s *session) {
	m.session = s
	w.renew(m)
	_ = m.e.Acquire(wait, s.engine())
}

// cancel ends an acquisition.
func (w *world) cancel(m *member) {
	w.renew(m)
	m.e.Cancel()
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
