package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestForeignPlan: what lies in the plan's place and is none is left as it is; the workers
// say so and keep what they have, and go on when it is gone.
func TestForeignPlan(t *testing.T) {
	for name, body := range map[string]string{
		"garbage":    "not a plan",
		"newer":      `{"format": 2, "token": 9999999999999, "serial": 1}`,
		"no format":  `{}`,
		"no token":   `{"format": 1, "serial": 1}`,
		"nobody":     `{"format": 1, "token": 9999999999999, "serial": 1, "lists": [], "workers": [], "owners": [0]}`,
		"too many":   `{"format": 1, "token": 1, "serial": 1, "lists": [], "workers": [], "owners": [-1, -1]}`,
		"one object": `{"format": 1, "token": "x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := settledFleet(t)
				before := f.begun()
				put(t, f.st, prefix+"/plan", body)
				time.Sleep(3 * time.Minute)
				f.start("d", nil)
				time.Sleep(3 * time.Minute)
				if got := read(t, f.st, prefix+"/plan"); got != body {
					t.Errorf("it was written over: %s", got)
				}
				for _, n := range f.nodes {
					if err := n.worker.Status().PlanErr; !errors.Is(err, shard.ErrForeign) || !strings.Contains(err.Error(), prefix+"/plan") {
						t.Errorf("%s says %v", n.name, err)
					}
				}
				if !maps.Equal(f.begun(), before) {
					t.Error("shards have moved")
				}
				if _, err := shard.Owners(t.Context(), f.st, prefix); !errors.Is(err, shard.ErrForeign) {
					t.Errorf("Owners: %v", err)
				}
				if err := f.st.Delete(t.Context(), prefix+"/plan"); err != nil {
					t.Fatal(err)
				}
				f.settle()
				moved := 0
				for name, n := range f.begun() {
					moved += n - before[name]
				}
				if moved > 8 {
					t.Errorf("%d shards have moved, and 8 are enough for one more worker", moved)
				}
				f.end()
			})
		})
	}
}

// TestAbandon: a lease that is given up while the plan goes on ends its work, and the shard is
// owned anew, with another token, after a pause.
func TestAbandon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.refuse = "00002"
		f.start("a", nil)
		for f.begun()["00002"] == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		begun, token := time.Now(), f.token("00002")
		f.settle()
		if took := time.Since(begun); took < ttl/3-time.Second || took > ttl/3+time.Second || f.token("00002") <= token {
			t.Errorf("it is owned anew after %v, with the token %v after %v", took, f.token("00002"), token)
		}
		f.end()
	})
}

// TestFickleWork: work that returns by itself begins again under the same lease, after a
// pause.
func TestFickleWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.fickle = true
		a := f.start("a", nil)
		time.Sleep(ttl)
		tokens := map[string]leasehold.Token{}
		for name := range f.begun() {
			tokens[name] = f.token(name)
		}
		time.Sleep(time.Hour)
		for name, n := range f.begun() {
			if n < 430 || n > 485 || f.token(name) != tokens[name] {
				t.Errorf("the work on %s began %d times, under the tokens %v and %v", name, n, tokens[name], f.token(name))
			}
		}
		f.stop(a)
		f.check()
		f.end()
	})
}

// TestDamage: an object that is deleted by hand comes back, and a foreign object in a lock's
// place concerns its own shard only.
func TestDamage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := settledFleet(t)
		n := f.other()
		for _, key := range []string{"/plan", "/workers/" + n.worker.Status().Session, "/workers/" + f.coordinator().worker.Status().Session} {
			if err := f.st.Delete(t.Context(), prefix+key); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			within(t, key+" was deleted", f.settle(), 10*ttl)
		}
		garbled := n.worker.Status().Session
		put(t, f.st, prefix+"/sessions/"+garbled, "not a session")
		time.Sleep(2 * time.Minute)
		if s := n.worker.Status(); s.Session == garbled || n.err != nil {
			t.Errorf("a worker whose session was written over: %+v, %v", s, n.err)
		}
		if err := f.st.Delete(t.Context(), prefix+"/sessions/"+garbled); err != nil { // then it is over
			t.Fatal(err)
		}
		within(t, "a session was written over", f.settle(), 10*ttl)
		put(t, f.st, prefix+"/workers/x", "nobody")
		put(t, f.st, prefix+"/shards/00007", "not a lock")
		f.start("d", nil)
		f.stop(n)
		time.Sleep(5 * time.Minute)
		owners, err := shard.Owners(t.Context(), f.st, prefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range owners {
			want := shard.Owned
			if o.Shard == "00007" {
				want = shard.Broken
			}
			if o.State != want || (o.Err != nil) != (want == shard.Broken) {
				t.Errorf("%+v", o)
			}
		}
		f.end()
	})
}

// TestForeignElection: where the election, or the session of the coordinator, is none, all
// workers say so and keep what they have, and go on when it is gone.
func TestForeignElection(t *testing.T) {
	for name, key := range map[string]func(coordinator *node) string{
		"election": func(*node) string { return "/coordinator" },
		"session":  func(c *node) string { return "/sessions/" + c.worker.Status().Session },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := settledFleet(t)
				c := f.coordinator()
				before, key := f.begun(), key(c)
				put(t, f.st, prefix+key, "not a record")
				if name == "election" { // its leader leads under its session, until it goes
					f.stop(c)
				}
				time.Sleep(10 * time.Minute)
				for _, n := range f.living() {
					if err := n.worker.Status().ElectionErr; !errors.Is(err, leasehold.ErrForeignObject) || !strings.Contains(err.Error(), prefix+key) {
						t.Errorf("%s says %v", n.name, err)
					}
					select {
					case <-n.done:
						t.Errorf("%s has ended: %v", n.name, n.err)
					default:
					}
				}
				if got := read(t, f.st, prefix+key); got != "not a record" {
					t.Errorf("it was written over: %s", got)
				}
				for shard, n := range f.begun() {
					if n != before[shard] {
						t.Errorf("the work on %s has begun anew", shard)
					}
				}
				if err := f.st.Delete(t.Context(), prefix+key); err != nil {
					t.Fatal(err)
				}
				within(t, "the "+name+" was put right", f.settle(), 10*ttl)
				time.Sleep(ttl) // now all have seen the plan
				for _, n := range f.living() {
					if err := n.worker.Status().ElectionErr; err != nil {
						t.Errorf("then %s says %v", n.name, err)
					}
				}
				f.end()
			})
		})
	}
}

// TestDeposed: a coordinator does not write over the plan of one with a larger token, and a
// worker that this plan does not name begins anew from time to time.
func TestDeposed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.start("a", nil)
		f.start("b", nil)
		f.settle()
		plan := regexp.MustCompile(`"token":\d+`).ReplaceAllString(read(t, f.st, prefix+"/plan"), `"token":4000000000000000000`)
		put(t, f.st, prefix+"/plan", plan)
		log := &logbook{}
		f.start("c", &shard.Options{Logger: log.logger()})
		time.Sleep(10 * time.Minute)
		// Each time after four TTLs, a look later at most, and a pause.
		if n := log.count("the worker begins anew", "the plan does not name this worker"); n < 8 || n > 9 {
			t.Errorf("in ten minutes a worker that no plan names has begun anew %d times", n)
		}
		if got := read(t, f.st, prefix+"/plan"); got != plan {
			t.Errorf("it was written over: %s", got)
		}
		f.end()
	})
}

// TestLatePlan: the plan of a coordinator that is none any more does not land.
func TestLatePlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := settledFleet(t)
		old := f.coordinator()
		old.st.Inject(faultstore.Fault{Kind: faultstore.LateLanding, Op: "put", Key: prefix + "/plan", Delay: 5 * time.Minute})
		f.start("d", nil) // so there is a plan to write
		for !strings.Contains(old.st.Log().String(), "late landing") {
			time.Sleep(time.Second)
		}
		f.crash(old)
		f.settle()
		token := f.coordinator().worker.Status().Token
		time.Sleep(10 * time.Minute)
		if !strings.Contains(old.st.Log().String(), "arrived late: precondition failed") && !strings.Contains(old.st.Log().String(), "in truth: precondition failed") {
			t.Errorf("the late plan was not refused:\n%v", old.st.Log())
		}
		if now := f.coordinator().worker.Status().Token; now != token {
			t.Errorf("the plan has token %v, and had %v", now, token)
		}
		f.settle()
		f.end()
	})
}

// TestRefused: bad arguments are refused with a reason.
func TestRefused(t *testing.T) {
	st := memstore.New()
	for _, c := range []struct {
		prefix string
		shards []string
		opts   *shard.Options
		says   string
	}{
		{"/x", nil, nil, "slash"},
		{"x", []string{"a", "a"}, nil, `two shards "a"`},
		{"x", []string{"a", "a/b"}, nil, `"a/b" lies below`},
		{"x", []string{""}, nil, "slash"},
		{"x", []string{"a"}, &shard.Options{Weight: -1}, "weight"},
		{"x", []string{"a"}, &shard.Options{Weight: 1001}, "weight"},
		{"x", []string{"a"}, &shard.Options{TTL: time.Millisecond}, "TTL"},
		{"x", []string{"a"}, &shard.Options{Meta: map[string]string{"x": strings.Repeat("x", 1<<17)}}, "bytes"},
		{"x", manyNames(), nil, "bytes"},
	} {
		if _, err := shard.NewWorker(st, c.prefix, c.shards, c.opts); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("prefix %s, options %+v: %v, want %q in it", c.prefix, c.opts, err, c.says)
		}
	}
	if _, err := shard.NewWorker(nil, "x", nil, nil); err == nil {
		t.Error("a worker without a store")
	}
	if _, err := shard.Owners(t.Context(), st, "/x"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Owners of a bad prefix: %v", err)
	}
}

// manyNames are more than fit into a list.
func manyNames() []string {
	var all []string
	for i := range 8000 {
		all = append(all, fmt.Sprintf("%d-%s", i, strings.Repeat("x", 150)))
	}
	return all
}

// TestHopeless: Run returns when to go on makes no sense, and waits for all else.
func TestHopeless(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 4)
		a := f.start("a", nil)
		f.settle()
		if err := a.worker.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("twice: %v", err)
		}
		f.stop(a)
		c := f.start("c", nil)
		c.st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		<-c.done
		if !errors.Is(c.err, store.ErrDenied) {
			t.Errorf("where nothing is allowed: %v", c.err)
		}
		d := f.start("d", nil)
		d.st.Partition(true)
		time.Sleep(time.Hour)
		d.st.Partition(false)
		f.take(c)
		f.settle()
		f.stop(d)
		if !errors.Is(d.err, context.Canceled) {
			t.Errorf("in the end: %v", d.err)
		}
		f.check()
	})
}
