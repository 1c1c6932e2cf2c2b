package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/memstore"
)

// A stub is a holding that is as the test says.
type stub struct {
	ctx      context.Context //nolint:containedctx // a holding has one
	end      context.CancelFunc
	mu       sync.Mutex
	deadline time.Time
	invalid  bool
	err      error
	released []time.Duration // how long each release may take
	hangs    bool            // each takes that long
	fails    error
}

func (h *stub) Context() context.Context { return h.ctx }
func (h *stub) Holder() string           { return "me" }
func (h *stub) Token() leasehold.Token   { return 7 }

func (h *stub) Valid() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.invalid
}

func (h *stub) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

func (h *stub) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// loses ends the holding by itself.
func (h *stub) loses(err error) {
	h.mu.Lock()
	h.err, h.invalid = err, err != nil
	h.mu.Unlock()
	h.end()
	synctest.Wait()
}

func (h *stub) Release(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, _ := ctx.Deadline()
	h.released = append(h.released, time.Until(until))
	if h.hangs {
		<-ctx.Done()
	}
	return h.fails
}

// held is a stub that is valid for so long.
func held(t *testing.T, d time.Duration) *stub {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	return &stub{ctx: ctx, end: end, deadline: time.Now().Add(d)}
}

// leasing is a server that was not started, for leases of stubs.
func leasing(t *testing.T, log *leasetest.Log) *Server {
	t.Helper()
	s, err := New(memstore.New(), &Options{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What the holder of a lease is told is the shorter of its TTL and what its session allows, cut to milliseconds; of what is not
// valid it is told nothing.
func TestTold(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := leasing(t, new(leasetest.Log))
		broken := errors.New("broken")
		for _, tc := range []struct {
			ttl, session time.Duration
			change       func(*stub)
			left         int64 // 0: it is refused
		}{
			{10 * time.Second, 20 * time.Second, nil, 10_000},
			{10*time.Second + 1999*time.Microsecond, 20 * time.Second, nil, 10_001},
			{10 * time.Second, 5 * time.Second, nil, 5000},
			{10 * time.Second, time.Millisecond, nil, 1},
			{10 * time.Second, 999 * time.Microsecond, nil, 0},
			{10 * time.Second, 0, nil, 0},
			{10 * time.Second, -time.Second, nil, 0},
			{10 * time.Second, 20 * time.Second, func(h *stub) { h.deadline = time.Time{} }, 0},
			{10 * time.Second, 20 * time.Second, func(h *stub) { h.invalid = true }, 0},
		} {
			h := held(t, tc.session)
			h.err = broken
			if tc.change != nil {
				tc.change(h)
			}
			l, got, err := s.admit(&asked{id: "chosen", key: "k", ttl: tc.ttl}, h, func() {})
			want := LeaseAnswer{
				Lease: "chosen", Key: "k", Token: 7, Holder: "me", TTL: tc.ttl.Milliseconds(), Left: tc.left,
				Deadline: time.Now().Add(time.Duration(tc.left) * time.Millisecond).UTC().Truncate(time.Millisecond),
			}
			if tc.left == 0 {
				want = LeaseAnswer{}
			}
			if got != want || (tc.left == 0) != errors.Is(err, broken) || (l == nil) != (tc.left == 0) {
				t.Errorf("%v of a session of %v: %+v, %v, want %+v", tc.ttl, tc.session, got, err, want)
			}
			if l != nil {
				l.end("done")
				<-l.settled
			}
		}
		if s.stats.acquired.Load() != 4 || len(s.leases) != 0 || len(s.usages) != 0 {
			t.Errorf("%d acquisitions, %d leases, %d keys", s.stats.acquired.Load(), len(s.leases), len(s.usages))
		}
	})
}

// A lease goes on as long as its caller is heard of within its TTL and a margin. It ends once, for one reason, which whoever
// asks is told; and is released once.
func TestEndsOnce(t *testing.T) {
	const ttl = 12 * time.Second
	kept := ttl + margin(ttl)
	ends := func(err error) func(*Server, *lease, *stub) {
		return func(_ *Server, _ *lease, h *stub) { h.loses(err) }
	}
	for what, tc := range map[string]struct {
		happens            func(*Server, *lease, *stub)
		why                string // "": it goes on
		silent, lost, told int64  // told: for how long it is told that it lasts yet
	}{
		"nothing":                          {func(*Server, *lease, *stub) {}, "", 0, 0, 12_000},
		"some time":                        {func(*Server, *lease, *stub) { time.Sleep(5 * time.Second) }, "", 0, 0, 7000},
		"a keepalive":                      {func(_ *Server, l *lease, _ *stub) { time.Sleep(5 * time.Second); l.keepalive() }, "", 0, 0, 12_000},
		"silence":                          {func(*Server, *lease, *stub) { time.Sleep(kept); synctest.Wait() }, "its caller has not been heard of for its TTL", 1, 0, 0},
		"almost":                           {func(*Server, *lease, *stub) { time.Sleep(kept - 1) }, "", 0, 0, 0},
		"a keepalive at the last moment":   {func(_ *Server, l *lease, _ *stub) { time.Sleep(kept - 1); l.keepalive() }, "", 0, 0, 12_000},
		"a keepalive after a sleep":        {func(_ *Server, l *lease, _ *stub) { leasetest.Slept.Add(int64(kept)); l.keepalive() }, "its caller has not been heard of for its TTL", 0, 0, 0},
		"a keepalive within a sleep":       {func(_ *Server, l *lease, _ *stub) { leasetest.Slept.Add(int64(kept - 1)); l.keepalive() }, "", 0, 0, 12_000},
		"a question after a sleep":         {func(s *Server, l *lease, _ *stub) { leasetest.Slept.Add(int64(kept)); _, _ = s.find(l.id) }, "its caller has not been heard of for its TTL", 0, 0, 0},
		"a loss":                           {ends(fmt.Errorf("lost:\n%w", leasehold.ErrLost)), "lost:; " + leasehold.ErrLost.Error(), 0, 1, 0},
		"a release by itself":              {ends(leasehold.ErrReleased), "", 0, 0, 0},
		"an end without a reason":          {ends(nil), "", 0, 0, 12_000},
		"a loss that is seen first":        {func(s *Server, l *lease, h *stub) { h.err, h.invalid = leasehold.ErrLost, true; _, _ = s.find(l.id) }, leasehold.ErrLost.Error(), 0, 1, 0},
		"an end":                           {func(_ *Server, l *lease, _ *stub) { l.end("first") }, "first", 0, 0, 0},
		"a loss after an end":              {func(_ *Server, l *lease, h *stub) { l.end("first"); h.loses(leasehold.ErrLost); l.lost() }, "first", 0, 0, 0},
		"silence after an end":             {func(_ *Server, l *lease, _ *stub) { l.end("first"); time.Sleep(2 * kept); l.silent() }, "first", 0, 0, 0},
		"a timer that comes too early":     {func(_ *Server, l *lease, _ *stub) { l.silent(); time.Sleep(kept - 1) }, "", 0, 0, 0},
		"a timer that comes too early, on": {func(_ *Server, l *lease, _ *stub) { l.silent(); time.Sleep(kept); synctest.Wait() }, "its caller has not been heard of for its TTL", 1, 0, 0},
		"a stop":                           {func(s *Server, l *lease, _ *stub) { s.cancel(errStopping); l.endWhenTold(); time.Sleep(kept - 1) }, "", 0, 0, 0},
		"a stop, and the time that was told": {
			func(s *Server, l *lease, _ *stub) {
				s.cancel(errStopping)
				l.endWhenTold()
				time.Sleep(kept)
				synctest.Wait()
			},
			"the server stops, and the time is over that its caller was told", 0, 0, 0,
		},
		"a stop, and a timer that has run": {func(s *Server, l *lease, _ *stub) {
			s.cancel(errStopping)
			l.endWhenTold()
			leasetest.Slept.Add(int64(2 * kept))
			l.silent()
		}, "", 0, 0, 0},
		"a stop after an end": {func(s *Server, l *lease, _ *stub) {
			l.end("first")
			s.cancel(errStopping)
			l.endWhenTold()
			time.Sleep(kept)
		}, "first", 0, 0, 0},
	} {
		t.Run(what, func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				s, h, left := leasing(t, new(leasetest.Log)), held(t, time.Hour), 0
				l, _, err := s.admit(&asked{id: "id", key: "k", ttl: ttl}, h, func() { left++ })
				if err != nil {
					t.Fatal(err)
				}
				tc.happens(s, l, h)
				answer, _ := l.tell()
				synctest.Wait()
				l.mu.Lock()
				why := l.why
				l.mu.Unlock()
				releases := 0
				if tc.why != "" {
					releases = 1
					<-l.over
					<-l.settled
					if _, err := s.find("id"); err == nil || err.Error() != "over: "+tc.why {
						t.Errorf("it is told %v", err)
					}
				}
				if why != tc.why || answer.Left != tc.told || s.stats.silent.Load() != tc.silent || s.stats.lost.Load() != tc.lost || left != releases || len(h.released) != releases || len(s.leases) != 1-releases {
					t.Errorf("it is over since %q; told %d, silent %d, lost %d, left %d, released %d times, %d leases", why, answer.Left, s.stats.silent.Load(), s.stats.lost.Load(), left, len(h.released), len(s.leases))
				}
				told := "over: " + tc.why
				switch {
				case tc.why == "" && l.last:
					told = "over: the server stops: end the work, and release the lease"
				case tc.why == "":
					told = "over: the lease is not valid now"
				}
				if got := l.gone(); got == nil || got.Error() != told {
					t.Errorf("who asks is told %v, want %s", got, told)
				}
				if l.end("done") != (releases == 0) {
					t.Error("an end that was another's is taken for its own")
				}
				<-l.settled
			})
		})
	}
}

// Releases take two TTLs of the session at most, 32 at a time, and one that fails is in the log, but for what is lost anyway.
func TestReleases(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		var log leasetest.Log
		s := leasing(t, &log)
		var all []*lease
		for i := range 40 {
			h := held(t, time.Hour)
			h.hangs, h.fails = true, fmt.Errorf("failed:\n%w", leasehold.ErrLost)
			if i == 0 {
				h.fails = errors.New("failed:\n  no answer")
			}
			l, _, err := s.admit(&asked{id: fmt.Sprint(i), key: fmt.Sprintf("k%d", i), ttl: time.Hour}, h, func() {})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		for _, l := range all {
			l.end("done")
		}
		for _, step := range []struct {
			after time.Duration
			left  int
		}{{30*time.Second - 1, 40}, {1, 8}, {30*time.Second - 1, 8}, {1, 0}} {
			time.Sleep(step.after)
			synctest.Wait()
			if left, _, _, _ := s.Sizes(); left != step.left {
				t.Errorf("%d leases are left, want %d", left, step.left)
			}
		}
		if want := `level=WARN msg="a lock was not released: others may take it for held for its TTL" lock=mem://k0 error="failed:; no answer"` + "\n"; log.String() != want {
			t.Errorf("the log is\n%s, want\n%s", &log, want)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines", n)
		}
	})
}

// How a lease has ended is known for ten minutes, as long as no more have ended since than may be held.
func TestEndings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := endings{most: 3}
		known := func(when, want string) {
			t.Helper()
			got := ""
			for _, id := range []string{"a", "b", "c", "d"} {
				if why, is := e.why(id); is {
					got += fmt.Sprintf("%s %s, ", id, why)
				}
			}
			if got != want || len(e.of) != len(e.order) {
				t.Errorf("%s: %q, want %q; %d in order of %d", when, got, want, len(e.order), len(e.of))
			}
		}
		known("at first", "")
		e.add("a", "lost")
		e.add("b", "silent")
		time.Sleep(5 * time.Minute)
		e.add("c", "released")
		known("three", "a lost, b silent, c released, ")
		e.add("d", "broken")
		known("four", "b silent, c released, d broken, ")
		time.Sleep(5 * time.Minute)
		known("after ten minutes", "b silent, c released, d broken, ")
		time.Sleep(time.Nanosecond)
		known("and a moment", "c released, d broken, ")
		e.add("a", "again")
		known("when there is room", "a again, c released, d broken, ")
		time.Sleep(6 * time.Minute)
		e.add("b", "last")
		if len(e.of) != 2 {
			t.Errorf("%d are remembered when one more ends, of which two are new", len(e.of))
		}
		known("then", "a again, b last, ")
	})
}

// A lease is kept for a twelfth and 10 ms longer than its caller was told: by that much its clock may be slower.
func TestMargin(t *testing.T) {
	t.Parallel()
	if m := margin(12 * time.Second); m != time.Second+10*time.Millisecond {
		t.Errorf("%v", m)
	}
}
