package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Result is what came of a history.
type Result struct {
	Layout  string
	Arm     Arm
	Hash    uint64 // of the history: the same choices give the same
	Promise string // the one that was broken, and empty if none was
	Broken  string // how
	Faults  Counts
	Granted int     // leases
	Failure Failure // that lasted, if one did
	Choices []byte  // that made the history
}

// Run plays the history of a seed.
func Run(seed int64, cfg Config) Result {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	r, _ := play(random.IntN, cfg, false)
	return r
}

// Replay plays the history that some choices make, and tells it.
func Replay(choices []byte, cfg Config) (Result, string) { return play(listed(choices), cfg, true) }

// listed takes choices from a list, and then the dull ones.
func listed(choices []byte) func(n int) int {
	return func(n int) int {
		if len(choices) == 0 {
			return 0
		}
		c := int(choices[0])
		choices = choices[1:]
		return c % n
	}
}

// most is how many choices there are in a history with a lasting failure: from then on nothing
// happens but what must.
const most = 5000

func play(choose func(n int) int, cfg Config, verbose bool) (Result, string) {
	w := newWorld(&history{without: strings.Split(cfg.Without, ","), verbose: verbose})
	var taken []byte
	w.choose = func(n int) int {
		if w.arm == Lasting && len(taken) >= most {
			return 0
		}
		c := choose(n)
		taken = append(taken, byte(c))
		return c
	}
	defer w.end()
	func() {
		defer func() { // the state machine panics at what cannot be
			if wrong := recover(); wrong != nil {
				w.violated(Sense, "%v", wrong)
			}
		}()
		w.begin(cfg)
		w.run()
	}()
	return Result{
		Layout: w.name, Arm: w.arm, Hash: w.hash, Promise: w.broken, Broken: w.how,
		Faults: w.faults, Granted: w.granted, Choices: taken, Failure: w.lasting.tell(),
	}, w.text.String()
}

// begin makes a world.
func (w *world) begin(cfg Config) {
	w.fenced = !cfg.Unfenced
	w.arm = []Arm{Bound, Bound, Bound, Bound, Bound, Bound, Far, Deleted, Lasting, Lasting}[w.choose(10)]
	if cfg.Arm != "" {
		w.arm = cfg.Arm
	}
	// Most histories are about the default, and few about what promises less.
	w.way = ways[[...]int{0, 0, 0, 0, 1, 1, 2, 2, 3, 4}[w.choose(10)]]
	for _, way := range ways {
		if way.name == cfg.Layout {
			w.way = way
		}
	}
	switch {
	case w.arm == Deleted: // of the others nothing is promised then
		w.way, w.dated, w.existing = ways[0], true, w.choose(2) == 1
	case w.arm == Far && w.cfg.Tokenless: // neither of these
		w.way = ways[0]
	}
	w.ttls = ttls
	if w.arm == Lasting {
		w.dated = true
		w.lasting.draw(cfg.Brief)
		w.populate()
		return
	}
	w.dated = w.dated || w.choose(3) != 2
	w.skewed = w.arm == Bound && !w.cfg.WriteOnce && w.choose(3) == 2
	for f := range w.odds {
		w.odds[f] = odds[w.choose(len(odds))]
	}
	w.populate()
}

// populate makes the locks and the processes. With sessions there are some of each kind: with
// sessions, which want all the locks, and without, which want one.
func (w *world) populate() {
	sessions := !w.cfg.Tokenless && w.choose(2) == 1
	locks := 1
	if sessions {
		locks += w.choose(3)
	}
	for i := range locks {
		l := &lock{key: fmt.Sprintf("l%d", i)}
		if w.existing {
			w.server.initialize(l)
		}
		w.locks = append(w.locks, l)
	}
	for i := range 2 + w.choose(3) {
		if sessions && (i == 0 || w.choose(3) != 2) {
			w.join(i, w.locks, true)
			continue
		}
		one := w.choose(locks)
		w.join(i, w.locks[one:one+1], false)
	}
}

// join adds a process that wants these locks.
func (w *world) join(i int, locks []*lock, sessions bool) {
	p := &process{number: i, sessions: sessions}
	p.machine = &machine{queue: &w.queue, rate: rateOne, base: time.Duration(i) * time.Hour}
	w.processes = append(w.processes, p)
	if sessions && w.choose(4) == 3 {
		locks = append(slices.Clip(locks), locks[0]) // there may be two candidates in one process
	}
	for _, l := range locks {
		m := &member{process: p, on: l, ttl: w.pick(w.ttls[:]...)}
		if sessions && w.choose(4) > 0 {
			m.ttl = w.ttls[0] // so more comes to its end
		}
		p.locks = append(p.locks, m)
		l.members = append(l.members, m)
		w.members = append(w.members, m)
	}
	w.users.start(p)
	w.candidates.rerate(p)
}

// run plays the history.
func (w *world) run() {
	if w.arm == Lasting {
		w.outlast()
		return
	}
	w.after(0, nil, w.injector.tick)
	events := 50 * (1 + w.choose(16))
	if w.processes[0].sessions {
		events *= 2 // of more candidates
	}
	for range events {
		if w.next(); w.broken != "" {
			return
		}
	}
	w.liveness()
}

// Shrink looks for a shorter list of choices that breaks the same promise, by playing up to so
// many histories, and returns what came of the best one.
func Shrink(r Result, cfg Config, tries int) Result {
	cfg.Arm, cfg.Layout = r.Arm, r.Layout
	better := func(choices []byte) bool {
		tries--
		c, _ := play(listed(choices), cfg, false)
		c.Choices = slices.Clip(bytes.TrimRight(c.Choices, "\x00"))
		if c.Promise != r.Promise || !simpler(c.Choices, r.Choices) {
			return false
		}
		r = c
		return true
	}
	for size := len(r.Choices); size > 0 && tries > 0; size /= 2 {
		for at := 0; at < len(r.Choices) && tries > 0; {
			end := min(at+size, len(r.Choices))
			left := slices.Concat(r.Choices[:at], r.Choices[end:])
			dull := slices.Concat(r.Choices[:at], make([]byte, end-at), r.Choices[end:])
			if !better(left) && (bytes.Equal(dull, r.Choices) || !better(dull)) {
				at += size
			}
		}
	}
	return r
}

// simpler reports that a list is shorter than another, or has fewer that are not dull.
func simpler(a, b []byte) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return bytes.Count(a, []byte{0}) > bytes.Count(b, []byte{0})
}
