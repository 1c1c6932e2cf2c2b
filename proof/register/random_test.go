package register_test

import (
	"container/heap"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold/leasehold/internal/register"
)

var (
	from  = flag.Int("from", 0, "first seed of TestRandom")
	seeds = flag.Int("seeds", 3000, "how many seeds TestRandom runs")
)

// TestRandom runs proposers over members that fail in every way that the rules allow for, and checks that
// what the callers are told is what one register would have told.
func TestRandom(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	for seed := *from; seed < *from+*seeds; seed++ {
		w := newWorld(uint64(seed))
		w.run()
		if err := w.verdict(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, w.story())
		}
		for what, n := range w.counts {
			counts[what] += n
		}
	}
	for _, what := range []string{
		"done", "mismatch", "uncertain", "failed", "in one round", "refused", "lost answer", "late", "no answer", "wiped", "changed",
		"whole", "moved", "filled", "removed", "collected", "settled first", "touched meanwhile", "dropped late",
	} {
		if counts[what] == 0 {
			t.Errorf("%q never happened", what)
		}
	}
	t.Log(counts)
}

// A world is members, proposers and an operator, at a time of its own.
type world struct {
	rng      *rand.Rand
	now      time.Duration
	events   events
	order    int
	places   []*place
	configs  []register.Configuration
	people   []*proposer
	operator *proposer
	wipes    int
	lossy    bool
	deletes  bool // it is about deletions, and about what is collected of them
	history  []porcupine.Operation
	lines    []string
	counts   map[string]int
	versions int
	changing bool
}

type place struct {
	version int
	object  *register.Acceptor
	marker  *register.Marker
	slow    time.Duration
	down    bool
	changed time.Duration // when the object did last
}

type proposer struct {
	id      int
	reg     *register.Register
	cfg     int
	names   int
	last    string // the version that it last saw
	left    int    // calls
	pending map[int]func(register.Answer)
	calls   int
	ticking time.Duration
	version string
	rounds  int // requests of the present call beside acceptances
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (w *world) after(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.events, event{w.now + d, w.order, do})
}

func (w *world) say(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf("%8.3fs ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) story() (s string) {
	for _, line := range w.lines {
		s += line + "\n"
	}
	return s
}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), counts: map[string]int{}}
	n := 3
	if w.rng.IntN(4) == 0 {
		n = 5
	}
	w.lossy = w.rng.IntN(4) > 0
	w.deletes = seed%3 == 1
	cfg := register.Configuration{Quorum: "q"}
	for i := range n + 2 {
		w.places = append(w.places, &place{slow: time.Duration(1+w.rng.IntN(60)) * time.Millisecond})
		if i < n {
			cfg.Members = append(cfg.Members, register.Member{Place: fmt.Sprint(i), Marker: fmt.Sprintf("m%d", i)})
		}
	}
	for i := range n {
		w.places[i].marker = &register.Marker{Name: cfg.Members[i].Marker, Whole: true, Known: cfg}
	}
	w.configs = []register.Configuration{cfg}
	for i := range 2 + w.rng.IntN(2) {
		p := &proposer{id: i, left: 2 + w.rng.IntN(5)}
		w.people = append(w.people, p)
		w.open(p)
		w.after(w.pause(), func() { w.next(p) })
	}
	w.operator = &proposer{id: 99}
	w.open(w.operator)
	if w.rng.IntN(2) == 0 {
		w.after(w.pause(), func() { w.change(2) })
	}
	if w.rng.IntN(2) == 0 || w.deletes {
		w.after(w.pause(), func() { w.collect(4) })
	}
	if w.rng.IntN(2) == 0 {
		w.wipes = n / 2
		w.after(w.pause(), w.wipe)
	}
	if w.rng.IntN(3) == 0 {
		w.after(w.pause(), w.outage)
	}
	return w
}

// No request is under way for longer, and what has not changed for that long is old.
const (
	underWay = 1200 * time.Millisecond
	old      = underWay + 200*time.Millisecond
)

func (w *world) pause() time.Duration { return time.Duration(w.rng.IntN(600)) * time.Millisecond }

func (w *world) open(p *proposer) {
	p.names++
	whole := 0
	for i, m := range w.configs[p.cfg].Members {
		if marker := w.places[index(m)].marker; marker != nil && marker.Name == m.Marker && marker.Whole && w.rng.IntN(2) == 0 {
			whole |= 1 << i
		}
	}
	p.reg = register.New(w.configs[p.cfg], fmt.Sprintf("p%d-%d", p.id, p.names), whole, w.rng.Uint64)
	p.pending = map[int]func(register.Answer){}
}

// wipe has a member lose everything, if that leaves a majority that never did.
func (w *world) wipe() {
	if w.wipes == 0 {
		return
	}
	cfg := w.configs[len(w.configs)-1]
	lost := 0
	for _, m := range cfg.Members {
		if p := w.places[index(m)]; p.marker == nil || p.marker.Name != m.Marker || !p.marker.Whole {
			lost++
		}
	}
	if lost > 0 || w.changing {
		w.after(w.pause(), w.wipe)
		return
	}
	w.wipes--
	i := w.rng.IntN(len(cfg.Members))
	p := w.places[index(cfg.Members[i])]
	w.say("place %s is wiped", cfg.Members[i].Place)
	w.counts["wiped"]++
	p.object, p.marker = nil, nil
	p.version++
}

func (w *world) outage() {
	p := w.places[w.rng.IntN(len(w.places))]
	p.down = true
	w.after(w.pause(), func() { p.down = false })
}

func index(m register.Member) (i int) {
	_, _ = fmt.Sscan(m.Place, &i)
	return i
}

// change replaces a member: one that has lost its objects, or any.
func (w *world) change(left int) {
	if left == 0 || w.changing {
		return
	}
	again := func() { w.after(w.pause(), func() { w.change(left) }) }
	old := w.configs[len(w.configs)-1]
	who, lost := w.rng.IntN(len(old.Members)), 0
	for i, m := range old.Members {
		if p := w.places[index(m)]; p.marker == nil || p.marker.Name != m.Marker || !p.marker.Whole {
			who, lost = i, lost+1
		}
	}
	if lost > 1 {
		return
	}
	w.changing = true
	w.counts["changed"]++
	n := len(w.configs)
	cfg := register.Configuration{Quorum: "q", Number: n}
	cfg.Members = append(cfg.Members, old.Members...)
	to := cfg.Members[who].Place
	if w.rng.IntN(2) == 0 { // another place
		for i := range w.places {
			used := false
			for _, m := range old.Members {
				used = used || index(m) == i
			}
			if !used {
				to = fmt.Sprint(i)
			}
		}
	}
	cfg.Members[who] = register.Member{Place: to, Marker: fmt.Sprintf("m%s-%d", to, n), Since: n}
	w.places[index(cfg.Members[who])].marker = &register.Marker{Name: cfg.Members[who].Marker, Number: n, Known: cfg}
	w.configs = append(w.configs, cfg)
	w.say("change %d: member %d is new, at place %s", n, who, to)
	w.after(w.pause(), func() { w.carryOut(n, who, left, again) })
}

// carryOut gives a majority of the others the number, and then has the key settled.
func (w *world) carryOut(n, who, left int, again func()) {
	cfg := w.configs[n]
	took := 0
	for i, m := range cfg.Members {
		p := w.places[index(m)]
		if i != who && !p.down && p.marker != nil && p.marker.Name == m.Marker && p.marker.Whole {
			marker := *p.marker
			marker.Number = max(marker.Number, n)
			p.marker = &marker
			took++
		}
	}
	retry := func() { w.after(w.pause(), func() { w.carryOut(n, who, left, again) }) }
	if took < cfg.Majority() {
		if w.now < time.Minute {
			retry()
		}
		return
	}
	if w.operator.cfg != n {
		w.operator.cfg = n
		w.open(w.operator)
	}
	w.call(w.operator, register.Call{Kind: register.Settle}, func(a register.Answer) {
		if a.Outcome != register.Done || a.Value.Version != "" && a.Votes>>who&1 == 0 {
			if w.now < time.Minute {
				retry()
			}
			return
		}
		p := w.places[index(cfg.Members[who])]
		if p.marker != nil && p.marker.Name == cfg.Members[who].Marker {
			marker := *p.marker
			marker.Whole = true
			p.marker = &marker
			w.say("place %s is whole", cfg.Members[who].Place)
			w.counts["whole"]++
			if a.Value.Version != "" {
				w.counts["filled"]++
			}
		}
		w.changing = false
		w.after(w.pause(), func() { w.change(left - 1) })
	})
}

// collect makes a configuration of the same members, now and then, and takes away what a deletion has left.
func (w *world) collect(left int) {
	again := func(left int) {
		if left > 0 && w.now < time.Minute {
			w.after(w.pause(), func() { w.collect(left) })
		}
	}
	if w.changing || w.votes() < len(w.configs[0].Members) {
		again(left)
		return
	}
	w.changing = true
	n := len(w.configs)
	cfg := w.configs[n-1]
	cfg.Number = n
	w.configs = append(w.configs, cfg)
	w.say("change %d: of no member", n)
	w.after(w.pause()/4, func() { w.number(n, func() { again(left - 1) }) })
}

// votes is how many members have all that they had.
func (w *world) votes() (n int) {
	for _, m := range w.configs[len(w.configs)-1].Members {
		if p := w.places[index(m)]; p.marker != nil && p.marker.Name == m.Marker && p.marker.Whole {
			n++
		}
	}
	return n
}

// number gives all members the number, and has the key collected.
func (w *world) number(n int, then func()) {
	cfg := w.configs[n]
	for _, m := range cfg.Members {
		if w.places[index(m)].down {
			w.after(w.pause(), func() { w.number(n, then) })
			return
		}
	}
	for _, m := range cfg.Members {
		p := w.places[index(m)]
		marker := *p.marker
		marker.Number, p.marker = n, &marker
	}
	w.operator.cfg = n
	w.open(w.operator)
	w.call(w.operator, register.Call{Kind: register.Collect, Taken: 1<<len(cfg.Members) - 1}, func(a register.Answer) {
		w.say("collected: %v %q %v", a.Outcome, a.Value.Version, a.Err)
		switch {
		case a.Outcome == register.Done && a.Value.Version == "":
			w.counts["collected"]++
		case a.Outcome == register.Done && a.Value.Deleted:
			w.counts["settled first"]++
		case a.Outcome == register.Mismatch && !a.Value.Exists():
			w.counts["touched meanwhile"]++
		}
		w.changing = false
		then()
	})
}

// next has a proposer call.
func (w *world) next(p *proposer) {
	if p.left == 0 {
		return
	}
	p.left--
	c := register.Call{Kind: register.Look}
	w.versions++
	version := fmt.Sprintf("v%d", w.versions)
	what := w.rng.IntN(6)
	if w.deletes && what > 3 {
		what = 2
	}
	switch what {
	case 0, 1:
	case 2:
		c = register.Call{Kind: register.Remove, Value: register.Value{Version: version}}
	default:
		c = register.Call{Kind: register.Set, Over: p.last, Value: register.Value{Version: version, Body: []byte(version)}}
	}
	began := w.now
	wanted := input{c.Kind, c.Over, c.Value.Version}
	done := false
	w.call(p, c, func(a register.Answer) {
		done = true
		seen := ""
		if a.Value.Exists() {
			seen = a.Value.Version
		}
		w.say("%d: %v of %q over %q: %v %q %v", p.id, c.Kind, c.Value.Version, c.Over, a.Outcome, seen, a.Err)
		op := porcupine.Operation{ClientId: p.id, Input: wanted, Output: output{a.Outcome, seen}, Call: int64(began), Return: int64(w.now)}
		switch a.Outcome {
		case register.Done:
			w.counts["done"]++
			if c.Kind == register.Remove {
				w.counts["removed"]++
			}
			if c.Kind == register.Set && p.rounds == 0 {
				w.counts["in one round"]++
			}
			p.last = seen
		case register.Mismatch:
			w.counts["mismatch"]++
			p.last = seen
		case register.Uncertain:
			w.counts["uncertain"]++
			op.Return = 1 << 60
			op.ClientId = 1000 + w.versions
		case register.Failed:
			w.counts["failed"]++
			if errors.Is(a.Err, register.ErrMoved) {
				w.counts["moved"]++
			}
		}
		if a.Outcome != register.Failed {
			w.history = append(w.history, op)
		}
		if p.reg.Moved() && p.cfg < len(w.configs)-1 {
			p.cfg++
			w.open(p)
		} else if w.rng.IntN(12) == 0 { // its process is another one now
			w.open(p)
		}
		wait := w.pause() / 4
		if w.deletes && what == 2 && w.rng.IntN(2) == 0 {
			wait += old + w.pause() // so that there is something to collect
		}
		w.after(wait, func() { w.next(p) })
	})
	if w.rng.IntN(8) == 0 {
		id, reg := p.calls, p.reg
		w.after(w.pause()/2, func() {
			if !done && p.reg == reg {
				w.step(p, register.Cancel{ID: id, Err: errors.New("cancelled")})
			}
		})
	}
}

func (w *world) call(p *proposer, c register.Call, then func(register.Answer)) {
	p.calls++
	c.ID = p.calls
	p.pending[c.ID] = then
	p.rounds, p.version = 0, c.Value.Version
	w.step(p, c)
}

func (w *world) step(p *proposer, ev register.Event) {
	reg := p.reg
	for _, a := range reg.Step(ev, w.now) {
		switch a := a.(type) {
		case register.Answer:
			then := p.pending[a.ID]
			if then == nil {
				panic("a second answer")
			}
			delete(p.pending, a.ID)
			w.after(0, func() { then(a) })
		case register.Get:
			p.rounds++
			w.get(p, reg, a)
		case register.Put:
			if a.Acceptor.Value.Version != p.version {
				p.rounds++
			}
			w.put(p, reg, a)
		case register.Check:
			p.rounds++
			w.check(p, reg, a)
		case register.Drop:
			w.drop(p, reg, a)
		}
	}
	if due, ok := reg.Due(); ok && due != p.ticking {
		p.ticking = due
		w.after(max(0, due-w.now), func() { w.back(p, reg, register.Tick{}) })
	}
}

// back brings an answer to who still waits for it.
func (w *world) back(p *proposer, reg *register.Register, ev register.Event) {
	if p.reg == reg {
		w.step(p, ev)
	}
}

var errNoAnswer = errors.New("no answer")

func (w *world) trip(pl *place) time.Duration {
	return pl.slow/2 + time.Duration(w.rng.Int64N(int64(pl.slow)))
}

func (w *world) place(p *proposer, member int) *place {
	return w.places[index(w.configs[p.cfg].Members[member])]
}

func (w *world) get(p *proposer, reg *register.Register, a register.Get) {
	pl := w.place(p, a.Member)
	w.after(w.trip(pl), func() {
		old := w.now-pl.changed > old
		ev := register.Shown{Member: a.Member, Request: a.Request, Old: old}
		switch {
		case pl.down || w.lossy && w.rng.IntN(20) == 0:
			ev.Err = errNoAnswer
			w.counts["no answer"]++
		case pl.object != nil:
			ev.At, ev.Acceptor = fmt.Sprint(pl.version), *pl.object
			if ev.At == a.Unless {
				ev = register.Shown{Member: a.Member, Request: a.Request, Same: true, Old: old}
			}
		}
		w.after(w.trip(pl), func() { w.back(p, reg, ev) })
	})
}

func (w *world) check(p *proposer, reg *register.Register, a register.Check) {
	pl := w.place(p, a.Member)
	w.after(w.trip(pl), func() {
		ev := register.Marked{Member: a.Member, Request: a.Request, Marker: pl.marker}
		if pl.down || w.lossy && w.rng.IntN(20) == 0 {
			ev.Err = errNoAnswer
		}
		w.after(w.trip(pl), func() { w.back(p, reg, ev) })
	})
}

func (w *world) put(p *proposer, reg *register.Register, a register.Put) {
	pl := w.place(p, a.Member)
	land := func() (register.Fate, string) {
		if pl.object == nil && a.Over != "" || pl.object != nil && fmt.Sprint(pl.version) != a.Over {
			w.counts["refused"]++
			return register.Refused, ""
		}
		pl.version++
		pl.changed = w.now
		acc := a.Acceptor
		pl.object = &acc
		w.say("%d at %s: configuration %d, promised %v, accepted %v %q", p.id, w.configs[p.cfg].Members[a.Member].Place, acc.Number, acc.Promised, acc.Accepted, acc.Value.Version)
		return register.Landed, fmt.Sprint(pl.version)
	}
	w.write(p, reg, pl, a.Member, a.Request, "late", land)
}

func (w *world) drop(p *proposer, reg *register.Register, a register.Drop) {
	pl := w.place(p, a.Member)
	w.write(p, reg, pl, a.Member, a.Request, "dropped late", func() (register.Fate, string) {
		if pl.object == nil || fmt.Sprint(pl.version) != a.Over {
			return register.Refused, ""
		}
		pl.object = nil
		pl.version++
		pl.changed = w.now
		w.say("%d at %s: dropped", p.id, w.configs[p.cfg].Members[a.Member].Place)
		return register.Landed, ""
	})
}

// write brings a write to a member, with all that may happen on the way.
func (w *world) write(p *proposer, reg *register.Register, pl *place, member, request int, late string, land func() (register.Fate, string)) {
	w.after(w.trip(pl), func() {
		ev := register.Stored{Member: member, Request: request}
		chance := 99
		if w.lossy {
			chance = w.rng.IntN(40)
		}
		switch {
		case pl.down, chance == 0:
			ev.Fate, ev.Err = register.Unsent, errNoAnswer
		case chance == 1: // it lands, and nobody says so
			land()
			ev.Fate = register.Unknown
			w.counts["lost answer"]++
		case chance <= 3: // it lands late, or never
			ev.Fate = register.Unknown
			if chance == 2 {
				w.after(w.pause()*underWay/(600*time.Millisecond), func() { land() })
				w.counts[late]++
			}
		default:
			ev.Fate, ev.At = land()
		}
		w.after(w.trip(pl), func() { w.back(p, reg, ev) })
	})
}

func (w *world) run() {
	for len(w.events) > 0 && w.now < 3*time.Minute {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

type input struct {
	kind    register.Kind
	over    string
	version string
}

type output struct {
	outcome register.Outcome
	seen    string
}

var model = porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, in, out any) []any {
		s, i, o := state.(string), in.(input), out.(output)
		switch {
		case i.kind == register.Look:
			if o.seen == s {
				return []any{s}
			}
		case o.outcome == register.Uncertain && i.kind == register.Set:
			if s == i.over {
				return []any{i.version, s}
			}
			return []any{s}
		case o.outcome == register.Uncertain:
			return []any{"", s}
		case i.kind == register.Remove:
			return []any{""}
		case o.outcome == register.Mismatch:
			if s != i.over && s == o.seen {
				return []any{s}
			}
		case s == i.over:
			return []any{i.version}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

func (w *world) verdict() error {
	for _, p := range w.people {
		if p.left > 0 || len(p.pending) > 0 {
			return fmt.Errorf("proposer %d waits for ever: %d calls left, %d pending", p.id, p.left, len(p.pending))
		}
	}
	if porcupine.CheckOperationsTimeout(model.ToModel(), w.history, 20*time.Second) != porcupine.Ok {
		return errors.New("no register tells this")
	}
	return nil
}
