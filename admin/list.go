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
	"github.com/leasehold/leasehold/store"
)

// List yields the locks and semaphores under a prefix of a store, in all layouts, in byte order
// of their objects' keys. It costs one listing and one read per lock; a lock with epochs costs
// one more listing, and each session in any of them one more read. List reads up to 32 locks at
// a time, and no further ahead than that.
//
// For an object that is not a lock, List yields an error that matches
// [leasehold.ErrForeignObject], with the key in the Info, and continues. Any other error is the
// last. When the iteration ends, even early, no requests are in flight.
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

// ListAll is List and also yields the sessions under the prefix. A session is an Entry with
// [LayoutSession] that is held until the session ends. The cost is the same.
func ListAll(ctx context.Context, st store.Store, prefix string) iter.Seq2[Entry, error] {
	return listAll(ctx, st, prefix, newVerdicts(st).judged)
}

// LayoutSession is the layout of a session's heartbeat in an [Entry]. It is not a lock.
const LayoutSession leasehold.Layout = record.LayoutSession

// verdicts caches the state of sessions. Each is read once.
type verdicts struct {
	st   store.Store
	gate chan struct{} // bounds the reads for one semaphore's sessions
	mu   sync.Mutex
	of   map[string]func() (gone bool, err error)
}

func newVerdicts(st store.Store) *verdicts {
	return &verdicts{st: st, gate: make(chan struct{}, engine.Process{}.Parallel()), of: map[string]func() (bool, error){}}
}

// gone returns a hint that a session has ended or is silent. Other locks may be under the same
// session.
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

// judged completes a lock, or each entry of a semaphore, with the state of its holder's session.
func (v *verdicts) judged(ctx context.Context, e Entry) (_ Entry, err error) {
	switch {
	case e.Size > 0:
		err = cmp.Or(v.judgeEntries(ctx, e.Key, e.Holders), v.judgeEntries(ctx, e.Key, e.Waiters))
		e.Abandoned = e.Held && !slices.ContainsFunc(e.Holders, func(s leasehold.Entry) bool { return !s.Abandoned })
	case e.Held && e.Session != "":
		e.Abandoned, err = v.gone(ctx, e.Session, e.Key)
	}
	return e, err
}

// judgeEntries reads the sessions of entries, several at a time.
func (v *verdicts) judgeEntries(ctx context.Context, key string, entries []leasehold.Entry) error {
	errs := make([]error, len(entries))
	var all sync.WaitGroup
	for i := range entries {
		v.gate <- struct{}{}
		all.Go(func() {
			entries[i].Abandoned, errs[i] = v.gone(ctx, entries[i].Session, key)
			<-v.gate
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

// listAll also yields sessions. It calls judge as soon as a lock has been read, several at a
// time.
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
			if !s.Exists { // deleted since the listing
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

// asListed is a judge that does nothing.
func asListed(_ context.Context, e Entry) (Entry, error) { return e, nil }

// ordered yields the results of do for each element, in the order of the elements, while it
// works on as many elements at once as requests may be in flight. An error of the sequence is
// the last. At the end, ordered calls stop and waits for the work in progress.
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
