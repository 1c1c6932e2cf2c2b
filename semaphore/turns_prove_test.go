//go:build prove

package semaphore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// What one turn of a fair lock costs: its requests for the table, which hardly grow with the queue, and those that
// watch the sessions of others, of which each waiter sends one in 8/5 of a TTL, and more as its turn comes near.
// And the lock is in use most of the time. Each candidate is a process of its own, comes back
// after each of its turns, and has a session whose heartbeats are not counted. The queue is as long at the end of what
// is measured as at its beginning.
func TestTurns(t *testing.T) {
	const far, near = 150 * time.Millisecond, 2 * time.Millisecond
	for _, c := range []struct {
		waiters      int
		hold, back   time.Duration // it comes back so long after it has left
		trip         time.Duration
		peers        bool    // whoever leaves tells who has the slot
		table, watch float64 // requests for a turn, at most
		use          float64 // at least
		idle         float64 // after a turn, in trips, at most
	}{
		{2, 6 * time.Second, time.Second, far, false, 8, 7, 0.85, 7},
		{10, 6 * time.Second, time.Second, far, false, 10, 14, 0.82, 8.5},
		{many, 6 * time.Second, time.Second, far, false, 12, 42, 0.82, 8.5},
		{many, 20 * time.Millisecond, 0, near, false, 12, 6, 0.6, 6},
		{2, 6 * time.Second, time.Second, far, true, 8, 7, 0.94, 2.1},
		{10, 6 * time.Second, time.Second, far, true, 10, 13, 0.94, 2.1},
		{many, 6 * time.Second, time.Second, far, true, 12, 40, 0.94, 2.1},
		{many, 20 * time.Millisecond, 0, near, true, 12, 6, 0.78, 3},
	} {
		t.Run(fmt.Sprintf("%d waiters, %v, peers %t", c.waiters, c.hold, c.peers), func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				// Each store delays a request once: on its way, and its answer on the way back.
				st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayAfter, Delay: c.trip / 2}}})
				st = faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: c.trip / 2}}})
				turnsOfEach := max(5, 100/c.waiters)
				if !c.peers && c.hold > time.Second { // their looks vary by 3 % in 150 turns, and lie within 5 % of their bounds
					turnsOfEach = 1200 / c.waiters
				}
				members := c.waiters + 1
				from, to := members, (turnsOfEach-1)*members // all come back in between
				var mu sync.Mutex
				var turns int
				var began, ended time.Time
				var sent [2]traffic
				turn := func() {
					mu.Lock()
					defer mu.Unlock()
					switch turns++; turns {
					case from:
						began, sent[0] = time.Now(), count(st)
					case to:
						ended, sent[1] = time.Now(), count(st)
					}
				}
				var all sync.WaitGroup
				net := &words{}
				for i := range members {
					all.Go(func() {
						l, err := semaphore.NewLock(st, "slots", net.options(c.peers, fmt.Sprint(i)))
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
							time.Sleep(c.back)
						}
						closed(t, l)
					})
					time.Sleep(time.Millisecond)
				}
				all.Wait()
				n := float64(to - from)
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
