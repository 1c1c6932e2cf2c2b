package probe

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// samples are what a probe knows of times.
type samples struct {
	racing bool // so what is answered now says nothing of how fast the store is
	took   map[string][]time.Duration
	dates  []dated
}

// A dated answer: the store's clock said date at some moment between two of ours.
type dated struct {
	sent, received time.Time
	date           time.Time
}

func (s *samples) add(op string, sent, received, date time.Time) {
	if !s.racing {
		if s.took == nil {
			s.took = map[string][]time.Duration{}
		}
		s.took[op] = append(s.took[op], received.Sub(sent))
	}
	if !date.IsZero() {
		s.dates = append(s.dates, dated{sent, received, date})
	}
}

// latency gives the percentiles, by operation.
func (s *samples) latency() (all []Latency) {
	for _, op := range []string{"get", "get, unchanged", "create", "update", "put, refused", "list", "delete"} {
		took := slices.Sorted(slices.Values(s.took[op]))
		if n := len(took); n > 0 {
			all = append(all, Latency{
				Op: op, Count: n,
				P50: micros(took[n/2]), P99: micros(took[n*99/100]), Worst: micros(took[n-1]),
			})
		}
	}
	return all
}

// clock compares the clocks. The store's time y when it answered lies in
// [date, date+resolution), and ours, x, in [sent, received]. So each answer bounds the
// difference y-x from both sides, the sharper the closer it came to a tick of the store's
// clock, and two such answers bound how fast one clock runs by the other.
func (s *samples) clock() *Clock {
	if len(s.dates) == 0 {
		return nil
	}
	resolution := resolutionOf(s.dates)
	origin := s.dates[0].sent
	bounds := make([]bound, 0, len(s.dates))
	for _, d := range s.dates {
		// The offset is by the wall clock, the time since then by the monotonic clock.
		bounds = append(bounds, bound{
			sent: d.sent.Sub(origin).Seconds(), received: d.received.Sub(origin).Seconds(),
			from: d.date.Sub(origin.Round(0)) - d.received.Sub(origin),
			to:   d.date.Add(resolution).Sub(origin.Round(0)) - d.sent.Sub(origin),
		})
	}
	c := &Clock{Resolution: micros(resolution)}
	c.fit(sharpest(bounds))
	return c
}

// A bound is what one answer says of the difference of the clocks: it was at least from
// when the answer was received, and at most to when it was asked for.
type bound struct {
	sent, received float64 // our seconds since the first was sent
	from, to       time.Duration
}

// sharpest keeps the two sharpest bounds of each of many stretches of time.
func sharpest(bounds []bound) (sharp []bound) {
	const stretches = 200
	last := end(bounds)
	var best [stretches][2]*bound
	for i := range bounds {
		b := &bounds[i]
		s := &best[max(min(int(b.received/(last+1e-9)*stretches), stretches-1), 0)]
		if s[0] == nil || b.from > s[0].from {
			s[0] = b
		}
		if s[1] == nil || b.to < s[1].to {
			s[1] = b
		}
	}
	for _, s := range best {
		if s[0] != nil {
			sharp = append(sharp, *s[0], *s[1])
		}
	}
	return sharp
}

// fit finds what rates and offsets all bounds allow. If there are none, as with a cached
// clock, it widens the bounds until there is one, and twice as much.
func (c *Clock) fit(bounds []bound) {
	// By how much the bounds contradict a rate is convex in it.
	low, high := -1.0, 1.0
	for range 60 {
		third := (high - low) / 3
		if contradiction(bounds, low+third) < contradiction(bounds, high-third) {
			high -= third
		} else {
			low += third
		}
	}
	best := (low + high) / 2
	c.Contradiction = micros(max(time.Duration(contradiction(bounds, best)*float64(time.Second)), 0))
	slack := 2 * c.Contradiction.Duration()

	rateFrom, rateTo := math.Inf(-1), math.Inf(1)
	for i, early := range bounds {
		for _, late := range bounds[i+1:] {
			if seconds := late.received - early.sent; seconds > 0 {
				rateFrom = max(rateFrom, 1+(late.from-early.to-slack).Seconds()/seconds)
			}
			if seconds := late.sent - early.received; seconds > 0 {
				rateTo = min(rateTo, 1+(late.to-early.from+slack).Seconds()/seconds)
			}
		}
	}
	if !math.IsInf(rateFrom, 0) && !math.IsInf(rateTo, 0) && rateFrom <= rateTo {
		c.RateFrom, c.RateTo = max(rateFrom, 0), rateTo
	}
	from, to := atLast(bounds, best)
	c.OffsetFrom, c.OffsetTo = micros(min(from, to)), micros(max(from, to))
}

// contradiction is by how many seconds the bounds contradict each other if the store's
// clock gains so much a second; negative if they agree.
func contradiction(bounds []bound, gain float64) float64 {
	from, to := math.Inf(-1), math.Inf(1)
	for _, b := range bounds {
		from = max(from, b.from.Seconds()-gain*b.received)
		to = min(to, b.to.Seconds()-gain*b.sent)
	}
	return from - to
}

// atLast is what the bounds say of the difference at the end.
func atLast(bounds []bound, gain float64) (from, to time.Duration) {
	last := end(bounds)
	from, to = math.MinInt64, math.MaxInt64
	for _, b := range bounds {
		from = max(from, b.from+time.Duration(gain*(last-b.received)*float64(time.Second)))
		to = min(to, b.to+time.Duration(gain*(last-b.sent)*float64(time.Second)))
	}
	return from, to
}

func end(bounds []bound) float64 {
	return slices.MaxFunc(bounds, func(a, b bound) int { return cmp.Compare(a.received, b.received) }).received
}

// resolutionOf is the largest usual unit that all times are multiples of.
func resolutionOf(all []dated) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if !slices.ContainsFunc(all, func(d dated) bool { return !d.date.Equal(d.date.Truncate(unit)) }) {
			return unit
		}
	}
	return time.Nanosecond
}
