package leasehold

import (
	"context"
	"iter"
	"time"

	"github.com/leasehold/leasehold/internal/lockorder"
)

// Observe yields what changes about the leadership from now on, as this candidate
// sees it, beginning with the present leader if there is one. Meanwhile the
// candidate looks like a follower even if it does not campaign; one that does looks
// no more than it would anyway. The iteration ends with ctx. Changes
// that a slow consumer has not taken yet are kept for it.
//
// Nothing is dropped and the driver never waits, so a consumer that stops taking without ending
// ctx or the loop costs memory for each change. Two changes between two looks are seen as one: a
// record tells the present, not the past. Any number of goroutines may observe.
func (e *Election) Observe(ctx context.Context) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		o := &observer{more: make(chan struct{}, 1)}
		e.mu.Lock()
		if e.leading {
			// Under the mutex that saw takes too: a change that comes now is told after
			// this, and none is missed or told twice.
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

// watch makes the candidate look even if it does not campaign.
func (e *Election) watch() (stop func()) {
	e.count(1)
	return func() { e.count(-1) }
}

// count keeps its mutex until the driver knows, so that the last word is the truth: if the
// last observer left while another came, and their words crossed, a candidate would look for
// nobody for ever, or for somebody never.
func (e *Election) count(n int) {
	e.watching.Lock()
	defer e.watching.Unlock()
	e.watchers += n
	e.lock.d.Watch(e.watchers > 0)
}

// saw takes in a change. The driver calls it, locked. A lease of this candidate, the term
// that it is for and the leader become known together, before anybody is handed the lease:
// no call may see one without the other.
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

// announce wakes all that wait for a change. They look again for themselves, so one change
// more or less between two of their looks makes no difference.
func (e *Election) announce() {
	close(e.news)
	e.news = make(chan struct{})
}

// An observer keeps what its consumer has not taken yet. Nobody waits for a consumer: the
// driver adds to it while its engine is locked.
type observer struct {
	mu      lockorder.Mutex
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
