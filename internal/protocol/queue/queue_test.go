package queue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/internal/record"
)

// A line is a world of one table: processes, each with a session and a Machine, and a store that
// loses, delays and repeats.
type line struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	size    int64
	now     time.Duration
	events  []lineEvent
	no      int
	version int
	object  *record.Table
	procs   []*lineProc
	calm    bool // no faults any more
	granted map[int64]string
	order   []string        // of entries, as they landed
	over    map[string]bool // sessions that are over for good
	log     []string        // only if it is to be told
	telling bool
	grants  int
	late    int           // of a hundred writes
	pace    time.Duration // how often somebody wants something
}

type lineEvent struct {
	at time.Duration
	no int
	do func()
}

type lineProc struct {
	name    string
	table   *queue.Machine
	life    int
	session string
	valid   time.Duration // until when the session is; the world ends it after
	next    queue.Caller
	state   map[queue.Caller]string // wants, holds, lost, leaves
	weight  map[queue.Caller]int64
	asked   int // the number of the request under way
	wake    time.Duration
	awaits  map[protocol.Await]bool
	orphan  bool
}

const (
	lineTTL    = 6 * time.Second
	lineMargin = time.Second
)

func (l *line) logf(format string, args ...any) {
	if !l.telling {
		return
	}
	l.log = append(l.log, fmt.Sprintf("%10v ", l.now)+fmt.Sprintf(format, args...))
}

// fail plays a history that failed again, for what happened in it.
func (l *line) fail(format string, args ...any) {
	l.t.Helper()
	if !l.telling {
		playLine(l.t, l.seed, true)
	}
	l.t.Fatalf("seed %d: %s\n%s", l.seed, fmt.Sprintf(format, args...), strings.Join(l.log[max(0, len(l.log)-150):], "\n"))
}

func (l *line) after(d time.Duration, do func()) {
	l.no++
	l.events = append(l.events, lineEvent{l.now + d, l.no, do})
}

func (l *line) chance(percent int) bool { return !l.calm && l.rng.IntN(100) < percent }

func (l *line) start(p *lineProc) {
	p.life++
	p.session = fmt.Sprintf("s/%s.%d", p.name, p.life)
	p.valid, p.orphan = 1<<62, false
	p.state, p.weight, p.awaits = map[queue.Caller]string{}, map[queue.Caller]int64{}, map[protocol.Await]bool{}
	if p.table == nil || l.rng.IntN(2) == 0 { // a new process, or the same one with another session
		p.table = queue.New(queue.Config{Incarnation: fmt.Sprintf("%s-%d", p.name, p.life), Size: l.size, TTL: lineTTL})
		p.asked++
	}
}

func (p *lineProc) over(l *line) bool { return l.now >= p.valid }

// step passes an event in, and carries out what it answers.
func (l *line) step(p *lineProc, ev protocol.Event) {
	now := protocol.Now{Clock: l.now, Wall: time.Unix(1e9, 0).Add(l.now)}
	l.logf("%s %T %+v", p.name, ev, brief(ev))
	for _, a := range p.table.Step(ev, now) {
		l.logf("   -> %T %+v", a, brief(a))
		switch a := a.(type) {
		case queue.Read:
			l.ask(p, func() protocol.Event { return l.read(a) }, queue.ReadDone{Err: errLost})
		case queue.Write:
			l.ask(p, func() protocol.Event { return l.write(p, a) }, queue.WriteDone{Err: errLost})
		case queue.Granted:
			if p.state[a.Caller] != "wants" {
				l.fail("%s: slots for %d, which %s", p.name, a.Caller, p.state[a.Caller])
			}
			p.state[a.Caller] = "holds"
			l.used()
			life := p.life
			l.after(time.Duration(l.rng.IntN(3000))*time.Millisecond, func() {
				if p.life == life && p.state[a.Caller] == "holds" {
					p.state[a.Caller] = "leaves"
					l.step(p, queue.Leave{Caller: a.Caller})
				}
			})
		case queue.Full:
			delete(p.state, a.Caller)
		case queue.Refused:
			if p.state[a.Caller] == "wants" {
				delete(p.state, a.Caller)
			}
		case queue.Lost:
			if p.state[a.Caller] != "holds" {
				l.fail("%s: lost the slots of %d, which %s", p.name, a.Caller, p.state[a.Caller])
				break
			}
			p.state[a.Caller] = "lost"
			life := p.life
			l.after(100*time.Millisecond, func() {
				if p.life == life {
					p.state[a.Caller] = "leaves"
					l.step(p, queue.Leave{Caller: a.Caller})
				}
			})
			if l.now < p.valid {
				l.fail("%s: %d is ousted while its session goes on: %v", p.name, a.Caller, a.Err)
			}
		case queue.Vacated:
			delete(p.state, a.Caller)
		case protocol.SessionOrphan:
			if a.Session == p.session {
				p.orphan = true
			}
		}
	}
	if w, ok := p.table.Wake(); ok {
		p.wake = max(w, l.now)
		at, life := p.wake, p.table
		l.after(p.wake-l.now, func() {
			if p.wake == at && p.table == life {
				l.step(p, protocol.Tick{})
			}
		})
	} else {
		p.wake = -1
	}
	l.watch(p)
	if p.orphan {
		l.end(p, "an orphan")
	}
}

func brief(x any) any {
	switch x := x.(type) {
	case queue.Write:
		return fmt.Sprint(x.Expect, " ", text(x.Table))
	case queue.ReadDone:
		return fmt.Sprint(x.Shown, " ", x.Version, " ", text(x.Table), " ", x.Err)
	}
	return x
}

func text(t record.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", t.Token)
	for _, s := range t.Holders {
		fmt.Fprintf(&b, " %s=%d(%d)", s.ID, s.Token, s.Weight)
	}
	b.WriteString(" |")
	for _, s := range t.Waiters {
		fmt.Fprintf(&b, " %s(%d)", s.ID, s.Weight)
	}
	return b.String()
}

// watch tells of sessions that are over, a while after.
func (l *line) watch(p *lineProc) {
	for _, a := range p.table.Awaits() {
		if p.awaits[a] {
			continue
		}
		p.awaits[a] = true
		every := lineTTL / 3
		if a.Seldom {
			every = protocol.SeldomWatch(lineTTL)
		}
		table := p.table
		var look func()
		look = func() {
			switch {
			case p.table != table || !p.awaits[a]:
			case l.over[a.Session]:
				l.step(p, protocol.SessionExpired{Session: a.Session})
			case l.goes(a.Session):
				l.step(p, protocol.SessionBeat{Session: a.Session, TTL: lineTTL})
				l.after(every, look)
			default:
				l.after(every, look)
			}
		}
		l.after(20*time.Millisecond, look)
	}
	for a := range p.awaits {
		if !slices.Contains(p.table.Awaits(), a) {
			delete(p.awaits, a)
		}
	}
}

func (l *line) goes(session string) bool {
	return slices.ContainsFunc(l.procs, func(p *lineProc) bool { return p.session == session && !p.over(l) })
}

// end ends a session: at once for its process, and for the others after the TTL and margin.
func (l *line) end(p *lineProc, why string) {
	if p.over(l) {
		return
	}
	l.logf("%s: the session %s ends: %s", p.name, p.session, why)
	p.valid = l.now
	session := p.session
	l.after(lineMargin, func() { l.over[session] = true })
	told := l.rng.IntN(2) == 0 // or the process is gone
	if told {
		l.step(p, protocol.SessionOver{Session: session, Err: errors.New("over")})
	} else {
		p.table, p.state = nil, map[queue.Caller]string{}
		p.life++
	}
	l.after(200*time.Millisecond+lineMargin*time.Duration(l.rng.IntN(3)), func() { l.start(p) })
}

// ask sends a request: it may be lost, late or repeated, and so may its answer.
func (l *line) ask(p *lineProc, do func() protocol.Event, lost protocol.Event) {
	p.asked++
	n, table := p.asked, p.table
	answer := func(ev protocol.Event) {
		if p.asked == n && p.table == table {
			p.asked++
			l.step(p, ev)
		}
	}
	fly := func(late bool) {
		d := time.Duration(1+l.rng.IntN(30)) * time.Millisecond
		if late {
			d += time.Duration(l.rng.IntN(20000)) * time.Millisecond
		}
		l.after(d, func() {
			if ev := do(); !l.chance(8) {
				l.after(time.Duration(1+l.rng.IntN(30))*time.Millisecond, func() { answer(ev) })
			}
		})
	}
	if !l.chance(6) {
		fly(l.chance(l.late))
	}
	if l.chance(5) {
		fly(true)
	}
	l.after(lineTTL/2, func() { answer(lost) })
}

var errLost = errors.New("no answer")

func (l *line) read(a queue.Read) protocol.Event {
	switch {
	case l.object == nil:
		return queue.ReadDone{Shown: protocol.Absent, Date: time.Unix(1e9, 0)}
	case a.Unless == l.named():
		return queue.ReadDone{Shown: protocol.Same}
	case l.chance(2):
		return queue.ReadDone{Err: errLost}
	}
	return queue.ReadDone{Shown: protocol.Found, Version: l.named(), Table: *l.object}
}

func (l *line) named() protocol.Version {
	if l.object == nil {
		return ""
	}
	return protocol.Version(fmt.Sprint("v", l.version))
}

func (l *line) write(p *lineProc, a queue.Write) protocol.Event {
	if a.Expect != l.named() {
		return queue.WriteDone{Err: errLost, Refused: true}
	}
	if l.chance(2) {
		return queue.WriteDone{Err: errLost}
	}
	body, err := a.Table.Encode()
	if err != nil {
		l.fail("%v", err)
	}
	after, err := record.DecodeTable(body)
	if err != nil {
		l.fail("%s writes what cannot be read: %v", p.name, err)
	}
	l.landed(p, after)
	l.version++
	l.object = &after
	v := l.named()
	l.logf("%s lands as %s: %s", p.name, v, text(after))
	if l.chance(4) {
		return queue.WriteDone{Err: errLost}
	}
	return queue.WriteDone{Version: v}
}

// landed checks a write: T, F, L and O of the model.
func (l *line) landed(p *lineProc, after record.Table) {
	var before record.Table
	if l.object != nil {
		before = *l.object
	}
	for _, s := range after.Holders {
		if slices.ContainsFunc(before.Holders, func(b record.Entry) bool { return b.ID == s.ID && b.Token == s.Token }) {
			continue
		}
		if l.granted[s.Token] != "" || s.Token <= before.Token {
			l.fail("the token %d of %s is %s's", s.Token, s.ID, l.granted[s.Token])
		}
		l.granted[s.Token] = s.ID
		l.grants++
		for _, w := range after.Waiters { // nobody is passed over
			if slices.Index(l.order, w.ID) >= 0 && slices.Index(l.order, w.ID) < slices.Index(l.order, s.ID) {
				l.fail("%s got slots before %s, which came first", s.ID, w.ID)
			}
		}
	}
	for _, s := range after.Entries() {
		if !slices.Contains(l.order, s.ID) {
			l.order = append(l.order, s.ID)
		}
	}
	for _, b := range before.Entries() {
		gone := !slices.ContainsFunc(after.Entries(), func(s record.Entry) bool { return s.ID == b.ID })
		mark, _, _ := strings.Cut(b.ID, "-")
		if gone && mark != p.name && !l.over[b.Session] {
			l.fail("%s takes out %s, whose session goes on", p.name, b.ID)
		}
	}
}

// used checks V: the slots that are used are not more than there are.
func (l *line) used() {
	sum := int64(0)
	for _, p := range l.procs {
		for c, state := range p.state {
			if state == "holds" && !p.over(l) {
				sum += p.weight[c]
			}
		}
	}
	if sum > l.size {
		l.fail("slots of the weight %d are used, of %d", sum, l.size)
	}
	if l.object == nil {
		return
	}
	for _, s := range l.object.Entries() { // O: nothing of a session that goes on is forgotten
		for _, p := range l.procs {
			if p.session == s.Session && !p.over(l) && p.table != nil && !p.table.Knows(s.ID) {
				l.fail("%s has forgotten its entry %s", p.name, s.ID)
			}
		}
	}
}

func (l *line) run(steps int) {
	for range steps {
		best := -1
		for i, e := range l.events {
			if best < 0 || e.at < l.events[best].at || e.at == l.events[best].at && e.no < l.events[best].no {
				best = i
			}
		}
		if best < 0 {
			return
		}
		e := l.events[best]
		l.events = slices.Delete(l.events, best, best+1)
		l.now = max(l.now, e.at)
		e.do()
		l.used()
	}
}

// want lets a process want or give up slots.
func (l *line) want(p *lineProc) {
	if p.table == nil || p.over(l) {
		return
	}
	for c, state := range p.state {
		if state == "wants" && l.chance(15) {
			p.state[c] = "leaves"
			l.step(p, queue.Leave{Caller: c, Err: protocol.ErrCancelled})
			return
		}
	}
	if len(p.state) < 3 {
		p.next++
		p.state[p.next], p.weight[p.next] = "wants", 1+l.rng.Int64N(l.size)
		l.step(p, queue.Join{Caller: p.next, Weight: p.weight[p.next], Session: p.session, Holder: p.name, Wait: l.rng.IntN(4) > 0})
	}
}

func (l *line) tick() {
	p := l.procs[l.rng.IntN(len(l.procs))]
	l.want(p)
	if l.chance(2) {
		l.end(p, "lost")
	}
	if !l.calm {
		l.after(time.Duration(l.rng.Int64N(int64(l.pace))), l.tick)
	}
}

// TestTableSwarm plays random histories of processes that share a table, over a store that fails in all
// ways that it can, and checks the promises of the model; then the failures end, and everybody who
// waits must get its turn.
func TestTableSwarm(t *testing.T) {
	t.Parallel()
	grants := 0
	for seed := range uint64(swarms) {
		grants += playLine(t, seed, false)
	}
	if grants < swarms {
		t.Errorf("only %d grants in %d histories", grants, swarms)
	}
}

// playLine plays one history, and returns how often slots were granted in it.
func playLine(t *testing.T, seed uint64, telling bool) int {
	t.Helper()
	l := &line{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), telling: telling,
		granted: map[int64]string{}, over: map[string]bool{},
	}
	l.size, l.late = 1+l.rng.Int64N(3), []int{6, 40}[l.rng.IntN(2)]
	l.pace = []time.Duration{time.Second, 8 * time.Second}[l.rng.IntN(2)]
	for i := range 2 + l.rng.IntN(3) {
		p := &lineProc{name: fmt.Sprint("p", i)}
		l.procs = append(l.procs, p)
		l.start(p)
	}
	l.tick()
	l.run(300 + l.rng.IntN(600))
	l.calm = true
	deadline := l.now + 40*lineTTL
	for len(l.events) > 0 && l.now < deadline {
		l.run(1)
	}
	for _, p := range l.procs {
		for c, state := range p.state {
			if !p.over(l) {
				l.fail("%s: %d still %s, after %v of calm; awaits %v, table %s", p.name, c, state, 40*lineTTL, p.table.Awaits(), text(*l.object))
			}
		}
	}
	return l.grants
}

const swarms = 200

// TestTableWithout: what a tool writes when a session is over has none of its entries, and gives the slots on
// from the head of the queue, each with the next token; and whoever came now would have slots only where
// nobody that lives is before it.
func TestTableWithout(t *testing.T) {
	t.Parallel()
	entry := func(id, session string, weight, token int64) record.Entry {
		return record.Entry{ID: id, Session: session, Weight: weight, Token: token}
	}
	before := record.Table{
		Size: 3, Token: 7, WriteID: "a",
		Holders: []record.Entry{entry("1", "x", 1, 5), entry("2", "y", 1, 6), entry("3", "x", 1, 7)},
		Waiters: []record.Entry{entry("4", "z", 2, 0), entry("5", "x", 1, 0), entry("6", "z", 1, 0)},
	}
	after := queue.Without(before, "x", "b", time.Unix(1, 0))
	if got := text(after); got != text(record.Table{
		Size: 3, Token: 8, WriteID: "b",
		Holders: []record.Entry{entry("2", "y", 1, 6), entry("4", "z", 2, 8)},
		Waiters: []record.Entry{entry("6", "z", 1, 0)},
	}) || after.Token != 8 || after.WriteID != "b" {
		t.Errorf("it is %s, token %d", got, after.Token)
	}
	table := queue.New(queue.Config{Incarnation: "i", Size: 3, TTL: lineTTL})
	table.Step(protocol.SessionExpired{Session: "y"}, protocol.Now{})
	free := record.Table{Size: 3, Token: 6, Holders: []record.Entry{entry("1", "x", 1, 5), entry("2", "y", 1, 6)}}
	full := free
	full.Waiters = []record.Entry{entry("3", "z", 3, 0)}
	for _, c := range []struct {
		table  record.Table
		weight int64
		fits   bool
	}{{record.Table{Size: 3}, 3, true}, {free, 2, true}, {free, 3, false}, {full, 1, false}} {
		if fits := table.Fits(c.table, c.weight); fits != c.fits {
			t.Errorf("%d slots in %s: %v", c.weight, text(c.table), fits)
		}
	}
}

// TestAnswersToNothing: a driver that mixes up its requests is stopped.
func TestAnswersToNothing(t *testing.T) {
	t.Parallel()
	for _, answer := range []protocol.Event{queue.ReadDone{Shown: protocol.Absent}, queue.WriteDone{Version: "v1"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("it goes on after %T", answer)
				}
			}()
			table := queue.New(queue.Config{Incarnation: "me", Size: 1, TTL: time.Minute})
			table.Step(answer, protocol.Now{})
		}()
	}
}
