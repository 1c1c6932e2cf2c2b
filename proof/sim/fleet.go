package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A fleet is the processes, what they want, and what they have.
type fleet struct {
	*history
	processes []*process
	locks     []*lock
	members   []*member // the candidates for locks
	sessions  []*session
}

func (f *fleet) find(key string) *session {
	for _, s := range f.sessions {
		if s.String() == key {
			return s
		}
	}
	return nil
}

// A process has a machine, a way to the store, and candidates.
type process struct {
	*machine
	number int
	wall   time.Duration // how far its wall clock is off

	noRequests, noAnswers time.Duration // until then, they do not arrive
	denied                time.Duration // until then, its credentials are
	sent                  traffic
	quorum                *client // its registers, in its present life

	locks    []*member // one for each lock that it wants at times
	part     *part     // in the semaphore; nil: none
	wakers   []*waker  // all of this life
	calls    []*call   // of this life
	sessions bool      // its leases are under sessions, mostly
	open     *session  // the present one; nil: none
	acts     int       // that are left to the user of its sessions, in a history with a lasting failure
}

func (p *process) String() string { return fmt.Sprintf("m%d", p.number) }

func (p *process) end() {
	for _, c := range p.calls {
		c.end()
	}
	p.calls = nil
}

// writing reports that a write of it is under way.
func (p *process) writing() bool {
	return slices.ContainsFunc(p.calls, func(c *call) bool { return !c.finished && !c.over && c.waits != nil && c.waits.writes() })
}

// A member is what an engine works for, in its process, and the user of it: for a lock, for the
// heartbeat of a session, or for the end of one.
type member struct {
	*process
	on    *lock
	e     *engine.Engine
	cfg   protocol.Config
	lay   func(st store.Store) layout.Layout
	ttl   time.Duration
	terms agreed // of its acquisition, or its lease
	claim int    // of its lease: which claim began it, in the order in which they landed; 0: none has
	ended int    // the claim of the last lease that was seen to be over
	alarm waker

	asked    *call         // that the candidate waits for
	answers  *call         // whose answer it gets now
	inspects *call         // of its user, who only looks
	absent   time.Duration // when it was last shown that there is no object
	vanished record.Record // of the object that it last saw vanish

	wants     bool
	leased    bool          // its user holds a lease, valid or not, or its release is not settled
	releasing bool          // that
	busy      time.Duration // until then its user needs the lease
	contends  bool          // once all is healed: its user wants the lock, and keeps it

	parked []question           // of peers
	said   *protocol.PeerAnswer // the first answer of its life

	beats    *session     // it is the heartbeat of this session
	reaps    bool         // it waits for the end of one
	heard    int64        // then: Freed.Count of the last heartbeat
	session  *session     // of the acquisition; nil: none
	under    *session     // of the lease
	told     *session     // the last one of whose end it was told
	stopped  bool         // its user was told that the lease is over, because its session is
	attaches *paper       // it uses this; nil: none
	using    protocol.Use // for that
	owed
	may        allowances
	blind      time.Duration // since when peers alone have kept it from looking; 0: they have not
	blindStops int           // how often its process had stood still then
}

// owed is what a candidate owes to its caller.
type owed struct {
	owes         bool // an answer to the last acquisition
	patient      bool // which waits for as long as it takes
	owesDetach   bool // the return of a Detach
	owesRelease  bool // the return of the last release
	passing      bool // which may pass the lease on
	acquisitions int
	releases     int
	detaches     int
	failures     int // acquisitions that ended without a lease
	settled      int // of these, so many had been settled when everything last was

	lookFailed, writeFailed bool          // the last one has
	finals                  int           // refusals for good since the acquisition began
	silent                  int           // failures in a row of which the caller has not been told
	silentSince             time.Duration // the first of these
	reminded                time.Duration // when the caller was last told; 0: never
	attempts                int           // claims with an unknown outcome since the lock last changed
	claims                  int           // that were sent
}

func (m *member) String() string {
	switch {
	case m == nil:
		return "collector"
	case m.reaps:
		return fmt.Sprintf("%v, for the end of %s,", m.process, m.on.key)
	}
	return fmt.Sprintf("%v/%s", m.process, m.on.key)
}

// c is the candidate, to look at.
func (m *member) c() *protocol.Candidate { return m.e.Candidate() }

// valid reports that the member holds a lease that is valid now (rules A10 and D4).
func (m *member) valid() bool {
	return (m.e.Resting() || m.c().Valid(m.clock())) && (m.under == nil || m.under.alive())
}

// deadline is the reading of its clock at which its lease ends.
func (m *member) deadline() time.Duration {
	if m.under != nil {
		return min(m.c().Deadline(), m.under.heartbeat.c().Deadline())
	}
	return m.c().Deadline()
}

// watcher is who watches the session that the member waits for, and nil if it waits for none.
func (m *member) watcher() *member {
	if r, is := m.e.Waits().(interface{ watches() *member }); is {
		return r.watches()
	}
	return nil
}

// renew lets a candidate send requests anew, because its user wants something else.
func (m *member) renew() { m.may.fill(m.now, m.most()) }

// mayFree lets it free what has landed of what its user has given up.
func (m *member) mayFree() { m.may.fill(m.now, holding*time.Second) }

// most is what a candidate may have saved.
func (m *member) most() time.Duration {
	if m.leased || m.settled < m.failures {
		return holding * time.Second
	}
	return burst * time.Second
}

// failed reports that the last look or the last write of a candidate has failed, or is about to.
func (m *member) failed() bool {
	return m.lookFailed || m.writeFailed || m.asked != nil && m.asked.waits != nil && m.asked.waits.hit
}

// A question came from a member, and is answered when there is news or its time is over.
type question struct {
	from   *member
	life   int
	number int
	known  string
	spent  bool
}

// A waker wakes a candidate, or a table, by the clock of its process.
type waker struct {
	of   *process
	ring func()
	at   time.Duration // by the clock of its process; 0: it is not set
	tick time.Duration // the event that is the next one
}

// A lock is what is remembered of one, to tell whether the promises are kept; and of the
// heartbeat of a session.
type lock struct {
	key     string
	members []*member // that want it at times
	reapers []*member // that wait for the end of this session
	flights
	granted int // leases
	// restsUntil is until when the lock is to be left alone, if the one who counts has a clock
	// as fast as the bound allows.
	restsUntil time.Duration
	claims     []claim
	top        int64         // the largest token of a claim that landed
	last       int64         // the largest token of a lease that was granted
	claimed    time.Duration // when the last claim landed
	deleted    bool          // somebody has deleted the object
	restored   bool          // somebody has brought an earlier record back
	papers     []*paper      // of leases that are detached
	excused    bool          // and then P1 was broken in the one way in which it may be
	names      *session      // that its record names, if that is held
	writer     string        // the incarnation of that record

	// What its leases protect has taken a write with this token, of the lease of that claim.
	resourceToken int64
	resourceClaim int

	session *session // whose heartbeat it is; nil: a lock
	born    bool     // that object was created
	over    bool     // it says that the session is over
	there   bool     // it has not been deleted since
	reused  bool     // somebody wants to begin another session of its name
}

// flights are requests to an object.
type flights struct {
	inFlight []*request // on their way to it
}

// A claim landed where it counts, and so began a lease.
type claim struct {
	incarnation string
	token       int64
	created     bool // the object
	granted     bool
	wrote       record.Record // as it landed
	remembers   []byte        // the end of it, with all that it remembers
}

// all are the candidates for a lock, or for the heartbeat of a session: who keeps it and those
// who wait for its end.
func (l *lock) all() (all []*member) {
	if l.session == nil {
		return l.members
	}
	return append(l.reapers, l.session.heartbeat)
}

// holder is the contender whose lease of a lock is valid.
func (l *lock) holder() *member {
	for _, m := range l.members {
		if m.contends && m.valid() {
			return m
		}
	}
	return nil
}

// stuck is a candidate that waits for the lock, and whose last look or write has failed.
func (l *lock) stuck() *member {
	for _, m := range l.members {
		if m.wants && m.patient && (m.failed() || m.watcher() != nil && m.watcher().failed()) {
			return m
		}
	}
	return nil
}

// A session is a heartbeat, and what the library knows of the leases under it.
type session struct {
	of        *process
	life      int // of that
	heartbeat *member
	began     bool // that is confirmed
	mustEnd   bool // it is to end at once
	engine.Session
}

// knows reports that something of a candidate is under the session, or may yet be, as far as it
// knows itself.
func (s *session) knows(m *member) bool {
	return slices.ContainsFunc(s.Members(), func(o engine.Host) bool {
		member, is := o.(owner)
		return is && member.m == m
	})
}

func (s *session) engine() *engine.Session {
	if s == nil {
		return nil
	}
	return &s.Session
}

func (s *session) String() string { return s.heartbeat.on.key }

func (s *session) alive() bool { return s.began && s.Valid() }
