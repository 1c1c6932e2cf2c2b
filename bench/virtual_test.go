package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

var (
	followers = flag.Int("followers", 100, "how many follow the leader in TestVirtualFailover")
	leases    = flag.Int("leases", 1, "how many are renewed in TestVirtualRenewals; more than one are under a session")
	locks     = flag.Int("locks", 100, "how many locks a process holds in TestVirtualSession")
	cuts      = flag.Int("cuts", 1, "how many crash, one after the other, in TestVirtualFailover and TestVirtualSession")
	seed      = flag.Uint64("seed", 1, "of the moments of their crashes")
)

var bubble = leasetest.Bubble

// tell prints what the experiment scale reads.
func tell(v virtual) {
	text, _ := json.Marshal(v)
	fmt.Printf("\nVIRTUAL %s\n", text)
}

// latency is that of each request: some 50 ms, as within a region.
var latency = faultstore.Fault{Kind: faultstore.DelayAfter, Delay: 30 * time.Millisecond, Jitter: 40 * time.Millisecond}

// crashing plays one crash for each moment that is drawn evenly over the interval in which the
// holder renews. After an equal time all crashes would come just before a renewal, or just after it.
func crashing(t *testing.T, n int, ttl time.Duration, play func(t *testing.T, rng *rand.Rand, cut time.Duration)) {
	rng := rand.New(rand.NewPCG(*seed, 0))
	for _, cut := range draw(rng, n, ttl/3) {
		bubble(t, func(t *testing.T) { play(t, rng, cut) })
	}
}

// slow is a way to the store in which each request takes some time.
func slow(st *memstore.Store, rng *rand.Rand) *faultstore.Store {
	return faultstore.Wrap(st, &faultstore.Options{Seed: rng.Uint64(), Faults: []faultstore.Fault{latency}})
}

// TestVirtualFailover: a leader crashes that so many follow.
func TestVirtualFailover(t *testing.T) {
	crashing(t, *cuts, defaultTTL, func(t *testing.T, rng *rand.Rand, cut time.Duration) {
		tell(failover(t, rng, *followers, defaultTTL, cut))
	})
}

// TestVirtualCuts: a leader has one follower and crashes at any moment. From a renewal on the
// follower waits the TTL, the margin and four fifths of the spread, on average. The crash comes
// half an interval after a renewal, on average, and the follower looks soon after each.
func TestVirtualCuts(t *testing.T) {
	const n, ttl = 200, 6 * time.Second
	var took []float64
	crashing(t, n, ttl, func(t *testing.T, rng *rand.Rand, cut time.Duration) {
		took = append(took, failover(t, rng, 1, ttl, cut).Seconds)
	})
	slices.Sort(took)
	average, ideal := mean(took), (ttl + ttl/12 + 10*time.Millisecond + ttl/10*4/5 - ttl/6).Seconds()
	t.Logf("%d crashes: mean %.2f s, p95 %.2f, least %.2f, most %.2f; the ideal mean is %.2f", n, average, quantile(took, 0.95), took[0], took[n-1], ideal)
	if late := (ttl / 3 / 4).Seconds(); average < ideal-late/4 || average > ideal+late+0.15 { // and two requests
		t.Errorf("the mean is %.2f s, and the ideal is %.2f", average, ideal)
	}
	if most := (ttl + ttl/12 + ttl/10 + ttl/3/2).Seconds(); took[n-1] > most {
		t.Errorf("one took %.2f s, more than %.2f", took[n-1], most)
	}
}

// failover is what it takes when a leader crashes at that moment of an interval.
func failover(t *testing.T, rng *rand.Rand, followers int, ttl, cut time.Duration) virtual {
	t.Helper()
	st := memstore.New()
	leader, rest := slow(st, rng), slow(st, rng)
	candidate := func(at *faultstore.Store, name string) *leasehold.Election {
		e, err := leasehold.NewElection(at, "leader", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: name, TTL: ttl}})
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
	next := make(chan *leasehold.Lease, followers)
	for i, later := range draw(rng, followers, ttl/3) {
		e := candidate(rest, fmt.Sprint(i))
		all.Go(func() {
			time.Sleep(later)
			if lease, err := e.Campaign(ctx); err == nil {
				next <- lease
			}
		})
	}
	time.Sleep(2*ttl + cut)
	v := virtual{Followers: followers, Cut: cut.Seconds()}
	steady := rest.Counts()
	leader.Partition(true)
	crashed := time.Now()
	lease := <-next
	v.Seconds = time.Since(crashed).Seconds()
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
	return v
}

// far is the latency where the network is slow: 100 to 200 ms.
var far = faultstore.Fault{Kind: faultstore.DelayAfter, Delay: 100 * time.Millisecond, Jitter: 100 * time.Millisecond}

// limited is a store that serves no more than S3 does of one prefix, and asks for fewer requests
// where there are more. A burst may be as large as what it serves in a tenth of a second.
type limited struct {
	store.Store
	on         *atomic.Bool
	gets, puts *bucket
}

type bucket struct {
	mu     sync.Mutex
	rate   float64
	left   float64
	at     time.Time
	denied int
}

func (b *bucket) serves() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.left = min(b.left+now.Sub(b.at).Seconds()*b.rate, b.rate/10)
	if b.at = now; b.left < 1 {
		b.denied++
		return false
	}
	b.left--
	return true
}

func (l limited) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if l.on.Load() && !l.gets.serves() {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrThrottled}
	}
	return l.Store.Get(ctx, key, unless)
}

func (l limited) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if l.on.Load() && !l.puts.serves() {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: store.ErrThrottled} // as of a 503
	}
	return l.Store.Put(ctx, key, body, only)
}

// TestVirtualSession: a process crashes that holds so many locks under one session, and
// three want all of them, of a store that serves as many requests as S3 does.
func TestVirtualSession(t *testing.T) {
	crashing(t, *cuts, defaultTTL, func(t *testing.T, rng *rand.Rand, cut time.Duration) {
		st := limited{memstore.New(), new(atomic.Bool), &bucket{rate: getsPerSecond}, &bucket{rate: putsPerSecond}}
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
		began := time.Now() // of the session that crashes, and so of its renewals
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
		for _, later := range draw(rng, 3, defaultTTL/3) {
			time.Sleep(later)
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
		time.Sleep(time.Until(began.Add(time.Minute + cut)))
		v := virtual{Locks: *locks, Cut: cut.Seconds()}
		st.on.Store(true)
		for _, at := range stores {
			at.Inject(far)
			c := at.Counts()
			v.Reads -= c.Get
			v.Writes -= c.Put
		}
		gone.Partition(true)
		crashed := time.Now()
		all.Wait()
		v.Seconds, v.Spread = first.Sub(crashed).Seconds(), last.Sub(first).Seconds()
		for _, at := range stores {
			v.Reads += at.Counts().Get
			v.Writes += at.Counts().Put
		}
		t.Logf("%d GETs and %d PUTs were too many", st.gets.denied, st.puts.denied)
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
