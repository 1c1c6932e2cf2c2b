package semaphore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/longtest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// What one turn of a fair lock costs hardly grows with the line: its requests for the table, and those that
// watch the sessions of others; and it is in use most of the time. Each candidate is a process of its own,
// comes back at once, and has a session whose heartbeats are not counted.
func TestTurns(t *testing.T) {
	many := many
	if !longtest.Wanted() {
		many = min(many, 30)
	}
	for _, c := range []struct {
		waiters      int
		hold, trip   time.Duration
		peers        bool    // whoever leaves tells who has the seat
		table, watch float64 // requests for a turn, at most
		use          float64 // at least
		idle         float64 // after a turn, in trips, at most
	}{
		{2, 6 * time.Second, 150 * time.Millisecond, false, 10, 10, 0.8, 9},
		{10, 6 * time.Second, 150 * time.Millisecond, false, 10, 10, 0.8, 9},
		{many, 6 * time.Second, 150 * time.Millisecond, false, 14, 10, 0.78, 9},
		{many, 20 * time.Millisecond, 2 * time.Millisecond, false, 14, 6, 0.6, 7},
		{2, 6 * time.Second, 150 * time.Millisecond, true, 10, 10, 0.85, 5},
		{many, 6 * time.Second, 150 * time.Millisecond, true, 14, 10, 0.85, 4},
		{many, 20 * time.Millisecond, 2 * time.Millisecond, true, 14, 6, 0.65, 6},
	} {
		t.Run(fmt.Sprintf("%d waiters, %v, peers %t", c.waiters, c.hold, c.peers), func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				// Each store delays a request once: on its way, and its answer on the way back.
				st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayAfter, Delay: c.trip / 2}}})
				st = faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: c.trip / 2}}})
				turnsOfEach := max(2, 60/c.waiters)
				var mu sync.Mutex
				var turns, first int
				var began, ended time.Time
				var sent [2]traffic
				// turn takes note of one: the line is full from the first to come until the first is through.
				turn := func() {
					mu.Lock()
					defer mu.Unlock()
					turns++
					switch turns {
					case c.waiters + 1:
						first, began, sent[0] = turns, time.Now(), count(st)
					case turnsOfEach * c.waiters:
						ended, sent[1] = time.Now(), count(st)
					}
				}
				var all sync.WaitGroup
				net := &words{}
				for i := range c.waiters + 1 {
					all.Go(func() {
						l, err := semaphore.NewLock(st, "seats", net.options(c.peers, fmt.Sprint(i)))
						if err != nil {
							t.Error(err)
							return
						}
						net.join(fmt.Sprint(i), l)
						for range turnsOfEach {
							lease, err := l.Acquire(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							turn()
							time.Sleep(c.hold)
							released(t, lease)
						}
						closed(t, l)
					})
					time.Sleep(time.Millisecond)
				}
				all.Wait()
				n := float64(turnsOfEach*c.waiters - first)
				table, watch := float64(sent[1].table-sent[0].table)/n, float64(sent[1].watch-sent[0].watch)/n
				use := n * c.hold.Seconds() / ended.Sub(began).Seconds()
				idle := (ended.Sub(began) - time.Duration(n)*c.hold).Seconds() / n / c.trip.Seconds()
				t.Logf("%.1f requests for the table, %.1f to watch, in use for %.0f %%, idle for %.1f trips", table, watch, 100*use, idle)
				if table > c.table || watch > c.watch || use < c.use || idle > c.idle {
					t.Errorf("at most %v and %v, at least %.0f %%, and at most %.1f trips", c.table, c.watch, 100*c.use, c.idle)
				}
			})
		})
	}
}

// traffic is what was sent.
type traffic struct{ table, watch int }

func count(st *faultstore.Store) (n traffic) {
	for _, e := range st.Log() {
		switch {
		case e.Key == "seats":
			n.table++
		case e.Op == "get":
			n.watch++
		}
	}
	return n
}
