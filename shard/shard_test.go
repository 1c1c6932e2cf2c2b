package shard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/shard"
)

const ttl = leasehold.DefaultTTL

// patience is how long another must have waited for a session that is gone.
const patience = ttl + ttl/12 + 10*time.Millisecond

// within fails the test if something took longer than it may.
func within(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	t.Logf("%s: %v", what, took)
	if took > limit {
		t.Errorf("%s: %v, want at most %v", what, took, limit)
	}
}

// TestShare: workers come, go and crash, and the shards are worked on evenly by those who
// are there, soon.
func TestShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 100)
		f.start("a", nil)
		within(t, "one worker", f.settle(), ttl/3+time.Second)
		b := f.start("b", nil)
		within(t, "a second", f.settle(), ttl+6*time.Second)
		f.start("c", nil)
		f.start("d", nil)
		within(t, "two more", f.settle(), ttl+6*time.Second)
		f.stop(b)
		within(t, "one is stopped", f.settle(), ttl/3*2+2*time.Second)
		f.crash(f.other())
		within(t, "one has crashed", f.settle(), patience+ttl/3*2+2*time.Second)
		f.crash(f.coordinator())
		within(t, "the coordinator has crashed", f.settle(), patience+ttl/3*2+2*time.Second)
		_, plans := f.last()
		time.Sleep(time.Hour)
		f.settle()
		if _, now := f.last(); now > plans {
			t.Errorf("in an hour of rest there were %d new plans", now-plans)
		}
		members := 0
		for _, err := range f.st.List(t.Context(), prefix+"/workers/", "") {
			if members++; err != nil {
				t.Fatal(err)
			}
		}
		if members != len(f.living()) {
			t.Errorf("there are %d workers and %d memberships", len(f.living()), members)
		}
		f.end()
	})
}

// TestFewMoves: a shard that need not move does not, whichever worker coordinates.
func TestFewMoves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1000)
		for i := range 10 {
			f.start(fmt.Sprint("worker ", i), nil)
		}
		f.settle()
		moves := func(want int, change func()) {
			t.Helper()
			before := f.begun()
			change()
			f.settle()
			moved := 0
			for name, n := range f.begun() {
				moved += n - before[name]
			}
			if moved != want {
				t.Errorf("%d shards have moved, want %d", moved, want)
			}
		}
		moves(100, func() { f.stop(f.other()) })
		moves(100, func() { f.start("eleven", nil) })
		moves(100, func() { f.crash(f.other()) })
		moves(100, func() { f.start("twelve", nil) })
		moves(100, func() { f.crash(f.coordinator()) })
		moves(100, func() { f.start("thirteen", nil) })
		moves(100, func() { f.stop(f.coordinator()) })
		f.end()
	})
}

// TestFleetStarts: a fleet that starts gets its shards once, also if it takes its time; and
// one to which somebody comes all the time works all the same.
func TestFleetStarts(t *testing.T) {
	for _, pause := range []time.Duration{0, 500 * time.Millisecond} {
		bubble(t, func(t *testing.T) {
			f := newFleet(t, 100)
			for i := range 12 {
				f.start(fmt.Sprint("worker ", i), nil)
				time.Sleep(pause)
			}
			f.settle()
			if sum := total(f.begun()); sum != 100 {
				t.Errorf("work has begun %d times on 100 shards", sum)
			}
			f.end()
		})
	}
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 100)
		for i := range 20 {
			f.start(fmt.Sprint("worker ", i), nil)
			time.Sleep(4 * time.Second)
			if i > 10 && len(f.begun()) < 100 {
				t.Fatalf("after %d workers, %d shards have been worked on", i, len(f.begun()))
			}
		}
		f.settle()
		f.end()
	})
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// TestEndIsNews: the end of a session is known to the coordinator as soon as it is there.
func TestEndIsNews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 100)
		for i := range 10 {
			f.start(fmt.Sprint("worker ", i), nil)
		}
		f.settle()
		for range 5 {
			gone := f.other()
			key := prefix + "/sessions/" + gone.worker.Status().Session
			f.crash(gone)
			_, plans := f.last()
			for !strings.Contains(read(t, f.st, key), `"state":"free"`) {
				time.Sleep(10 * time.Millisecond)
			}
			begun := time.Now()
			for _, now := f.last(); now == plans; _, now = f.last() {
				time.Sleep(10 * time.Millisecond)
			}
			within(t, "from the end of the session to the plan", time.Since(begun), 300*time.Millisecond)
			f.settle()
		}
		f.end()
	})
}

// TestHandOver: the new owner's work begins only when the old one's has returned, however
// long that takes, and soon after it.
func TestHandOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 20)
		f.start("a", nil)
		f.settle()
		f.set(func() { f.drain = time.Minute })
		begun := time.Now()
		f.start("b", nil)
		time.Sleep(50 * time.Second)
		if b := f.load(f.nodes[1]); b > 0 {
			t.Errorf("b works on %d shards before a can have returned", b)
		}
		f.settle()
		within(t, "b has its shards", time.Since(begun), time.Minute+ttl+6*time.Second)
		f.end()
	})
}

// TestShutdown: Run returns when all work has returned, and leaves nothing to be waited out.
func TestShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 20)
		a := f.start("a", nil)
		f.settle()
		b := f.start("b", nil)
		f.settle()
		f.set(func() { f.drain = time.Minute })
		time.AfterFunc(40*time.Second, func() {
			last, _ := f.last()
			if len(last.Workers) != 1 || last.Workers[0].Holder != "b" {
				t.Errorf("while the work of a returns, the plan does not leave it to b: %+v", last)
			}
		})
		begun := time.Now()
		f.stop(a)
		if took := time.Since(begun); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("it has taken %v", took)
		}
		f.settle()
		f.stop(b)
		owners, err := shard.Owners(t.Context(), f.st, prefix)
		if err != nil || len(owners) != 20 {
			t.Fatalf("%d owners, %v", len(owners), err)
		}
		for _, o := range owners {
			if o.State != shard.Free {
				t.Errorf("%s is %v", o.Shard, o.State)
			}
		}
		f.set(func() { f.drain = 0 })
		f.start("c", nil)
		within(t, "the next worker", f.settle(), 4*(ttl/3)+time.Second)
		f.end()
	})
}

// TestCutOff: the work of a worker that the store does not hear of ends before another's
// begins, and when it is back it gets its share.
func TestCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 60)
		for _, name := range []string{"a", "b", "c"} {
			f.start(name, nil)
		}
		f.settle()
		for _, n := range []*node{f.other(), f.coordinator()} {
			n.st.Partition(true)
			session := n.worker.Status().Session
			for f.load(n) > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if s := n.worker.Status(); s.Session != session || n.err != nil {
				t.Errorf("the worker is %+v, %v", s, n.err)
			}
			f.set(func() { n.gone = true }) // for now
			within(t, "the others have its shards", f.settle(), 3*ttl)
			n.st.Partition(false)
			f.set(func() { n.gone = false })
			within(t, "it is back", f.settle(), 2*ttl)
			if s := n.worker.Status(); s.Session == session {
				t.Error("the session that was lost goes on")
			}
		}
		f.end()
	})
}

// TestWeights: each has what it can carry.
func TestWeights(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 100)
		a := f.start("a", nil) // its weight is 1
		b := f.start("b", &shard.Options{Weight: 3})
		c := f.start("c", &shard.Options{Weight: 6})
		f.settle()
		if got := []int{f.load(a), f.load(b), f.load(c)}; !slices.Equal(got, []int{10, 30, 60}) {
			t.Errorf("the loads are %v", got)
		}
		f.start("d", &shard.Options{Weight: 7})
		f.settle()
		f.end()
	})
}

// TestLists: while a deployment rolls, a shard exists as long as a worker names it, and is
// nowhere but with those who do.
func TestLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 60)
		former, next := f.shards[:40], f.shards[10:] // ten go, twenty come
		total := func(want int) {
			t.Helper()
			for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
				sum := 0
				for _, n := range f.living() {
					sum += f.load(n)
				}
				if sum == want {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d shards are worked on, want %d", sum, want)
				}
			}
			f.check()
		}
		for i := range 4 {
			f.startWith(fmt.Sprint("former ", i), former, nil)
		}
		total(40)
		for i := range 4 {
			n := f.startWith(fmt.Sprint("next ", i), next, nil)
			total(60)
			if got := f.load(n); got < 20/(i+1) {
				t.Errorf("a worker that knows all shards but some has %d of them", got)
			}
			f.stop(f.nodes[i])
		}
		total(50)
		for _, n := range f.living() {
			if got := f.load(n); got < 12 || got > 13 {
				t.Errorf("%s has %d shards of 50", n.name, got)
			}
		}
		f.end()
	})
}
