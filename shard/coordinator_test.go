package shard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// A new coordinator writes the plan that it finds once more before it changes anything:
// only that makes a write fail which the former one has under way. No test noticed when it
// did not, since the plan that it writes next does the same, somewhat later.
func TestNewCoordinatorSealsThePlan(t *testing.T) {
	for name, joins := range map[string]bool{"nobody has come": false, "another waits for more": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := settledFleet(t)
				before, plans := f.last()
				former := f.coordinator()
				f.crash(former)
				if joins {
					f.start("d", nil)
				}
				for _, n := range f.living() { // that it is gone is known after the first plan
					n.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: prefix + "/workers/" + former.worker.Status().Session, Delay: 2 * time.Second})
				}
				f.settle()
				f.mu.Lock()
				sealed := f.plans[plans]
				f.mu.Unlock()
				if sealed.Token <= before.Token || !slices.Equal(sealed.Workers, before.Workers) || !maps.Equal(sealed.Owners, before.Owners) {
					t.Errorf("the first plan of the new coordinator is\n%+v\nwant that of the former one with a larger token\n%+v", sealed, before)
				}
				looks := 0
				for _, e := range f.coordinator().st.Log() {
					if e.Op == "list" {
						looks++
					} else if e.Op == "put" && e.Key == prefix+"/plan" {
						break
					}
				}
				if looks != 1 {
					t.Errorf("it has written it after %d looks, want the first one", looks)
				}
				f.end()
			})
		})
	}
}

// A coordinator that learns only by the clock that its lease has ended, as after a suspend,
// writes no plan. No test noticed when it did not look.
func TestSuspendedCoordinatorWritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start, slept := time.Now(), new(atomic.Int64)
		t.Cleanup(clock.Set(func() time.Duration { return time.Since(start) + time.Hour + time.Duration(slept.Load()) }))
		f := settledFleet(t)
		c := f.coordinator()
		former := f.planToken()
		gone := f.other()
		membership := prefix + "/workers/" + gone.worker.Status().Session
		var late atomic.Int64
		c.st.Inject(
			// It is suspended while it sees that one is gone, and before it writes that.
			faultstore.Fault{Kind: faultstore.DelayBefore, Op: "list", Key: prefix + "/workers/", When: func(faultstore.Call) bool {
				if _, err := f.st.Get(t.Context(), membership, ""); errors.Is(err, store.ErrNotExist) {
					slept.Store(int64(time.Hour))
				}
				return false
			}},
			faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: prefix + "/plan", When: func(call faultstore.Call) bool {
				var p struct{ Token leasehold.Token }
				if err := json.Unmarshal(call.Body, &p); err == nil && p.Token == former && slept.Load() > 0 {
					late.Add(1)
				}
				return false
			}},
		)
		f.stop(gone)
		for slept.Load() == 0 || f.planToken() == former {
			time.Sleep(time.Second)
		}
		f.settle()
		if n := late.Load(); n > 0 {
			t.Errorf("%d plans were sent with the token of a lease that had ended", n)
		}
		f.end()
	})
}

// planToken is that of the last plan that was written.
func (f *fleet) planToken() leasehold.Token {
	f.t.Helper()
	p, _ := f.last()
	return p.Token
}

// TestNothingAfterRun: when Run has returned, the worker sends nothing more, whatever its
// coordinator was doing, and its Status says nothing of what has ended.
func TestNothingAfterRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 12)
		begin := func(i int) {
			n := f.start(fmt.Sprint("worker ", i), nil)
			n.st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Delay: 300 * time.Millisecond})
		}
		for i := range 3 {
			begin(i)
		}
		f.settle()
		after := map[*node]int{}
		for i := range 12 {
			c := f.coordinator()
			time.Sleep(time.Duration(i) * 450 * time.Millisecond)
			if i%2 == 1 { // so that it watches for one that is gone
				f.take(f.other())
				begin(100 + i)
				time.Sleep(700 * time.Millisecond)
			}
			f.stop(c)
			after[c] = len(c.st.Log())
			if s := c.worker.Status(); s.Coordinating || len(s.Shards) > 0 || s.PlanErr != nil || s.ElectionErr != nil {
				t.Errorf("after Run: %+v", s)
			}
			begin(10 + i)
			f.settle()
		}
		time.Sleep(time.Minute)
		for n, before := range after {
			if log := n.st.Log(); len(log) != before {
				t.Errorf("%s has sent this after Run had returned:\n%v", n.name, log[before:])
			}
		}
		f.end()
		for _, n := range f.nodes {
			if s := n.worker.Status(); s.Coordinating || len(s.Shards) > 0 || s.PlanErr != nil || s.ElectionErr != nil {
				t.Errorf("after Run: %+v", s)
			}
		}
	})
}

// TestWatchEndsWithRun: a coordinator that is stopped while it takes or gives back the
// membership of one that is gone is through with that before Run returns.
func TestWatchEndsWithRun(t *testing.T) {
	for put, what := range []string{"takes", "gives back"} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := settledFleet(t)
				c, gone := f.coordinator(), f.other()
				membership := prefix + "/workers/" + gone.worker.Status().Session
				puts := 0
				c.st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Key: membership, Delay: time.Second, When: func(faultstore.Call) bool {
					puts++
					if puts == put+1 {
						f.take(c)
					}
					return true
				}})
				f.stop(gone)
				<-c.done
				before := len(c.st.Log())
				if lock, err := leasehold.NewLock(f.st, membership, nil); err != nil {
					t.Fatal(err)
				} else if i, err := lock.Inspect(t.Context()); err != nil || i.Held {
					t.Errorf("the membership of the one that is gone: %+v, %v", i, err)
				}
				time.Sleep(time.Minute)
				if log := c.st.Log(); len(log) != before {
					t.Errorf("it has sent this after Run had returned:\n%v", log[before:])
				}
				f.settle()
				f.end()
			})
		})
	}
}

// TestStoppedWhileItLooks: a look that the end of Run has cut short is no trouble.
func TestStoppedWhileItLooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := settledFleet(t)
		for _, n := range []*node{f.other(), f.coordinator()} {
			n.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "get", Key: prefix + "/plan", Delay: time.Second, When: func(faultstore.Call) bool {
				f.take(n)
				return true
			}})
			<-n.done
			if err := n.worker.Status().PlanErr; err != nil {
				t.Errorf("after Run it says %v", err)
			}
		}
		f.end()
	})
}

// TestLateLook: a worker that has become the coordinator does not believe a plan that it
// asked for before, and follows its own.
func TestLateLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 12)
		a := f.start("a", nil)
		f.settle()
		_, plans := f.last()
		b := f.start("b", nil)
		for _, now := f.last(); now == plans; _, now = f.last() {
			time.Sleep(time.Millisecond)
		}
		asked := make(chan struct{}) // for the plan that names b for the first time
		b.st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Key: prefix + "/plan", Delay: 9500 * time.Millisecond, Nth: 1, When: func(faultstore.Call) bool {
			select {
			case <-asked:
			default:
				close(asked)
			}
			return true
		}})
		<-asked
		f.stop(a)
		time.Sleep(9 * time.Second)
		if !b.worker.Status().Coordinating {
			t.Error("b does not coordinate before the answer comes")
		}
		f.settle()
		time.Sleep(ttl)
		f.settle()
		f.end()
	})
}

// TestDeposedGivesUp: a coordinator that finds a plan with a larger token leaves the office,
// and the next one whose token is large enough goes on from there. It used to stay for ever,
// waiting for its own watches of the others, and nobody wrote a plan.
func TestDeposedGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, log := newFleet(t, 12), &logbook{}
		f.start("a", &shard.Options{Logger: log.logger()})
		f.start("b", &shard.Options{Logger: log.logger()})
		f.settle()
		larger := f.planToken() + 2
		plan := regexp.MustCompile(`"token":\d+`).ReplaceAllString(read(t, f.st, prefix+"/plan"), fmt.Sprintf(`"token":%d`, larger))
		put(t, f.st, prefix+"/plan", plan)
		f.start("c", nil)
		within(t, "a coordinator with a token of its own", f.settle(), 10*ttl)
		if token := f.planToken(); token < larger {
			t.Errorf("the plan has the token %v after %v", token, larger)
		}
		coordinating := 0
		for _, n := range f.living() {
			if n.worker.Status().Coordinating {
				coordinating++
			}
		}
		if coordinating != 1 || log.count("resigning, since the work failed", "another coordinator is in office: the plan of ", fmt.Sprintf("has token %d, and this one's is %d", larger, larger-2)) != 1 {
			t.Errorf("%d workers say that they coordinate; the log says\n%s", coordinating, strings.Join(log.lines, ""))
		}
		f.end()
	})
}

// TestLooks: a coordinator looks each third of the TTL, and sooner after a look that has
// failed, after the pauses that all of this module makes.
func TestLooks(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		ttl  time.Duration
		want []time.Duration // five looks fail, two do not, two fail again
	}{
		{15 * s, []time.Duration{100 * ms, s, 2 * s, 4 * s, 4 * s, 5 * s, 5 * s, 100 * ms, s}},
		{6 * s, []time.Duration{100 * ms, s, 2 * s, 2 * s, 2 * s, 2 * s, 2 * s, 100 * ms, s}},
	} {
		bubble(t, func(t *testing.T) {
			f := newFleet(t, 4)
			st := faultstore.Wrap(f.st, nil)
			var mu sync.Mutex
			var at []time.Time
			st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "list", When: func(faultstore.Call) bool {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				return len(at) <= 5 || len(at) > 7 && len(at) <= 9
			}})
			a := f.startOver(st, "a", f.shards, &shard.Options{TTL: c.ttl})
			time.Sleep(2 * s)
			if s := a.worker.Status(); s.PlanErr == nil {
				t.Error("the worker does not say that it cannot look")
			}
			time.Sleep(time.Minute)
			if s := a.worker.Status(); s.PlanErr != nil {
				t.Errorf("the worker says %v", s.PlanErr)
			}
			f.end()
			var got []time.Duration
			for i := range c.want {
				got = append(got, at[i+1].Sub(at[i]))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("with a TTL of %v it looks after %v, want %v", c.ttl, got, c.want)
			}
		})
	}
}

// TestOnePlan: one who comes, or goes, is one change of the plan, also if it was the
// coordinator.
func TestOnePlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := settledFleet(t)
		for what, change := range map[string]func(){
			"one comes":            func() { f.start("d", nil) },
			"one goes":             func() { f.stop(f.other()) },
			"the coordinator goes": func() { f.stop(f.coordinator()) },
		} {
			_, before := f.last()
			change()
			f.settle()
			time.Sleep(ttl)
			if last, now := f.last(); now != before+1 || len(last.Workers) != len(f.living()) {
				t.Errorf("%s: there are %d new plans, and the last one is of %d workers", what, now-before, len(last.Workers))
			}
			last, _ := f.last()
			for _, n := range f.living() {
				if s := n.worker.Status(); s.Token != last.Token || s.Serial != last.Serial || s.PlanErr != nil {
					t.Errorf("%s: %s says %+v", what, n.name, s)
				}
			}
		}
		f.end()
	})
}

// TestPlanWithoutAnswer: a plan that landed without an answer is the coordinator's own: it
// stays in office, tells of it, and writes no other.
func TestPlanWithoutAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := settledFleet(t)
		c := f.coordinator()
		before, n := f.last()
		c.st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put", Key: prefix + "/plan", Nth: 1})
		f.start("d", nil)
		f.settle()
		time.Sleep(ttl)
		last, now := f.last()
		if now != n+1 || last.Token != before.Token || last.Serial != before.Serial+1 || len(last.Workers) != 4 {
			t.Errorf("there are %d more plans, and the last one is %d of token %v, after %d of token %v", now-n, last.Serial, last.Token, before.Serial, before.Token)
		}
		if f.coordinator() != c {
			t.Error("another worker is the coordinator")
		}
		f.end()
	})
}

// TestPlanWithoutLists: a plan whose lists somebody has deleted says nothing, and keeps nobody
// from writing the next.
func TestPlanWithoutLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 8)
		all := f.shards
		f.shards = all[:4]
		a := f.start("a", nil)
		f.settle()
		f.stop(a)
		for e, err := range f.st.List(t.Context(), prefix+"/lists/", "") {
			if err != nil {
				t.Fatal(err)
			}
			if err = f.st.Delete(t.Context(), e.Key); err != nil {
				t.Fatal(err)
			}
		}
		f.shards = all[4:]
		f.start("b", nil)
		within(t, "the next worker", f.settle(), 2*ttl)
		f.end()
	})
}

// TestListCannotBeRead: a coordinator that cannot read the list of a newcomer for now changes
// nothing, says so, and has it in the plan when it can.
func TestListCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 12)
		a := f.start("a", nil)
		f.settle()
		_, before := f.last()
		var down atomic.Bool
		down.Store(true)
		a.st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: prefix + "/lists/*", When: func(faultstore.Call) bool { return down.Load() }})
		b := f.startWith("b", f.shards[:10], nil)
		time.Sleep(time.Minute)
		if _, now := f.last(); now != before || f.load(a) != 12 || !errors.Is(a.worker.Status().PlanErr, store.ErrUnavailable) {
			t.Errorf("there are %d more plans, a has %d shards and says %v", now-before, f.load(a), a.worker.Status().PlanErr)
		}
		down.Store(false)
		time.Sleep(ttl)
		if f.load(a) != 6 || f.load(b) != 6 || a.worker.Status().PlanErr != nil {
			t.Errorf("then a has %d shards and b %d, and a says %v", f.load(a), f.load(b), a.worker.Status().PlanErr)
		}
		f.end()
	})
}
