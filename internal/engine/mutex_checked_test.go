//go:build lockorder

package engine_test

import (
	"testing"

	"github.com/leasehold/leasehold/internal/engine"
)

// TestOrder: mutexes can be locked from the largest rank to the smallest, and in no other order.
func TestOrder(t *testing.T) {
	ranks := []engine.Rank{engine.RankLeaf, engine.RankElection, engine.RankHeartbeat, engine.RankEngine, engine.RankWatching, engine.RankKeys}
	for _, first := range ranks {
		for _, second := range ranks {
			var a, b engine.Mutex
			a.Rank(first)
			b.Rank(second)
			a.Lock()
			panicked := panics(func() { b.Lock() })
			if want := second >= first; panicked != want {
				t.Errorf("rank %d under rank %d panics: %v, want %v", second, first, panicked, want)
			}
			if !panicked {
				b.Unlock()
			}
			a.Unlock()
			b.Lock() // nothing is held any more
			b.Unlock()
		}
	}
	var c engine.Mutex
	if !panics(c.Unlock) {
		t.Error("a mutex was unlocked that was not locked")
	}
	c.Lock()
	unlocked := make(chan bool)
	go func() { unlocked <- !panics(c.Unlock) }() // as sync.Mutex allows
	if !<-unlocked {
		t.Error("another goroutine could not unlock it")
	}
	c.Lock() // it is not taken for held by this one
	c.Unlock()
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}
