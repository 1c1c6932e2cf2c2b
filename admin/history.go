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

// A Term is one lease of a lock, or several leases in a row by one candidate, described by the
// last.
type Term struct {
	// Info is the last record. For a lease known only from the history, these are set: Key,
	// Layout, NoIfMatch, Holder (cut after about 90 bytes), Token, Term, and AcquiredAt of the
	// first lease in the row.
	leasehold.Info

	// Ended is the time at which the lease was released or the next one began, by the wall
	// clock of the process that did it. It is zero if the lease has not ended.
	Ended time.Time
	// Why is "released", "taken over" from a dead holder, "broken" by a force-release,
	// "deleted" with its object, or "acquired again" at once by the same candidate. It is empty
	// if the lease has not ended.
	Why string

	// Leases is the number of leases in the row, usually 1, and First the token of the first.
	// All tokens from First to Token belong to this candidate.
	Leases int64
	First  leasehold.Token
}

// ErrNoHistory: the lock's layout keeps no history. Use another layout if you need one.
var ErrNoHistory = errors.New("a marker keeps no history, because a release deletes it")

// History yields a lock's leases, the present one first. In the layout object, it yields that
// one and 16 more, with one read. With epochs, it yields those whose objects are kept, with one
// read each, and 16 more: see [Collect]. Leases of one candidate, each within a TTL of the one
// before, are one Term. Leases of versions that keep no history are missing. Any error is the
// last; for markers that is [ErrNoHistory].
func History(ctx context.Context, lock *leasehold.Lock) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		at := leasehold.Internal.Layout(lock)
		remembers, ok := at.(interface {
			Terms(ctx context.Context) iter.Seq2[layout.Term, error]
		})
		if !ok {
			yield(Term{}, fmt.Errorf("the lock %v: %w", at, ErrNoHistory))
			return
		}
		for t, err := range remembers.Terms(ctx) {
			if err != nil {
				yield(Term{}, leasehold.Internal.Explain(lock, err))
				return
			}
			if !yield(termOf(lock.Key(), t), nil) {
				return
			}
		}
	}
}

func termOf(key string, t layout.Term) Term {
	return Term{leasehold.Internal.Describe(key, layout.Snapshot{Record: t.Record}), t.Ended, t.Why, t.Leases, leasehold.Token(t.First)}
}
