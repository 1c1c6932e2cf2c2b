package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

var (
	followers = flag.Int("followers", 100, "how many follow the leader in TestVirtualFailover")
	leases    = flag.Int("leases", 1, "how many are renewed in TestVirtualRenewals; more than one are under a session")
	locks     = flag.Int("locks", 100, "how many locks a process holds in TestVirtualSession")
)

var bubble = leasetest.Bubble

// tell prints what the experiment scale reads.
func tell(v virtual) {
	text, _ := json.Marshal(v)
	fmt.Printf("\nVIRTUAL %s\n", text)
}

// latency is that of each request: some 50 ms, as within a region.
var latency = faultstore.Fault{Kind: faultstore.DelayAfter, Delay: 30 * time.Millisecond, Jitter: 40 * time.Millisecond}

// TestVirtualFailover: a leader crashes that so many follow.
func TestVirtualFailover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		leader, rest := faultstore.Wrap(st, nil), faultstore.Wrap(st, nil)
		leader.Inject(latency)
		rest.Inject(latency)
		candidate := func(at *faultstore.Store, name string) *leasehold.Election {
			e, err := leasehold.NewElection(at, "leader", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: name}})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		first, err := candidate(leader, "first").Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		next := make(chan *leasehold.Lease, *followers)
		for i := range *followers {
			e := candidate(rest, fmt.Sprint(i))
			all.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Second / time.Duration(*followers))
				if lease, err := e.Campaign(ctx); err == nil {
					next <- lease
				}
			})
		}
		time.Sleep(time.Minute)
		before := rest.Counts()
		time.Sleep(time.Minute)
		steady := rest.Counts()
		leader.Partition(true)
		crashed := time.Now()
		lease := <-next
		v := virtual{Followers: *followers, Seconds: time.Since(crashed).Seconds(), PerSecond: float64(steady.Get-before.Get) / 60}
		after := rest.Counts()
		v.Reads, v.Writes = after.Get-steady.Get, after.Put-steady.Put
		if first.Valid() || lease.Token() <= first.Token() {
			t.Error("two leaders")
		}
		cancel()
		all.Wait()
		leader.Partition(false)
		_ = first.Release(t.Context())
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // until what was given up has come to its end
		tell(v)
	})
}

// TestVirtualSession: a process crashes that holds so many locks under one session, and
// three want all of them.
func TestVirtualSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		process := func() (*faultstore.Store, *leasehold.Session) {
			at := faultstore.Wrap(st, nil)
			s, err := leasehold.NewSession(t.Context(), at, nil)
			if err != nil {
				t.Fatal(err)
			}
			return at, s
		}
		lock := func(at *faultstore.Store, i int, s *leasehold.Session) *leasehold.Lock {
			l, err := leasehold.NewLock(at, fmt.Sprintf("locks/%07d", i), &leasehold.LockOptions{Session: s})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		gone, holder := process()
		for i := range *locks {
			if _, err := lock(gone, i, holder).Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var stores []*faultstore.Store
		var sessions []*leasehold.Session
		var first, last time.Time
		taken := 0
		var all sync.WaitGroup
		for range 3 {
			at, s := process()
			stores, sessions = append(stores, at), append(sessions, s)
			for i := range *locks {
				l := lock(at, i, s)
				all.Go(func() {
					if _, err := l.Acquire(ctx); err != nil {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if last = time.Now(); first.IsZero() {
						first = last
					}
					if taken++; taken == *locks {
						cancel()
					}
				})
			}
		}
		time.Sleep(time.Minute)
		before := 0
		for _, at := range stores {
			before += at.Counts().Get
		}
		time.Sleep(time.Minute)
		v := virtual{Locks: *locks}
		for _, at := range stores {
			c := at.Counts()
			v.PerSecond += float64(c.Get)
			v.Reads -= c.Get
			v.Writes -= c.Put
			at.Inject(latency)
		}
		v.PerSecond = (v.PerSecond - float64(before)) / 60
		gone.Partition(true)
		crashed := time.Now()
		all.Wait()
		v.Seconds, v.Spread = first.Sub(crashed).Seconds(), last.Sub(first).Seconds()
		for _, at := range stores {
			v.Reads += at.Counts().Get
			v.Writes += at.Counts().Put
		}
		if taken != *locks {
			t.Errorf("%d locks have new holders, not %d", taken, *locks)
		}
		cancel()
		gone.Partition(false)
		for _, s := range append(sessions, holder) {
			closed := make(chan error)
			leases := s.Leases()
			go func() { closed <- s.Close(t.Context()) }()
			<-s.Done()
			for _, l := range leases {
				_ = l.Release(t.Context()) // it is lost
			}
			if err := <-closed; err != nil && s != holder {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute) // until what was given up has come to its end
		tell(v)
	})
}

// TestVirtualRenewals: leases are renewed for days, by a store that answers at once.
func TestVirtualRenewals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &null{}
		var session *leasehold.Session
		if *leases > 1 {
			var err error
			if session, err = leasehold.NewSession(t.Context(), st, nil); err != nil {
				t.Fatal(err)
			}
		}
		var all []*leasehold.Lease
		for i := range *leases {
			lock, err := leasehold.NewLock(st, fmt.Sprintf("locks/%07d", i), &leasehold.LockOptions{Session: session})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := lock.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, lease)
		}
		time.Sleep(defaultTTL)
		var before, after runtime.MemStats
		runtime.GC()
		writes, cpu := st.writes.Load(), cpuTime()
		runtime.ReadMemStats(&before)
		time.Sleep(7 * 24 * time.Hour)
		runtime.ReadMemStats(&after)
		n := float64(st.writes.Load() - writes)
		if least := float64(7*24*time.Hour) / float64(defaultTTL/3) * 0.9; n < least || n > 1.2*least {
			t.Errorf("%v renewals in a week", n)
		}
		tell(virtual{Leases: *leases, Allocations: float64(after.Mallocs-before.Mallocs) / n, Micros: (cpuTime() - cpu) * 1e6 / n})
		if session != nil {
			go func() { _ = session.Close(t.Context()) }()
			<-session.Done()
		}
		for _, lease := range all {
			_ = lease.Release(t.Context())
		}
		time.Sleep(time.Minute)
	})
}
