package layout

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// A Term is one lease, past or present, or several consecutive leases of one candidate, with
// the last record.
type Term struct {
	Record record.Record // as last written, or as much of it as is remembered
	Last   int64         // the number of its object; 0: none
	// Ended is when the next lease began or the release was sent, by that process's wall clock.
	// If neither happened, it is when the lease expired. Zero: it goes on.
	Ended time.Time
	Why   string // "released", "taken over", or what the record says

	First  int64 // the token of the first lease
	Leases int64 // at least 1
}

// Terms yields a lock's current lease, and what its record remembers of earlier ones. It costs
// one Look.
func (o Object) Terms(ctx context.Context) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		s, err := o.Look(ctx, "")
		switch {
		case err != nil:
			yield(Term{}, err)
		case s.Exists && told(s.Record, record.Record{}, yield):
			remembered(s.Record, yield)
		}
	}
}

// Terms yields a lock's leases, the current one first: those whose objects are kept, and then
// those in the oldest record's history. It costs one Look, and one Get for each lease with an
// object.
func (e Epochs) Terms(ctx context.Context) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		s, err := e.Look(ctx, "")
		if err != nil {
			yield(Term{}, err)
			return
		}
		oldest := record.Record{}
		for t, err := range e.terms(ctx, s) {
			if !yield(t, err) || err != nil {
				return
			}
			oldest = t.Record
		}
		remembered(oldest, yield)
	}
}

// terms yields a record's lease and earlier ones, as long as their objects exist.
func (e Epochs) terms(ctx context.Context, s Snapshot) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		for next := (record.Record{}); s.Exists; {
			r := s.Record
			if !told(r, next, yield) {
				return
			}
			// A number that is not below this one is left from a deleted life of the lock.
			// Following it might never end.
			if r.Previous <= 0 || r.Previous >= r.Epoch {
				return
			}
			next = r
			var err error
			s, err = e.read(ctx, r.Previous, "")
			switch {
			case errors.Is(err, store.ErrNotExist):
				return // it was collected
			case err != nil:
				yield(Term{}, err)
				return
			}
		}
	}
}

// told yields a record's lease, if it has one, and reports whether to go on. next is a record
// of the next lease, if there is one.
func told(r, next record.Record, yield func(Term, error) bool) bool {
	if r.AcquiredAt.IsZero() {
		return true // it was created free, without a lease
	}
	t := Term{Record: r, Last: r.Epoch, First: r.Token, Leases: 1}
	t.Ended, t.Why = r.End(next.AcquiredAt)
	if past := next.Past(); len(past) > 0 && past[0].Token == r.Token {
		t.Ended, t.Why = past[0].To, past[0].How // it may know more about the end
	}
	return yield(t, nil)
}

// Past returns the ended leases that the record itself remembers, the last one first. It sends
// nothing. A semaphore or a marker has none.
func (s Snapshot) Past() (past []Term) {
	keep := func(t Term, _ error) bool {
		past = append(past, t)
		return true
	}
	if !s.Exists || s.Table != nil {
		return nil
	}
	if !s.Record.Held {
		told(s.Record, record.Record{}, keep)
	}
	remembered(s.Record, keep)
	return past
}

// remembered yields what a record remembers of the leases before its own.
func remembered(r record.Record, yield func(Term, error) bool) {
	for _, p := range r.Past() {
		before := record.Record{
			Token: p.Token, Term: p.Term, TermToken: p.Token, Holder: p.Holder, Layout: r.Layout, AcquiredAt: p.From,
		}
		if !yield(Term{Record: before, Ended: p.To, Why: p.How, First: p.First, Leases: p.Leases}, nil) {
			return
		}
	}
}
