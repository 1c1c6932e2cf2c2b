package sim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A member is what an engine works for, in its process, and the user of it: for a lock, for the
// heartbeat of a session, or for the end of one.
type member struct {
	*process
	on    *lock
	e     *engine.Engine
	cfg   protocol.Config
	lay   func(st store.Store) layout.Layout
	ttl   time.Duration
	claim int // of its lease: which claim began it, in the order in which they landed; 0: none has
	ended int // the claim of the last lease that was seen to be over
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
	hopeful   bool          // in the calm: its user wants the lock, and keeps it
	voice     voice

	beats   *session // it is the heartbeat of this session
	reaps   bool     // it waits for the end of one
	heard   int64    // then: Freed.Count of the last heartbeat
	session *session // of the acquisition; nil: none
	under   *session // of the lease
	told    *session // the last one of whose end it was told
	stopped bool     // its user was told that the lease is over, because its session is
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
	case m.reaps:
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
	*m = member{process: m.process, on: m.on, e: new(engine.Engine), ttl: m.ttl, claim: m.claim, ended: m.ended, hopeful: m.hopeful, lay: lay, may: allowances{acts: acts}}
	w.candidate(m, cfg)
	w.logf("%v starts as %s, TTL %v, follows %t, peers %t, fast start %t, clock %d/%d",
		m, m.cfg.Incarnation, cfg.TTL, cfg.Follow, cfg.Peers, cfg.FastStart, m.rate, rateOne)
	w.after(w.pick(0, 100*time.Millisecond, time.Second, 10*time.Second), m.process, func() { w.user(m) })
}

// candidate gives a member its candidate, which is another one than all before it.
func (w *world) candidate(m *member, cfg protocol.Config) {
	m.cfg = cfg
	m.cfg.Incarnation = w.incarnation(m)
	w.adds(m)
	if s := m.beats; s != nil {
		s.Init(heartbeat{m}, m.e, m.cfg, 1) // so that those who wait miss some
	} else {
		m.e.Init(m, m.cfg)
	}
}

// incarnation makes the mark of a candidate.
func (w *world) incarnation(m *member) string {
	w.made++
	return fmt.Sprintf("i%d-%d-%d", m.number, m.life, w.made)
}

// adds takes note of a candidate of this life of its process.
func (w *world) adds(m *member) {
	m.all = append(m.all, m)
	w.renew(m)
}

// c is the candidate, to look at.
func (m *member) c() *protocol.Candidate { return m.e.Candidate() }

// valid reports that the member holds a lease that is valid now (rules A10 and D4).
func (w *world) valid(m *member) bool {
	return (m.e.Resting() || m.c().Valid(w.clock(m.process))) && (m.under == nil || w.alive(m.under))
}

// deadline is the reading of its clock at which its lease ends.
func (m *member) deadline() time.Duration {
	if m.under != nil {
		return min(m.c().Deadline(), m.under.heartbeat.c().Deadline())
	}
	return m.c().Deadline()
}

// limit is the reading of its clock at which its session ends.
func (m *member) limit() time.Duration {
	if m.under == nil {
		return 0
	}
	return m.under.Until()
}

// The methods of an engine.Owner follow.

func (m *member) Place() engine.Place {
	return engine.Place{Runtime: runtime{m}, Store: network{}, Key: m.on.key, Layout: m.lay(network{}), Logger: silent}
}

var silent = slog.New(slog.DiscardHandler)

func (m *member) Config() protocol.Config { return m.cfg }

func (m *member) Session(name string) *engine.Session { return m.w.find(name).engine() }

func (m *member) Context() context.Context { return context.Background() }

// Watcher adds a candidate that waits for the end of a session.
func (m *member) Watcher(session string, of *engine.Engine) engine.Owner {
	w := m.w
	r := &member{process: m.process, on: w.find(session).heartbeat.on, e: of, ttl: m.ttl, reaps: true}
	r.lay = func(st store.Store) layout.Layout { return layout.Heartbeat{Store: st, Key: session} }
	r.cfg = protocol.Config{TTL: m.ttl, Holder: m.process.String(), Layout: record.LayoutSession}
	r.on.reapers = append(r.on.reapers, r)
	w.adds(r)
	return r
}

// watcher is who watches the session that the member waits for, and nil if it waits for none.
func (m *member) watcher() *member {
	r, _ := m.e.Waits().(*member)
	return r
}

func (m *member) Rest(on bool) {
	if on {
		m.w.met(Rested, m)
		m.reminded = 0
	}
}

func (m *member) EndLease(error) { m.stopped = true }

func (m *member) Taken(ev protocol.Event) {
	w := m.w
	if w.verbose {
		w.logf("%v  %s", m, brief(ev))
	}
	w.asks(m, ev)
	switch ev := ev.(type) {
	case protocol.Acquire:
		m.wants = true
	case protocol.Cancel:
		if m.reaps { // nobody waits any more
			w.renew(m)
		}
	case protocol.SessionOver:
		m.told = w.find(ev.Session)
		w.renew(m)
	case protocol.ReadDone:
		m.answers.err = ev.Err
	case protocol.Checked:
		if m.answers.err = ev.Err; ev.Err == nil {
			w.met(Judged, ev.Session)
		}
	case protocol.WriteDone:
		m.answers.err = ev.Err
		w.tried(m.answers)
	}
}

func (m *member) Report(action protocol.Action) {
	if m.w.verbose {
		m.w.logf("%v    -> %s", m, brief(action))
	}
	m.w.returned(m, action)
	m.w.do(m, action)
}

func (m *member) Stepped(ev protocol.Event) {
	w := m.w
	w.afterwards(m, ev)
	if over, is := ev.(protocol.SessionOver); is && m.under != nil && m.under.Key() == over.Session && m.c().Valid(w.clock(m.process)) {
		w.fault(Ended, "the session %v is over, and %v does not end its lease", m.under, m)
	}
	w.speak(m)
	if w.calm {
		w.after(0, m.process, func() { w.ease(m) })
	}
}

// do is what the world makes of what a candidate says.
func (w *world) do(m *member, action protocol.Action) {
	switch a := action.(type) {
	case protocol.Read:
		m.blind = 0
	case protocol.Write:
		if a.Op == protocol.Free && m.told != nil && a.Over.Session == m.told.String() {
			w.fault(Budget, "%v frees a lock that it has left under the session %v, which is over", m, m.told)
		}
	case protocol.Granted:
		m.wants, m.leased, m.stopped, m.under = false, true, false, m.session
		m.busy = w.now + w.pick(40*time.Second, 8*time.Second, time.Second, 0)
		w.grant(m)
		w.momentOf(granted)
	case protocol.Refused, protocol.Failed, protocol.Reaped:
		m.wants = false
	case protocol.Lost:
		m.ended = m.claim
	case protocol.Released:
		m.ended, m.leased, m.releasing, m.under = m.claim, false, false, nil
	case protocol.SessionOrphan:
		w.find(a.Session).doomed = true
		w.met(OrphanEnds, a.Session)
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
	case m.reaps:
		w.hinted(m, action)
	}
}

// hinted takes note of a heartbeat that tells of more releases than it names.
func (w *world) hinted(m *member, action protocol.Action) {
	if _, is := action.(protocol.Seen); !is {
		return
	}
	if r, _, _ := m.c().Observed(); r.Freed != nil {
		if r.Freed.Count-m.heard > int64(len(r.Freed.Last)) {
			w.met(HintMissed, r.Freed)
		}
		m.heard = r.Freed.Count
	}
}
