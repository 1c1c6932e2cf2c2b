package candidate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// looks has a follower look at a leader whose renewals land at these times, and gives for each how many looks
// there were since the one before, and how long after it the last one was sent, which has shown it.
func looks(t *testing.T, landed []time.Duration) (n []int, late []time.Duration) {
	t.Helper()
	cfg := candidate.Config{Incarnation: "me", TTL: 15 * time.Second, Holder: "web-1", Role: candidate.Follower{}}
	c := candidate.New(cfg)
	r := record.Record{Held: true, Holder: "db-1", WriteID: "db.0", Token: 41, Epoch: 1, TTL: cfg.TTL}
	n, late = make([]int, len(landed)), make([]time.Duration, len(landed))
	at, seen := landed[0], -1
	out := c.Step(candidate.Acquire{Wait: true}, protocol.Now{Clock: at})
	for {
		last := seen
		for last+1 < len(landed) && landed[last+1] <= at {
			last++
		}
		answer := candidate.ReadDone{Shown: protocol.Same}
		if len(out) > 0 {
			if n[last]++; last > seen {
				seen, late[last] = last, at-landed[last]
				r.WriteID = fmt.Sprint("db.", last)
				answer = candidate.ReadDone{Shown: protocol.Found, Version: protocol.Version(fmt.Sprint("v", last)), Record: r}
			}
			c.Step(answer, protocol.Now{Clock: at + 20*time.Millisecond})
		}
		wake, ok := c.Wake()
		if seen == len(landed)-1 || !ok {
			return n, late
		}
		at = wake
		out = c.Step(protocol.Tick{}, protocol.Now{Clock: at})
	}
}

// TestFollowerIsSoon: a follower looks once for each renewal and soon after it, but for a few, however its
// leader renews.
func TestFollowerIsSoon(t *testing.T) {
	t.Parallel()
	const n, interval, ms = 1500, 5 * time.Second, time.Millisecond
	for name, c := range map[string]struct {
		lands func(i int) time.Duration // so much later than at equal intervals
		late  time.Duration             // from the 300th renewal on, on average
		first time.Duration             // from the tenth to the 30th
		looks int                       // from the 30th on, for 1000 renewals
	}{
		"at equal intervals":            {func(int) time.Duration { return 0 }, 90 * ms, 120 * ms, 1020},
		"now and then later":            {func(i int) time.Duration { return time.Duration(i*i*37%61) * ms }, 110 * ms, 150 * ms, 1025},
		"a clock that runs 1 ‰ slower":  {func(i int) time.Duration { return time.Duration(i) * interval / 1000 }, 90 * ms, 120 * ms, 1100},
		"a clock that runs 1 ‰ faster":  {func(i int) time.Duration { return -time.Duration(i) * interval / 1000 }, 350 * ms, 220 * ms, 1020},
		"a clock that runs 1/12 slower": {func(i int) time.Duration { return time.Duration(i) * interval / 12 }, 650 * ms, 600 * ms, 1450},
		"one is 2 s early": {func(i int) time.Duration {
			if i < 50 {
				return 2 * time.Second
			}
			return 0
		}, 150 * ms, 120 * ms, 1020},
		"each 50th is a second late": {func(i int) time.Duration {
			if i%50 == 0 {
				return time.Second
			}
			return 0
		}, 450 * ms, 180 * ms, 1120},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var landed []time.Duration
			for i := range n {
				landed = append(landed, time.Hour+time.Duration(i)*interval+c.lands(i))
			}
			sent, late := looks(t, landed)
			var first, mean time.Duration
			for _, l := range late[10:30] {
				first += l / 20
			}
			for _, l := range late[300:] {
				mean += l / (n - 300)
			}
			total := 0
			for _, k := range sent[30:] {
				total += k
			}
			total = total * 1000 / (n - 30)
			t.Logf("late by %v, and %v; %d looks for 1000", first, mean, total)
			if first > c.first || mean > c.late || total > c.looks {
				t.Errorf("late by %v, and %v, not %v and %v; %d looks for 1000, not %d", first, mean, c.first, c.late, total, c.looks)
			}
		})
	}
}

// TestFollowerLooksOftenInEachOutage: a follower that found a leader late looks often at first and then less, and the
// same the next time.
func TestFollowerLooksOftenInEachOutage(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	var landed []time.Duration
	at := time.Hour
	for i := range 200 {
		if at += interval; i == 50 || i == 150 {
			at += 8 * time.Second // which is not long enough for its lease to end
		}
		landed = append(landed, at)
	}
	n, _ := looks(t, landed)
	if first, second := n[49], n[149]; first < 5 || second < first-1 || second > first+1 {
		t.Errorf("%d looks at a leader that was late for the first time, and %d the second time", first, second)
	}
}
