//go:build linux || darwin

package guardian

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	sec = time.Second
	ms  = time.Millisecond

	hang = 3 * time.Minute // bounds what would never come
)

// The instants around which everything turns, to the nanosecond.
func TestLimit(t *testing.T) {
	t.Parallel()
	open := limit{Deadline: 100 * sec, Grace: 30 * sec}
	ending := limit{Deadline: 100 * sec, Grace: 30 * sec, ending: true}
	for _, c := range []struct {
		what      string
		limit     limit
		now       time.Duration
		due, over bool
		nap, rest time.Duration
	}{
		{"long before", open, 0, false, false, sec, sec},
		{"a second before the grace", open, 69 * sec, false, false, sec, sec},
		{"less than a second before the grace", open, 69*sec + 400*ms, false, false, 600 * ms, sec},
		{"just before the grace", open, 70*sec - 1, false, false, 1, sec},
		{"the grace begins", open, 70 * sec, true, false, 0, sec},
		{"in the grace, not noticed", open, 80 * sec, true, false, 0, sec},
		{"the deadline, not noticed", open, 100 * sec, true, true, 0, 0},
		{"ending, long before", ending, 0, true, false, 100 * ms, sec},
		{"ending, a second before", ending, 99 * sec, true, false, 100 * ms, sec},
		{"ending, soon", ending, 100*sec - 30*ms, true, false, 30 * ms, 30 * ms},
		{"ending, just before", ending, 100*sec - 1, true, false, 1, 1},
		{"ending, the deadline", ending, 100 * sec, true, true, 100 * ms, 0},
		{"ending, long after", ending, 200 * sec, true, true, 100 * ms, 0},
	} {
		l := c.limit
		if due, over := l.due(c.now), l.over(c.now); due != c.due || over != c.over {
			t.Errorf("%s: due %v, over %v; want %v, %v", c.what, due, over, c.due, c.over)
		}
		if nap, rest := l.nap(c.now), l.rest(c.now); nap != c.nap || rest != c.rest {
			t.Errorf("%s: a nap of %v, a rest of %v; want %v, %v", c.what, nap, rest, c.nap, c.rest)
		}
		if l != c.limit {
			t.Errorf("%s: to look at it has changed it: %+v", c.what, l)
		}
	}
}

func TestLimitExtend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what     string
		before   limit
		deadline time.Duration
		moved    bool
		after    time.Duration
	}{
		{"later", limit{Deadline: 10}, 11, true, 11},
		{"the same", limit{Deadline: 10}, 10, false, 10},
		{"earlier: it was overtaken", limit{Deadline: 10}, 9, false, 10},
		{"later, but it is ending", limit{Deadline: 10, ending: true}, 11, false, 10},
		{"earlier, and it is ending", limit{Deadline: 10, ending: true}, 9, false, 10},
	} {
		l := c.before
		if moved := l.extend(c.deadline); moved != c.moved || l.Deadline != c.after || l.ending != c.before.ending {
			t.Errorf("%s: moved %v, to %v; want %v, %v", c.what, moved, l.Deadline, c.moved, c.after)
		}
	}
}

func TestLimitEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		before limit
		now    time.Duration
		began  bool
		after  time.Duration
	}{
		{"long before: after the grace", limit{Deadline: 100, Grace: 30}, 10, true, 40},
		{"so that the grace ends at the deadline", limit{Deadline: 100, Grace: 30}, 70, true, 100},
		{"within the grace: at the deadline", limit{Deadline: 100, Grace: 30}, 90, true, 100},
		{"too late: the deadline stays", limit{Deadline: 100, Grace: 30}, 200, true, 100},
		{"for the second time: no new grace", limit{Deadline: 40, Grace: 30, ending: true}, 5, false, 40},
	} {
		l := c.before
		if began := l.end(c.now); began != c.began || l.Deadline != c.after || !l.ending {
			t.Errorf("%s: began %v, ends at %v (%v); want %v, %v", c.what, began, l.Deadline, l.ending, c.began, c.after)
		}
	}
}

// Whatever comes in whatever order, a limit is never later than the latest deadline
// that it was told, and moves only for a reason. A process that naps as it says
// looks at every instant that matters, and once a second.
func TestLimitProperties(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		l := limit{Deadline: time.Duration(r.Int64N(int64(20 * sec))), Grace: time.Duration(r.Int64N(int64(5 * sec)))}
		told, asked := l.Deadline, time.Duration(-1)
		var now time.Duration
		for range 30 {
			before := l
			switch r.IntN(6) {
			case 0:
				l.obey([]order{{Stop: true}}, true, now)
			case 1:
				l.obey(nil, false, now)
			default:
				d := time.Duration(r.Int64N(int64(30 * sec)))
				if !l.ending {
					told = max(told, d)
				}
				l.obey([]order{{Deadline: d}}, true, now)
			}
			if l.ending && asked < 0 {
				asked = min(told, now+l.Grace)
			}
			switch {
			case !l.ending && l.Deadline != told:
				t.Fatalf("seed %d: the deadline is %v, and %v was told", seed, l.Deadline, told)
			case l.ending && l.Deadline != asked:
				t.Fatalf("seed %d: it ends at %v, and should at %v", seed, l.Deadline, asked)
			case before.ending && l != before:
				t.Fatalf("seed %d: what was begun has changed from %+v to %+v", seed, before, l)
			}
			nap, rest := l.nap(now), l.rest(now)
			for _, at := range []time.Duration{l.Deadline - l.Grace, l.Deadline} {
				if !l.ending && now < l.Deadline-l.Grace && at < now+nap && at > now {
					t.Fatalf("seed %d: at %v a nap of %v sleeps through %v", seed, now, nap, at)
				}
			}
			if now < l.Deadline && (now+rest > l.Deadline || l.ending && now+nap > l.Deadline) || nap > sec || rest > sec || nap < 0 || rest < 0 {
				t.Fatalf("seed %d: at %v, %+v: a nap of %v, a rest of %v", seed, now, l, nap, rest)
			}
			now += time.Duration(r.Int64N(int64(2 * sec)))
		}
	}
}

// TestPauseAfterASweep: the watcher soon looks again while something is left of what it has
// killed, for that may have forked. Then it waits for the parent to go, and ends.
func TestPauseAfterASweep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		left, present bool
		nap           time.Duration
		done          bool
	}{
		{left: true, present: true, nap: killNap},
		{left: true, nap: killNap},
		{present: true, nap: -1},
		{nap: -1, done: true},
	} {
		w := &watcher{present: c.present}
		if nap, done := w.after(c.left); nap != c.nap || done != c.done {
			t.Errorf("left %v, with a parent %v: a pause of %v, done %v", c.left, c.present, nap, done)
		}
	}
}
