package admin

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// List yields the locks under a prefix of a store, in all layouts, in byte order of
// their objects' keys, for one listing and one read each; a lock with epochs costs a listing
// more, and each session that a lock is under one read. Up to 32 locks are read at a time,
// and no more of them ahead of the one that is yielded. An object that is not a lock is
// yielded as an error that matches [leasehold.ErrForeignObject], with its key in the Info, and
// the next one follows; any other error is the last. When the iteration ends, whether or not
// it was at its end, no request is under way any more.
func List(ctx context.Context, st store.Store, prefix string) iter.Seq2[leasehold.Info, error] {
	return func(yield func(leasehold.Info, error) bool) {
		known := verdicts{st: st, of: map[string]func() (bool, error){}}
		for info, err := range listAll(ctx, st, prefix, known.judged) {
			if info.Layout == layoutSession {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// layoutSession is what the record of a session's heartbeat says, which is no lock.
const layoutSession leasehold.Layout = record.LayoutSession

// verdicts are what is known of sessions, by one read of each.
type verdicts struct {
	st store.Store
	mu sync.Mutex
	of map[string]func() (gone bool, err error)
}

// judged completes what is known of a lock by whether the session of its holder goes on, which
// may be that of other locks too.
func (v *verdicts) judged(ctx context.Context, i leasehold.Info) (leasehold.Info, error) {
	if !i.Held || i.Session == "" {
		return i, nil
	}
	v.mu.Lock()
	look := v.of[i.Session]
	if look == nil {
		look = sync.OnceValues(func() (bool, error) {
			return layout.Heartbeat{Store: v.st, Key: i.Session}.Gone(ctx, i.Key)
		})
		v.of[i.Session] = look
	}
	v.mu.Unlock()
	var err error
	i.Abandoned, err = look()
	return i, err
}

// listAll yields sessions too. Each lock is judged where it is read, many at a time.
func listAll(ctx context.Context, st store.Store, prefix string, judge func(context.Context, leasehold.Info) (leasehold.Info, error)) iter.Seq2[leasehold.Info, error] {
	type seen struct {
		info   leasehold.Info
		exists bool
		err    error
	}
	return func(yield func(leasehold.Info, error) bool) {
		reading, cancel := context.WithCancel(ctx)
		read := func(found layout.Found) seen {
			s, err := found.Look(reading)
			if err != nil {
				return seen{leasehold.Info{Key: found.Key, Age: -1}, true, err}
			}
			if !s.Exists { // any more, since it was listed
				return seen{}
			}
			info, err := judge(reading, root.Describe(found.Key, s))
			return seen{info, true, err}
		}
		for s, err := range ordered(layout.Find(reading, st, prefix), cancel, read) {
			switch {
			case err != nil:
				yield(leasehold.Info{}, err) // the last one
			case s.exists && (!yield(s.info, s.err) || s.err != nil && !errors.Is(s.err, leasehold.ErrForeignObject)):
				return
			}
		}
	}
}

// asListed judges nothing.
func asListed(_ context.Context, i leasehold.Info) (leasehold.Info, error) { return i, nil }

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
