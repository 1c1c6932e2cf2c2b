package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/session"
	"github.com/leasehold/leasehold/internal/record"
)

// A SessionOwner is the owner of a heartbeat's engine. It is told when the session ends.
type SessionOwner interface {
	Owner
	// Over: the session and all leases under it have ended. The error matches ErrSessionOver. The
	// candidates are told next. Nothing is locked.
	Over(why error)
	// Unused: the session has ended and nothing is under it any more, so its heartbeat must be
	// released. It is called once, apart.
	Unused()
}

// A Session is one heartbeat, and what this process knows about the leases under it.
//
// It is the process's own view. For others, the session goes on until its object says that it has ended
// (rules D3 and D7).
type Session struct {
	owner     SessionOwner
	heartbeat *Engine
	key       string
	reapers   *reapers    // for the members
	ended     atomic.Bool // nothing under the session is valid any more

	mu    Mutex
	under session.Membership[member]
}

// Init starts a session with an engine for its heartbeat, whose object must never have existed (rule D1).
// The heartbeat names at most last released locks; 0: 64.
func (s *Session) Init(owner SessionOwner, heartbeat *Engine, cfg candidate.Config, last int) {
	s.owner, s.heartbeat, s.key, s.under.Last = owner, heartbeat, owner.Place().Key, last
	s.reapers = newReapers()
	cfg.Role = candidate.Heartbeat{}
	heartbeat.Init(&beats{owner, s}, cfg)
}

// A member takes part in sessions: the engine of a lock or of a semaphore.
type member interface {
	Tell(ev protocol.Event)
	Locked(f func())
	host() Host
	values() context.Context // of its requests; the member is locked
	whenIdle(f func())
	outcome() outcome // of the last request of an idle member
}

// beats is the owner of a heartbeat's engine. It passes everything on to the session's owner.
type beats struct {
	SessionOwner
	s *Session
}

// Stepped notes what concerns the leases under the session.
func (b *beats) Stepped(ev protocol.Event, actions []protocol.Action) protocol.Event {
	next := b.SessionOwner.Stepped(ev, actions)
	for _, action := range actions {
		switch a := action.(type) {
		case candidate.Renewed:
			b.s.renewed()
		case candidate.Lost:
			b.s.runtime().Apart(func() { b.s.End(a.Err) })
		}
	}
	return next
}

func (s *Session) runtime() Runtime { return s.owner.Place().Runtime }

// Key returns the key of the session's object.
func (s *Session) Key() string { return s.key }

// Until returns the clock reading at which everything under the session ceases to be valid. It takes no
// mutex, because every lease under the session calls it at each use (rule D4).
func (s *Session) Until() time.Duration {
	if s.ended.Load() {
		return 0
	}
	return s.heartbeat.Until()
}

// Valid reads the clock and reports whether the session is valid now.
func (s *Session) Valid() bool { return s.runtime().Now().Clock < s.Until() }

// Over returns why the session has ended, or nil.
func (s *Session) Over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under.Over()
}

// Members returns the hosts of the engines that have something under the session, or may still.
func (s *Session) Members() (hosts []Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.under.Members() {
		hosts = append(hosts, m.host())
	}
	return hosts
}

// End ends all leases and then tells their candidates. Their validity ends before anything is sent (rule
// D7).
//
// Only the first call counts, because its reason is the true one: a session that is closed because it
// was lost was lost.
func (s *Session) End(why error) {
	why = fmt.Errorf("%w: %w", ErrSessionOver, why)
	s.mu.Lock()
	members, first := s.under.End(why)
	// From here on, Valid is false for every lease, before any of them is told.
	s.ended.Store(true)
	s.mu.Unlock()
	if !first {
		return
	}
	for _, m := range members {
		m.Locked(func() { m.host().EndLease(why) })
	}
	s.owner.Over(why)
	tell(s.runtime(), members, protocol.SessionOver{Session: s.key, Err: why})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freeIfUnused()
}

// enter adds an engine whose lease will be under the session.
func (s *Session) enter(m member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The heartbeat has expired and no alarm has gone off since. A lease that began now would never be
	// valid.
	if s.under.Over() == nil && !s.Valid() {
		return fmt.Errorf("%w: %w", ErrSessionOver, protocol.ErrExpired)
	}
	return s.under.Enter(m)
}

// leave removes an engine that can have nothing under the session any more.
func (s *Session) leave(m member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under.Leave(m)
	s.freeIfUnused()
}

// freeIfUnused has the session's object freed if the session has ended and its last lease was released.
// s.mu is locked.
func (s *Session) freeIfUnused() {
	if s.under.Unused() {
		s.runtime().Apart(s.owner.Unused)
	}
}

// released notes that a lock no longer names the session. That lock's engine is locked.
func (s *Session) released(key string) {
	s.mu.Lock()
	soon := s.under.Released(key)
	s.mu.Unlock()
	if soon {
		s.heartbeat.Tell(candidate.RenewSoon{})
	}
}

// Announce returns what a heartbeat says about released locks.
func (s *Session) Announce() *record.Freed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under.Announce()
}

// renewed notes that a heartbeat was confirmed. Its engine is locked.
func (s *Session) renewed() {
	s.mu.Lock()
	soon := s.under.Renewed()
	s.mu.Unlock()
	if soon {
		s.runtime().Apart(func() { s.heartbeat.Tell(candidate.RenewSoon{}) })
	}
}

// orphaned ends the session, because the lock in that place may name it forever (rule D6). That is harsh,
// because all other leases of the session end too. But nobody can free that lock while the session goes
// on, and nobody would find out why it is held.
func (s *Session) orphaned(p Place) {
	s.runtime().Apart(func() { s.End(fmt.Errorf("the store does not say whether the lock %v names it", p)) })
}
