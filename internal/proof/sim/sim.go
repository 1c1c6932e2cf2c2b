package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// An Arm is a part of the simulation for which something else is promised.
type Arm string

// The arms.
const (
	Bound   Arm = "bound"   // no clock is beyond the bound: everything is promised
	Far     Arm = "far"     // clocks are: P1 and the fence are
	Deleted Arm = "deleted" // the object is deleted by hand: see claimed and unseen
	Lasting Arm = "lasting" // one kind of failure persists
)

// Config says what a seed may not choose for itself.
type Config struct {
	Arm      Arm    // empty: by the seed
	Layout   string // empty: by the seed
	Unfenced bool   // the resource takes whatever comes
	Brief    bool   // no failure lasts for more than a few minutes
	Without  string // the promises that are not looked at, with commas
}

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

// A way is how a lock lies in the store, and what the protocol must know of it. Markers are
// swept by the world itself: a sweep of the layout's looks at the real clock.
type way struct {
	name string
	cfg  protocol.Config
	lay  func(st store.Store, key string, ttl time.Duration) layout.Layout
}

var ways = []way{
	{"object", protocol.Config{}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Object{Store: st, Key: key}
	}},
	{"epochs", protocol.Config{Numbered: true, Layout: layout.EpochsName}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Epochs{Store: st, Key: key}
	}},
	{"epochs+if-match", protocol.Config{Numbered: true, Layout: layout.EpochsIfMatchName}, func(st store.Store, key string, _ time.Duration) layout.Layout {
		return layout.Epochs{Store: st, Key: key, IfMatch: true}
	}},
	{"marker", protocol.Config{Tokenless: true, WriteOnce: true, Layout: record.LayoutMarker}, func(st store.Store, key string, ttl time.Duration) layout.Layout {
		return layout.Marker{Store: st, Key: key, TTL: ttl}
	}},
	{"marker+if-match", protocol.Config{Tokenless: true, Layout: record.LayoutMarker}, func(st store.Store, key string, ttl time.Duration) layout.Layout {
		return layout.Marker{Store: st, Key: key, TTL: ttl, IfMatch: true}
	}},
}

// Layouts are the names of the layouts that there are.
func Layouts() (names []string) {
	for _, w := range ways {
		names = append(names, w.name)
	}
	return names
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

func play(choose func(n int) int, cfg Config, verbose bool) (r Result, history string) {
	w := &world{fenced: !cfg.Unfenced, without: strings.Split(cfg.Without, ","), verbose: verbose}
	var taken []byte
	w.choose = func(n int) int {
		if w.lasting != nil && len(taken) >= most {
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
				w.fault(Sense, "%v", wrong)
			}
		}()
		w.begin(cfg)
		w.run()
	}()
	return Result{
		Layout: w.name, Arm: w.arm, Hash: w.hash, Promise: w.broken, Broken: w.how,
		Faults: w.faults, Granted: w.granted, Choices: taken, Failure: w.lasting.tell(),
	}, w.history.String()
}

// begin makes a world.
func (w *world) begin(cfg Config) {
	w.objects = bucket{}
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
		w.lasts(cfg.Brief)
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
			w.initialize(l)
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

// initialize makes a lock's object, free, as leasehold init does.
func (w *world) initialize(l *lock) {
	r := protocol.First(protocol.Config{TTL: ttls[0], Holder: "init"}, "init", w.date(), epoch)
	body, err := r.Encode()
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	w.objects.put(l.key, body, w.date())
	l.top = r.Token
}

// run plays the history.
func (w *world) run() {
	if w.lasting != nil {
		w.last()
		return
	}
	w.after(0, nil, w.trouble)
	events := 50 * (1 + w.choose(16))
	if w.processes[0].sessions {
		events *= 2 // of more candidates
	}
	for range events {
		if w.next(); w.broken != "" {
			return
		}
	}
	w.settle()
}
