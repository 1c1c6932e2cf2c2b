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

// A Term is one lease of a lock; or several in a row of one candidate, of which it tells the last.
type Term struct {
	// Info is its last record. Of a lease that the history alone tells of there are Key, Layout,
	// Holder (cut after some 90 bytes), Token, Term and AcquiredAt, of the first one in the row.
	leasehold.Info

	// Ended is when it was released or the next one began, by the wall clock of
	// whoever did that; zero if it goes on.
	Ended time.Time
	// Why is "released", "taken over" from a holder that was gone, "broken" by hand, "deleted"
	// with its object, or "acquired again", at once and by the same candidate; empty if it goes on.
	Why string

	// Leases is how many there are in the row, mostly 1, and First the token of the first. The
	// tokens from First to Token are all this candidate's.
	Leases int64
	First  leasehold.Token
}

// ErrNoHistory: the layout of the lock keeps nothing of the past.
var ErrNoHistory = errors.New("a marker keeps no history, because a release deletes it")

// History yields the leases of a lock, the present one first: in the layout object it and sixteen
// more, for one look. With epochs it yields those whose objects are kept, for a read each, and
// sixteen more: see [Collect]. A row of leases of one candidate, each within a TTL of the one
// before, is one in a record. Leases of versions that keep no history are
// missing. Any error is the last; for markers that is [ErrNoHistory].
func History(ctx context.Context, lock *leasehold.Lock) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		at := root.Parts(lock).Layout
		remembers, ok := at.(interface {
			Terms(ctx context.Context) iter.Seq2[layout.Term, error]
		})
		if !ok {
			yield(Term{}, fmt.Errorf("the lock %v: %w", at, ErrNoHistory))
			return
		}
		for t, err := range remembers.Terms(ctx) {
			if err != nil {
				yield(Term{}, root.Explain(lock, err))
				return
			}
			if !yield(termOf(lock.Key(), t), nil) {
				return
			}
		}
	}
}

func termOf(key string, t layout.Term) Term {
	return Term{root.Describe(key, layout.Snapshot{Record: t.Record}), t.Ended, t.Why, t.Leases, leasehold.Token(t.First)}
}
