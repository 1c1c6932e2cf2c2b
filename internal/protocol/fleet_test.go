package protocol_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// A fleet is a few candidates for one lock, one register that compares and
// swaps, and a network that may delay a request without bound, deliver it twice
// or never, and lose any answer. Every choice comes from choose, so one sequence
// of choices is one history.
type fleet struct {
	choose   func(n int) int // from 0 to n-1
	now      time.Duration   // real time
	version  int             // 0: no object
	record   protocol.Record
	versions int
	top      int64 // the largest token of a claim that landed
	members  []*member
	net      []*request
	starts   int
	granted  int
	history  strings.Builder
	broken   string
}

type member struct {
	name    int
	c       *protocol.Candidate
	rate    int64 // of the clock, in 1/12000 of real time
	ttl     time.Duration
	asked   *request // the request that it waits for
	wants   bool
	leased  bool // its user holds a lease, valid or not, and has not let go
	curious bool // it has asked a leader, and waits for its word
}

// A request is on its way to the store, or its answer on the way back.
type request struct {
	from   *member
	read   *protocol.Read
	write  *protocol.Write
	copies int // how often it may still be delivered
	answer protocol.Event
	to     *request // of an answer: what it answers
}

var errLost = errors.New("no answer")

const rateOne = 12000

func newFleet(size int, choose func(int) int) *fleet {
	f := &fleet{choose: choose}
	for i := range size {
		m := &member{name: i, ttl: []time.Duration{6, 9, 12}[choose(3)] * time.Second}
		m.rate = rateOne + int64(choose(3)-1)*rateOne/protocol.Drift
		f.members = append(f.members, m)
		f.start(m)
	}
	return f
}

func (f *fleet) start(m *member) {
	f.starts++
	m.c = protocol.New(protocol.Config{
		Incarnation: fmt.Sprintf("i%d", f.starts), TTL: m.ttl, Holder: "same name", Address: "somewhere",
		Follow: f.choose(2) == 0, Peers: f.choose(2) == 0,
	})
	m.asked, m.wants, m.leased, m.curious = nil, false, false, false
}

func (f *fleet) clock(m *member) time.Duration {
	return f.now/rateOne*time.Duration(m.rate) + time.Duration(m.name)*time.Hour
}

func (f *fleet) logf(format string, args ...any) {
	fmt.Fprintf(&f.history, "%v "+format+"\n", append([]any{f.now}, args...)...)
}

// step gives one member an event and carries out what it answers.
func (f *fleet) step(m *member, ev protocol.Event) {
	f.logf("%d %T%+v", m.name, ev, ev)
	for _, action := range m.c.Step(ev, protocol.Now{Clock: f.clock(m)}) {
		f.logf("%d   -> %T%+v", m.name, action, action)
		switch a := action.(type) {
		case protocol.Read:
			m.asked = &request{from: m, read: &a, copies: 1}
			f.net = append(f.net, m.asked)
		case protocol.Write:
			m.asked = &request{from: m, write: &a, copies: 1 + f.choose(2)}
			f.net = append(f.net, m.asked)
		case protocol.Granted:
			m.wants, m.leased = false, true
			f.granted++
		case protocol.Refused, protocol.Failed:
			m.wants = false
		case protocol.Released:
			m.leased = false
		case protocol.Ask:
			m.curious = true
		case protocol.Hush:
			m.curious = false
		}
	}
	f.check()
}

// hear lets a member hear a word: none, the truth about some member, or a lie.
func (f *fleet) hear(m *member) {
	if !m.curious {
		return
	}
	m.curious = false
	seen, _, _ := m.c.Observed()
	switch f.choose(4) {
	case 0:
		f.step(m, protocol.Heard{Err: errLost})
	case 1:
		f.step(m, protocol.Heard{Word: protocol.Word{
			Leading: f.choose(2) == 0, Free: f.choose(2) == 0, Holder: "same name",
			Token: seen.Token + int64(f.choose(2)), Incarnation: seen.Incarnation(),
			Valid: time.Duration(f.choose(20)) * time.Second, Version: fmt.Sprint(f.choose(3)),
		}})
	default:
		f.step(m, protocol.Heard{Word: f.truth(f.members[f.choose(len(f.members))])})
	}
}

// truth is what a member can say of itself.
func (f *fleet) truth(m *member) protocol.Word {
	r, clock := m.c.Lease(), f.clock(m)
	w := protocol.Word{
		Leading: m.c.Valid(clock), Holder: r.Holder, Token: r.Token, Incarnation: r.Incarnation(), Valid: m.c.Deadline() - clock,
	}
	w.Free = !w.Leading && !m.leased
	w.Version = fmt.Sprint(w.Token, w.Leading, w.Free)
	return w
}

// answers lets whoever has asked hear the truth from the one it asked.
func (f *fleet) answers() {
	for _, m := range f.members {
		if !m.curious {
			continue
		}
		m.curious = false
		seen, _, _ := m.c.Observed()
		ev := protocol.Heard{Err: errLost}
		for _, other := range f.members {
			if w := f.truth(other); w.Of(seen) {
				ev = protocol.Heard{Word: w}
			}
		}
		f.step(m, ev)
	}
}

// check: at most one valid lease at any instant (P2).
func (f *fleet) check() {
	var valid []int
	for _, m := range f.members {
		if m.c.Valid(f.clock(m)) {
			valid = append(valid, m.name)
		}
	}
	if len(valid) > 1 && f.broken == "" {
		f.broken = fmt.Sprintf("at %v members %v hold valid leases", f.now, valid)
	}
}

// deliver brings a request to the store, or an answer to the member if it still
// waits for it.
func (f *fleet) deliver(i int) {
	r := f.net[i]
	if r.copies--; r.copies <= 0 {
		f.net = slices.Delete(f.net, i, i+1)
	}
	if r.to == nil {
		f.net = append(f.net, &request{from: r.from, answer: f.apply(r), to: r})
	} else if r.from.asked == r.to {
		r.from.asked = nil
		f.step(r.from, r.answer)
	}
}

func (f *fleet) apply(r *request) protocol.Event {
	current := protocol.Version("")
	if f.version > 0 {
		current = protocol.Version(fmt.Sprint(f.version))
	}
	if r.read != nil {
		switch current {
		case "":
			return protocol.ReadDone{Shown: protocol.Absent, Date: time.UnixMilli(1000 + f.now.Milliseconds())}
		case r.read.Unless:
			return protocol.ReadDone{Shown: protocol.Same}
		}
		return protocol.ReadDone{Shown: protocol.Found, Version: current, Record: f.record}
	}
	if r.write.Expect != current {
		return protocol.WriteDone{Err: errors.New("412")}
	}
	if r.write.Op == protocol.Claim {
		// Tokens of acquisitions that landed strictly grow (P1), so no two
		// incarnations share one either.
		if r.write.Record.Token <= f.top && f.broken == "" {
			f.broken = fmt.Sprintf("at %v a claim landed with token %d after %d", f.now, r.write.Record.Token, f.top)
		}
		f.top = r.write.Record.Token
	}
	f.versions++
	f.version, f.record = f.versions, r.write.Record
	return protocol.WriteDone{Version: protocol.Version(fmt.Sprint(f.version))}
}

// act does one thing, chosen at random.
func (f *fleet) act() {
	m := f.members[f.choose(len(f.members))]
	switch f.choose(21) {
	case 20:
		f.hear(m)
	case 0:
		f.pass([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 4 * time.Second}[f.choose(4)])
	case 1: // to just before the end of some lease, on its holder's clock
		if m.c.Valid(f.clock(m)) {
			f.pass((m.c.Deadline() - f.clock(m) - 5*time.Millisecond) * rateOne / time.Duration(m.rate))
		}
	case 2, 3: // to the time at which a member wants to act
		if wake, ok := m.c.Wake(); ok && wake > f.clock(m) {
			f.pass((wake - f.clock(m)) * rateOne / time.Duration(m.rate))
			f.pass(time.Millisecond)
			f.tick(m)
		}
	case 4, 5, 6, 7, 8, 13, 14:
		if len(f.net) > 0 {
			f.deliver(f.choose(len(f.net)))
		}
	case 9:
		if len(f.net) > 0 {
			i := f.choose(len(f.net))
			f.net = slices.Delete(f.net, i, i+1)
		}
	case 10: // the member stops waiting; the request stays on its way
		f.giveUp(m)
	case 11:
		f.user(m)
	case 12:
		switch f.choose(8) {
		case 0: // a crash, and a restart under the same name
			f.start(m)
		case 3:
			f.step(m, protocol.Watch{On: f.choose(2) == 0})
		case 1, 2:
			m.ttl = []time.Duration{6, 9, 12}[f.choose(3)] * time.Second
			f.step(m, protocol.Retune{TTL: m.ttl})
		}
	case 15, 16:
		f.quick(m)
	default:
		f.tick(m)
	}
}

// quick lets the network be kind to one member.
func (f *fleet) quick(m *member) {
	for range 4 {
		for i, r := range f.net {
			if r.from == m && (r == m.asked || r.to != nil && r.to == m.asked) {
				f.deliver(i)
				break
			}
		}
	}
}

func (f *fleet) pass(d time.Duration) {
	f.now += max(d, 0)
	f.check()
}

func (f *fleet) tick(m *member) {
	if wake, ok := m.c.Wake(); ok && f.clock(m) >= wake {
		f.step(m, protocol.Tick{})
	}
}

func (f *fleet) giveUp(m *member) {
	if m.asked == nil {
		return
	}
	r := m.asked
	m.asked = nil
	if r.read != nil {
		f.step(m, protocol.ReadDone{Err: errLost})
	} else {
		f.step(m, protocol.WriteDone{Err: errLost})
	}
}

func (f *fleet) user(m *member) {
	switch {
	case m.leased:
		if f.choose(4) == 0 {
			f.step(m, protocol.GiveUp{})
		}
		m.leased = false
		f.step(m, protocol.Release{})
	case m.wants && f.choose(3) == 0:
		f.step(m, protocol.Cancel{})
	case !m.wants:
		m.wants = true
		f.step(m, protocol.Acquire{Wait: f.choose(4) != 0})
	}
}

// settle lets the world be kind: everything is delivered, clocks tick, users let
// go. Then whoever wants the lock must get it: nothing is stuck.
func (f *fleet) settle() bool {
	f.net = nil
	for _, m := range f.members {
		f.giveUp(m)
	}
	last := f.members[len(f.members)-1]
	for range 5000 {
		for _, m := range f.members {
			if m.leased && m != last {
				f.user(m)
			}
		}
		if last.leased && last.c.Valid(f.clock(last)) {
			return true
		}
		if last.leased || !last.wants {
			f.user(last)
		}
		f.pass(50 * time.Millisecond)
		f.answers()
		for _, m := range f.members {
			f.tick(m)
		}
		for len(f.net) > 0 {
			f.net[0].copies = 1
			f.deliver(0)
		}
	}
	return false
}

func (f *fleet) run(t testing.TB, steps int, source string) {
	t.Helper()
	for range steps {
		f.act()
		if f.broken != "" {
			t.Fatalf("%s: %s\n%s", source, f.broken, f.history.String())
		}
	}
	if !f.settle() {
		t.Fatalf("%s: a lock that nobody holds is never taken\n%s", source, f.history.String())
	}
	if f.broken != "" {
		t.Fatalf("%s: while settling: %s\n%s", source, f.broken, f.history.String())
	}
}

// TestFleet plays random histories and asserts both promises at every step.
func TestFleet(t *testing.T) {
	runs := 6000
	if testing.Short() {
		runs = 600
	}
	granted := 0
	for seed := range uint64(runs) {
		random := rand.New(rand.NewPCG(seed, 0))
		f := newFleet(2+int(seed%3), random.IntN)
		f.run(t, 150, fmt.Sprintf("seed %d", seed))
		granted += f.granted
	}
	if granted < 2*runs {
		t.Errorf("only %d leases in %d histories: too little happens in them to prove anything", granted, runs)
	}
	t.Logf("%d histories, %d leases", runs, granted)
}

// FuzzFleet lets the fuzzer choose what happens.
func FuzzFleet(f *testing.F) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		choices := make([]byte, 400)
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 4096 {
			return // longer histories only take longer
		}
		next := func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			b := choices[0]
			choices = choices[1:]
			return int(b) % n
		}
		newFleet(3, next).run(t, len(choices)/3, "fuzz")
	})
}
