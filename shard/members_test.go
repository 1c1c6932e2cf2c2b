package shard_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store/faultstore"
)

// TestMembershipCannotBeRead: a coordinator that cannot read a membership for now does not
// take its worker for gone.
func TestMembershipCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := settledFleet(t)
		c, x := f.coordinator(), f.other()
		id := x.worker.Status().Session
		for _, n := range f.living() {
			tries := 0
			n.st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "get", Key: prefix + "/workers/" + id, When: func(faultstore.Call) bool {
				tries++
				return tries <= 4
			}})
		}
		_, before := f.last()
		f.stop(c)
		f.settle()
		f.mu.Lock()
		plans := slices.Clone(f.plans[before:])
		f.mu.Unlock()
		for _, p := range plans {
			if !slices.ContainsFunc(p.Workers, func(m shard.Member) bool { return m.Session == id }) {
				t.Errorf("a plan leaves it out: %+v", p.Workers)
			}
		}
		f.end()
	})
}

// TestMembershipStays: a membership that cannot be deleted keeps nobody's shards from the
// others, and that is said to those who debug.
func TestMembershipStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, log := newFleet(t, 12), &logbook{}
		for _, name := range []string{"a", "b", "c"} {
			n := f.start(name, &shard.Options{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			n.st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "delete"})
		}
		f.settle()
		gone := f.other()
		f.stop(gone)
		within(t, "one is stopped", f.settle(), ttl/3*2+2*time.Second)
		if n := log.count("level=DEBUG", "the membership of a worker that is gone was not deleted", "worker="+gone.worker.Status().Session); n != 1 {
			t.Errorf("that is said %d times", n)
		}
		f.stop(f.coordinator())
		within(t, "the coordinator is stopped", f.settle(), 2*ttl)
		f.end()
	})
}

// TestMemberships: a membership counts if it is held under its own session and says a weight
// and a list; any other is left as it is, and one that says nonsense is logged once.
func TestMemberships(t *testing.T) {
	list := func(t *testing.T, f *fleet) string {
		t.Helper()
		for e, err := range f.st.List(t.Context(), prefix+"/lists/", "") {
			if err != nil {
				t.Fatal(err)
			}
			return e.Key[len(prefix+"/lists/"):]
		}
		t.Fatal("there is no list")
		return ""
	}
	for _, c := range []struct {
		name, weight, list string
		apart              bool // not under its session
		counts             bool
		says               string // the log
	}{
		{name: "as it should be", weight: "1", counts: true},
		{name: "heavy", weight: "1000", counts: true},
		{name: "too heavy", weight: "1001", says: `its shard.weight is \"1001\"`},
		{name: "without weight", weight: "0", says: `its shard.weight is \"0\"`},
		{name: "much too heavy", weight: "99999999999999999999", says: "its shard.weight is"},
		{name: "a word", weight: "x", says: `its shard.weight is \"x\"`},
		{name: "says nothing", says: `its shard.weight is \"\"`},
		{name: "not under its session", weight: "1", apart: true},
		{name: "of a list that there is not", weight: "1", list: "none", says: "a worker gets no shards"},
		{name: "of a list that is none", weight: "1", list: "garbled", says: "a worker gets no shards"},
		{name: "of a list that no key can be", weight: "1", list: "/", says: "a worker gets no shards"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, log := newFleet(t, 12), &logbook{}
				a := f.start("a", &shard.Options{Logger: log.logger()})
				f.settle()
				put(t, f.st, prefix+"/lists/garbled", "garbled")
				s, err := leasehold.NewSession(t.Context(), f.st, &leasehold.SessionOptions{Prefix: prefix + "/sessions"})
				if err != nil {
					t.Fatal(err)
				}
				id := s.Key()[len(prefix+"/sessions/"):]
				if c.list == "" {
					c.list = list(t, f)
				}
				opts := &leasehold.LockOptions{Holder: "planted", Meta: map[string]string{"shard.weight": c.weight, "shard.list": c.list}}
				if !c.apart {
					opts.Session = s
				}
				lock, err := leasehold.NewLock(f.st, prefix+"/workers/"+id, opts)
				if err != nil {
					t.Fatal(err)
				}
				lease, err := lock.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				last, _ := f.last()
				if got := slices.ContainsFunc(last.Workers, func(m shard.Member) bool {
					return m.Session == id && m.Holder == "planted" && fmt.Sprint(m.Weight) == c.weight
				}); got != c.counts {
					t.Errorf("the plan has it: %v, want %v: %+v", got, c.counts, last.Workers)
				}
				if got := f.load(a); (got == 12) == c.counts {
					t.Errorf("the other worker has %d shards of 12", got)
				}
				said := log.count("level=WARN")
				if want := min(len(c.says), 1); said != want || log.count(c.says, "") < want {
					t.Errorf("the log says %q", log.lines)
				}
				if !lease.Valid() {
					t.Errorf("it was taken from its holder: %v", lease.Err())
				}
				if err = lease.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err = s.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.settle()
				f.end()
			})
		})
	}
}
