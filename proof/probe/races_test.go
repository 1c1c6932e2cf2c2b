// Package probe measures how surely a probe notices a store whose races go wrong seldom.
package probe_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/probe"
)

// rare is a store in which about one race in 500 goes wrong: one write in 500, of those
// of a kind, is carried out without its condition.
func rare(random *rand.Rand, kind func(store.Condition) bool) *brokenstore.Store {
	var mu sync.Mutex
	b := &brokenstore.Store{Store: memstore.New()}
	b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
		mu.Lock()
		slip := kind(only) && random.IntN(500) == 0
		mu.Unlock()
		if slip {
			return b.Force(ctx, key, body)
		}
		return b.Store.Put(ctx, key, body, only)
	}
	return b
}

// A store in which one race in 500 goes wrong is noticed, nearly always.
func TestOneRaceIn500(t *testing.T) {
	const rounds = 20
	for _, c := range []struct {
		name  string
		kind  func(store.Condition) bool
		least int // of a hundred
	}{
		// By chance 99.8 of a hundred, and 95.
		{"any", store.Condition.Valid, 90},
		{"creates", store.Condition.Absent, 70},
		{"updates", func(c store.Condition) bool { return !c.Absent() }, 70},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			caught := 0
			for seed := range rounds {
				// In virtual time, since a probe waits.
				synctest.Test(t, func(t *testing.T) {
					r, err := probe.Run(t.Context(), brokenstore.Bare{Store: rare(rand.New(rand.NewPCG(uint64(seed), 0)), c.kind)}, nil)
					if err != nil {
						t.Fatal(err)
					}
					if r.Proves(r.Store, "object") != nil {
						caught++
					}
				})
			}
			t.Logf("%d of %d caught", caught, rounds)
			if caught*100 < c.least*rounds {
				t.Errorf("only %d of %d were caught", caught, rounds)
			}
		})
	}
}
