package leasehold

import (
	"context"
	"iter"
	"time"

	"github.com/leasehold/leasehold/internal/engine"
)

// Observe yields changes of leadership as this candidate sees them, beginning with the current
// leader if there is one. The iteration ends with ctx. While it runs, the candidate polls like
// a follower, even if it does not campaign; a campaigning candidate sends no additional
// requests. Any number of goroutines may observe.
//
// Changes are kept until the consumer takes them, and none is dropped. So a consumer that stops
// without ending ctx or the loop costs memory for each change. Two changes between two polls
// are seen as one, because a record describes only the present.
func (e *Election) Observe(ctx context.Context) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		o := &observer{more: make(chan struct{}, 1)}
		e.mu.Lock()
		if e.leading {
			// saw takes this mutex too, so a concurrent change is neither missed nor told
			// twice.
			o.add(Change{Kind: Elected, Info: e.leader, Time: time.Now()})
		}
		e.observers[o] = true
		e.mu.Unlock()
		defer e.watch()()
		defer func() {
			e.mu.Lock()
			delete(e.observers, o)
			e.mu.Unlock()
		}()
		for {
			for _, c := range o.take() {
				if ctx.Err() != nil || !yield(c) {
					return
				}
			}
			select {
			case <-o.more:
			case <-ctx.Done():
				return
			}
		}
	}
}

// watch makes the candidate poll even if it does not campaign.
func (e *Election) watch() (stop func()) {
	e.count(1)
	return func() { e.count(-1) }
}

// count keeps its mutex until the driver knows. Otherwise the calls of a last observer that
// leaves and of a new one could cross, and the candidate would poll for no observer, or not at
// all.
func (e *Election) count(n int) {
	e.watching.Lock()
	defer e.watching.Unlock()
	e.watchers += n
	e.lock.d.Watch(e.watchers > 0)
}

// saw processes a change. The driver calls it, locked. This candidate's lease, its term and the
// leader become known together, before a caller gets the lease, because no call may see one
// without the others.
func (e *Election) saw(c Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lease, t := e.lock.d.lease, e.lock.d.now.term; lease != nil && lease != e.lease {
		e.lease, e.term, e.successor = lease, t, ""
		if t != nil {
			t.lease = lease
		}
	}
	was := e.leading
	switch c.Kind {
	case Elected, TakenOver:
		e.leader, e.leading, e.elected = c.Info, true, c.Time
		if e.opts.OnLeader != nil {
			e.lock.d.call("OnLeader", func() { e.opts.OnLeader(c.Info) })
		}
	case Renewed:
		e.leader, e.leading = c.Info, true
	case Resigned, Expired, Vanished:
		e.leading = false
	case Unreadable:
	}
	if fresh := c.Kind == Elected || c.Kind == TakenOver; fresh || e.leading != was {
		e.lock.d.traceLeader(e.leading, was, fresh, e.leader)
	}
	for o := range e.observers {
		if c.Kind != Renewed || e.opts.Renewals {
			o.add(c)
		}
	}
	e.announce()
}

// announce wakes all goroutines that wait for a change. They check for themselves, so an extra
// wake-up does no harm.
func (e *Election) announce() {
	close(e.news)
	e.news = make(chan struct{})
}

// An observer keeps the changes that its consumer has not taken yet. add never blocks, because
// the driver calls it while its engine is locked.
type observer struct {
	mu      engine.Mutex
	pending []Change
	more    chan struct{}
}

func (o *observer) add(c Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, c)
	select {
	case o.more <- struct{}{}:
	default:
	}
}

func (o *observer) take() []Change {
	o.mu.Lock()
	defer o.mu.Unlock()
	changes := o.pending
	o.pending = nil
	return changes
}
