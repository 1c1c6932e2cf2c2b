package protocol_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// A way is how a fleet's lock lies in the store.
type way struct {
	name string
	cfg  protocol.Config // what the protocol must know of it
	at   func(st store.Store, ttl time.Duration) layout.Layout
}

const lockKey = "l"

var ways = []way{
	{"object", protocol.Config{}, func(st store.Store, _ time.Duration) layout.Layout {
		return layout.Object{Store: st, Key: lockKey}
	}},
	{"epochs", protocol.Config{Numbered: true}, func(st store.Store, _ time.Duration) layout.Layout {
		return layout.Epochs{Store: st, Key: lockKey}
	}},
	{"epochs+if-match", protocol.Config{Numbered: true}, func(st store.Store, _ time.Duration) layout.Layout {
		return layout.Epochs{Store: st, Key: lockKey, IfMatch: true}
	}},
	{"marker", protocol.Config{Tokenless: true, WriteOnce: true}, func(st store.Store, ttl time.Duration) layout.Layout {
		return layout.Marker{Store: st, Key: lockKey, TTL: ttl}
	}},
	{"marker+if-match", protocol.Config{Tokenless: true}, func(st store.Store, ttl time.Duration) layout.Layout {
		return layout.Marker{Store: st, Key: lockKey, TTL: ttl, IfMatch: true}
	}},
}

// A fleet is a few candidates for one lock, a store, and a network that may delay a
// request without bound, deliver it twice or never, and lose any answer. Every choice
// comes from choose, so one sequence of choices is one history.
//
// Of markers less is promised: a delete must arrive once, before the lease ends that it
// is sent under, or never.
type fleet struct {
	way
	choose    func(n int) int // from 0 to n-1
	now       time.Duration   // real time
	calm      int             // of the network: 0, 1 or 2
	objects   bucket
	top       int64 // the largest token of a claim that landed where it counts
	last      int64 // the largest token of a lease that was granted
	members   []*member
	collector *call
	net       []*request
	starts    int
	granted   int
	late      int // creates that landed after their number was passed
	collected int
	verbose   bool
	history   strings.Builder
	broken    string
}

type member struct {
	name    int
	c       *protocol.Candidate
	rate    int64 // of the clock, in 1/12000 of real time
	ttl     time.Duration
	asked   *call // that it waits for
	wants   bool
	leased  bool // its user holds a lease, valid or not, and has not let go
	curious bool // it has asked a leader, and waits for its word
}

const rateOne = 12000

var ttls = []time.Duration{6 * time.Second, 9 * time.Second, 12 * time.Second}

func newFleet(w way, size int, choose func(int) int) *fleet {
	f := &fleet{way: w, choose: choose, calm: choose(4), objects: bucket{}}
	for i := range size {
		m := &member{name: i, ttl: ttls[choose(3)]}
		m.rate = rateOne + int64(choose(3)-1)*rateOne/protocol.Drift
		f.members = append(f.members, m)
		f.start(m)
	}
	return f
}

func (f *fleet) start(m *member) {
	f.starts++
	cfg := f.cfg
	cfg.Incarnation, cfg.TTL, cfg.Holder, cfg.Address = fmt.Sprintf("i%d", f.starts), m.ttl, "same name", "somewhere"
	cfg.Follow, cfg.Peers = f.choose(2) == 0, f.choose(2) == 0
	m.c = protocol.New(cfg)
	if m.asked != nil {
		m.asked.end()
	}
	m.asked, m.wants, m.leased, m.curious = nil, false, false, false
}

func (f *fleet) clock(m *member) time.Duration {
	return f.now/rateOne*time.Duration(m.rate) + time.Duration(m.name)*time.Hour
}

// wall is what wall clocks show, and the store's.
func (f *fleet) wall() time.Time { return wall.Add(f.now) }

func (f *fleet) logf(format string, args ...any) {
	if !f.verbose {
		return
	}
	fmt.Fprintf(&f.history, "%v "+format+"\n", append([]any{f.now}, args...)...)
}

// step gives one member an event and carries out what it answers.
func (f *fleet) step(m *member, ev protocol.Event) {
	f.logf("%d %T%+v", m.name, ev, ev)
	for _, action := range m.c.Step(ev, protocol.Now{Clock: f.clock(m), Wall: f.wall()}) {
		f.logf("%d   -> %T%+v", m.name, action, action)
		switch a := action.(type) {
		case protocol.Read:
			m.asked = begin(m, nil, func(c *call) {
				c.reading, c.err = f.at(c, m.ttl).Look(context.Background(), a.Unless)
			})
		case protocol.Write:
			m.asked = begin(m, &a, func(c *call) {
				c.reading, c.err = f.at(c, m.ttl).Write(context.Background(), a)
			})
		case protocol.Granted:
			f.grant(m)
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
	if m.asked != nil && m.asked.waits == nil {
		f.resume(m.asked)
	}
}

// resume lets a call go on to its next request, or to its end.
func (f *fleet) resume(c *call) {
	r, more := c.next()
	if more {
		f.send(c, r)
		return
	}
	switch {
	case c.from == nil:
		f.collector = nil
	case c.write == nil:
		c.from.asked = nil
		f.step(c.from, layout.ReadDone(c.reading, c.err))
	default:
		c.from.asked = nil
		f.step(c.from, layout.WriteDone(c.reading, c.err))
	}
}

func (f *fleet) send(c *call, r *request) {
	f.logf("  %s %q %v", r.op, r.key, r.only)
	r.copies, r.slow = 1, f.choose(8) == 0
	switch {
	case r.op == "delete" && f.cfg.Tokenless:
		r.expires = f.now + (c.from.c.Deadline()-f.clock(c.from))*rateOne/time.Duration(c.from.rate)
	case r.op == "put" || r.op == "delete":
		r.copies += f.choose(2)
	}
	c.waits = r
	f.net = append(f.net, r)
}

// grant: the tokens of leases strictly grow (P1), so no two incarnations share one.
func (f *fleet) grant(m *member) {
	m.wants, m.leased = false, true
	f.granted++
	switch token := m.c.Lease().Token; {
	case f.cfg.Tokenless && token == 0:
	case token <= f.last || f.cfg.Tokenless:
		f.fault("member %d was granted token %d after %d", m.name, token, f.last)
	default:
		f.last = token
	}
}

func (f *fleet) fault(format string, args ...any) {
	if f.broken == "" {
		f.broken = fmt.Sprintf("at %v "+format, append([]any{f.now}, args...)...)
	}
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
	if len(valid) > 1 {
		f.fault("members %v hold valid leases", valid)
	}
}

// deliver brings a request to the store, or an answer to the call if it still waits
// for it.
func (f *fleet) deliver(i int) {
	r := f.net[i]
	if r.copies--; r.copies <= 0 {
		f.net = slices.Delete(f.net, i, i+1)
	}
	switch {
	case r.to == nil:
		f.net = append(f.net, f.land(r))
	case r.from.waits == r.to && !r.from.over:
		r.from.waits = r
		f.resume(r.from)
	}
}

// land carries out a request at the store, and looks at what that does to tokens.
func (f *fleet) land(r *request) *request {
	_, number, numbered := layout.Epoch(r.key)
	top := f.objects.highest()
	_, existed := f.objects[r.key]
	a := f.objects.serve(r, f.wall())
	f.logf("  lands: %s %q %v: %v", r.op, r.key, r.only, a.answeredBy)
	switch {
	case r.op == "delete" && numbered && existed:
		f.collected++
		if number == top {
			f.fault("the highest epoch %d was deleted", number)
		}
	case r.op == "put" && a.answeredBy == nil && numbered && number < top && r.only.Absent():
		// It was collected, so it must not count, and its sender must find out.
		f.late++
	case r.op != "put" || a.answeredBy != nil || r.from.write == nil || r.from.write.Op != protocol.Claim || f.cfg.Tokenless:
	case numbered && number <= top: // it says that a lease is over
	default:
		// Tokens of acquisitions that landed strictly grow (P1).
		if token := r.from.write.Record.Token; token <= f.top {
			f.fault("a claim landed with token %d after %d", token, f.top)
		} else {
			f.top = token
		}
	}
	return a
}

// act does one thing, chosen at random.
func (f *fleet) act() {
	m := f.members[f.choose(len(f.members))]
	if f.choose(4) < f.calm {
		f.quick(m)
	}
	switch f.choose(24) {
	case 20:
		f.hear(m)
	case 21, 22, 23:
		f.collect()
		f.sweep()
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
	case 11, 17:
		f.user(m)
	case 12:
		switch f.choose(8) {
		case 0: // a crash, and a restart under the same name
			f.start(m)
		case 3:
			f.step(m, protocol.Watch{On: f.choose(2) == 0})
		case 1, 2:
			m.ttl = ttls[f.choose(3)]
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
		if m.asked != nil {
			f.hurry(m.asked)
		}
	}
}

// hurry delivers what a call has sent, or the answer.
func (f *fleet) hurry(c *call) {
	for i, r := range f.net {
		if !r.slow && (r == c.waits || r.to != nil && r.to == c.waits) {
			f.deliver(i)
			return
		}
	}
}

// collect begins to collect epochs, with no regard to how old they are, or ends it.
func (f *fleet) collect() {
	switch {
	case !f.cfg.Numbered:
	case f.collector != nil && f.choose(4) == 0:
		f.collector.end()
		f.collector = nil
	case f.collector == nil:
		what := layout.Collection{Keep: f.choose(2) * f.choose(3), Limit: f.choose(4)*4 - 4}
		f.collector = begin(nil, nil, func(c *call) {
			epochs, _ := f.at(c, 0).(layout.Epochs)
			for _, err := range epochs.Collect(context.Background(), what) {
				c.err = err
			}
		})
		f.resume(f.collector)
		for range 100 * f.choose(2) {
			if f.collector != nil {
				f.hurry(f.collector)
			}
		}
	}
}

// sweep deletes a marker that has expired by the store's clock, where nobody else can.
func (f *fleet) sweep() {
	if o, exists := f.objects[lockKey]; exists && f.cfg.WriteOnce && f.wall().Sub(o.written) > protocol.Stale(ttls[len(ttls)-1]) {
		delete(f.objects, lockKey)
	}
}

func (f *fleet) pass(d time.Duration) {
	f.now += max(d, 0)
	f.net = slices.DeleteFunc(f.net, func(r *request) bool { return r.expires != 0 && f.now >= r.expires })
	f.check()
}

func (f *fleet) tick(m *member) {
	if wake, ok := m.c.Wake(); ok && f.clock(m) >= wake {
		f.step(m, protocol.Tick{})
	}
}

func (f *fleet) giveUp(m *member) {
	if c := m.asked; c != nil {
		c.over = true
		f.resume(c)
	}
}

func (f *fleet) user(m *member) {
	switch {
	case m.leased:
		if f.choose(4) == 0 {
			f.step(m, protocol.GiveUp{})
		}
		m.leased = false
		pass := f.choose(2) == 0
		f.step(m, protocol.Release{Pass: pass})
		switch {
		case !pass:
		case f.choose(4) == 0:
			f.step(m, protocol.Drop{})
		case !m.leased && !m.wants:
			m.wants = true
			f.step(m, protocol.Acquire{Wait: true})
		}
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
	if f.collector != nil {
		f.collector.end()
		f.collector = nil
	}
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
		f.sweep()
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

// end leaves nothing of the fleet behind.
func (f *fleet) end() {
	for _, m := range f.members {
		if m.asked != nil {
			m.asked.end()
		}
	}
	if f.collector != nil {
		f.collector.end()
	}
}

// run plays a history, which broken tells of if it is not as promised.
func (f *fleet) run(steps int) {
	defer f.end()
	for range steps {
		if f.act(); f.broken != "" {
			return
		}
	}
	if !f.settle() {
		f.fault("a lock that nobody holds is never taken")
	}
}

// check plays a history, and once more to tell of it if it is not as promised.
func check(t *testing.T, source string, play func(verbose bool) *fleet) *fleet {
	t.Helper()
	f := play(false)
	if f.broken != "" {
		f = play(true)
		t.Fatalf("%s, %s: %s\n%s", f.name, source, f.broken, f.history.String())
	}
	return f
}

var histories = flag.Int("histories", 3000, "how many of them TestFleet plays over each layout")

// TestFleet plays random histories over each layout and asserts both promises at every
// step.
func TestFleet(t *testing.T) {
	runs := *histories
	switch {
	case raceDetector:
		runs /= 30
	case testing.Short():
		runs /= 10
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			granted, late, collected := 0, 0, 0
			for seed := range uint64(runs) {
				f := check(t, fmt.Sprintf("seed %d", seed), func(verbose bool) *fleet {
					random := rand.New(rand.NewPCG(seed, 0))
					f := newFleet(w, 2+int(seed%3), random.IntN)
					f.verbose = verbose
					f.run(300)
					return f
				})
				granted += f.granted
				late += f.late
				collected += f.collected
			}
			t.Logf("%d histories, %d leases, %d epochs collected, %d of them created again", runs, granted, collected, late)
			if granted < 2*runs || w.cfg.Numbered && (collected < runs || late < runs/100) {
				t.Error("too little happens in them to prove anything")
			}
		})
	}
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
		check(t, "fuzz", func(verbose bool) *fleet {
			left := choices
			next := func(n int) int {
				if len(left) == 0 {
					return 0
				}
				b := left[0]
				left = left[1:]
				return int(b) % n
			}
			f := newFleet(ways[next(len(ways))], 3, next)
			f.verbose = verbose
			f.run(len(choices) / 3)
			return f
		})
	})
}
