package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestWhatRacesSay: what many races come to, by how many went wrong, were not clear or could not be run.
func TestWhatRacesSay(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		run, wrong, unclear, skipped int64
		err                          error
		result                       Result
		detail                       string
		stopped                      bool
	}{
		{20, 0, 0, 0, nil, OK, "20 races, each with one winner", false},
		{20, 1, 20, 15, broken, Bad, "1 of 5 races went wrong: first", true},
		{20, 4, 0, 0, nil, Bad, "4 of 20 races went wrong: first", false},
		{20, 5, 0, 0, nil, Bad, "5 of 20 races went wrong: first", true},
		{20, 0, 20, 15, broken, Unknown, "", true},
		{20, 0, 0, 10, nil, OK, "10 races, each with one winner", false},
		{20, 0, 0, 11, nil, Unknown, "only 9 races could be run, of 20: the store gave no clear answers", false},
		{20, 0, 2, 0, nil, OK, "20 races: never two winners; 2 without a clear answer", false},
		{20, 0, 3, 0, nil, Unknown, "the store gave no clear answer in 3 of 20 races", false},
		{110, 0, 11, 0, nil, OK, "110 races: never two winners; 11 without a clear answer", false},
		{110, 0, 12, 0, nil, Unknown, "the store gave no clear answer in 12 of 110 races", false},
		{10, 0, 3, 0, nil, Unknown, "the store gave no clear answer in 3 of 10 races", false},
		{4, 0, 2, 0, nil, OK, "4 races: never two winners; 2 without a clear answer", false},
		{3, 0, 2, 0, nil, Unknown, "the store gave no clear answer in 2 of 3 races", false},
		{3, 0, 1, 0, nil, OK, "3 races: never two winners; 1 without a clear answer", false},
	} {
		r := new(races)
		r.run.Add(c.run)
		r.unclear.Add(c.unclear)
		r.skipped.Add(c.skipped)
		for n := range c.wrong {
			r.fail([]string{"first", "second"}[min(n, 1)])
		}
		if c.err != nil {
			r.stop(c.err)
			r.stop(errors.New("later"))
		}
		result, detail, err := r.result("races")
		if wrong := result == Bad || c.err == nil; result != c.result || detail != c.detail || (err == nil) != wrong || !wrong && err != c.err { //nolint:errorlint // this one
			t.Errorf("%+v: %s, %q, %v", c, result, detail, err)
		}
		if r.stopped() != c.stopped {
			t.Errorf("%+v: stopped: %t", c, r.stopped())
		}
	}
}

// TestEach: as many races are run as there should be, in eight lanes, and none of them counts for how fast the store is; no more
// are begun when enough of them went wrong, or the probe has ended.
func TestEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := surveyed(t, few)
		var mu sync.Mutex
		ran, lanesSeen := map[int64]bool{}, map[int]bool{}
		r := new(races)
		s.each(r, 40, func(lane int, n int64) {
			time.Sleep(time.Millisecond) // so that all lanes have their turn
			mu.Lock()
			defer mu.Unlock()
			if ran[n] || !s.samples.racing {
				t.Errorf("race %d is run twice, or counts", n)
			}
			ran[n], lanesSeen[lane] = true, true
		})
		if len(ran) != 40 || !ran[1] || !ran[40] || len(lanesSeen) != 8 || !lanesSeen[0] || r.run.Load() != 40 || s.samples.racing {
			t.Errorf("%d races, %d were run in %d lanes; racing: %t", r.run.Load(), len(ran), len(lanesSeen), s.samples.racing)
		}
		r = new(races)
		s.each(r, 1000, func(int, int64) { time.Sleep(time.Millisecond); r.fail("wrong") })
		if n := r.run.Load(); n > 8+4 {
			t.Errorf("%d races were run, although all went wrong", n)
		}
		r = new(races)
		var end context.CancelFunc
		s.ctx, end = context.WithCancel(t.Context())
		s.each(r, 1000, func(int, int64) { time.Sleep(time.Millisecond); end() })
		if n := r.run.Load(); n != 8 {
			t.Errorf("%d races were run, although the probe had ended", n)
		}
	})
}

// TestDressed: one key in ten is long, of letters of several alphabets, where the store takes such keys.
func TestDressed(t *testing.T) {
	t.Parallel()
	s := surveyed(t, few)
	s.report.Findings = []Finding{{Name: oddKeys, Result: OK}}
	long := "race-1" + strings.Repeat("-ключ-锁-🔒", 10) // 186 bytes of 190
	for _, c := range []struct {
		key  string
		n    int64
		want string
	}{
		{"race-1", 1, long},
		{"race-1", 11, long},
		{"race-1", 0, "race-1"},
		{"race-1", 2, "race-1"},
		{"race-1", 10, "race-1"},
		{strings.Repeat("x", 172), 1, strings.Repeat("x", 172) + "-ключ-锁-🔒"},
		{strings.Repeat("x", 173), 1, strings.Repeat("x", 173)},
		{strings.Repeat("x", 300), 1, strings.Repeat("x", 300)},
	} {
		if got := s.dressed(c.key, c.n); got != c.want {
			t.Errorf("%q, %d: %q", c.key, c.n, got)
		}
	}
	s.keyed.refused = []string{"ключ"}
	if got := s.dressed("race-1", 1); got != "race-1" {
		t.Errorf("where the store refuses such keys: %q", got)
	}
	s.keyed.refused, s.report.Findings[0].Result = nil, Bad
	if got := s.dressed("race-1", 1); got != "race-1" {
		t.Errorf("where such keys are bad: %q", got)
	}
}

// TestLeave: what a race leaves may be what its writers were told, and nothing else.
func TestLeave(t *testing.T) {
	t.Parallel()
	a, b, before := []byte("a"), []byte("b"), []byte("before")
	lost := &store.Error{Op: "put", Kind: store.ErrUnknownOutcome}
	refused := &store.Error{Op: "put", Kind: store.ErrPrecondition}
	const won, doubtful, neither = "a race with one winner", "a race in which one write landed and the other had no answer", "a race in which a write had no answer"
	for _, c := range []struct {
		errs   [2]error
		before []byte
		want   *watch
	}{
		{[2]error{nil, refused}, nil, &watch{"key", [][]byte{a}, false, won}},
		{[2]error{refused, nil}, before, &watch{"key", [][]byte{b}, false, won}},
		{[2]error{lost, nil}, nil, &watch{"key", [][]byte{b}, false, doubtful}},
		{[2]error{lost, refused}, nil, &watch{"key", [][]byte{a}, true, neither}},
		{[2]error{refused, lost}, before, &watch{"key", [][]byte{before, b}, false, neither}},
		{[2]error{lost, lost}, before, &watch{"key", [][]byte{before, a, b}, false, neither}},
		{[2]error{refused, refused}, nil, nil},
		{[2]error{nil, nil}, nil, nil},
	} {
		s := surveyed(t, few)
		d := &duel{s: s, key: "key", bodies: [2][]byte{a, b}, errs: c.errs}
		for i, err := range c.errs {
			if err == nil {
				d.winner = i
				d.winners++
			}
			d.doubted = d.doubted || errors.Is(err, store.ErrUnknownOutcome)
		}
		left := d.leave(c.before)
		if left != (c.want != nil) || left && !reflect.DeepEqual(s.watched.all, []watch{*c.want}) || left && (s.watched.doubtful == 1) != d.doubted {
			t.Errorf("after %v: %t, %+v", c.errs, left, s.watched.all)
		}
	}
}

// TestJudge: what two writes on one condition were told makes a race wrong, unclear or the last.
func TestJudge(t *testing.T) {
	t.Parallel()
	fault := func(kind error) error { return &store.Error{Op: "put", Kind: kind} }
	for _, c := range []struct {
		errs      [2]error
		reads     error
		said      string // wrong, unclear, whether it was clear, and why
		throttled time.Duration
	}{
		{[2]error{nil, nil}, nil, "1 0 false both of two writes on the same condition were told that they had landed <nil>", 0},
		{[2]error{fault(store.ErrPrecondition), fault(store.ErrNotExist)}, nil, "1 0 false both of two writes were refused, although the condition held <nil>", 0},
		{[2]error{fault(store.ErrThrottled), fault(store.ErrNotExist)}, nil, "0 1 false  <nil>", 200 * time.Millisecond},
		{[2]error{fault(store.ErrUnknownOutcome), fault(store.ErrNotExist)}, nil, "0 1 false  <nil>", 0},
		{[2]error{nil, fault(store.ErrNotExist)}, nil, "0 0 true  <nil>", 0},
		{[2]error{nil, fault(store.ErrNotExist)}, fault(store.ErrThrottled), "0 1 false  <nil>", 4 * 250 * time.Millisecond},
		{[2]error{nil, fault(store.ErrNotExist)}, fault(store.ErrRefused), "0 0 false  put \"\": refused by the store", 0},
		{[2]error{nil, fault(store.ErrRefused)}, nil, "0 0 false  put \"\": refused by the store", 0},
		{[2]error{fault(store.ErrDenied), fault(store.ErrThrottled)}, nil, "0 0 false  put \"\": access denied", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			b := &brokenstore.Store{Store: memstore.New()}
			n := 0
			b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
				err := c.errs[bytes.Compare(body, []byte("a"))]
				if err == nil {
					return b.Force(ctx, key, body)
				}
				return nil, err
			}
			b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
				n++
				if c.reads != nil {
					return nil, c.reads
				}
				return b.Store.Get(ctx, key, unless)
			}
			s, err := newSurvey(t.Context(), b, few)
			if err != nil {
				t.Fatal(err)
			}
			d := &duel{s: s, key: "key", bodies: [2][]byte{[]byte("a"), []byte("b")}, errs: c.errs}
			for i, err := range c.errs {
				_, _ = s.a.Put(t.Context(), s.path("key"), d.bodies[i], store.IfAbsent())
				switch {
				case err == nil:
					d.winner = i
					d.winners++
				case isAny(err, store.ErrPrecondition, store.ErrNotExist):
					d.refused++
				}
			}
			r := new(races)
			clear := d.judge(r)
			if got := fmt.Sprintf("%d %d %t %s %v", r.wrong.Load(), r.unclear.Load(), clear, r.detail, r.err); got != c.said {
				t.Errorf("after %v: %s, not %s", c.errs, got, c.said)
			}
			if took := time.Since(begin); (took > 0) != (c.throttled > 0) || c.throttled == 200*time.Millisecond && took != c.throttled {
				t.Errorf("after %v it waits for %v", c.errs, took)
			}
		})
	}
}

// TestRacesLeaveWhatIsInDoubt: where a write of a race has no answer, nobody writes its object any more, and it is read again in the end,
// as is one in ten that was clear. A late write would land in the next race otherwise, and make an honest store look bad.
func TestRacesLeaveWhatIsInDoubt(t *testing.T) {
	t.Parallel()
	for name, race := range map[string]func(s *survey) (Result, string, error){
		"creates": func(s *survey) (Result, string, error) {
			_, result, detail, err := s.racingCreates("race", smallBody, 400, 3)
			return result, detail, err
		},
		"updates":               func(s *survey) (Result, string, error) { return s.racingUpdates("lane", smallBody, 400, 4) },
		"creates after deletes": func(s *survey) (Result, string, error) { return s.racingAgain(400) },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &brokenstore.Store{Store: memstore.New()}
			var mu sync.Mutex
			puts, doubted := 0, map[string]int{}
			late := 0
			b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
				mu.Lock()
				defer mu.Unlock()
				if doubted[key] > 1 {
					late++ // the other write of the race may come after the doubted one
				}
				if doubted[key] > 0 {
					doubted[key]++
				}
				o, err := b.Store.Put(ctx, key, body, only)
				if err != nil {
					return nil, err
				}
				if puts++; puts%29 == 0 && (name != "updates" || updates(only)) {
					doubted[key] = 1
					return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome}
				}
				return o, err
			}
			s, err := newSurvey(t.Context(), b, few)
			if err != nil {
				t.Fatal(err)
			}
			result, detail, err := race(s)
			if result != OK {
				t.Errorf("%s: %s, %s, %v", name, result, detail, err)
			}
			if s.watched.doubtful < 5 || name == "updates" && s.watched.doubtful != len(doubted) || late > len(doubted) {
				t.Errorf("%s: %d had no answer, %d of them are left; %d writes came later", name, len(doubted), s.watched.doubtful, late)
			}
			if clear := len(s.watched.all) - s.watched.doubtful; clear < 20 || clear > 60 {
				t.Errorf("%s: of 400 races %d that were clear are left", name, clear)
			}
			result, detail, err = s.seenLater()
			if want := fmt.Sprintf("%d objects, %d of them after a write without an answer, were as they had been left", len(s.watched.all), s.watched.doubtful); result != OK || detail != want || err != nil {
				t.Errorf("%s: %s, %s, %v", name, result, detail, err)
			}
			seen := map[string]bool{}
			for _, w := range s.watched.all {
				if seen[w.key] {
					t.Errorf("%s: %q is left twice", name, w.key)
				}
				seen[w.key] = true
			}
			left := 0
			for e := range b.Store.List(t.Context(), s.prefix+"race", "") { //nolint:errcheck // memory does not fail
				if key := strings.TrimPrefix(e.Key, s.prefix); !seen[key] {
					left++
				}
			}
			if name == "creates" && left > 3 {
				t.Errorf("%d objects are neither removed nor read again, and not more than three are to be listed", left)
			}
		})
	}
}

// TestDeletesThatRace: a race counts against deletes on a condition where both an update and a delete succeed, and only there.
func TestDeletesThatRace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		put, removed bool // succeed, whatever there is
		both         bool
	}{{"both", true, true, true}, {"updates", true, false, false}, {"deletes", false, true, false}, {"neither", false, false, false}} {
		b := &brokenstore.Store{Store: memstore.New()}
		var mu sync.Mutex
		puts, removals := 0, 0
		refused := func(key string) error { return &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition} }
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			if only.Absent() {
				return b.Store.Put(ctx, key, body, only)
			}
			if puts++; !c.put {
				return nil, refused(key)
			}
			return b.Force(ctx, key, body)
		}
		b.OnDeleteIf = func(_ context.Context, key string, _ store.Version) error {
			mu.Lock()
			defer mu.Unlock()
			if removals++; !c.removed {
				return refused(key)
			}
			return nil
		}
		s, err := newSurvey(t.Context(), &inspected{Store: b}, few)
		if err != nil {
			t.Fatal(err)
		}
		both, run := s.racingDeletes()
		if c.both && (both < 5 || both != run || run > 12) || !c.both && (both != 0 || run != 200) || puts != int(2*run) || removals != int(2*run) {
			t.Errorf("%s: in %d of %d both succeeded, of %d updates and %d deletes", c.name, both, run, puts, removals)
		}
	}
	// A race whose object cannot be had is not counted.
	b := &brokenstore.Store{Store: memstore.New()}
	b.OnGet = func(context.Context, string, store.Version) (*store.Object, error) {
		return nil, &store.Error{Op: "get", Kind: store.ErrRefused}
	}
	s, err := newSurvey(t.Context(), &inspected{Store: b}, few)
	if err != nil {
		t.Fatal(err)
	}
	if both, run := s.racingDeletes(); both != 0 || run != 0 {
		t.Errorf("in %d of %d both succeeded", both, run)
	}
}

// TestCrowds: in turn 64 keys with two rivals and eight with 16 are raced for, at least twice and once in 250 races, until enough go wrong.
func TestCrowds(t *testing.T) {
	t.Parallel()
	fault := func(key string, kind error) error { return &store.Error{Op: "put", Key: key, Kind: kind} }
	good := `ok: 72 races, 128 writes at a time, each with one winner`
	for _, c := range []struct {
		name             string
		races            int
		put              func(b *brokenstore.Store, key string, body []byte, only store.Condition) (*store.Object, error)
		remove           error
		creates, updates string
		writes           int // 0: any number
	}{
		{"good", 20, nil, nil, good, good, 512},
		{"four times", 1000, nil, nil, "ok: 144 races, 128 writes at a time, each with one winner", "ok: 144 races, 128 writes at a time, each with one winner", 1024},
		{"busy deletes", 20, nil, store.ErrThrottled, good, good, 512},
		{"deletes that are refused", 20, nil, store.ErrRefused, "unknown: ", "ok: 64 races, 128 writes at a time, each with one winner", 256},
		{
			"creates that all land", 1000,
			func(b *brokenstore.Store, key string, body []byte, only store.Condition) (*store.Object, error) {
				if only.Absent() {
					return b.Force(context.Background(), key, body)
				}
				return b.Store.Put(context.Background(), key, body, only)
			}, nil, "bad: 64 of 64 races went wrong: 2 of 2 writes on the same condition were told that they had landed",
			"unknown: only 0 races could be run, of 64: the store gave no clear answers", 128,
		},
		{
			"updates that all land", 1000,
			func(b *brokenstore.Store, key string, body []byte, only store.Condition) (*store.Object, error) {
				if updates(only) {
					return b.Force(context.Background(), key, body)
				}
				return b.Store.Put(context.Background(), key, body, only)
			}, nil, "ok: 64 races, 128 writes at a time, each with one winner", "bad: 64 of 64 races went wrong: 2 of 2 writes on the same condition were told that they had landed", 256,
		},
		{
			"creates of the first crowd that have no answer", 20,
			func(b *brokenstore.Store, key string, body []byte, only store.Condition) (*store.Object, error) {
				if strings.Contains(key, "/crowd-0-") {
					return nil, fault(key, store.ErrUnknownOutcome)
				}
				return b.Store.Put(context.Background(), key, body, only)
			}, nil, "unknown: the store gave no clear answer in 64 of 72 races", "unknown: only 8 races could be run, of 72: the store gave no clear answers", 384,
		},
		{
			"creates that are refused", 20,
			func(_ *brokenstore.Store, key string, _ []byte, _ store.Condition) (*store.Object, error) {
				return nil, fault(key, store.ErrRefused)
			}, nil, "unknown: ", "unknown: only 0 races could be run, of 64: the store gave no clear answers", 128,
		},
		{
			"creates that all fail", 20,
			func(_ *brokenstore.Store, key string, _ []byte, _ store.Condition) (*store.Object, error) {
				return nil, fault(key, store.ErrPrecondition)
			}, nil, "bad: 64 of 64 races went wrong: all of 2 writes were refused, although the condition held", "unknown: only 0 races could be run, of 64: the store gave no clear answers", 128,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &brokenstore.Store{Store: memstore.New()}
			var mu sync.Mutex
			writes := 0
			b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
				mu.Lock()
				defer mu.Unlock()
				if writes++; c.put != nil {
					return c.put(b, key, body, only)
				}
				return b.Store.Put(ctx, key, body, only)
			}
			b.OnDelete = func(ctx context.Context, key string) error {
				if c.remove != nil {
					return &store.Error{Op: "delete", Key: key, Kind: c.remove}
				}
				return b.Store.Delete(ctx, key)
			}
			s, err := newSurvey(t.Context(), brokenstore.Bare{Store: b}, &Options{Races: c.races})
			if err != nil {
				t.Fatal(err)
			}
			s.report.Findings = []Finding{{Name: updateStale, Result: OK}}
			result, detail, err := s.crowding()
			if got := fmt.Sprintf("%s: %s", result, detail); got != c.creates || (err != nil) != (c.creates == "unknown: ") {
				t.Errorf("%s, creates: %s, %v", c.name, got, err)
			}
			result, detail, _ = s.crowdUpdates.result(atATime)
			if got := fmt.Sprintf("%s: %s", result, detail); got != c.updates || writes != c.writes {
				t.Errorf("%s, updates: %s; %d writes", c.name, got, writes)
			}
		})
	}
}

// TestUnsampled: what races, or is large, says nothing of how fast the store is.
func TestUnsampled(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(s *survey) (Result, string, error){
		"keys": (*survey).oddKeys, "creates": (*survey).racingAndListing, "a crowd": (*survey).crowding, "large values": (*survey).largeValues,
		"large creates": sizes[0].racingCreates, "large updates": sizes[0].racingUpdates,
	} {
		s, err := newSurvey(t.Context(), memstore.New(), &Options{Races: 2})
		if err != nil {
			t.Fatal(err)
		}
		if result, detail, err := run(s); result != OK || err != nil || s.samples.racing || len(s.samples.took) > 0 || s.report.Requests.Total() == 0 {
			t.Errorf("%s: %s, %s, %v; racing: %t; %d samples", name, result, detail, err, s.samples.racing, len(s.samples.took))
		}
	}
}

// TestListedAfterRaces: what many racing creates leave is listed before it is removed, and only what must be read again stays.
func TestListedAfterRaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		races int
		said  trials
		left  int
	}{{20, trials{Note, "not tried: that takes more than 1000 races; 20 objects were listed", nil}, 2}, {1200, trials{OK, "1100 objects", nil}, 120}} {
		b := memstore.New()
		s, err := newSurvey(t.Context(), b, &Options{Races: c.races})
		if err != nil {
			t.Fatal(err)
		}
		s.report.Findings = []Finding{{Name: canList, Result: OK}}
		result, detail, err := s.racingAndListing()
		if want := fmt.Sprintf("%d races of two, each with one winner", c.races); result != OK || detail != want || err != nil || s.longLists != c.said {
			t.Errorf("%s, %s, %v; %+v", result, detail, err, s.longLists)
		}
		left := map[string]bool{}
		for e := range b.List(t.Context(), "", "") { //nolint:errcheck // memory does not fail
			left[strings.TrimPrefix(e.Key, s.prefix)] = true
		}
		for _, w := range s.watched.all {
			if !left[w.key] {
				t.Errorf("%q is to be read again, and gone", w.key)
			}
		}
		if len(left) != c.left || len(s.watched.all) != c.left {
			t.Errorf("of %d, %d are left, and %d to be read again", c.races, len(left), len(s.watched.all))
		}
	}
}

// TestDuelBodies: rivals write over what is there, and over each other, bodies that are often much alike: a server may take one for the other.
func TestDuelBodies(t *testing.T) {
	t.Parallel()
	s := surveyed(t, few)
	const times = 400
	likeness := func(was []byte) (first, second, each int) {
		for n := range times {
			d := s.duel(fmt.Sprintf("key-%d", n), smallBody, was, store.IfAbsent())
			a, b := d.bodies[0], d.bodies[1]
			if d.winners != 1 || d.refused != 1 || d.doubted || d.errs[d.winner] != nil || d.made[d.winner] == nil || len(a) < leastBody || len(a) > smallBody {
				t.Fatalf("%+v", d)
			}
			for n, pair := range [][2][]byte{{a, was}, {b, was}, {a, b}} {
				if len(pair[0]) == len(pair[1]) && differences(pair[0], pair[1]) <= 4 {
					*[]*int{&first, &second, &each}[n]++
				}
			}
		}
		return first, second, each
	}
	if first, second, each := likeness(nil); first+second > 0 || each < times/4 {
		t.Errorf("of %d over nothing, %d and %d are like it, %d like each other", times, first, second, each)
	}
	s = surveyed(t, few)
	if first, second, each := likeness(s.bodyOf(200)); first < times/4 || second < times/8 || each < times/8 || second > times*3/4 {
		t.Errorf("of %d, %d and %d are like what is there, %d like each other", times, first, second, each)
	}
}
