package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A fleet is the processes, what they want, and what they have.
type fleet struct {
	*history
	processes []*process
	locks     []*lock
	members   []*member // candidates for locks
	sessions  []*session
	table     *table // the semaphore; nil: there is none
}

func (f *fleet) find(key string) *session {
	for _, s := range f.sessions {
		if s.String() == key {
			return s
		}
	}
	return nil
}

type process struct {
	*machine
	number int
	wall   time.Duration // its wall clock's error

	noRequests, noAnswers time.Duration // until then, they do not arrive
	denied                time.Duration // until then, its credentials are
	sent                  traffic
	quorum                *client // its registers, in its present life

	locks    []*member // one for each lock that it may want
	part     *part     // in the semaphore; nil: none
	wakers   []*waker  // of this life
	calls    []*call   // of this life
	sessions bool      // its leases are mostly under sessions
	open     *session  // the present session; nil: none
	acts     int       // left to its sessions' user, if a failure lasts
}

func (p *process) String() string { return fmt.Sprintf("m%d", p.number) }

// cut reports whether a process's requests, or the answers to them, do not arrive.
func (f *fleet) cut(p *process, what Fault) bool {
	switch {
	case p == nil || f.now >= p.noRequests && what == CutRequests || f.now >= p.noAnswers && what == CutAnswers:
		return false
	case f.now < p.noRequests && f.now < p.noAnswers:
		f.met(CutBoth)
	}
	f.met(what)
	return true
}

// A member is an engine's owner in its process, together with its user. It wants a lock, keeps a
// session's heartbeat, or waits for a session to end.
type member struct {
	*process
	on    *lock
	e     *engine.Engine
	cfg   candidate.Config
	lay   func(st store.Store) layout.Layout
	ttl   time.Duration
	terms agreed // of its acquisition or lease
	claim int    // the index of the claim that began its lease; 0: none
	ended int    // the claim of the last lease seen to have ended
	alarm waker

	asked    *call         // the call that the candidate waits for
	answers  *call         // the call with the present answer
	inspects *call         // its user's read
	absent   time.Duration // when it was last shown that there is no object
	vanished record.Record // of the object that it last saw vanish

	wants     bool
	leased    bool          // its user holds a lease, valid or not, or its release is not settled
	releasing bool          // it is being released
	busy      time.Duration // until then its user needs the lease
	contends  bool          // after the faults, its user wants the lock and keeps it

	parked []question            // by peers
	said   *candidate.PeerAnswer // the first answer of its life

	beats    *session      // it is the heartbeat of this session
	reaps    bool          // it waits for a session to end
	heard    int64         // then: Freed.Count of the last heartbeat
	session  *session      // of the acquisition; nil: none
	under    *session      // of the lease
	told     *session      // the last session known to have ended
	stopped  bool          // its user was told that the lease ended with its session
	attaches *paper        // the paper in use; nil: none
	using    candidate.Use // its purpose
	owed
	may        allowances
	blind      time.Duration // since when only peers have kept it from reading; 0: they have not
	blindStops int           // how often its process had stopped then
}

// owed is what a candidate owes its caller.
type owed struct {
	owes         bool // an answer to the last acquisition
	patient      bool // which waits without a limit
	owesDetach   bool // the return of a Detach
	owesRelease  bool // the return of the last release
	passing      bool // which may pass the lease on
	acquisitions int
	releases     int
	detaches     int
	failures     int // acquisitions that ended without a lease
	settled      int // the number of failures when everything was last settled

	lookFailed, writeFailed bool          // the last one did
	finals                  int           // permanent errors since the acquisition began
	silent                  int           // failures in a row without a report to the caller
	silentSince             time.Duration // the first of these
	reminded                time.Duration // when the caller was last told; 0: never
	attempts                int           // claims with an unknown outcome since the lock last changed
	claims                  int           // sent so far
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

func (m *member) c() *candidate.Machine { return m.e.Candidate() }

// valid reports whether the member's lease is valid now (rules A10 and D4).
func (m *member) valid() bool {
	return m.clock() < m.e.Until() && (m.under == nil || m.under.alive())
}

// deadline returns the end of its lease, on its clock.
func (m *member) deadline() time.Duration {
	if m.under != nil {
		return min(m.c().Deadline(), m.under.heartbeat.c().Deadline())
	}
	return m.c().Deadline()
}

// watcher returns the member watching the awaited session, or nil.
func (m *member) watcher() *member {
	w, _ := hosted(m.e.Waits()).(*member)
	return w
}

// renew refills the allowances, because the user wants something else.
func (m *member) renew() { m.may.fill(m.now, m.most()) }

// mayFree lets it free landed claims.
func (m *member) mayFree() { m.may.fill(m.now, holding*time.Second) }

// most returns the limit of its savings.
func (m *member) most() time.Duration {
	if m.leased || m.settled < m.failures {
		return holding * time.Second
	}
	return burst * time.Second
}

// failed reports whether the candidate's last read or last write failed, or is about to.
func (m *member) failed() bool {
	return m.lookFailed || m.writeFailed || m.asked != nil && m.asked.waits != nil && m.asked.waits.hit
}

// A question is answered when there is news or its time is up.
type question struct {
	from   *member
	life   int
	number int
	known  string
	spent  bool
}

// A waker wakes a candidate or a table by its process's clock.
type waker struct {
	of   *process
	ring func()
	at   time.Duration // on its process's clock; 0: not set
	tick time.Duration // the time of the next event
}

// plan sets the alarm by its process's clock.
func (f *fleet) plan(a *waker) {
	if a.at == 0 {
		a.tick = 0
		return
	}
	at := f.now + max(a.of.real(a.at-a.of.clock()), 0)
	if a.tick == at && at > f.now {
		return
	}
	a.tick = at
	f.push(event{at: at, to: a.of.machine, life: a.of.life, by: tick, do: func() {
		if a.tick != at { // another was planned since; a distant deadline has many
			f.atOnce--
			return
		}
		a.at, a.tick = 0, 0
		a.ring()
	}})
}

// rerate changes the rate of a clock, often to the fastest or slowest within the bound.
func (f *fleet) rerate(p *process) {
	p.base, p.since = p.clock(), f.now
	if f.arm == Far && f.choose(2) == 1 {
		f.met(FarDrift)
		p.rate = [...]int64{rateOne / 2, rateOne / 4, rateOne * 2, rateOne * 4}[f.choose(4)]
	} else {
		const bound = rateOne / protocol.Drift
		p.rate = [...]int64{rateOne, rateOne - bound, rateOne + bound, rateOne + bound/4}[f.choose(4)]
		if p.rate == rateOne-bound || p.rate == rateOne+bound {
			f.met(Drift)
		}
	}
	for _, a := range p.wakers {
		f.plan(a)
	}
}

// A session is a heartbeat, and what the library knows about the leases under it.
type session struct {
	of        *process
	life      int // of the process
	heartbeat *member
	began     bool // confirmed
	mustEnd   bool // it must end at once
	engine.Session
}

// knows reports whether the session knows that a member or a part has, or may have, something
// under it.
func (s *session) knows(it any) bool {
	return slices.ContainsFunc(s.Members(), func(h engine.Host) bool { return hosted(h) == it })
}

// hosted returns the member or the part whose host this is.
func hosted(h engine.Host) any {
	if h, is := h.(interface{ hosts() any }); is {
		return h.hosts()
	}
	return nil
}

func (s *session) engine() *engine.Session {
	if s == nil {
		return nil
	}
	return &s.Session
}

func (s *session) String() string { return s.heartbeat.on.key }

func (s *session) alive() bool { return s.began && s.Valid() }

// goesOn reports whether the session is live for its process, and not about to end.
func (s *session) goesOn() bool { return s.life == s.of.life && !s.mustEnd && s.Over() == nil }

// A part is the semaphore's part of one process life: an engine's host, and its callers.
type part struct {
	*process
	on    *table
	e     *engine.Table
	alarm waker
	cfg   queue.Config

	callers  []*caller // not forgotten yet
	last     queue.Caller
	acts     int // left to its user, if a failure lasts
	turns    int // after the faults
	absent   time.Duration
	vanished []record.Entry // the holders in vanished objects, since it last saw an object
	pacing
}

func (p *part) String() string { return fmt.Sprintf("%v/%s", p.process, p.on.key) }

// A caller is one acquisition, and its user's progress.
type caller struct {
	queue.Caller
	part   *part
	name   string // unique, and the holder's name in its entries
	under  *session
	weight int64
	wait   bool
	stands standing
	ended  bool // it holds no slot any more, by its own word or by a report
	room   bool // it had room, and no caller waited, ever since it came
	token  int64
}

// A standing is what a caller's user knows.
type standing int

const (
	asks   standing = iota // wants a slot
	holds                  // holds a slot, or lost it and must still leave
	leaves                 // waits to be told that nothing of it is left
	gone                   // was told, or got no slot
)

// valid reports whether a caller may work in its slots now (rule T2).
func (c *caller) valid() bool { return c.stands == holds && !c.ended && c.under.alive() }

func (c *caller) String() string { return c.name }

func (p *part) who(stands ...standing) (some []*caller) {
	for _, c := range p.callers {
		if slices.Contains(stands, c.stands) {
			some = append(some, c)
		}
	}
	return some
}

func (p *part) find(n queue.Caller) *caller {
	for _, c := range p.callers {
		if c.Caller == n {
			return c
		}
	}
	panic(fmt.Sprintf("sim: %v says something of the caller %d, which is gone", p, n))
}

// parts returns the parts of the semaphore.
func (f *fleet) parts() (all []*part) {
	for _, p := range f.processes {
		if p.part != nil {
			all = append(all, p.part)
		}
	}
	return all
}

// excused reports whether a part cannot have a slot: it expects another size, or the object must
// exist and does not.
func (f *fleet) excused(p *part) bool {
	t := f.table
	return t.there && t.now.Size != p.cfg.Size || !t.there && f.existing
}

// The demands on parts above the one that makes them. The world passes each on when it is due.
type (
	injection struct { // of a fault
		into *member
		f    Fault
	}
	abandonment struct{ c *call }    // the call's user gives up
	rivalry     struct{ c *call }    // another user wants what the call writes to
	attempt     struct{ m *member }  // its user tries to acquire the lock
	beginning   struct{ p *process } // its user begins a session if there is none
	convergence struct{ m *member }  // its user acts after the faults
	turn        struct{ p *process } // its semaphore's user does
)
