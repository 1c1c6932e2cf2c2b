package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
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

// unproven is a proof that finds no store safe.
type unproven struct{}

var errUnproven = errors.New("not proven")

func (unproven) Proves(string, string) error { return errUnproven }

// TestAccepted: arguments just within the bounds are accepted, and those just beyond are not.
func TestAccepted(t *testing.T) {
	t.Parallel()
	// "[\n" and "\n]\n" around names of quotes and 64 bytes, with ",\n" between: a list of 15,420
	// has 1,048,561 bytes, and the last name brings it up to a MiB.
	full := names(15420)
	for i := range full {
		full[i] += strings.Repeat("x", 59)
	}
	full[0] += strings.Repeat("x", 1<<20-1_048_563)
	for _, c := range []struct {
		shards []string
		opts   *shard.Options
		says   string // why not; empty: it can be
	}{
		{nil, nil, ""},
		{[]string{"a", "ab", "b/a", "b/b", "b/a.c"}, &shard.Options{}, ""},
		{[]string{"b/a/c", "b/a"}, nil, `"b/a/c" lies below the shard "b/a"`},
		{[]string{"a"}, &shard.Options{Weight: 1}, ""},
		{[]string{"a"}, &shard.Options{Weight: 1000}, ""},
		{full, nil, ""},
		{append([]string{full[0] + "x"}, full[1:]...), nil, "have 1048577 bytes together, more than 1048576"},
		{[]string{"a"}, &shard.Options{Proof: unproven{}}, "not proven"},
		{[]string{"a"}, &shard.Options{Holder: strings.Repeat("x", 1<<17)}, "holder"},
		{[]string{"a"}, &shard.Options{Address: strings.Repeat("x", 1<<17)}, "bytes"},
	} {
		_, err := shard.NewWorker(memstore.New(), prefix, c.shards, c.opts)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d shards, the first %.20q, %+v: %v, want %q in it", len(c.shards), append(c.shards, "")[0], c.opts, err, c.says)
		}
	}
}

// TestWhoItIs: what the options say of a worker stands where others look for it: in its
// session, its membership, the locks of its shards and the election.
func TestWhoItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2)
		const long, address = 30 * time.Second, "https://a.example:1"
		a := f.start("a", &shard.Options{TTL: long, Address: address, Meta: map[string]string{"zone": "z"}, Weight: 7})
		f.settle()
		time.Sleep(time.Hour)
		session := prefix + "/sessions/" + a.worker.Status().Session
		for _, part := range []string{`"holder":"a"`, `"address":"` + address + `"`, `"zone":"z"`, `"ttl_ms":30000`} {
			if text := read(t, f.st, session); !strings.Contains(text, part) {
				t.Errorf("the session says %s, want %s in it", text, part)
			}
		}
		for key, want := range map[string]map[string]string{
			prefix + "/workers/" + a.worker.Status().Session: {"shard.weight": "7"},
			prefix + "/shards/00001":                         nil,
			prefix + "/coordinator":                          nil,
		} {
			lock, err := leasehold.NewLock(f.st, key, nil)
			if err != nil {
				t.Fatal(err)
			}
			i, err := lock.Inspect(t.Context())
			delete(i.Meta, "shard.list")
			if err != nil || !i.Held || i.Abandoned || i.Holder != "a" || i.Address != address || i.TTL != long || !maps.Equal(i.Meta, want) {
				t.Errorf("%s: %+v, %v, want %v", key, i, err, want)
			}
			if i.Session != session {
				t.Errorf("%s is held under %q", key, i.Session)
			}
		}
		f.end()
	})
}

// TestUncleanEnd: a worker that cannot release its shards says so, and does not try for
// ever; also where its session ends before the releases are confirmed, of which it used to say nothing.
func TestUncleanEnd(t *testing.T) {
	const long = time.Minute
	for _, c := range []struct {
		fault faultstore.Fault
		says  string // of what
		times int
		most  time.Duration
	}{
		{faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: prefix + "/sessions/*"}, "the session was not closed", 1, 10 * time.Second},
		{faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: prefix + "/shards/*"}, "a lease was not released", 3, long + 10*time.Second},
		{faultstore.Fault{Kind: faultstore.Unavailable}, "a lease was not released", 4, 2 * long},
	} {
		bubble(t, func(t *testing.T) {
			f, log := newFleet(t, 3), &logbook{}
			a := f.start("a", &shard.Options{TTL: long, Logger: log.logger()})
			f.settle()
			a.st.Inject(c.fault)
			begun := time.Now()
			f.stop(a)
			within(t, "its end", time.Since(begun), c.most)
			key, _, _ := strings.Cut(c.fault.Key, "*")
			if n := log.count("level=WARN", c.says, "="+key); n != c.times || log.count("was not") != n {
				t.Errorf("where %v it says: %s", c.fault, strings.Join(log.lines, ""))
			}
			if log.count("/sessions/") == 0 && c.fault.Op == "" {
				t.Errorf("where %v nothing is said of the session: %s", c.fault, strings.Join(log.lines, ""))
			}
			f.end()
		})
	}
}

// TestStoppedWhileItBegins: a worker that is stopped while its first write of a kind is under
// way leaves nothing under way when Run returns, and nothing that the next one has to wait
// out.
func TestStoppedWhileItBegins(t *testing.T) {
	for _, key := range []string{"/lists/*", "/workers/*", "/coordinator", "/plan", "/shards/00001"} {
		t.Run(key, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, log := newFleet(t, 3), &logbook{}
				st := faultstore.Wrap(f.st, nil)
				var a atomic.Pointer[node]
				begun := make(chan struct{})
				st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Key: prefix + key, Delay: time.Second, When: func(faultstore.Call) bool {
					<-begun
					n := a.Swap(nil) // the first time
					if n != nil {
						f.take(n)
					}
					return n != nil
				}})
				st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Delay: 10 * time.Millisecond})
				n := f.startOver(st, "a", f.shards, &shard.Options{Logger: log.logger()})
				a.Store(n)
				close(begun)
				<-n.done
				before, ended := len(st.Log()), time.Now()
				f.start("b", nil)
				f.settle()
				within(t, "the next worker", time.Since(ended), 4*(ttl/3)+time.Second)
				if sent := st.Log(); len(sent) != before {
					t.Errorf("it has sent this after Run had returned:\n%v", sent[before:])
				}
				if log.count("level=WARN") > 0 {
					t.Errorf("it has logged %s", strings.Join(log.lines, ""))
				}
				f.end()
			})
		})
	}
}

// TestDenied: a worker that may not do what it must ends with an error that says what.
func TestDenied(t *testing.T) {
	for key, says := range map[string]string{
		"/lists/*":     "the list of shards could not be published",
		"/workers/*":   "the worker cannot be made known to the others",
		"/coordinator": "the worker cannot take part in the election of a coordinator",
	} {
		bubble(t, func(t *testing.T) {
			f := newFleet(t, 3)
			st := faultstore.Wrap(f.st, nil)
			st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: prefix + key})
			a := f.startOver(st, "a", f.shards, nil)
			<-a.done
			if !errors.Is(a.err, store.ErrDenied) || !strings.Contains(a.err.Error(), says) {
				t.Errorf("where %s cannot be written: %v, want %q in it", key, a.err, says)
			}
			time.Sleep(2 * ttl)
			a.st.Close()
		})
	}
}

// A logbook is what workers have logged.
type logbook struct {
	mu    sync.Mutex
	lines []string
	last  time.Time // when the last line was written
}

func (l *logbook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.last = append(l.lines, string(line)), time.Now()
	return len(line), nil
}

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count is how many lines hold all of these.
func (l *logbook) count(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}

// since is how long ago the last line was written.
func (l *logbook) since() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.last)
}

// TestBrokenShard: a shard whose lock is none is tried again each TTL, which is logged with
// its name, and is owned soon after somebody has put that right; the others are worked on.
func TestBrokenShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, log := newFleet(t, 4), &logbook{}
		put(t, f.st, prefix+"/shards/00001", "not a lock")
		a := f.start("a", &shard.Options{Logger: log.logger()})
		time.Sleep(10 * time.Minute)
		if got := f.load(a); got != 3 {
			t.Errorf("%d shards are worked on, want the other 3", got)
		}
		n := log.count("a shard cannot be owned at present", "shard=00001", "not a lock")
		if all := log.count("cannot be owned"); n < 35 || n > 41 || all != n {
			t.Errorf("in ten minutes the log said it %d times, and %d times of any shard, want once in a TTL", n, all)
		}
		if err := f.st.Delete(t.Context(), prefix+"/shards/00001"); err != nil {
			t.Fatal(err)
		}
		within(t, "it was put right", f.settle(), ttl+ttl/16+time.Second)
		f.end()
	})
}

// TestGivenUpWhileItWaits: a worker that ends, or whose session does, while it waits for
// shards that others still have leaves nothing behind, and these shards are no trouble to be
// told of.
func TestGivenUpWhileItWaits(t *testing.T) {
	for _, how := range []string{"stopped", "without a session"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, log := newFleet(t, 20), &logbook{}
				f.start("a", nil)
				f.settle()
				f.set(func() { f.drain = time.Minute })
				b := f.start("b", &shard.Options{Logger: log.logger()})
				time.Sleep(40 * time.Second)
				if how == "stopped" {
					begun := time.Now()
					f.stop(b)
					within(t, "its end", time.Since(begun), time.Second)
					if log.count("level=WARN") > 0 {
						t.Errorf("it has logged %s", strings.Join(log.lines, ""))
					}
				} else {
					session := prefix + "/sessions/" + b.worker.Status().Session
					put(t, f.st, session, "not a session")
					for log.count("the worker begins anew") == 0 {
						time.Sleep(time.Second)
					}
					if err := f.st.Delete(t.Context(), session); err != nil {
						t.Fatal(err)
					}
				}
				if s := b.worker.Status(); len(s.Shards) > 0 || log.count("cannot be owned") > 0 {
					t.Errorf("it had %d shards, and logged %s", len(s.Shards), strings.Join(log.lines, ""))
				}
				time.Sleep(time.Minute)
				f.set(func() { f.drain = 0 })
				f.settle()
				f.end()
			})
		})
	}
}

// TestSessionLostIsTold: a worker whose session was lost says that, and why. It used to tell of the election in which it
// took part, or of its membership, which end with the session too.
func TestSessionLostIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, log := newFleet(t, 3), &logbook{}
		a := f.start("a", &shard.Options{Logger: log.logger()})
		b := f.start("b", &shard.Options{Logger: log.logger()})
		f.settle()
		const rounds = 10
		for round := range rounds {
			for _, n := range []*node{a, b} {
				n.st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: prefix + "/sessions/*"})
				for log.count("the worker begins anew") == 2*round+map[bool]int{true: 1}[n == b] {
					time.Sleep(time.Second)
				}
				n.st.Clear()
				f.settle()
			}
		}
		all := log.count("the worker begins anew")
		if n := log.count("the worker begins anew", `error="the session is over: no renewal came through in time"`); n != 2*rounds || all != n {
			t.Errorf("of %d lines %d name the session: %s", all, n, strings.Join(log.lines, ""))
		}
		f.end()
	})
}

// TestSessionLostBeforeItJoined: the same of a worker that has not yet made itself known to the others. It used to say that
// it could not.
func TestSessionLostBeforeItJoined(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, log := newFleet(t, 3), &logbook{}
		st := faultstore.Wrap(f.st, nil)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: prefix + "/workers/*"})
		a := f.startOver(st, "a", f.shards, &shard.Options{Logger: log.logger()})
		time.Sleep(ttl)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: prefix + "/sessions/*"})
		for log.count("the worker begins anew") == 0 {
			time.Sleep(time.Second)
		}
		if n := log.count("the worker begins anew", `error="the session is over: no renewal came through in time"`); n != 1 {
			t.Errorf("it does not say that the session was lost: %s", strings.Join(log.lines, ""))
		}
		a.st.Clear()
		f.settle()
		f.end()
	})
}

// TestWorkFails: an error of the work is logged, with the shard, before it begins again.
func TestWorkFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &logbook{}
		w, err := shard.NewWorker(memstore.New(), prefix, names(1), &shard.Options{Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		run := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			return w.Run(ctx, func(context.Context, shard.Shard) error {
				calls++
				return errors.New("the disk is full")
			})
		}
		for range 2 { // it can run again
			if err = run(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Run: %v", err)
			}
		}
		if n := log.count("the work on a shard has returned", "shard=00000", "the disk is full"); n != calls || n < 24 || n > 34 {
			t.Errorf("the work has failed %d times, and the log says it %d times", calls, n)
		}
	})
}

// TestToldOnce: a trouble that lasts is logged once, when it begins, with what is wrong and
// where, and again when it has ended and comes back.
func TestToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, log := newFleet(t, 12), &logbook{}
		for _, name := range []string{"a", "b"} {
			f.start(name, &shard.Options{Logger: log.logger()})
		}
		f.settle()
		if len(log.lines) > 0 {
			t.Errorf("without any trouble the log says %q", log.lines)
		}
		for round := range 2 {
			put(t, f.st, prefix+"/plan", "not a plan")
			time.Sleep(5 * time.Minute)
			if n := log.count("the plan cannot be followed", prefix+"/plan", "prefix="+prefix); n != 2*(round+1) {
				t.Errorf("the plan is none for the %d. time, and the two workers have said so %d times: %q", round+1, n, log.lines)
			}
			if err := f.st.Delete(t.Context(), prefix+"/plan"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			f.settle()
		}
		if n := log.count("level=WARN"); n != 4 {
			t.Errorf("the log has %d warnings, want 4: %q", n, log.lines)
		}
		f.end()
	})
}

// TestRunTriesAgain: a worker that cannot begin tries again after the pauses that all of this
// module makes, which begin anew after a session that has gone well, and says why once.
func TestRunTriesAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, log := newFleet(t, 4), &logbook{}
		var mu sync.Mutex
		var at []time.Time
		var after time.Duration // from the last line of the log to the last try
		down := true
		st := faultstore.Wrap(f.st, nil)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: prefix + "/lists/*", When: func(faultstore.Call) bool {
			mu.Lock()
			defer mu.Unlock()
			at, after = append(at, time.Now()), log.since()
			return down
		}})
		a := f.startOver(st, "a", f.shards, &shard.Options{Logger: log.logger()})
		time.Sleep(time.Minute)
		mu.Lock()
		for i, want := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
			if got := at[i+1].Sub(at[i]); got < want || got > want+want/16 {
				t.Errorf("after failure %d it has waited %v, want %v and up to a sixteenth more", i+1, got, want)
			}
		}
		down = false
		mu.Unlock()
		if n := log.count("the worker begins anew", "the list of shards could not be published"); n != 1 || len(log.lines) != 1 {
			t.Errorf("it has said why %d times: %q", n, log.lines)
		}
		f.settle()
		time.Sleep(2 * ttl)
		put(t, f.st, prefix+"/sessions/"+a.worker.Status().Session, "not a session")
		mu.Lock()
		before := len(at)
		mu.Unlock()
		for tries := before; tries == before; {
			time.Sleep(time.Second)
			mu.Lock()
			tries = len(at)
			mu.Unlock()
		}
		if n := log.count("the worker begins anew"); n != 2 || after < 100*time.Millisecond || after > 110*time.Millisecond {
			t.Errorf("after a session that has gone well it has begun anew %v after the end of it, and said so %d times: %q", after, n, log.lines)
		}
		f.end()
	})
}

// TestCrowd: who is told to take thousands of shards at once does not send thousands of
// requests at once, and its heartbeats do not wait for them.
func TestCrowd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &crowd{Store: memstore.New()}
		const n = 5000
		w, err := shard.NewWorker(st, prefix, names(n), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var once, ended sync.WaitGroup
		once.Add(n)
		ended.Go(func() {
			_ = w.Run(ctx, func(ctx context.Context, s shard.Shard) error {
				once.Done()
				<-ctx.Done()
				return nil
			})
		})
		begun := time.Now()
		once.Wait() // each begins once: a second time would panic
		within(t, "5,000 shards", time.Since(begun), 15*time.Second)
		if st.most != 64 {
			t.Errorf("%d requests were under way at a time, want 64", st.most)
		}
		if got := len(read(t, st.Store, prefix+"/plan")); got > 16<<10 {
			t.Errorf("the plan of 5,000 shards has %d bytes", got)
		}
		cancel()
		ended.Wait()
		within(t, "and their end", time.Since(begun), 22*time.Second)
	})
}

// TestCost: what twenty minutes of rest cost.
func TestCost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 500)
		for i := range 10 {
			f.start(fmt.Sprint("worker ", i), nil)
		}
		f.settle()
		time.Sleep(time.Minute)
		for _, n := range f.nodes {
			n.st.Reset()
		}
		time.Sleep(20 * time.Minute)
		coordinator := f.coordinator()
		const beats = 1200 / 5
		for _, n := range f.nodes {
			got, want := sent(n), map[string]int{"put sessions": beats, "get plan": beats, "get sessions": beats}
			if n == coordinator {
				want = map[string]int{"put sessions": beats, "list workers": beats, "get plan": beats, "get sessions": 9 * beats}
			}
			if n == coordinator || n == f.nodes[5] {
				t.Logf("%s: %v", n.name, got)
			}
			for what, n := range got {
				if most := want[what] + want[what]/20; n > most {
					t.Errorf("%d requests: %s, want at most %d", n, what, most)
				}
			}
			if got["put sessions"] < beats-1 {
				t.Errorf("%d heartbeats in twenty minutes", got["put sessions"])
			}
		}
		f.end()
	})
}

// A crowd is a store that answers slowly and counts how many requests for shards are under way.
type crowd struct {
	store.Store
	mu        sync.Mutex
	now, most int
}

func (c *crowd) enter(key string) (leave func()) {
	if !strings.HasPrefix(key, prefix+"/shards/") {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
	return func() {
		time.Sleep(50 * time.Millisecond)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}
}

func (c *crowd) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	defer c.enter(key)()
	return c.Store.Get(ctx, key, unless)
}

func (c *crowd) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	defer c.enter(key)()
	return c.Store.Put(ctx, key, body, only)
}
