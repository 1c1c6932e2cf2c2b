package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A member is a candidate in its process, and the user that it works for: for a lock, for the
// heartbeat of a session, or for the end of one.
type member struct {
	*process
	on    *lock
	c     *protocol.Candidate
	cfg   protocol.Config
	lay   func(st store.Store) layout.Layout
	ttl   time.Duration
	claim int           // of its lease: which claim began it, in the order in which they landed; 0: none has
	ended int           // the claim of the last lease that was seen to be over
	tick  time.Duration // the event that is the next Tick

	asked    *call         // that the candidate waits for
	inspects *call         // of its user, who only looks
	absent   time.Duration // when it was last shown that there is no object
	vanished record.Record // of the object that it last saw vanish

	wants     bool
	leased    bool          // its user holds a lease, valid or not, or its release is not settled
	releasing bool          // that
	busy      time.Duration // until then its user needs the lease
	hopeful   bool          // in the calm: its user wants the lock, and keeps it
	voice     voice

	beats *session // it is the heartbeat of this session
	reaps *reaper  // it waits for the end of one
	membership
	returns
	may        allowances
	blind      time.Duration // since when peers alone have kept it from looking; 0: they have not
	blindStood int           // how often its process had stood still then
}

// ttls are far apart, so that a candidate that counts by the wrong one is wrong by far.
var ttls = [...]time.Duration{3 * time.Second, 9 * time.Second, 30 * time.Second}

// infrequent is the interval of some followers of a steady leader.
const infrequent = 10 * time.Second

func (m *member) String() string {
	switch {
	case m == nil:
		return "collector"
	case m.reaps != nil:
		return fmt.Sprintf("%v, for the end of %s,", m.process, m.on.key)
	}
	return fmt.Sprintf("%v/%s", m.process, m.on.key)
}

// enlist makes a candidate for a lock. Names are not incarnations: some have that of
// another.
func (w *world) enlist(m *member) {
	cfg := w.cfg
	cfg.TTL, cfg.Holder, cfg.Address = m.ttl, m.process.String(), m.process.String()
	if w.choose(4) == 3 {
		cfg.Holder = "m0"
	}
	cfg.Existing = w.existing
	cfg.Follow, cfg.Peers, cfg.FastStart = w.choose(2) == 1, w.choose(2) == 1, !w.skewed && w.choose(4) == 3
	if cfg.Follow && w.choose(4) == 3 {
		cfg.Frequent, cfg.Infrequent = time.Second, infrequent
	}
	w.longest = max(w.longest, m.ttl)
	lay := func(st store.Store) layout.Layout { return w.lay(st, m.on.key, m.ttl) }
	acts := 3 + w.choose(16)
	*m = member{process: m.process, on: m.on, ttl: m.ttl, claim: m.claim, ended: m.ended, hopeful: m.hopeful, lay: lay, may: allowances{acts: acts}}
	w.candidate(m, cfg)
	w.logf("%v starts as %s, TTL %v, follows %t, peers %t, fast start %t, clock %d/%d",
		m, m.cfg.Incarnation, cfg.TTL, cfg.Follow, cfg.Peers, cfg.FastStart, m.rate, rateOne)
	w.after(w.pick(0, 100*time.Millisecond, time.Second, 10*time.Second), m.process, func() { w.user(m) })
}

// candidate gives a member its candidate, which is another one than all before it.
func (w *world) candidate(m *member, cfg protocol.Config) {
	w.made++
	cfg.Incarnation = fmt.Sprintf("i%d-%d-%d", m.number, m.life, w.made)
	m.cfg, m.c = cfg, protocol.New(cfg)
	m.all = append(m.all, m)
	w.renew(m)
}

// valid reports that the member holds a lease that is valid now (rules A10 and D4).
func (w *world) valid(m *member) bool {
	return m.c.Valid(w.clock(m.process)) && (m.under == nil || w.alive(m.under))
}

// deadline is the reading of its clock at which its lease ends.
func (m *member) deadline() time.Duration {
	if m.under != nil {
		return min(m.c.Deadline(), m.under.heartbeat.c.Deadline())
	}
	return m.c.Deadline()
}

// limit is the reading of its clock at which its session ends.
func (m *member) limit() time.Duration {
	if m.under == nil || m.under.Over() != nil {
		return 0
	}
	return m.under.heartbeat.c.Deadline()
}

// step gives a member an event and carries out what it answers.
func (w *world) step(m *member, ev protocol.Event) {
	if w.verbose {
		w.logf("%v  %s", m, brief(ev))
	}
	w.asks(m, ev)
	actions := m.c.Step(ev, protocol.Now{Clock: w.clock(m.process), Wall: epoch.Add(w.now + m.wall)})
	for _, action := range actions {
		if w.verbose {
			w.logf("%v    -> %s", m, brief(action))
		}
		w.returned(m, action)
		w.do(m, action)
	}
	w.afterwards(m, ev)
	w.attend(m)
	w.rest(m)
	w.plan(m)
	w.speak(m)
	if c := m.asked; c != nil && c.waits == nil {
		w.resume(c)
	}
	w.ease(m)
}

func (w *world) do(m *member, action protocol.Action) {
	switch a := action.(type) {
	case protocol.Read:
		m.looked, m.blind = w.clock(m.process), 0
		w.call(m, nil, a.Timeout, func(c *call) {
			c.reading, c.err = m.lay(c).Look(context.Background(), a.Unless)
		})
	case protocol.Check:
		w.call(m, nil, a.Timeout, func(c *call) {
			c.reading, c.err = layout.Heartbeat{Store: c, Key: a.Session}.Look(context.Background(), "")
		})
		m.asked.checks = a.Session
	case protocol.Write:
		if a.Op == protocol.Free && m.told != nil && a.Over.Session == m.told.String() {
			w.fault(Budget, "%v frees a lock that it has left under the session %v, which is over", m, m.told)
		}
		w.call(m, &a, a.Timeout, func(c *call) {
			c.reading, c.err = m.lay(c).Write(context.Background(), a)
		})
	case protocol.Granted:
		m.wants, m.leased, m.under = false, true, m.session
		m.busy = w.now + w.pick(40*time.Second, 8*time.Second, time.Second, 0)
		w.grant(m)
		w.momentOf(granted)
	case protocol.Refused:
		m.wants = false
	case protocol.Failed:
		m.wants = false
	case protocol.Lost:
		m.ended = m.claim
	case protocol.Released:
		m.ended, m.leased, m.releasing, m.under = m.claim, false, false, nil
	case protocol.SessionOrphan:
		w.orphaned(w.find(a.Session))
	case protocol.Unnamed:
		w.unnamed(m, w.find(a.Session))
	case protocol.Left:
		w.left(m, w.find(a.Session))
	case protocol.Waiting:
		w.momentOf(waits)
	case protocol.Vanished:
		m.vanished = a.Record
	case protocol.PollPeer:
		w.ask(m, a)
	}
	switch {
	case m.beats != nil:
		w.beaten(m.beats, action)
	case m.reaps != nil:
		w.reaped(m.reaps, action)
	}
}

// plan lets the next Tick come when the candidate's clock wakes it.
func (w *world) plan(m *member) {
	wake, ok := m.c.Wake()
	if !ok {
		m.tick = 0
		return
	}
	at := w.now + max(m.real(wake-w.clock(m.process)), 0)
	if m.tick == at && at > w.now {
		return
	}
	m.tick = at
	w.push(event{at: at, to: m.process, life: m.life, by: tick, do: func() {
		if m.tick != at { // another was planned since; of a deadline far away there are many
			w.atOnce--
			return
		}
		m.tick = 0
		w.step(m, protocol.Tick{})
	}})
}
