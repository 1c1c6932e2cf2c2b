//go:build unix

package quorum_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/quorumstore"
)

var (
	rounds = flag.Int("rounds", 0, "how many rounds of TestQuorumRounds; 0: one of each fault, or 30 in long tests")
	seeded = flag.Uint64("seed", 0, "what the candidates' pauses come from; 0: any")
)

func newSeed() uint64 { return cmp.Or(*seeded, rand.Uint64()) }

// cut and silent are the ways in which two members are down at a time.
var cut, silent = (*servers.Proxy).Refuse, (*servers.Proxy).Hang

const majorityDown = "two of three down"

// A fault of a member begins and ends.
type fault struct {
	name       string
	begin, end func(t *testing.T, p *place, operator *quorumstore.Store)
}

var faults = []fault{
	{
		"killed",
		func(_ *testing.T, p *place, _ *quorumstore.Store) { p.server.Stop() },
		func(t *testing.T, p *place, operator *quorumstore.Store) {
			if p.revive() {
				replace(t, p, operator)
			}
		},
	},
	{
		"stopped",
		func(t *testing.T, p *place, _ *quorumstore.Store) { p.server.Pause(t) },
		func(t *testing.T, p *place, _ *quorumstore.Store) { p.server.Resume(t) },
	},
	{
		"cut off",
		func(_ *testing.T, p *place, _ *quorumstore.Store) { p.proxy.Refuse() },
		func(t *testing.T, p *place, _ *quorumstore.Store) { p.proxy.Restore(t) },
	},
	{
		"silent", // and what was sent arrives late
		func(_ *testing.T, p *place, _ *quorumstore.Store) { p.proxy.Hang() },
		func(t *testing.T, p *place, _ *quorumstore.Store) { p.proxy.Restore(t) },
	},
	{
		"slow",
		func(_ *testing.T, p *place, _ *quorumstore.Store) {
			p.slow.Store(int64(time.Second + rand.N(2*time.Second)))
		},
		func(_ *testing.T, p *place, _ *quorumstore.Store) { p.slow.Store(0) },
	},
	{"emptied", func(_ *testing.T, p *place, _ *quorumstore.Store) { p.empty() }, replace},
}

// replace makes a new member of a place that has lost its objects.
func replace(t *testing.T, p *place, operator *quorumstore.Store) {
	t.Helper()
	if err := voting(t.Context(), operator); !errors.Is(err, quorumstore.ErrLost) {
		t.Errorf("the objects of %s are lost, and the quorum says %v", p.name, err)
	}
	if err := operator.Replace(t.Context(), p.name, p.open(t.Context())); err != nil {
		t.Errorf("replace %s, which has lost its objects: %v", p.name, err)
	}
}

// TestQuorumRounds: candidates fight for a lock and for an election, and in each round another member fails. Nobody
// notices: two never hold at once, tokens grow, and the locks are soon held again. With two members down nobody holds
// until one is back.
func TestQuorumRounds(t *testing.T) {
	t.Parallel()
	seed, n := newSeed(), *rounds
	if n == 0 {
		n = 30
	}
	places := start(t)
	told := newNotes()
	one := process{known: func() []*place { return places }, notes: told}
	operator := open(t, places, process{known: one.known})
	if err := operator.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	var stores []store.Store
	for range 3 {
		stores = append(stores, open(t, places, one))
	}
	f := fought(t, seed, stores)
	defer f.judge(t)
	t.Logf("-seed %d, %d rounds", seed, n)
	f.goesOn(t, "at first", 1)
	met := map[string]int64{}
	for round := range n {
		fault := faults[round%len(faults)]
		p := places[(round+round/len(faults))%len(places)]
		f.meets(fault.name)
		what := fmt.Sprintf("round %d, seed %d: %s %s", round, seed, p.server.Name, fault.name)
		// Where no proxy listens none counts. But who asks is told.
		reached := p.came.Load
		if fault.name == "cut off" {
			reached = func() int64 { return int64(told.of(p.name)) }
		}
		began, before := time.Now(), reached()
		fault.begin(t, p, operator)
		f.goesOn(t, "while "+what, 1)
		until(t, what+" is met by requests", func() bool { return reached() > before })
		met[fault.name] += reached() - before
		during := time.Since(began)
		fault.end(t, p, operator)
		until(t, "all vote again after "+what, func() bool { return voting(t.Context(), operator) == nil })
		f.goesOn(t, "after "+what, 0)
		t.Logf("%s for %v, and %v until all was as before", what,
			during.Round(time.Millisecond), (time.Since(began) - during).Round(time.Millisecond))
		if t.Failed() {
			return
		}
	}
	t.Logf("figures: %d rounds; requests that met each fault: %v", n, met)
	for _, fault := range faults[:min(n, len(faults))] {
		if met[fault.name] == 0 {
			t.Errorf("no request met a member that was %s", fault.name)
		}
	}
	majorityFails(t, f, places, stores, [2]func(*servers.Proxy){cut, silent})
	if n >= 30 {
		majorityFails(t, f, places, stores, [2]func(*servers.Proxy){cut, cut})
		majorityFails(t, f, places, stores, [2]func(*servers.Proxy){silent, silent})
	}
}

// TestControl: candidates in stores of their own hold at once, with tokens of their own. If that were not noticed, the
// other tests would prove nothing.
func TestControl(t *testing.T) {
	t.Parallel()
	f := fought(t, newSeed(), []store.Store{memstore.New(), memstore.New(), memstore.New()})
	for _, r := range f.referees {
		for _, what := range []string{"at once", "after"} {
			until(t, "the referee of the "+r.what+" says "+what, func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return slices.ContainsFunc(r.story, func(line string) bool {
					return strings.Contains(line, "WRONG") && strings.Contains(line, what)
				})
			})
		}
	}
	f.stop()
}

// majorityFails: with two of three members down nobody acquires, and leases end in time. When one is back it
// goes on.
func majorityFails(t *testing.T, f *fight, places []*place, stores []store.Store, how [2]func(*servers.Proxy)) {
	t.Helper()
	who := rand.Perm(len(places))
	back, down, up := places[who[0]], places[who[1]], places[who[2]]
	for _, r := range f.referees {
		r.keep(true)
	}
	for _, r := range f.referees {
		r.holdsOn(t)
	}
	var terms, lost [2]int
	for i, r := range f.referees {
		terms[i], _, lost[i] = r.counts()
	}
	f.meets(majorityDown)
	began, came := time.Now(), up.came.Load()
	how[0](back.proxy)
	how[1](down.proxy)
	for i, r := range f.referees {
		until(t, "the lease of the "+r.what+" is lost while two members are down", func() bool {
			_, _, now := r.counts()
			return now > lost[i]
		})
		if took := time.Since(began); took > ttl+500*time.Millisecond {
			t.Errorf("the lease of the %s was lost %v after two members went down; its TTL is %v", r.what, took, ttl)
		}
		if r.holds() {
			t.Errorf("somebody holds the %s while two members are down", r.what)
		}
	}
	var tries sync.WaitGroup
	for _, st := range stores {
		for _, key := range []string{"fight/lock", "fight/election"} {
			l, err := leasehold.NewLock(st, key, &leasehold.LockOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			tries.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), ttl)
				defer cancel()
				if lease, err := l.TryAcquire(ctx); err == nil || errors.Is(err, leasehold.ErrHeld) {
					t.Errorf("with two members down %s was acquired, or found held: %v, %v", key, lease, err)
				}
			})
		}
	}
	tries.Wait()
	until(t, "the candidates have asked the third member for two TTLs", func() bool {
		return time.Since(began) > 2*ttl && up.came.Load() > came
	})
	for i, r := range f.referees {
		if now, _, _ := r.counts(); now != terms[i] {
			t.Errorf("the %s was acquired while two members were down: %d terms before, %d now", r.what, terms[i], now)
		}
	}
	again := time.Now()
	back.proxy.Restore(t)
	for i, r := range f.referees {
		until(t, "the "+r.what+" is held again", func() bool {
			now, _, _ := r.counts()
			return now > terms[i]
		})
		if took := time.Since(again); took > takeover {
			t.Errorf("the %s was held again %v after a member came back", r.what, took)
		}
	}
	t.Logf("figures: two members down for %v; held again %v after one was back", again.Sub(began), time.Since(again))
	f.meets("one of two back")
	down.proxy.Restore(t)
	for _, r := range f.referees {
		r.keep(false)
	}
	f.goesOn(t, "after two members were down", 0)
}
