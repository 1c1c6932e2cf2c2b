package probe

import (
	"fmt"
	"testing"
	"time"
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
