package leasehold

import (
	"context"
	"errors"
	"slices"

	"github.com/leasehold/leasehold/internal/lockorder"
)

// queue lets in one goroutine at a time, in the order of arrival. It hands the turn itself
// to the one that has waited longest, where a sync.Mutex would let a newcomer pass it: a
// goroutine that releases a lock and wants it again at once would win each time, and the
// others would wait until they are called starving.
type queue struct {
	mu      lockorder.Mutex
	taken   bool
	waiting []chan struct{}
}

// tryEnter enters if nobody is inside.
func (q *queue) tryEnter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken {
		return false
	}
	q.taken = true
	return true
}

// enter waits for the turn. It returns the context's error if that ends first.
func (q *queue) enter(ctx context.Context) error {
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
	// It is ours, though nobody wants it: to return as if it had never come would keep all
	// those behind out for ever.
	return errCrossed
}

// errCrossed: the turn came as the caller gave up, and has to be passed on.
var errCrossed = errors.New("the turn and the end crossed")

// isTaken reports that somebody is inside.
func (q *queue) isTaken() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}

// waits reports that somebody waits for the turn.
func (q *queue) waits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0
}

// leave lets in the one that has waited longest, and reports whether there is one.
// In that case taken stays true: there is no moment in which a newcomer could slip in.
func (q *queue) leave() bool {
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
