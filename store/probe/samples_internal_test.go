package probe

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestClockExactly: what some answers say of the store's clock, and what it cannot be.
func TestClockExactly(t *testing.T) {
	t.Parallel()
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	const ms = time.Millisecond
	type answer struct{ sent, received, date time.Duration }
	for _, c := range []struct {
		name    string
		answers []answer
		want    string
	}{
		{"one, in seconds", []answer{{0, 100 * ms, 5 * time.Second}}, "4.9s to 6.1s, at 0.0000 to 0.0000, in 1000000 µs, contradicted by 0s"},
		{"one, in milliseconds", []answer{{0, 100 * ms, 5001 * ms}}, "4.901s to 5.102s, at 0.0000 to 0.0000, in 1000 µs, contradicted by 0s"},
		{"one, in microseconds", []answer{{0, 100 * ms, 5001*ms + time.Microsecond}}, "4.901s to 5.101s, at 0.0000 to 0.0000, in 1 µs, contradicted by 0s"},
		{"one, in nanoseconds", []answer{{0, 100 * ms, 5001*ms + 1}}, "4.901s to 5.101s, at 0.0000 to 0.0000, in 0 µs, contradicted by 0s"},
		{"the earliest is in another unit", []answer{{0, 100 * ms, 5001 * ms}, {time.Second, 1100 * ms, 6 * time.Second}}, "4.9s to 5.0009s, at 0.9073 to 1.1111, in 1000 µs, contradicted by 0s"},
		{"two, a second apart", []answer{{0, 10 * ms, 5005 * ms}, {1000 * ms, 1010 * ms, 6005 * ms}}, "4.995s to 5.006s, at 0.9891 to 1.0111, in 1000 µs, contradicted by 0s"},
		{"two at once", []answer{{0, 10 * ms, 5005 * ms}, {0, 10 * ms, 5007 * ms}}, "4.997s to 5.016s, at 0.0000 to 0.0000, in 1000 µs, contradicted by 0s"},
		{"two that overlap", []answer{{0, 10 * ms, 5005 * ms}, {5 * ms, 15 * ms, 5012 * ms}}, "5s to 5.018s, at 0.0000 to 0.0000, in 1000 µs, contradicted by 0s"},
		{"three, of a clock twice as fast", []answer{{0, 10 * ms, 5005 * ms}, {1000 * ms, 1010 * ms, 7005 * ms}, {2000 * ms, 2010 * ms, 9005 * ms}}, "6.995s to 7.016s, at 1.9896 to 2.0106, in 1000 µs, contradicted by 0s"},
		{"three, of a clock that stands", []answer{{0, 10 * ms, 5005 * ms}, {1000 * ms, 1010 * ms, 5005 * ms}, {2000 * ms, 2010 * ms, 5005 * ms}}, "2.995s to 2.996s, at 0.0000 to 0.0005, in 1000 µs, contradicted by 0s"},
		{"three, of a clock that goes back", []answer{{0, 10 * ms, 5005 * ms}, {1000 * ms, 1010 * ms, 2005 * ms}, {2000 * ms, 2010 * ms, 1005 * ms}}, "-1.004s to 2.995s, at 0.0000 to 2.0095, in 1000 µs, contradicted by 3.999s"},
		{"three that contradict each other", []answer{{0, 10 * ms, 5005 * ms}, {1000 * ms, 1010 * ms, 9005 * ms}, {2000 * ms, 2010 * ms, 7005 * ms}}, "5.006s to 7.995s, at 0.0000 to 4.0095, in 1000 µs, contradicted by 2.989s"},
		{"of a store that is behind", []answer{{0, 10 * ms, -5005 * ms}, {1000 * ms, 1030 * ms, -4003 * ms}, {3000 * ms, 3002 * ms, -2001 * ms}}, "-5.003s to -5s, at 1.0003 to 1.0050, in 1000 µs, contradicted by 0s"},
	} {
		var s samples
		for _, a := range c.answers {
			s.add("get", begin.Add(a.sent), begin.Add(a.received), begin.Add(a.date))
		}
		k := s.clock()
		about := func(m Micros) time.Duration { return m.Duration().Round(100 * time.Microsecond) } // floating-point numbers differ by machine
		got := fmt.Sprintf("%v to %v, at %.4f to %.4f, in %d µs, contradicted by %v", about(k.OffsetFrom), about(k.OffsetTo), k.RateFrom, k.RateTo, k.Resolution, about(k.Contradiction))
		if got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// TestSharpest: of many answers those count that say most, in each of 200 stretches of time.
func TestSharpest(t *testing.T) {
	t.Parallel()
	var all []bound
	for n := range 1000 { // five in a stretch
		all = append(all, bound{sent: float64(n), received: float64(n) + 1, from: time.Duration(n * 7 % 5), to: time.Duration(n * 3 % 5)})
	}
	sharp := sharpest(all)
	if len(sharp) != 400 {
		t.Fatalf("%d of 1000 are kept", len(sharp))
	}
	for n := range 200 {
		from, to := sharp[2*n], sharp[2*n+1]
		if from.from != 4 && n > 0 && n < 199 || to.to != 0 && n > 0 && n < 199 || from.received > float64(5*n+6) || from.received < float64(5*n) || to.received > float64(5*n+6) || to.received < float64(5*n) {
			t.Errorf("in stretch %d there are %+v, %+v", n, from, to)
		}
	}
	if one := sharpest(all[:1]); len(one) != 2 || one[0] != all[0] || one[1] != all[0] {
		t.Errorf("of one: %+v", one)
	}
	if got := sharpest([]bound{{received: 1, from: 3, to: 5}, {received: 1, from: 3, to: 5, sent: 1}, {received: 1, from: 2, to: 6}}); len(got) != 2 || got[0].sent != 0 || got[1].sent != 0 {
		t.Errorf("of three at once: %+v", got)
	}
	if got := sharpest([]bound{{received: -1}, {received: 0}}); len(got) != 2 || got[0].received != -1 {
		t.Errorf("of two that were received before the first was sent: %+v", got)
	}
}

// TestWhatClocksSay: how far the store's clock is off and how fast it is, and what is unknown of it.
func TestWhatClocksSay(t *testing.T) {
	t.Parallel()
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	const ms = time.Millisecond
	for _, c := range []struct {
		dates  []time.Duration // a second apart
		result Result
		detail string
	}{
		{[]time.Duration{5005 * ms}, Note, "the store's is 4.995s to 5.016s ahead; too few answers to tell how fast it runs"},
		{[]time.Duration{5005 * ms, 6005 * ms}, OK, "in one second of it 0.989 to 1.011 pass at the store; the store's is 4.995s to 5.006s ahead"},
		{[]time.Duration{5005 * ms, 7005 * ms}, Bad, "one of the two clocks does not keep time: in one second of it 1.979 to 2.021 pass at the store; the store's is 5.995s to 6.016s ahead"},
		{[]time.Duration{5005 * ms, 5505 * ms}, Bad, "one of the two clocks does not keep time: in one second of it 0.494 to 0.506 pass at the store; the store's is 4.495s to 4.501s ahead"},
		{[]time.Duration{5005 * ms, 9005 * ms, 7005 * ms}, Note, "the store's is 5.006s to 7.995s ahead, by times that contradict each other by 2.989s; too few answers to tell how fast it runs"},
	} {
		s := surveyed(t, few)
		for n, date := range c.dates {
			sent := begin.Add(time.Duration(n) * time.Second)
			s.samples.add("get", sent, sent.Add(10*ms), begin.Add(date))
		}
		if result, detail, err := s.clock(); result != c.result || detail != c.detail || err != nil || s.report.Clock == nil || s.report.Clock.Resolution.Duration() != ms {
			t.Errorf("%v: %s, %q, %v", c.dates, result, detail, err)
		}
	}
}

// TestAges: an object that looks more than 2 s older than it can be is bad for those that trust its age, whichever read showed it.
func TestAges(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	always := func(by time.Duration) func(string, int) time.Duration {
		return func(string, int) time.Duration { return by }
	}
	one := func(name string, read int) func(string, int) time.Duration {
		return func(key string, n int) time.Duration {
			if strings.HasSuffix(key, name) && n == read {
				return 3 * time.Second
			}
			return 0
		}
	}
	for _, c := range []struct {
		name   string
		older  func(key string, read int) time.Duration
		before time.Duration // by another read
		result Result
		detail string
	}{
		{"as old as it is", always(0), 0, OK, "objects of up to 7s looked at most 0s older than they can have been, and 0s younger"},
		{"2 s older", always(2 * time.Second), 0, OK, "objects of up to 7s looked at most 2s older than they can have been, and 0s younger"},
		{"a bit more", always(2*time.Second + ms), 0, Bad, "objects of up to 7s looked at most 2s older than they can have been, and 0s younger"},
		{"younger", always(-1500 * ms), 0, OK, "objects of up to 7s looked at most 0s older than they can have been, and 1.5s younger"},
		{"the old one, at first", one("age", 1), 0, Bad, "objects of up to 7s looked at most 3s older than they can have been, and 0s younger"},
		{"the old one, at last", one("age", 5), 0, Bad, "objects of up to 7s looked at most 3s older than they can have been, and 0s younger"},
		{"the young one, at first", one("young", 1), 0, Bad, "objects of up to 7s looked at most 3s older than they can have been, and 0s younger"},
		{"the young one, at last", one("young", 5), 0, Bad, "objects of up to 7s looked at most 3s older than they can have been, and 0s younger"},
		{"nobody looks a sixth time", one("age", 6), 0, OK, "objects of up to 7s looked at most 0s older than they can have been, and 0s younger"},
		{"by another read", always(0), 2*time.Second + 16*ms, Bad, "objects of up to 7s looked at most 2.02s older than they can have been, and 0s younger"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &brokenstore.Store{Store: memstore.New()}
			reads := map[string]int{}
			b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
				o, err := b.Store.Get(ctx, key, unless)
				if err == nil {
					reads[key]++
					o.LastModified = o.LastModified.Add(-c.older(key, reads[key]))
				}
				return o, err
			}
			s, err := newSurvey(t.Context(), brokenstore.Bare{Store: b}, few)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.spells.begin(s); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Second)
			s.witness.older = c.before
			if result, detail, err := s.ages(); result != c.result || detail != c.detail || err != nil {
				t.Errorf("%s: %s, %q, %v", c.name, result, detail, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := surveyed(t, few)
		if err := s.spells.begin(s); err != nil {
			t.Fatal(err)
		}
		for n, by := range []time.Duration{0, 5 * time.Second, 0} {
			at := time.Now().Add(time.Duration(n) * time.Second)
			s.samples.add("get", at, at, at.Add(by))
		}
		want := "the times in answers contradict each other by 4s; objects of up to 0s looked at most 0s older than they can have been, and 0s younger"
		if result, detail, err := s.ages(); result != Bad || detail != want || err != nil {
			t.Errorf("%s, %q, %v", result, detail, err)
		}
	})
}
