//go:build !lockorder

package lockorder

import "sync"

// A Mutex is a sync.Mutex with a rank.
type Mutex struct{ sync.Mutex }

// Rank sets the rank, before the mutex is used.
func (*Mutex) Rank(Rank) {}
