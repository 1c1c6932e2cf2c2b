package sim_test

import (
	"cmp"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/proof/sim"
)

var (
	seeds   = flag.Int64("seeds", 0, "how many seeds TestSimulation plays; 6,000 if 0. Half of them with -short")
	seed    = flag.Int64("seed", -1, "the one seed that TestSimulation plays, and tells")
	arm     = flag.String("arm", "", "bound, far, deleted or lasting; by the seed if empty")
	layout  = flag.String("layout", "", "one of the layouts; by the seed if empty")
	without = flag.String("without", "", "the promises that are not looked at, with commas")
	several = flag.Bool("quorum", false, "all histories are on a quorum of stores")
	survey  = flag.Bool("survey", false, "play all seeds, and tell what is broken how often, and first by which")
	from    = flag.Int64("from", 0, "the first of the seeds")
	plays   = flag.String("choices", "", "the choices, in hex, that TestChoices plays and tells")
)

// enough is how many seeds must meet each kind of trouble often.
const enough, often = 40_000, 1000

// seldom is in how many of those each kind of failure must last, and how often the rarest kinds of
// trouble must be met: those that take the longest time, or that few quorums meet.
const seldom = 100

var rare = []sim.Fault{sim.OldestLands, sim.MemberEmptied, sim.MemberWhole, sim.TombstoneGone, sim.TombstoneSettled, sim.TombstoneTouched}

// tries is how many histories are played to make one short.
const tries = 2000

func config() sim.Config {
	return sim.Config{Arm: sim.Arm(*arm), Layout: *layout, Without: *without, Quorum: *several}
}

// total is what came of many histories.
type total struct {
	sync.Mutex
	faults  sim.Counts
	granted int
	layouts map[string]int
	broken  atomic.Bool // a promise was
	breaks  map[string]tally
	lasted  map[string]int // histories with a failure of each kind
}

// A tally is how often a promise was broken, and some of the seeds that did.
type tally struct {
	n     int
	seeds []int64
}

// numbers are left out of what was broken, so that the same is the same.
var numbers = regexp.MustCompile(`(at )?"?[0-9][0-9a-z.:]*"?( s )?|[a-z]+[0-9]+|/`)

func (t *total) add(seed int64, r sim.Result) {
	t.Lock()
	defer t.Unlock()
	if r.Promise != "" {
		kind, _, _ := strings.Cut(r.Promise+": "+numbers.ReplaceAllString(r.Broken, ""), " while ")
		b := t.breaks[kind]
		b.n++
		b.seeds = append(b.seeds, seed)
		slices.Sort(b.seeds)
		b.seeds = b.seeds[:min(len(b.seeds), 5)]
		t.breaks[kind] = b
	}
	for _, kind := range r.Failure.Kinds() {
		t.lasted[kind]++
	}
	t.faults.Add(r.Faults)
	t.granted += r.Granted
	t.layouts[r.Layout+", "+string(r.Arm)]++
}

// playAll plays seeds on all processors, and ends with the first that breaks a promise.
func playAll(t *testing.T, from, to int64, cfg sim.Config) *total {
	t.Helper()
	all := &total{layouts: map[string]int{}, breaks: map[string]tally{}, lasted: map[string]int{}}
	var wg sync.WaitGroup
	procs := int64(runtime.GOMAXPROCS(0))
	for i := range procs {
		wg.Go(func() {
			for seed := from + i; seed < to && !all.broken.Load(); seed += procs {
				began := time.Now()
				r := sim.Run(seed, cfg)
				if took := time.Since(began); took > 10*time.Second {
					t.Logf("seed %d took %v: %+v, %s", seed, took, r.Failure, r.Layout)
				}
				all.add(seed, r)
				if !*survey && r.Promise != "" && all.broken.CompareAndSwap(false, true) {
					t.Errorf("seed %d, %s, %s: %s", seed, r.Layout, r.Arm, tell(r, cfg))
					t.Errorf("the whole of it: go -C proof test ./sim -run TestSimulation -v -seed %d -arm %q -layout %q", seed, cfg.Arm, cfg.Layout)
				}
			}
		})
	}
	wg.Wait()
	return all
}

// tell makes a history that breaks a promise short, and tells it.
func tell(r sim.Result, cfg sim.Config) string {
	long := len(r.Choices)
	cfg.Arm, cfg.Layout = r.Arm, r.Layout
	began := time.Now()
	sim.Replay(r.Choices, cfg)
	most := int(time.Minute / max(time.Since(began), 1)) // some take seconds each
	r = sim.Shrink(r, cfg, min(tries, max(most, 1)))
	_, history := sim.Replay(r.Choices, cfg)
	if lines := strings.SplitAfter(history, "\n"); len(lines) > 120 {
		history = "(…)\n" + strings.Join(lines[len(lines)-120:], "")
	}
	return fmt.Sprintf("%s: %s\n%d choices, shrunk to %d: go -C proof test ./sim -run TestChoices -v -arm %s -layout %s -choices %s\n%s",
		r.Promise, r.Broken, long, len(r.Choices), r.Arm, r.Layout, hex.EncodeToString(r.Choices), history)
}

// TestSimulation plays many histories, of which each must keep what is promised.
func TestSimulation(t *testing.T) {
	if *seed >= 0 {
		r := sim.Run(*seed, config())
		r, history := sim.Replay(r.Choices, config())
		t.Logf("seed %d, %s, %s, hash %016x\n%s", *seed, r.Layout, r.Arm, r.Hash, history)
		if r.Promise != "" {
			t.Errorf("%s: %s", r.Promise, r.Broken)
		}
		return
	}
	n := *seeds
	if n == 0 {
		n = 6_000
	}
	switch {
	case raceDetector:
		n /= 30
	case testing.Short():
		n /= 2
	}
	began := time.Now()
	all := playAll(t, *from, *from+n, config())
	if t.Failed() {
		return
	}
	if len(all.breaks) > 0 {
		t.Errorf("%d seeds, %.0f a second%s\n%s", n, float64(n)/time.Since(began).Seconds(), table(all), all.told())
		return
	}
	t.Logf("figures: %d seeds, %.0f a second, %d leases, %d kinds of trouble, of which the rarest was met %d times; nothing broken",
		n, float64(n)/time.Since(began).Seconds(), all.granted, len(all.faults), slices.Min(all.faults[:]))
	t.Logf("%d seeds, %d leases; %s", n, all.granted, table(all))
	if all.granted < int(n) {
		t.Error("too little happens in them to prove anything")
	}
	for f, count := range all.faults {
		least := often
		if slices.Contains(rare, sim.Fault(f)) {
			least = seldom
		}
		if *arm == "" && *layout == "" && n >= enough && count < least {
			t.Errorf("trouble of the kind %q was met %d times, fewer than %d", sim.Fault(f), count, least)
		}
	}
	for _, kind := range sim.Kinds() {
		if *arm == "" && *layout == "" && n >= enough && all.lasted[kind] < seldom {
			t.Errorf("a failure of the kind %q lasted in %d histories, fewer than %d", kind, all.lasted[kind], seldom)
		}
	}
}

// told lists what was broken, the most frequent first.
func (t *total) told() string {
	var b strings.Builder
	for _, kind := range slices.SortedFunc(maps.Keys(t.breaks), func(x, y string) int { return cmp.Compare(t.breaks[y].n, t.breaks[x].n) }) {
		fmt.Fprintf(&b, "%6d times: %s: seeds %d\n", t.breaks[kind].n, kind, t.breaks[kind].seeds)
	}
	return b.String()
}

func table(all *total) string {
	var b strings.Builder
	for _, name := range sim.Layouts() {
		for _, arm := range []sim.Arm{sim.Bound, sim.Far, sim.Deleted, sim.Lasting} {
			if n := all.layouts[name+", "+string(arm)]; n > 0 {
				fmt.Fprintf(&b, "\n%9d  %s, %s", n, name, arm)
			}
		}
	}
	for f, n := range all.faults {
		fmt.Fprintf(&b, "\n%9d  %v", n, sim.Fault(f))
	}
	for _, kind := range slices.Sorted(maps.Keys(all.lasted)) {
		fmt.Fprintf(&b, "\n%9d  histories in which this lasts: %s", all.lasted[kind], kind)
	}
	return b.String()
}

// TestChoices tells the history of some choices, such as a shrunk one.
func TestChoices(t *testing.T) {
	choices, err := hex.DecodeString(*plays)
	if err != nil {
		t.Fatal(err)
	}
	r, history := sim.Replay(choices, config())
	if *plays != "" {
		t.Logf("%s, %s\n%s", r.Layout, r.Arm, history)
	}
	if r.Promise != "" {
		t.Errorf("%s: %s", r.Promise, r.Broken)
	}
}

// TestFaultsHaveNames: each has one of its own. One that was missing gave all after it another's.
func TestFaultsHaveNames(t *testing.T) {
	seen := map[string]sim.Fault{}
	for f := range sim.Faults {
		if other, twice := seen[f.String()]; f.String() == "" || twice {
			t.Errorf("fault %d is called %q, and so is %d", f, f, other)
		}
		seen[f.String()] = f
	}
}

// TestSameSeedSameHistory: what cannot be played again cannot be understood.
func TestSameSeedSameHistory(t *testing.T) {
	t.Parallel()
	seeds, other := int64(200), 0
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		first := sim.Run(seed, config())
		for range 2 {
			if again := sim.Run(seed, config()); again.Hash != first.Hash {
				t.Fatalf("seed %d has two histories, %016x and %016x", seed, first.Hash, again.Hash)
			}
		}
		if r, _ := sim.Replay(first.Choices, config()); r.Hash != first.Hash {
			t.Fatalf("the choices of seed %d make another history", seed)
		}
		if sim.Run(seed+1, config()).Hash != first.Hash {
			other++
		}
	}
	if other != int(seeds) {
		t.Errorf("only %d of %d seeds have a history that the next one does not have", other, seeds)
	}
}

// TestFenceIsNeeded is the control: a resource that looks at no token goes back, so the
// check that it does not can fail; and such a history is made short and stays what it is.
func TestFenceIsNeeded(t *testing.T) {
	t.Parallel()
	cfg := sim.Config{Arm: sim.Bound, Layout: "object", Unfenced: true}
	back, short := 0, false
	for seed := range int64(400) {
		switch r := sim.Run(seed, cfg); {
		case r.Promise == "":
		case r.Promise != sim.Fence:
			t.Fatalf("seed %d: %s: %s", seed, r.Promise, r.Broken)
		default:
			if back++; short || len(r.Choices) < 400 {
				continue // one that is long is made short
			}
			short = true
			shrunk := sim.Shrink(r, cfg, tries)
			again, history := sim.Replay(shrunk.Choices, cfg)
			t.Logf("seed %d, shrunk from %d choices to %d: %s\n%s", seed, len(r.Choices), len(shrunk.Choices), again.Broken, history)
			if again.Promise != sim.Fence || again.Hash != shrunk.Hash || len(shrunk.Choices) > len(r.Choices)/2 {
				t.Errorf("%q is what %d of %d choices break", again.Promise, len(shrunk.Choices), len(r.Choices))
			}
		}
	}
	t.Logf("it went back in %d of 400 histories", back)
	if back == 0 || !short {
		t.Error("a resource without a fence never went back: the simulation cannot tell")
	}
}

// FuzzSimulation lets the fuzzer choose what happens.
func FuzzSimulation(f *testing.F) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		choices := make([]byte, 1000)
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 4096 {
			return // longer histories only take longer
		}
		r, _ := sim.Replay(choices, sim.Config{Brief: true})
		if r.Promise != "" {
			t.Error(tell(r, sim.Config{Brief: true}))
		}
	})
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // histories are small, short and many
	os.Exit(m.Run())
}
