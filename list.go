package leasehold

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/store"
)

// List yields the locks under a prefix of a store, in all layouts, in byte order of
// their objects' keys, for one listing and one read each; a lock with epochs costs a listing
// more, and each session that a lock is under one read. Up to 32 locks are read at a time,
// and no more of them ahead of the one that is yielded. An object that is not a lock is
// yielded as an error that matches [ErrForeignObject], with its key in the Info, and the
// next one follows; any other error is the last. When the iteration ends, whether or not it
// was at its end, no request is under way any more.
func List(ctx context.Context, st store.Store, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		known := verdicts{st: st, of: map[string]func() (Info, error){}}
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

// verdicts are what is known of sessions, by one read of each.
type verdicts struct {
	st store.Store
	mu sync.Mutex
	of map[string]func() (Info, error)
}

// judged is judged for a lock that may be under the same session as others.
func (v *verdicts) judged(ctx context.Context, i Info) (Info, error) {
	if !i.Held || i.Session == "" {
		return i, nil
	}
	v.mu.Lock()
	look := v.of[i.Session]
	if look == nil {
		look = sync.OnceValues(func() (Info, error) { return judged(ctx, v.st, i) })
		v.of[i.Session] = look
	}
	v.mu.Unlock()
	first, err := look()
	i.Abandoned = first.Abandoned
	return i, err
}

// listAll yields sessions too. Each lock is judged where it is read, many at a time.
func listAll(ctx context.Context, st store.Store, prefix string, judge func(context.Context, Info) (Info, error)) iter.Seq2[Info, error] {
	type seen struct {
		info   Info
		exists bool
		err    error
	}
	return func(yield func(Info, error) bool) {
		reading, cancel := context.WithCancel(ctx)
		read := func(found layout.Found) seen {
			s, err := found.Look(reading)
			if err != nil {
				return seen{Info{Key: found.Key, Age: -1}, true, err}
			}
			if !s.Exists { // any more, since it was listed
				return seen{}
			}
			info, err := judge(reading, describe(found.Key, s))
			return seen{info, true, err}
		}
		for s, err := range ordered(layout.Find(reading, st, prefix), cancel, read) {
			switch {
			case err != nil:
				yield(Info{}, err) // the last one
			case s.exists && (!yield(s.info, s.err) || s.err != nil && !errors.Is(s.err, ErrForeignObject)):
				return
			}
		}
	}
}

// asListed judges nothing.
func asListed(_ context.Context, i Info) (Info, error) { return i, nil }

// ordered yields what do makes of each element, in their order, while it is made of up to
// maxParallel elements at once. An error of the sequence is the last. In the end it calls stop,
// and waits for what is still under way.
func ordered[T, R any](all iter.Seq2[T, error], stop func(), do func(T) R) iter.Seq2[R, error] {
	type outcome struct {
		result R
		err    error
	}
	return func(yield func(R, error) bool) {
		next := make(chan chan outcome, maxParallel-1) // and one that is waited for
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
