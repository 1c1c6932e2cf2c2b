package sim

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
)

// Result is the result of a history.
type Result struct {
	Layout  string
	Arm     Arm
	Hash    uint64 // the same choices give the same hash
	Promise string // the broken promise, or empty
	Broken  string // how it was broken
	Faults  Counts
	Granted int     // leases
	Failure Failure // the lasting failure, if any
	Choices []byte  // of the history
}

// Run plays a seed's history.
func Run(seed int64, cfg Config) Result {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	r, _ := play(random.IntN, cfg, false)
	return r
}

// Replay plays the history of the given choices, and returns its log.
func Replay(choices []byte, cfg Config) (Result, string) { return play(listed(choices), cfg, true) }

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

// most limits the choices in a history with a lasting failure. After them, only necessary events
// happen.
const most = 5000

func play(choose func(n int) int, cfg Config, verbose bool) (Result, string) {
	h := &history{without: strings.Split(cfg.Without, ","), verbose: verbose}
	var taken []byte
	h.choose = func(n int) int {
		if h.arm == Lasting && len(taken) >= most {
			return 0
		}
		c := choose(n)
		taken = append(taken, byte(c))
		return c
	}
	w := newWorld(h)
	defer w.end()
	func() {
		defer func() { // the state machine panics in impossible states
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

func (w *world) run() {
	if w.arm == Lasting {
		w.outlast()
		return
	}
	w.after(0, nil, w.injector.tick)
	events := 50 * (1 + w.choose(16))
	if w.processes[0].sessions {
		events *= 2 // for more candidates
	}
	if w.table != nil {
		events += events / 2
	}
	for range events {
		if w.next(); w.broken != "" {
			return
		}
	}
	w.liveness()
}

// Shrink returns the result of a shorter list of choices with the same broken promise: the best
// one found in tries histories.
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

// simpler reports whether a is shorter than b, or has more dull choices.
func simpler(a, b []byte) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return bytes.Count(a, []byte{0}) > bytes.Count(b, []byte{0})
}
