package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// TestSoak: many candidates over several elections in one process, on MinIO behind a
// proxy that fails one request in twenty. Candidates resign, leave and come anew. Never
// are two leases of an election valid, tokens grow, and neither memory nor goroutines do.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it shows nothing in a short time")
	}
	candidates, elections, lasts := 40, 4, 20*time.Second
	if *soak > 0 {
		candidates, elections, lasts = 200, 20, *soak
	}
	server := servers.Start(t, "minio")
	proxy := servers.StartProxy(t, server.Endpoint, &servers.ProxyOptions{Fault: oneInTwenty()})
	bucket := server.Bucket(t)

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	races := make([]*race, elections)
	for i := range races {
		races[i] = &race{key: fmt.Sprint("election", i), leads: make([]atomic.Pointer[leasehold.Lease], candidates/elections)}
		for n := range races[i].leads {
			st, err := s3store.New(server.ClientAt(proxy.Endpoint), bucket, nil)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() { races[i].run(ctx, t, st, n) })
		}
		all.Go(func() { races[i].watch(ctx, t) })
	}
	samples := measure(lasts, races)
	cancel()
	all.Wait()

	t.Log(table(samples))
	last := samples[len(samples)-1]
	t.Logf("figures: %d candidates over %d elections for %v: %d terms, %d KiB heap, %d goroutines",
		candidates, elections, lasts, last.terms, last.heap>>10, last.goroutines)
	if changes := samples[len(samples)-1].terms; changes < elections {
		t.Errorf("%d terms in %d elections: nothing was soaked", changes, elections)
	}
	heaps, goroutines := make([]int, len(samples)), make([]int, len(samples))
	for i, s := range samples {
		heaps[i], goroutines[i] = s.heap>>10, s.goroutines
	}
	if err := flat(heaps, 4<<10); err != nil {
		t.Errorf("KiB of heap: %v", err)
	}
	if err := flat(goroutines, 50); err != nil {
		t.Errorf("goroutines: %v", err)
	}
}

// oneInTwenty fails every twentieth request, in one of five ways.
func oneInTwenty() func(*http.Request, int) servers.Fault {
	faults := []servers.Fault{
		servers.DropAnswer, servers.DropRequest, servers.Delay(time.Second),
		servers.Status(http.StatusServiceUnavailable), servers.StatusAfter(http.StatusInternalServerError),
	}
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(*seed, 3))
	return func(*http.Request, int) servers.Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.IntN(20) > 0 {
			return servers.Pass
		}
		return faults[r.IntN(len(faults))]
	}
}

// A race is one election and its candidates.
type race struct {
	key   string
	leads []atomic.Pointer[leasehold.Lease] // of each candidate, the last one

	mu    sync.Mutex
	last  leasehold.Token
	terms int

	leading, following atomic.Int64 // requests
}

// soakTTL makes for many terms in little time.
const soakTTL = 5 * time.Second

// run lets candidate n campaign, leave and come anew until ctx ends.
func (r *race) run(ctx context.Context, t *testing.T, st store.Store, n int) {
	t.Helper()
	counted := &countedStore{st, func() *atomic.Int64 {
		if lease := r.leads[n].Load(); lease != nil && lease.Valid() {
			return &r.leading
		}
		return &r.following
	}}
	for ctx.Err() == nil {
		e, err := leasehold.NewElection(counted, r.key, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: soakTTL, Holder: fmt.Sprint("candidate", n)}})
		if err != nil {
			t.Error(err)
			return
		}
		life, leave := context.WithTimeout(ctx, soakTTL+rand.N(4*soakTTL))
		err = e.Run(life, func(ctx context.Context, lease *leasehold.Lease) error {
			r.began(t, lease)
			r.leads[n].Store(lease)
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(2 * soakTTL)):
			}
			return nil
		})
		if !errors.Is(err, life.Err()) {
			t.Errorf("candidate %d of %s gave up: %v", n, r.key, err)
		}
		leave()
	}
}

func (r *race) began(t *testing.T, lease *leasehold.Lease) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.terms++
	if lease.Token() <= r.last {
		t.Errorf("%s: token %v after %v", r.key, lease.Token(), r.last)
	}
	r.last = lease.Token()
}

// watch looks every 10 ms whether two leases are valid. A lease that was taken out
// before another one is looked at, and is valid afterwards, was valid with it.
func (r *race) watch(ctx context.Context, t *testing.T) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var valid []*leasehold.Lease
		for n := range r.leads {
			if lease := r.leads[n].Load(); lease != nil && lease.Valid() {
				valid = append(valid, lease)
			}
		}
		for i := 1; i < len(valid); i++ {
			if valid[i].Valid() && valid[i-1].Valid() {
				t.Errorf("%s: the leases of %s (token %v) and %s (token %v) are both valid", r.key,
					valid[i-1].Holder(), valid[i-1].Token(), valid[i].Holder(), valid[i].Token())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// A countedStore counts the requests that a candidate sends.
type countedStore struct {
	store.Store
	counter func() *atomic.Int64
}

func (s *countedStore) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	s.counter().Add(1)
	return s.Store.Get(ctx, key, unless)
}

func (s *countedStore) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	s.counter().Add(1)
	return s.Store.Put(ctx, key, body, only)
}

// A sample is how things were at one time.
type sample struct {
	at                 time.Duration
	heap               int // bytes
	goroutines         int
	leading, following int64 // requests so far
	terms              int   // so far
}

// measure takes forty samples, spread over the time that it is to last.
func measure(lasts time.Duration, races []*race) []sample {
	const count = 40
	samples := []sample{{}}
	began := time.Now()
	for len(samples) <= count {
		time.Sleep(lasts / count)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s := sample{at: time.Since(began), heap: int(m.HeapAlloc), goroutines: runtime.NumGoroutine()}
		for _, r := range races {
			s.leading += r.leading.Load()
			s.following += r.following.Load()
			r.mu.Lock()
			s.terms += r.terms
			r.mu.Unlock()
		}
		samples = append(samples, s)
	}
	return samples
}

// table shows every fourth sample, with what came in between.
func table(samples []sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n%8s %10s %10s %12s %14s %6s\n", *seed, "after", "heap, KiB", "goroutines", "leading, /s", "following, /s", "terms")
	for i := 4; i < len(samples); i += 4 {
		s, before := samples[i], samples[i-4]
		seconds := (s.at - before.at).Seconds()
		fmt.Fprintf(&b, "%8v %10d %10d %12.1f %14.1f %6d\n", s.at.Round(time.Second), s.heap>>10, s.goroutines,
			float64(s.leading-before.leading)/seconds, float64(s.following-before.following)/seconds, s.terms-before.terms)
	}
	return b.String()
}

// flat compares the medians of the second and the last quarter: the last may be larger
// by a quarter, and by so much.
func flat(values []int, more int) error {
	median := func(part []int) int {
		part = slices.Sorted(slices.Values(part))
		return part[len(part)/2]
	}
	q := len(values) / 4
	second, last := median(values[q:2*q]), median(values[len(values)-q:])
	if most := second + second/4 + more; last > most {
		return fmt.Errorf("%d in the second quarter and %d in the last, more than %d", second, last, most)
	}
	return nil
}

// TestFlat: growth with time is found out.
func TestFlat(t *testing.T) {
	t.Parallel()
	grows, stays := make([]int, 40), make([]int, 40)
	for i := range grows {
		grows[i], stays[i] = 1000+20*i, 1000+100*(i%3)
	}
	if flat(grows, 50) == nil {
		t.Error("that grew by a half: ", grows)
	}
	if err := flat(stays, 50); err != nil {
		t.Error("that stayed: ", err)
	}
}
