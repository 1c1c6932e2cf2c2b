package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A diary is what a Trace was told, but for renewals and requests, which are counted.
type diary struct {
	began time.Time

	mu       sync.Mutex
	lines    []string
	renewals int
	ops      map[string]int
}

func (d *diary) add(at time.Time, of locktrace.Subject, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v %v of %s: %s", at.Sub(d.began), of.Kind, of.Holder, fmt.Sprintf(format, args...)))
}

func (d *diary) wants(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	// The session that a semaphore begins has a queue of its own.
	ours := slices.DeleteFunc(slices.Clone(d.lines), func(s string) bool { return strings.Contains(s, " session of ") })
	if !slices.Equal(ours, want) {
		t.Errorf("%s: told\n\t%s\nwant\n\t%s", what, strings.Join(ours, "\n\t"), strings.Join(want, "\n\t"))
	}
	d.lines = nil
}

func end(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, context.DeadlineExceeded):
		return "late"
	case errors.Is(err, leasehold.ErrLost):
		return "lost"
	case errors.Is(err, leasehold.ErrHeld):
		return "held"
	}
	return err.Error()
}

// firstOf is the first of the holders that an error names.
func firstOf(held error) leasehold.Entry {
	if h, ok := errors.AsType[*leasehold.HeldError](held); ok && len(h.Info.Holders) > 0 {
		return h.Info.Holders[0]
	}
	return leasehold.Entry{}
}

func (d *diary) options(holder string) *semaphore.Options {
	d.began, d.ops = time.Now(), map[string]int{}
	return &semaphore.Options{Holder: holder, Trace: &locktrace.Trace{
		AcquireStart: func(ctx context.Context, e locktrace.AcquireStart) context.Context {
			d.add(e.Time, e.Subject, "start")
			return ctx
		},
		Waiting: func(_ context.Context, e locktrace.Waiting) {
			d.add(e.Time, e.Subject, "waits for %s behind %d", firstOf(e.Held).Holder, e.Ahead)
		},
		AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
			d.add(e.Time, e.Subject, "done, %s, waited %t, took over %t", end(e.Err), e.Waited, e.TookOver)
		},
		Renewed: func(context.Context, locktrace.Renewed) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.renewals++
		},
		Lost: func(_ context.Context, e locktrace.Lost) {
			d.add(e.Time, e.Subject, "lost, %s, held %v", end(e.Cause), e.Held)
		},
		Released: func(_ context.Context, e locktrace.Released) {
			d.add(e.Time, e.Subject, "released, %s, held %v, lost %t", end(e.Err), e.Held, e.Lost)
		},
		Trouble: func(_ context.Context, e locktrace.Trouble) {
			d.add(e.Time, e.Subject, "trouble, %d failures", e.Failures)
		},
		Request: func(_ context.Context, e locktrace.Request) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.ops[e.Kind.String()+" "+e.Op]++
		},
	}}
}

// TestTrace: all that happens to a slot is told once and in order.
func TestTrace(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		cut := faultstore.Wrap(st, nil)
		var da, db diary
		a, b := newSemaphore(t, cut, 1, da.options("a")), newSemaphore(t, st, 1, db.options("b"))
		lease := acquired(t, a, 1)
		da.wants(t, "acquired", "0s semaphore of a: start", "0s semaphore of a: done, nil, waited false, took over false")
		if _, err := b.TryAcquire(t.Context(), 1); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		db.wants(t, "tried", "0s semaphore of b: start", "0s semaphore of b: done, held, waited false, took over false")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := b.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		db.wants(t, "given up", "0s semaphore of b: start", "0s semaphore of b: waits for a behind 0", "3s semaphore of b: done, late, waited true, took over false")
		got := make(chan *leasehold.Lease)
		go func() { got <- acquired(t, b, 1) }()
		time.Sleep(3 * time.Second)
		released(t, lease)
		da.mu.Lock()
		if n := len(da.lines); n == 0 || !strings.HasSuffix(da.lines[n-1], "semaphore of a: released, nil, held 6s, lost false") {
			t.Errorf("released: %q", da.lines)
		}
		da.lines = nil
		da.mu.Unlock()
		second := <-got
		db.mu.Lock()
		if n := len(db.lines); n < 3 || !strings.HasSuffix(db.lines[n-1], "semaphore of b: done, nil, waited true, took over false") {
			t.Errorf("handed over: %q", db.lines)
		}
		db.lines = nil
		db.mu.Unlock()
		released(t, second)
		db.mu.Lock()
		db.lines = nil
		db.mu.Unlock()

		began := time.Since(da.began)
		gone := acquired(t, a, 1)
		cut.Partition(true)
		second = acquired(t, b, 1)
		db.mu.Lock()
		if n := len(db.lines); n < 3 || !strings.HasSuffix(db.lines[n-1], "semaphore of b: done, nil, waited true, took over true") {
			t.Errorf("taken over: %q", db.lines)
		}
		db.mu.Unlock()
		cut.Partition(false)
		if err := gone.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
		synctest.Wait()
		da.mu.Lock()
		ours := slices.DeleteFunc(slices.Clone(da.lines), func(s string) bool { return strings.Contains(s, " session of ") || strings.Contains(s, "trouble") })
		if len(ours) != 4 || ours[0] != fmt.Sprintf("%v semaphore of a: start", began) || !strings.Contains(ours[2], "lost, lost, held ") || !strings.HasSuffix(ours[3], "lost true") {
			t.Errorf("lost: %q", ours)
		}
		if da.renewals == 0 || da.ops["semaphore read"] == 0 || da.ops["semaphore write"] < 2 || da.ops["session claim"] == 0 || da.ops["session renew"] == 0 {
			t.Errorf("%d renewals, requests %v", da.renewals, da.ops)
		}
		da.mu.Unlock()
		db.mu.Lock()
		if db.ops["session read"] < 3 { // it has watched the session of the holder
			t.Errorf("requests %v", db.ops)
		}
		db.mu.Unlock()
		released(t, second)
		_ = a.Close(t.Context()) // its session was lost
		closed(t, b)
	})
}

// TestTraceBesideOthers: whoever gets a slot beside others, who stay, has taken nothing over.
func TestTraceBesideOthers(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		var told diary
		a, b := newSemaphore(t, st, 2, nil), newSemaphore(t, st, 2, told.options("b"))
		held := acquired(t, a, 1)
		lease := acquired(t, b, 1)
		told.wants(t, "acquired", "0s semaphore of b: start", "0s semaphore of b: done, nil, waited false, took over false")
		released(t, held, lease)
		closed(t, a, b)
	})
}

type traceKey struct{}

// TestTraceIsWhole: whatever the store does, each acquisition that begins ends once, and each lease is released
// once and lost once at most, in that order.
func TestTraceIsWhole(t *testing.T) {
	lost := 0 // in all: some seeds see few
	for seed := range leasetest.Seeds(2) {
		leasetest.Bubble(t, func(t *testing.T) {
			var mu sync.Mutex
			state := map[int]string{}
			step := func(ctx context.Context, what string, to map[string]string) {
				mu.Lock()
				defer mu.Unlock()
				n, _ := ctx.Value(traceKey{}).(int)
				next, ok := to[state[n]]
				if !ok {
					t.Errorf("seed %d: acquisition %d is %s when it is %q", seed, n, what, state[n])
				}
				state[n] = next
			}
			slots := func(f func(ctx context.Context, what string, to map[string]string)) *locktrace.Trace {
				return &locktrace.Trace{
					AcquireStart: func(ctx context.Context, e locktrace.AcquireStart) context.Context {
						mu.Lock()
						defer mu.Unlock()
						n := len(state) + 1
						state[n] = "begun"
						return context.WithValue(ctx, traceKey{}, n)
					},
					Waiting: func(ctx context.Context, _ locktrace.Waiting) {
						f(ctx, "waiting", map[string]string{"begun": "begun"})
					},
					AcquireDone: func(ctx context.Context, e locktrace.AcquireDone) {
						to := map[string]string{"begun": "held"}
						if e.Err != nil {
							to["begun"] = "failed"
						}
						f(ctx, "done", to)
					},
					Lost: func(ctx context.Context, e locktrace.Lost) {
						f(ctx, "lost", map[string]string{"held": "lost"})
						mu.Lock()
						defer mu.Unlock()
						if lost++; !errors.Is(e.Cause, leasehold.ErrLost) || e.Held < 0 {
							t.Errorf("%+v", e)
						}
					},
					Released: func(ctx context.Context, e locktrace.Released) {
						to := map[string]string{"held": "released"}
						if e.Lost {
							to = map[string]string{"lost": "released"}
						}
						if f(ctx, "released", to); e.Held < 0 || e.Took < 0 {
							t.Errorf("%+v", e)
						}
					},
				}
			}
			inner := memstore.New()
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var sems []*semaphore.Semaphore
			for i, holder := range []string{"a", "b", "c"} {
				st := faultstore.Wrap(inner, &faultstore.Options{Seed: seed*3 + uint64(i), Faults: []faultstore.Fault{
					{Kind: faultstore.Unavailable, Probability: 0.1},
					{Kind: faultstore.LostAnswer, Probability: 0.1},
					{Kind: faultstore.DelayAfter, Probability: 0.1, Jitter: 6 * time.Second},
				}})
				s := newSemaphore(t, st, 2, &semaphore.Options{Holder: holder, TTL: 5 * time.Second, Trace: slots(step)})
				sems = append(sems, s)
				for n := range 3 {
					random := rand.New(rand.NewPCG(seed, uint64(10*i+n)))
					all.Go(func() { slotsAtRandom(ctx, s, random) })
				}
			}
			time.Sleep(10 * time.Minute)
			stop()
			all.Wait()
			for _, s := range sems {
				_ = s.Close(t.Context()) // its session may be lost
			}
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			leases := 0
			for n, s := range state {
				switch s {
				case "released":
					leases++
				case "failed":
				default:
					t.Errorf("seed %d: acquisition %d is %q in the end", seed, n, s)
				}
			}
			if leases < 50 {
				t.Errorf("seed %d shows little: %d leases", seed, leases)
			}
		})
	}
	t.Logf("%d leases were lost", lost)
	if lost == 0 {
		t.Error("this shows little: no lease was lost")
	}
}

// slotsAtRandom acquires, holds, abandons and releases slots until ctx ends.
func slotsAtRandom(ctx context.Context, s *semaphore.Semaphore, random *rand.Rand) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(20*time.Second))))
		take := s.Acquire
		if random.IntN(4) == 0 {
			take = s.TryAcquire
		}
		if lease, err := take(limited, 1+random.IntN(2)); err == nil {
			select {
			case <-time.After(time.Duration(random.Int64N(int64(5 * time.Second)))):
			case <-ctx.Done():
			}
			if random.IntN(6) == 0 {
				go lease.Abandon(nil) // as it is released
			}
			_ = lease.Release(limited)
		}
		cancel()
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
	}
}

// TestTraceSaysAll: what a Trace is told has the tokens, times and names of what happened, behind a store whose
// answers take 100 ms.
func TestTraceSaysAll(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		began := time.Now()
		st := memstore.New()
		slow := faultstore.Fault{Kind: faultstore.DelayAfter, Delay: 100 * time.Millisecond}
		netA, netB := faultstore.Wrap(st, nil), faultstore.Wrap(st, nil)
		netA.Inject(slow)
		netB.Inject(slow)
		var mu sync.Mutex
		var told []string
		say := func(at time.Time, of locktrace.Subject, format string, args ...any) {
			if !at.Equal(time.Now()) {
				t.Errorf("told at %v of what happened at %v", time.Now(), at)
			}
			if net := map[string]*faultstore.Store{"a": netA, "b": netB}[of.Holder]; of.Store != net.String() || of.Kind == locktrace.Semaphore && of.Key != "slots" {
				t.Errorf("told of %q in %q", of.Key, of.Store)
			}
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf("%v %s: %s", of.Kind, of.Holder, fmt.Sprintf(format, args...)))
		}
		number := func(token int64) int64 { return max(-1, token-began.Unix()*1000) }
		var watched bool
		var holders string // the session of a's lease
		options := func(holder string) *semaphore.Options {
			return &semaphore.Options{Holder: holder, Trace: &locktrace.Trace{
				Waiting: func(_ context.Context, e locktrace.Waiting) {
					first := firstOf(e.Held)
					if first.Session != holders {
						t.Errorf("it waits for %v", e.Held)
					}
					say(e.Time, e.Subject, "waits for %q with %d, behind %d", first.Holder, number(int64(first.Token)), e.Ahead)
				},
				AcquireDone: func(_ context.Context, e locktrace.AcquireDone) {
					say(e.Time, e.Subject, "done with %d in %v, %s", number(e.Token), e.Took, end(e.Err))
				},
				Lost: func(_ context.Context, e locktrace.Lost) {
					say(e.Time, e.Subject, "lost %d after %v", number(e.Token), e.Held)
				},
				Released: func(_ context.Context, e locktrace.Released) {
					if e.Kind == locktrace.Semaphore { // a session that is not used is released at some time
						say(e.Time, e.Subject, "released %d in %v, %t", number(e.Token), e.Took, e.Err == nil)
					}
				},
				Trouble: func(_ context.Context, e locktrace.Trouble) {
					say(e.Time, e.Subject, "%d failures, unavailable %t", e.Failures, errors.Is(e.Err, store.ErrUnavailable))
				},
				Request: func(_ context.Context, e locktrace.Request) {
					switch {
					case e.Kind == locktrace.Session && e.Op == "read" && e.Holder == "b":
						watched = watched || e.Store == netB.String() && e.Key == holders && e.Took == 100*time.Millisecond && e.Err == nil
					case e.Kind == locktrace.Semaphore && e.Op == "write":
						say(e.Time, e.Subject, "write in %v, failed %t", e.Took, e.Err != nil)
					}
				},
			}}
		}
		wants := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("%s: told\n\t%s\nwant\n\t%s", what, strings.Join(told, "\n\t"), strings.Join(want, "\n\t"))
			}
			told = nil
		}
		a, b := newSemaphore(t, netA, 1, options("a")), newSemaphore(t, netB, 1, options("b"))
		lease := acquired(t, a, 1)
		info, err := newSemaphore(t, st, 1, nil).Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		holders = info.Holders[0].Session
		wants("acquired",
			"session a: done with 0 in 200ms, nil",
			"semaphore a: write in 100ms, failed false",
			"semaphore a: done with 201 in 400ms, nil")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := b.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Second) // it leaves the queue
		wants("given up",
			"session b: done with 400 in 200ms, nil",
			"semaphore b: write in 100ms, failed false",
			`semaphore b: waits for "a" with 201, behind 0`,
			"semaphore b: done with -1 in 3s, late",
			"semaphore b: write in 100ms, failed false")
		if _, err := a.TryAcquire(t.Context(), 1); !errors.Is(err, leasehold.ErrHeld) { // it reads that b has gone
			t.Error(err)
		}
		wants("tried", "semaphore a: done with -1 in 100ms, held")
		released(t, lease)
		wants("released",
			"semaphore a: write in 100ms, failed false",
			"semaphore a: released 201 in 100ms, true")
		if _, err := b.Inspect(t.Context()); err != nil {
			t.Error(err)
		}
		lease = acquired(t, b, 1)
		synctest.Wait()
		mu.Lock()
		told = nil
		mu.Unlock()
		netB.Clear()
		netB.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Key: "slots"})
		time.Sleep(time.Second)
		if err := lease.Release(t.Context()); err == nil {
			t.Error("a release that the store refused returned nil")
		}
		wants("not released",
			"semaphore b: write in 0s, failed true",
			"semaphore b: 4 failures, unavailable true",
			"semaphore b: released 202 in 15s, false")
		if !watched {
			t.Error("no request for the session of the holder was told of")
		}
		closed(t, a)
		_ = b.Close(t.Context())
	})
}

// TestTraceOfALateGrant: a lease whose session had run out as it was granted is told of to its end; the acquisition, which
// goes on under another session, is then told of as another one.
func TestTraceOfALateGrant(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		var told diary
		opts := told.options("a")
		start, starts := opts.Trace.AcquireStart, 0
		opts.Trace.AcquireStart = func(ctx context.Context, e locktrace.AcquireStart) context.Context {
			if start(ctx, e); e.Kind == locktrace.Semaphore {
				starts++
			}
			return context.WithValue(ctx, traceKey{}, starts)
		}
		s := newSemaphore(t, st, 1, opts)
		slept := false
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: "slots", When: func(faultstore.Call) bool {
			if !slept {
				slept = true
				leasetest.Slept.Store(int64(time.Hour))
			}
			return false
		}})
		l := acquired(t, s, 1)
		if n := l.Context().Value(traceKey{}); n != 2 {
			t.Errorf("the lease has the values of acquisition %v", n)
		}
		released(t, l)
		synctest.Wait()
		told.mu.Lock()
		slices.Sort(told.lines) // that the second begins is told as it does, all else on another goroutine
		for i, line := range told.lines {
			// The first session is closed meanwhile, which may come before the release of its slot.
			if strings.HasSuffix(line, "the session is over: it was closed, held 0s, lost true") {
				told.lines[i] = "0s semaphore of a: released, nil, held 0s, lost true"
			}
		}
		told.mu.Unlock()
		told.wants(t, "acquired",
			"0s semaphore of a: done, nil, waited false, took over false",
			"0s semaphore of a: done, nil, waited false, took over false",
			"0s semaphore of a: lost, lost, held 0s",
			"0s semaphore of a: released, nil, held 0s, lost false",
			"0s semaphore of a: released, nil, held 0s, lost true",
			"0s semaphore of a: start",
			"0s semaphore of a: start")
		_ = s.Close(t.Context()) // the first session was lost
	})
}
