//go:build !lockorder

package engine

import "sync"

// A Mutex is a sync.Mutex with a [Rank].
type Mutex struct{ sync.Mutex }

// Rank sets the rank. Call it before the first use.
func (*Mutex) Rank(Rank) {}
