package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
)

// A Term is one lease of a lock.
type Term struct {
	leasehold.Info // its last record

	// Ended is when it was released or the next one began, by the wall clock of
	// whoever did that; zero if it goes on.
	Ended time.Time
	// Why is "released", "taken over" from a holder that was gone, or "broken" by
	// hand; empty if it goes on.
	Why string
}

// ErrNoHistory: the layout of the lock keeps nothing of the past.
var ErrNoHistory = errors.New("only the layouts with epochs keep a history")

// History yields the leases of a lock with epochs, the present one first, as long as
// they are kept: see [Collect]. It costs one look, and one read for each. Any error is
// the last.
func History(ctx context.Context, lock *leasehold.Lock) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		at := root.Parts(lock).Layout
		epochs, ok := at.(layout.Epochs)
		if !ok {
			yield(Term{}, fmt.Errorf("the lock %v: %w", at, ErrNoHistory))
			return
		}
		for t, err := range epochs.Terms(ctx) {
			if err != nil {
				yield(Term{}, root.Explain(lock, err))
				return
			}
			if !yield(Term{root.Describe(lock.Key(), layout.Snapshot{Record: t.Record}), t.Ended, t.Why}, nil) {
				return
			}
		}
	}
}
