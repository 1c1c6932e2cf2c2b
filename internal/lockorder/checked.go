//go:build lockorder

package lockorder

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
)

// A Mutex is a sync.Mutex with a rank, which panics when it is locked out of turn.
type Mutex struct {
	mu   sync.Mutex
	rank Rank
	by   string // the goroutine that has locked it; only who holds it reads it
}

// Rank sets the rank, before the mutex is used.
func (m *Mutex) Rank(r Rank) { m.rank = r }

// Lock locks it, if none is held that comes after it.
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

// Unlock unlocks it. It does not ask who does that, which takes as long as all the rest: whatever the goroutine that has
// locked it holds, it does not hold this one any more.
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

// held is what each goroutine holds, in the order in which it was locked.
var held = struct {
	sync.Mutex
	by map[string][]Rank
}{by: map[string][]Rank{}}

// goroutine is the number of the one that runs, which only its stack tells.
func goroutine() string {
	var stack [64]byte
	_, rest, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	return string(number)
}
