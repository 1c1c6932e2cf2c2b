package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestGoals: in virtual time, where no other work on the machine counts, with a store
// that answers a write after 6 ms on average, a LIST after 3 and a GET after 1. With 8 ms
// one process misses the 95 % already.
func TestGoals(t *testing.T) {
	for _, processes := range []int{1, 10} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			var all []figures
			for _, layout := range slices.Concat(leasehold.Layouts, []leasehold.Layout{plainLoop}) {
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					defer clock.Set(func() time.Duration { return time.Since(begun) + time.Hour })()
					f := virtual(t, string(layout), processes)
					f.check(t, 100, 200*time.Millisecond)
					all = append(all, f)
					t.Logf("%-16s in use %.1f %%, %.2f requests, $%.4f for 1,000", f.Protocol, f.InUse*100, f.Requests, f.Dollars*1000)
				})
			}
			if missed := goals(t, all); missed[string(leasehold.LayoutObject)] != "" {
				t.Error("the default layout misses its goal")
			}
		})
	}
}

// virtual is a competition among as many locks as there would be processes.
func virtual(t *testing.T, name string, processes int) figures {
	t.Helper()
	const acquisitions, tasks, hold = 100, 100, 200 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var (
		shared      = memstore.New()
		stores      []*faultstore.Store
		all         sync.WaitGroup
		mu          sync.Mutex
		inside      int
		first, last time.Time
		served      = map[int]bool{}
		f           = figures{Protocol: name, Processes: processes, Tasks: tasks}
	)
	do := func(ctx context.Context, task int) error {
		mu.Lock()
		if inside++; inside > 1 {
			f.Overlaps++
		}
		if served[task] = true; first.IsZero() {
			first = time.Now()
		}
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(hold):
		}
		mu.Lock()
		defer mu.Unlock()
		if inside--; ctx.Err() == nil {
			if f.Acquisitions++; f.Acquisitions == acquisitions {
				last = time.Now()
				stop()
			}
		}
		return nil
	}
	for n := range processes {
		st := slow(shared, uint64(n))
		stores = append(stores, st)
		lock, err := plan{Protocol: name, TTL: leasehold.DefaultTTL}.protocol(st)
		if err != nil {
			t.Fatal(err)
		}
		for task := n * tasks / processes; task < (n+1)*tasks/processes; task++ {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := lock.do(ctx, func(ctx context.Context) error { return do(ctx, task) }); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	var total faultstore.Counts
	for _, st := range stores {
		n := st.Counts()
		total.Get, total.Put, total.List, total.Delete = total.Get+n.Get, total.Put+n.Put, total.List+n.List, total.Delete+n.Delete
	}
	time.Sleep(time.Minute) // what is settled in the background
	f.Served, f.Seconds = len(served), last.Sub(first).Seconds()
	f.InUse = acquisitions * hold.Seconds() / f.Seconds
	f.cost(total)
	return f
}

// slow is a store that is some way off: a request and its answer take half each.
func slow(st store.Store, seed uint64) *faultstore.Store {
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
