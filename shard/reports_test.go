package shard_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

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
