package adaptertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
)

// TTL is what a [Contender] takes for its leases.
const TTL = 2 * time.Second

const (
	rounds = 20 // of each adapter
	lanes  = 4  // of which so many are played at a time

	// patience is how long a round waits for what must come. It ends a wait that would have no end.
	patience = time.Minute
)

// A Contender is one process that wants the lock "contended" through an adapter. It opens what it needs in st and
// contends until stop is called. Whenever it has the lock it calls work with the context under which the adapter
// has its users work, and lets go when work returns. Calls of stop return when nothing is left of the contender.
type Contender func(t testing.TB, st store.Store, name string, work func(ctx context.Context)) (stop func())

// Rounds plays rounds of two contenders on MinIO, each behind a proxy of its own: at a random moment of its work the
// holder is cut off from the store, by silence and by refusals in turn. Its work must have ended before the other's
// begins, and the other's must begin. A round in which this machine itself stood still for an eighth of a TTL, where
// no lock could hold what it promises, is played again if it failed.
func Rounds(t *testing.T, contend Contender) {
	t.Helper()
	server := servers.Start(t, "minio")
	todo, again, n := atomic.Int32{}, atomic.Int32{}, int32(rounds)
	if testing.Short() {
		n = lanes
	}
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for i := todo.Add(1); i <= n && !t.Failed(); i = todo.Add(1) {
				t.Run(fmt.Sprint(i), func(t *testing.T) { playOut(t, server, contend, i%2 == 0, &again) })
			}
		})
	}
	wg.Wait()
	t.Logf("%d rounds, and %d of them again", n, again.Load())
}

// playOut plays a round until it counts.
func playOut(t *testing.T, server *servers.Server, contend Contender, refuse bool, again *atomic.Int32) {
	t.Helper()
	for tries := 1; ; tries++ {
		err, doubt := play(t, server, contend, refuse)
		switch {
		case err == nil:
			return
		case !doubt || tries == 5:
			t.Fatal(err)
		}
		again.Add(1)
		t.Logf("it is played again, since this machine stood still: %v", err)
	}
}

// A round has one who works at a time.
type round struct {
	over    chan struct{} // closed when the work of the second is to end
	entered chan string   // who has begun to work

	mu      sync.Mutex
	working string // who works
	err     error
}

// work is what a contender does under the lock, for as long as it may.
func (r *round) work(ctx context.Context, name string) {
	r.mu.Lock()
	if r.working != "" && r.err == nil {
		r.err = fmt.Errorf("%s begins to work, and %s has not ended", name, r.working)
	}
	r.working = name
	r.mu.Unlock()
	select {
	case r.entered <- name:
	default: // both have worked
	}
	select {
	case <-ctx.Done():
	case <-r.over:
	}
	r.mu.Lock()
	if r.working == name {
		r.working = ""
	}
	r.mu.Unlock()
}

// play is one round. It reports whether the machine stood still meanwhile.
func play(t *testing.T, server *servers.Server, contend Contender, refuse bool) (err error, doubt bool) {
	t.Helper()
	still := watch()
	defer func() { doubt = still() >= TTL/8 }()
	r := &round{over: make(chan struct{}), entered: make(chan string, 2)}
	bucket := server.Bucket(t)
	proxies := map[string]*servers.Proxy{}
	var stops []func()
	for _, name := range []string{"a", "b"} {
		proxies[name] = servers.StartProxy(t, server.Endpoint, nil)
		st := open(t, server, proxies[name].Endpoint, bucket)
		stops = append(stops, contend(t, st, name, func(ctx context.Context) { r.work(ctx, name) }))
	}
	defer func() {
		for _, p := range proxies {
			p.Restore(t)
		}
		close(r.over)
		for _, stop := range stops {
			stop()
		}
		if r.err != nil {
			err = r.err
		}
	}()
	first, err := r.next()
	if err != nil {
		return err, false
	}
	time.Sleep(rand.N(TTL)) //nolint:gosec // any moment of its work
	if refuse {
		proxies[first].Refuse()
	} else {
		proxies[first].Hang()
	}
	second, err := r.next()
	if err == nil && second == first {
		err = fmt.Errorf("%s, which is cut off, begins to work again", first)
	}
	return err, false
}

// next waits for whoever begins to work next.
func (r *round) next() (string, error) {
	select {
	case name := <-r.entered:
		return name, nil
	case <-time.After(patience):
		return "", fmt.Errorf("nobody begins to work within %v", patience)
	}
}

// watch begins to watch whether this process gets to run. The result ends that, and says how long it did not at most.
func watch() (end func() time.Duration) {
	done, most := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		const nap = 5 * time.Millisecond
		tick := time.NewTicker(nap)
		defer tick.Stop()
		var longest time.Duration
		for last := time.Now(); ; {
			select {
			case <-done:
				most <- max(longest, time.Since(last)-nap)
				return
			case <-tick.C:
				longest = max(longest, time.Since(last)-nap)
				last = time.Now()
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-most
	}
}
