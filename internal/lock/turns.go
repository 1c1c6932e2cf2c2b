package lock

import (
	"context"
	"errors"
	"slices"

	"github.com/leasehold/leasehold/internal/engine"
)

// Turns admits one goroutine at a time, in order of arrival. Leave passes the turn directly to the
// goroutine that has waited longest. With a sync.Mutex, a goroutine that releases a lock and wants
// it again at once would win each time, until the others count as starving.
type Turns struct {
	mu      engine.Mutex
	taken   bool
	waiting []chan struct{}
}

// TryEnter takes the turn if it is free.
func (q *Turns) TryEnter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken {
		return false
	}
	q.taken = true
	return true
}

// Enter waits for the turn. It returns the context's error if the context ends first. An error
// that matches ErrCrossed means that the turn came at the same moment: the caller has it.
func (q *Turns) Enter(ctx context.Context) error {
	q.mu.Lock()
	if !q.taken {
		q.taken = true
		q.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	q.waiting = append(q.waiting, turn)
	q.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	if i := slices.Index(q.waiting, turn); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.mu.Unlock()
		return ctx.Err()
	}
	q.mu.Unlock()
	// Returning ctx.Err() here would lose the turn, and everyone behind would wait forever.
	return ErrCrossed
}

// ErrCrossed means that the turn came as the caller gave up. The caller must pass it on.
var ErrCrossed = errors.New("the turn and the end crossed")

// Taken reports whether someone has the turn.
func (q *Turns) Taken() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}

// Waiting reports whether someone waits for the turn.
func (q *Turns) Waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0
}

// Leave passes the turn to the goroutine that has waited longest, and reports whether there is one.
// In that case the turn stays taken, so no newcomer can slip in.
func (q *Turns) Leave() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.taken = false
		return false
	}
	close(q.waiting[0])
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return true
}
