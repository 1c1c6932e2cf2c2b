package admin

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
)

// List yields the locks and semaphores under a prefix of a store, in all layouts, in byte order of
// their objects' keys, for one listing and one read each; a lock with epochs costs a listing
// more, and each session that is named by any one read. Up to 32 locks are read at a time,
// and no more of them ahead of the one that is yielded. An object that is not a lock is
// yielded as an error that matches [leasehold.ErrForeignObject], with its key in the Info, and
// the next one follows; any other error is the last. When the iteration ends, whether or not
// it was at its end, no request is under way any more.
func List(ctx context.Context, st store.Store, prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range listAll(ctx, st, prefix, newVerdicts(st).judged) {
			if e.Layout == LayoutSession {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// ListAll is List, and yields the sessions under the prefix too: an Entry with [LayoutSession], which is
// held while the session goes on. It costs the same.
func ListAll(ctx context.Context, st store.Store, prefix string) iter.Seq2[Entry, error] {
	return listAll(ctx, st, prefix, newVerdicts(st).judged)
}

// LayoutSession is what [Entry] has as the layout of a session's heartbeat, which is no lock.
const LayoutSession leasehold.Layout = record.LayoutSession

// verdicts are what is known of sessions, by one read of each.
type verdicts struct {
	st   store.Store
	gate chan struct{} // bounds the reads of those that one semaphore names
	mu   sync.Mutex
	of   map[string]func() (gone bool, err error)
}

func newVerdicts(st store.Store) *verdicts {
	return &verdicts{st: st, gate: make(chan struct{}, engine.Process{}.Parallel()), of: map[string]func() (bool, error){}}
}

// gone is a hint that a session is over, or silent, which may be that of other locks too.
func (v *verdicts) gone(ctx context.Context, session, key string) (bool, error) {
	v.mu.Lock()
	look := v.of[session]
	if look == nil {
		look = sync.OnceValues(func() (bool, error) {
			return layout.Heartbeat{Store: v.st, Key: session}.Gone(ctx, key)
		})
		v.of[session] = look
	}
	v.mu.Unlock()
	return look()
}

// judged completes what is known of a lock by whether the session of its holder goes on, and of a
// semaphore by that for each seat.
func (v *verdicts) judged(ctx context.Context, e Entry) (_ Entry, err error) {
	switch {
	case e.Semaphore != nil:
		err = cmp.Or(v.judgeSeats(ctx, e.Key, e.Semaphore.Holders), v.judgeSeats(ctx, e.Key, e.Semaphore.Waiters))
		e.Abandoned = e.Held && !slices.ContainsFunc(e.Semaphore.Holders, func(s semaphore.Seat) bool { return !s.Abandoned })
	case e.Held && e.Session != "":
		e.Abandoned, err = v.gone(ctx, e.Session, e.Key)
	}
	return e, err
}

// judgeSeats reads the sessions of seats, many at a time.
func (v *verdicts) judgeSeats(ctx context.Context, key string, seats []semaphore.Seat) error {
	errs := make([]error, len(seats))
	var all sync.WaitGroup
	for i := range seats {
		v.gate <- struct{}{}
		all.Go(func() {
			seats[i].Abandoned, errs[i] = v.gone(ctx, seats[i].Session, key)
			<-v.gate
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

// listAll yields sessions too. Each lock is judged where it is read, many at a time.
func listAll(ctx context.Context, st store.Store, prefix string, judge func(context.Context, Entry) (Entry, error)) iter.Seq2[Entry, error] {
	type seen struct {
		entry  Entry
		exists bool
		err    error
	}
	return func(yield func(Entry, error) bool) {
		reading, cancel := context.WithCancel(ctx)
		read := func(found layout.Found) seen {
			s, err := found.Look(reading)
			if err != nil {
				return seen{Entry{Info: leasehold.Info{Key: found.Key, Age: -1}}, true, err}
			}
			if !s.Exists { // any more, since it was listed
				return seen{}
			}
			e, err := judge(reading, entryOf(found.Key, s))
			return seen{e, true, err}
		}
		for s, err := range ordered(layout.Find(reading, st, prefix), cancel, read) {
			switch {
			case err != nil:
				yield(Entry{}, err) // the last one
			case s.exists && (!yield(s.entry, s.err) || s.err != nil && !errors.Is(s.err, leasehold.ErrForeignObject)):
				return
			}
		}
	}
}

// asListed judges nothing.
func asListed(_ context.Context, e Entry) (Entry, error) { return e, nil }

// ordered yields what do makes of each element, in their order, while it is made of as many
// elements at once as requests may be under way. An error of the sequence is the last. In the
// end it calls stop, and waits for what is still under way.
func ordered[T, R any](all iter.Seq2[T, error], stop func(), do func(T) R) iter.Seq2[R, error] {
	type outcome struct {
		result R
		err    error
	}
	return func(yield func(R, error) bool) {
		next := make(chan chan outcome, engine.Process{}.Parallel()-1) // and one that is waited for
		ended := make(chan struct{})
		var work sync.WaitGroup
		defer func() {
			close(ended)
			stop()
			work.Wait()
		}()
		work.Go(func() {
			defer close(next)
			for element, err := range all {
				c := make(chan outcome, 1)
				select {
				case next <- c:
				case <-ended:
					return
				}
				if err != nil {
					c <- outcome{err: err}
					return
				}
				work.Go(func() { c <- outcome{result: do(element)} })
			}
		})
		for c := range next {
			o := <-c
			if !yield(o.result, o.err) {
				return
			}
		}
	}
}
