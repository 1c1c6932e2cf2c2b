//go:build prove

package shard_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store/faultstore"
)

// TestDay: workers come, go, crash and are cut off, many at a time now and then. There are
// never two owners, all shards are worked on evenly again soon, and no plan moves more than
// it must.
func TestDay(t *testing.T) {
	workers, shards, changes, pause := 12, 240, 40, 3*time.Minute
	if *long {
		workers, shards, changes, pause = 100, 5000, 172, 8*time.Minute
	}
	bubble(t, func(t *testing.T) {
		f := newFleet(t, shards)
		draw := rand.New(rand.NewPCG(1, 2))
		serial := 0
		join := func() {
			serial++
			n := f.start(fmt.Sprint("worker ", serial), &shard.Options{Weight: 1 + draw.IntN(3)*draw.IntN(2)})
			n.st.Inject(
				faultstore.Fault{Kind: faultstore.LostAnswer, Probability: 0.003},
				faultstore.Fault{Kind: faultstore.LostRequest, Probability: 0.003},
				faultstore.Fault{Kind: faultstore.LateDuplicate, Probability: 0.003, Delay: time.Second, Jitter: time.Minute},
				faultstore.Fault{Kind: faultstore.DelayBefore, Probability: 0.1, Jitter: time.Second},
				faultstore.Fault{Kind: faultstore.DelayAfter, Jitter: 40 * time.Millisecond},
			)
		}
		for range workers {
			join()
		}
		figures := tally{slowest: map[string]time.Duration{}}
		figures.slowest["the beginning"] = f.settle()
		begun := time.Now()
		for range changes {
			what, n := "stop", 1+draw.IntN(2)
			if draw.IntN(8) == 0 {
				n = workers / 4
			}
			living := f.living()
			draw.Shuffle(len(living), func(i, j int) { living[i], living[j] = living[j], living[i] })
			switch draw.IntN(5) {
			case 0, 1:
				what = "join"
				for range n {
					join()
				}
			case 2:
				for _, gone := range living[:max(0, min(n, len(living)-workers/2))] {
					f.take(gone)
				}
			case 3:
				what = "crash"
				for _, gone := range living[:max(0, min(n, len(living)-workers/2))] {
					f.crash(gone)
				}
			case 4:
				what = "cut off"
				for _, cut := range living[:n] {
					cut.st.Partition(true)
					time.AfterFunc(time.Duration(draw.IntN(60))*time.Second, func() { cut.st.Partition(false) })
				}
				time.Sleep(time.Minute)
			}
			if draw.IntN(3) == 0 {
				f.crash(f.coordinator())
				join()
				what += " and the coordinator crashes"
			}
			figures.slowest[what] = max(figures.slowest[what], f.settle())
			figures.imbalance(f)
			figures.moves(t, f)
			time.Sleep(pause)
			figures.requests(f)
		}
		for what, took := range figures.slowest {
			t.Logf("%s: all settled after %v at most", what, took.Round(100*time.Millisecond))
			if took > 5*ttl {
				t.Errorf("%s: not settled for %v", what, took)
			}
		}
		t.Logf("%d workers at the end, %d shards, %v: %+v", len(f.living()), shards, time.Since(begun).Round(time.Minute), figures)
		f.end()
	})
}

// A tally is what a day has shown.
type tally struct {
	slowest        map[string]time.Duration
	Imbalance      float64 // largest distance from a share, settled
	Plans          int     // that changed owners
	Moved, Least   int     // shards, by those plans, and by the best there can be
	Put, Get, List int
}

func (y tally) String() string {
	return fmt.Sprintf("largest distance from a share %.2f; %d plans moved %d shards, and %d is the least; %d PUT, %d GET, %d LIST",
		y.Imbalance, y.Plans, y.Moved, y.Least, y.Put, y.Get, y.List)
}

func (y *tally) imbalance(f *fleet) {
	living, total := f.living(), 0
	for _, n := range living {
		total += n.weight
	}
	for _, n := range living {
		share := float64(len(f.shards)) * float64(n.weight) / float64(total)
		y.Imbalance = max(y.Imbalance, math.Abs(float64(f.load(n))-share))
	}
}

// moves compares each plan with the one before.
func (y *tally) moves(t *testing.T, f *fleet) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(f.plans); i++ {
		before, after := f.plans[i-1], f.plans[i]
		moved, have, total := 0, map[string]int{}, 0
		for name, session := range after.Owners {
			was := before.Owners[name]
			have[was]++
			if was != session {
				moved++
			}
		}
		if moved == 0 {
			continue
		}
		for _, m := range after.Workers {
			total += m.Weight
		}
		left, kept, more := len(after.Owners), 0, 0
		for _, m := range after.Workers {
			down := len(after.Owners) * m.Weight / total
			left -= down
			kept += min(have[m.Session], down)
			if have[m.Session] > down && len(after.Owners)*m.Weight%total > 0 {
				more++
			}
		}
		least := len(after.Owners) - kept - min(left, more)
		y.Plans++
		y.Moved += moved
		y.Least += least
		if moved != least {
			t.Errorf("plan %d of token %v has moved %d shards, and %d is the least", after.Serial, after.Token, moved, least)
		}
	}
	f.plans = f.plans[max(0, len(f.plans)-1):]
}

func (y *tally) requests(f *fleet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		c := n.st.Counts()
		n.st.Reset()
		y.Put, y.Get, y.List = y.Put+c.Put, y.Get+c.Get, y.List+c.List
	}
}
