package shard_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestCrowd: who is told to take thousands of shards at once does not send thousands of
// requests at once, and its heartbeats do not wait for them.
func TestCrowd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &crowd{Store: memstore.New()}
		const n = 5000
		w, err := shard.NewWorker(st, prefix, names(n), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var once, ended sync.WaitGroup
		once.Add(n)
		ended.Go(func() {
			_ = w.Run(ctx, func(ctx context.Context, s shard.Shard) error {
				once.Done()
				<-ctx.Done()
				return nil
			})
		})
		begun := time.Now()
		once.Wait() // each begins once: a second time would panic
		within(t, "5,000 shards", time.Since(begun), 15*time.Second)
		if st.most != 64 {
			t.Errorf("%d requests were under way at a time, want 64", st.most)
		}
		if got := len(read(t, st.Store, prefix+"/plan")); got > 16<<10 {
			t.Errorf("the plan of 5,000 shards has %d bytes", got)
		}
		cancel()
		ended.Wait()
		within(t, "and their end", time.Since(begun), 22*time.Second)
	})
}

// TestCost: what twenty minutes of rest cost.
func TestCost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 500)
		for i := range 10 {
			f.start(fmt.Sprint("worker ", i), nil)
		}
		f.settle()
		time.Sleep(time.Minute)
		for _, n := range f.nodes {
			n.st.Reset()
		}
		time.Sleep(20 * time.Minute)
		coordinator := f.coordinator()
		const beats = 1200 / 5
		for _, n := range f.nodes {
			got, want := sent(n), map[string]int{"put sessions": beats, "get plan": beats, "get sessions": beats}
			if n == coordinator {
				want = map[string]int{"put sessions": beats, "list workers": beats, "get plan": beats, "get sessions": 9 * beats}
			}
			if n == coordinator || n == f.nodes[5] {
				t.Logf("%s: %v", n.name, got)
			}
			for what, n := range got {
				if most := want[what] + want[what]/20; n > most {
					t.Errorf("%d requests: %s, want at most %d", n, what, most)
				}
			}
			if got["put sessions"] < beats-1 {
				t.Errorf("%d heartbeats in twenty minutes", got["put sessions"])
			}
		}
		f.end()
	})
}

// A crowd is a store that answers slowly and counts how many requests for shards are under way.
type crowd struct {
	store.Store
	mu        sync.Mutex
	now, most int
}

func (c *crowd) enter(key string) (leave func()) {
	if !strings.HasPrefix(key, prefix+"/shards/") {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
	return func() {
		time.Sleep(50 * time.Millisecond)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}
}

func (c *crowd) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	defer c.enter(key)()
	return c.Store.Get(ctx, key, unless)
}

func (c *crowd) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	defer c.enter(key)()
	return c.Store.Put(ctx, key, body, only)
}
