//go:build lockorder

package engine

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
)

// A Mutex is a sync.Mutex with a [Rank] that panics when it is locked out of order.
type Mutex struct {
	mu   sync.Mutex
	rank Rank
	by   string // the goroutine that locked it; read only while the mutex is held
}

// Rank sets the rank. Call it before the first use.
func (m *Mutex) Rank(r Rank) { m.rank = r }

// Lock locks m. It panics if the goroutine holds a mutex of the same rank or a smaller one.
func (m *Mutex) Lock() {
	me := goroutine()
	held.Lock()
	ranks := held.by[me]
	held.Unlock()
	if n := len(ranks); n > 0 && ranks[n-1] <= m.rank {
		panic(fmt.Sprintf("lockorder: a mutex of rank %d is locked while one of rank %d is held", m.rank, ranks[n-1]))
	}
	m.mu.Lock()
	m.by = me
	held.Lock()
	defer held.Unlock()
	held.by[me] = append(held.by[me], m.rank)
}

// Unlock unlocks m. Another goroutine may call it, as with sync.Mutex. Finding out which one calls would take as
// long as everything else here.
func (m *Mutex) Unlock() {
	me := m.by
	held.Lock()
	defer held.Unlock()
	ranks := held.by[me]
	for i := len(ranks) - 1; ; i-- {
		if i < 0 {
			panic(fmt.Sprintf("lockorder: a mutex of rank %d is unlocked that is not locked", m.rank))
		}
		if ranks[i] == m.rank {
			ranks = append(ranks[:i:i], ranks[i+1:]...)
			break
		}
	}
	if held.by[me] = ranks; len(ranks) == 0 {
		delete(held.by, me)
	}
	m.by = ""
	m.mu.Unlock()
}

// held has the ranks of the mutexes that each goroutine holds, in the order in which it locked them.
var held = struct {
	sync.Mutex
	by map[string][]Rank
}{by: map[string][]Rank{}}

// goroutine returns the number of the calling goroutine, which only its stack tells.
func goroutine() string {
	var stack [64]byte
	_, rest, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	return string(number)
}
