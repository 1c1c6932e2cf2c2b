package peer

import (
	"context"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/lock"
)

// A Question is what a follower asks a leader: about which lock, in whose name, how long it has
// wanted to lead, which answer it knows, and how long to wait for a newer one. Its content is not
// trusted: it can only affect who is told first or named as successor.
type Question = lock.Question

// Leadership is what a candidate says about its own leadership: whether it leads, its lease, and for
// how long that is still valid. It is not signed. A follower uses it to decide when to poll the
// store, whose conditional write decides the rest.
type Leadership = lock.Leadership

// Attend answers a follower's question with what the candidate can say about its leadership. Only
// transports other than [Handler] need it.
//
// Attend returns as soon as the answer differs from what the follower knows, or 20 ms later if a
// release names another candidate as successor. It returns at the latest after q.Wait or when ctx
// ends. While Attend waits, [leasehold.Election.Resign] can name the follower as successor.
//
// Call it for each question, from any number of goroutines. It sends nothing. It fails if the
// question is about another lock; return that error to the follower.
func Attend(ctx context.Context, e *leasehold.Election, q Question) (Leadership, error) {
	return leasehold.Internal.Attend(ctx, e, q)
}
