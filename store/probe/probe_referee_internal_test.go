package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/together"
	"github.com/leasehold/leasehold/store/memstore"
)

// A referee watches two candidates that use a store as a layout does, and knows what each
// was told. It calls the store broken when what they were told cannot all be true.
type referee struct {
	st     store.Store
	random *rand.Rand
	over   int // the size of the largest body

	mu     sync.Mutex
	bodies map[string]move // by ID: all that anybody has tried to write
	broken string          // what was seen first
}

// A move is one write. Its body is a line with its ID and how much follows, and that many letters.
type move struct {
	ID, Prev string
	told     error
}

func (r *referee) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == "" {
		r.broken = fmt.Sprintf(format, args...)
	}
}

func (r *referee) done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken != ""
}

// pause lets up to so much time pass.
func (r *referee) pause(most time.Duration) {
	r.mu.Lock()
	d := time.Duration(r.random.Int64N(int64(most)))
	r.mu.Unlock()
	time.Sleep(d)
}

// put tries a write over what has the ID prev, of any size up to the largest.
func (r *referee) put(key, prev string, only store.Condition) (*move, *store.Object) {
	r.mu.Lock()
	size := math.Exp(r.random.Float64() * math.Log(float64(r.over-200)))
	m := move{ID: fmt.Sprint(len(r.bodies) + 1), Prev: prev}
	r.bodies[m.ID] = m
	r.mu.Unlock()
	body := append(fmt.Appendf(nil, "%s %d\n", m.ID, int(size)), bytes.Repeat([]byte("x"), int(size))...)
	var o *store.Object
	o, m.told = r.st.Put(context.Background(), key, body, only)
	r.mu.Lock()
	r.bodies[m.ID] = m
	r.mu.Unlock()
	return &m, o
}

// get reads the ID that is there, or "" if there is none, and the version.
func (r *referee) get(key string) (string, store.Version) {
	o, err := r.st.Get(context.Background(), key, "")
	if errors.Is(err, store.ErrNotExist) {
		return "", ""
	}
	if err == nil {
		head, pad, _ := bytes.Cut(o.Body, []byte("\n"))
		id, size, _ := strings.Cut(string(head), " ")
		if size == strconv.Itoa(len(pad)) && bytes.Count(pad, []byte("x")) == len(pad) {
			return id, o.Version
		}
	}
	r.fault("what lies at %s cannot be read", key)
	return "", ""
}

// follows reports that the write is among those that led to the ID, each over the one
// before.
func (r *referee) follows(id, write string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id != "" && id != write {
		id = r.bodies[id].Prev
	}
	return id == write
}

// swaps has two candidates take an object from each other, as the layout object and a
// guarded object do.
func (r *referee) swaps() {
	const key = "lock"
	together.Run(2, func(int) {
		for n := 0; n < 60 && !r.done(); n++ {
			r.pause(30 * time.Millisecond)
			prev, version := r.get(key)
			only := store.IfMatch(version)
			if prev == "" {
				only = store.IfAbsent()
			}
			m, o := r.put(key, prev, only)
			if m.told != nil {
				continue
			}
			if id, _ := r.get(key); !r.follows(id, m.ID) {
				r.fault("write %s landed, and %q is read after it", m.ID, id)
			}
			// Another one asks as a follower does.
			if _, err := r.st.Get(context.Background(), key, version); version != "" && version != o.Version && errors.Is(err, store.ErrNotModified) {
				r.fault("write %s landed, and nothing is said to have changed", m.ID)
			}
		}
	})
	time.Sleep(settle)
	last, _ := r.get(key)
	for id, m := range r.bodies {
		switch in := r.follows(last, id); {
		case m.told == nil && !in:
			r.fault("write %s landed, and is none of those that led to %q", id, last)
		case errors.Is(m.told, store.ErrPrecondition) && in:
			r.fault("write %s was refused, and led to %q", id, last)
		}
	}
}

// marks has two candidates make and delete a marker, as the layout marker does.
func (r *referee) marks() {
	const key = "marker"
	holders := 0
	together.Run(2, func(int) {
		for n := 0; n < 40 && !r.done(); n++ {
			r.pause(20 * time.Millisecond)
			m, _ := r.put(key, "", store.IfAbsent())
			if m.told != nil {
				continue
			}
			r.mu.Lock()
			holders++
			two := holders > 1
			r.mu.Unlock()
			if two {
				r.fault("marker %s was made while there was another", m.ID)
			}
			for range 10 {
				if id, _ := r.get(key); id != m.ID {
					r.fault("marker %s is held, and %q is read", m.ID, id)
				}
				r.pause(100 * time.Millisecond)
			}
			r.mu.Lock()
			holders--
			r.mu.Unlock()
			_ = r.st.Delete(context.Background(), key)
		}
	})
}

// appends has two candidates make one object after the other, as epochs and logs do.
func (r *referee) appends() {
	made := map[string]string{}
	for n := 1; n <= 60 && !r.done(); n++ {
		key := fmt.Sprintf("epochs/%04d", n)
		together.Run(2, func(int) {
			r.pause(time.Millisecond)
			m, _ := r.put(key, "", store.IfAbsent())
			if m.told != nil {
				return
			}
			r.mu.Lock()
			other := made[key]
			made[key] = m.ID
			r.mu.Unlock()
			if id, _ := r.get(key); other != "" || id != m.ID {
				r.fault("%s was made as %s and %q, and %q is read", key, m.ID, other, id)
			}
		})
	}
	time.Sleep(settle)
	for key, id := range made {
		if now, _ := r.get(key); now != id {
			r.fault("%s was made as %s, and %q is read later", key, id, now)
		}
	}
}

// games are what the referee watches, the uses that break with it, and how large bodies are.
var games = []struct {
	use  string
	over int
	play func(*referee)
}{
	{useObject, 64 << 10, (*referee).swaps},
	{useEpochs, 64 << 10, (*referee).appends},
	{useMarker, 64 << 10, (*referee).marks},
	{useFenceObject, store.MaxBody, (*referee).swaps},
	{useFenceLog, store.MaxBody, (*referee).appends},
}

// anyLie draws one: which it is, how often it is told, how late and about how much.
func anyLie(random *rand.Rand) lie {
	of := []int{1, 2, 5, 10, 20}[random.IntN(5)]
	kinds := random.IntN(3)
	kind := []func(store.Condition) bool{anyWrite, store.Condition.Absent, updates}[kinds]
	over := []func(store.Condition) bool{anyWrite, updates, updates}[kinds] // no game creates over an object that was written often
	of20 := max(of, 2)                                                      // more often, a store is of no use for anything
	delay := time.Duration(50+random.IntN(2000)) * time.Millisecond
	limit := int(math.Exp(math.Log(100) + random.Float64()*math.Log(float64(store.MaxBody)/110)))
	writes, from, without := 1+random.IntN(40), random.IntN(60), 8+random.IntN(100)
	all := []lie{
		{name: fmt.Sprintf("keeps conditions up to %d bytes", limit), tell: small(limit, kind)},
		{name: fmt.Sprintf("overlooks one condition in %d", of), tell: sometimes(of, kind)},
		{name: fmt.Sprintf("forgets one write in %d", of20), tell: forgotten(of20, kind)},
		{name: fmt.Sprintf("forgets one create in %d after a delete", of), tell: unwritten(of)},
		{name: fmt.Sprintf("answers 503 one time in %d, and applies it after %v", of20, delay), tell: later(of20, kind, delay, store.ErrUnknownOutcome)},
		{name: fmt.Sprintf("refuses, and applies one in %d after %v", of, delay), tell: later(of, kind, delay, store.ErrPrecondition)},
		{name: fmt.Sprintf("refuses, and applies one in %d at once", of), tell: landsRefused(of)},
		{name: fmt.Sprintf("says 304 one time in %d", of), tell: unmoved(of)},
		{name: fmt.Sprintf("gives for %v what it gave before", delay), tell: cached(delay)},
		{name: fmt.Sprintf("gives half of one body in %d over %d bytes", of, limit), tell: cut(of, min(limit, 60_000), half)},
		{name: fmt.Sprintf("shows one read in %d what was before", of20), tell: stale(of20, false)},
		{name: fmt.Sprintf("takes one write in %d back after %v", of20, delay), tell: undone(of20, delay)},
		{name: fmt.Sprintf("overlooks conditions of creates for %v after a delete", delay), tell: reborn(delay)},
		{name: fmt.Sprintf("deletes once more after %v", delay), tell: twice(delay)},
		{name: fmt.Sprintf("has two copies, one for one request in %d", of20), tell: brains(of20)},
		{name: "keeps no condition of a shorter body", tell: forgetful(kind, lengths(smaller))},
		{name: "keeps no condition of a longer body", tell: forgetful(kind, lengths(larger))},
		{name: fmt.Sprintf("keeps no condition after %v at rest", delay/200), tell: forgetful(over, restedFor(delay/200))},
		{name: fmt.Sprintf("keeps no condition after %d writes", writes), tell: forgetful(over, func(p past, _ *store.Object, _ []byte) bool { return p.writes > writes })},
		{name: fmt.Sprintf("has versions of all but %d bytes from byte %d on", without, from), tell: part(func(b []byte) []byte {
			return slices.Concat(firstOf(b, from), lastOf(b, len(b)-from-without))
		})},
	}
	return all[random.IntN(len(all))]
}

// brokenFor plays all games over a store that lies, and gives what broke, by use.
func brokenFor(t *testing.T, l lie, seed uint64) map[string]string {
	t.Helper()
	broke := map[string]string{}
	for _, g := range games {
		synctest.Test(t, func(*testing.T) {
			r := &referee{random: rand.New(rand.NewPCG(seed, 2)), over: g.over, bodies: map[string]move{}}
			b := &brokenstore.Store{Store: memstore.New()}
			if l.tell != nil {
				l.tell(b, chances(seed))
			}
			r.st = b
			g.play(r)
			if r.broken != "" {
				broke[g.use] = r.broken
			}
		})
	}
	return broke
}

// TestProbeFindsWhateverBreaksCandidates: for lies that are drawn, the probe calls unsafe
// whatever two candidates were seen to break by them.
func TestProbeFindsWhateverBreaksCandidates(t *testing.T) {
	const from, seeds = 17, 12
	broke, refused := 0, 0
	var mu sync.Mutex
	t.Run("lies", func(t *testing.T) {
		for seed := uint64(from); seed < from+seeds; seed++ {
			l := anyLie(rand.New(rand.NewPCG(seed, 3)))
			t.Run(fmt.Sprintf("%d %s", seed, l.name), func(t *testing.T) {
				t.Parallel()
				r := asked(t, l, seed, &Options{Races: 400})
				for use, why := range brokenFor(t, l, seed) {
					mu.Lock()
					broke++
					mu.Unlock()
					if r.Proves(r.Store, use) == nil {
						t.Errorf("it is said to be safe for %s, where %s", use, why)
						continue
					}
					mu.Lock()
					refused++
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("figures: %d lies broke %d games, and the probe refused %d of them", seeds, broke, refused)
	if broke < seeds {
		t.Errorf("of %d lies only %d games were broken: the referee sees too little", seeds, broke)
	}
}

// The referee has nothing to say of a store that keeps its word.
func TestRefereeOfAGoodStore(t *testing.T) {
	for seed := range uint64(3) {
		if broke := brokenFor(t, lie{}, seed); len(broke) > 0 {
			t.Errorf("seed %d: %v", seed, broke)
		}
	}
}
