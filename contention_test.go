package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// The plain loop that people begin with creates a marker, or else tries again after 0.5 to 1 s.
// It made about so many requests in the competition below on MinIO, in one process and in ten alike.
const (
	loopRequests = 29.0   // for each acquisition
	loopDollars  = 0.1403 // for 1,000 of them
)

// A contest is what came of a competition for one lock.
type contest struct {
	served   map[int]bool
	overlaps int
	inUse    float64 // the share of the time from the first acquisition to the last release
	// Requests for each acquisition.
	get, put, list, delete float64
}

func (c contest) requests() float64 { return c.get + c.put + c.list + c.delete }

// dollars are what the requests for 1,000 acquisitions cost in S3 Standard, us-east-1.
func (c contest) dollars() float64 { return 0.005*(c.put+c.list) + 0.0004*c.get }

// TestContention: a hundred tasks compete for one lock, which each needs for 200 ms, in one
// process and in ten, where a write is answered after 6 ms on average, a LIST after 3 and a
// GET after 1. It notices idle time and requests that nobody needs. With 8 ms one process
// would miss the 95 % already.
func TestContention(t *testing.T) {
	for _, processes := range []int{1, 10} {
		for _, layout := range leasehold.Layouts {
			if processes > 1 && layout != leasehold.LayoutObject {
				continue // they take the longest, and nothing more is asked of them
			}
			t.Run(fmt.Sprint(layout, " ", processes), func(t *testing.T) {
				bubble(t, func(t *testing.T) { contend(t, layout, processes).check(t, layout, processes) })
			})
		}
	}
}

func (c contest) check(t *testing.T, layout leasehold.Layout, processes int) {
	t.Helper()
	t.Logf("in use %.1f %%, %.2f requests, $%.4f for 1,000, %d tasks served", c.inUse*100, c.requests(), c.dollars(), len(c.served))
	epochs := strings.HasPrefix(string(layout), "epochs")
	byDefault := layout == leasehold.LayoutObject
	for what, wrong := range map[string]bool{
		"overlaps":                       c.overlaps > 0,
		"tasks that had the lock":        len(c.served) == 0 || processes == 1 && len(c.served) < 100,
		"share of the time in use":       c.inUse > 1 || byDefault && (c.inUse < 0.80 || processes == 1 && c.inUse < 0.95),
		"fewer than one write each":      c.put < 1,
		"LISTs, which only epochs need":  (c.list > 0) != epochs,
		"DELETEs, which only markers do": c.delete > 0 && (epochs || byDefault),
		"requests, of one process":       byDefault && processes == 1 && c.requests() >= loopRequests/10,
		"dollars, of several":            byDefault && processes > 1 && c.dollars() >= loopDollars,
	} {
		if wrong {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// contend lets a hundred tasks compete until they have had the lock a hundred times, with as
// many locks as there would be processes.
func contend(t *testing.T, layout leasehold.Layout, processes int) (c contest) {
	t.Helper()
	const enough, tasks, hold = 100, 100, 200 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var (
		mu            sync.Mutex
		inside, turns int
		first, last   time.Time
		all           sync.WaitGroup
		shared        = memstore.New()
		stores        []*faultstore.Store
		locks         []*leasehold.Lock
	)
	c.served = map[int]bool{}
	work := func(ctx context.Context, task int) error {
		mu.Lock()
		if inside++; inside > 1 {
			c.overlaps++
		}
		if c.served[task] = true; first.IsZero() {
			first = time.Now()
		}
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(hold):
		}
		mu.Lock()
		defer mu.Unlock()
		inside--
		if ctx.Err() == nil {
			if turns++; turns == enough {
				last = time.Now()
				stop()
			}
		}
		return nil
	}
	for n := range processes {
		st := someWayOff(shared, uint64(n))
		lock := newLock(t, st, &leasehold.LockOptions{Layout: layout})
		stores, locks = append(stores, st), append(locks, lock)
		for task := n * tasks / processes; task < (n+1)*tasks/processes; task++ {
			all.Go(func() {
				for ctx.Err() == nil {
					err := lock.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error { return work(ctx, task) })
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for i, st := range stores {
		n := st.Counts()
		c.get, c.put, c.list, c.delete = c.get+float64(n.Get)/enough, c.put+float64(n.Put)/enough, c.list+float64(n.List)/enough, c.delete+float64(n.Delete)/enough
		if err := locks[i].Settle(t.Context()); err != nil {
			t.Error(err)
		}
	}
	c.inUse = enough * hold.Seconds() / last.Sub(first).Seconds()
	return c
}

// someWayOff gives a store at some distance: a request and its answer take half each.
func someWayOff(st store.Store, seed uint64) *faultstore.Store {
	for _, kind := range []faultstore.Kind{faultstore.DelayBefore, faultstore.DelayAfter} {
		faults := []faultstore.Fault{
			{Kind: kind, Op: "put", Delay: 2 * time.Millisecond, Jitter: 2 * time.Millisecond},
			{Kind: kind, Op: "delete", Delay: 2 * time.Millisecond, Jitter: 2 * time.Millisecond},
			{Kind: kind, Op: "list", Delay: time.Millisecond, Jitter: time.Millisecond},
			{Kind: kind, Op: "get", Delay: 400 * time.Microsecond, Jitter: 200 * time.Microsecond},
		}
		st = faultstore.Wrap(st, &faultstore.Options{Seed: seed, Faults: faults})
	}
	outer, _ := st.(*faultstore.Store)
	return outer
}
