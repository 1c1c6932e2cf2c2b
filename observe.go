package leasehold

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
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

// ChangeKind is what happened to a leadership between two polls of a candidate. Changes that
// were undone between two polls do not appear.
type ChangeKind int

// The kinds of change.
const (
	Elected    ChangeKind = iota + 1 // there is a leader, where there was none
	Renewed                          // the leader renewed its lease
	Resigned                         // the leader released its lease
	Expired                          // the leader did not renew in time: any candidate may take over
	TakenOver                        // there is another leader, and this candidate saw no release
	Vanished                         // the object was deleted
	Unreadable                       // a read failed, or the object is not a lock: see Change.Err
)

var kindNames = [...]string{
	Elected: "elected", Renewed: "renewed", Resigned: "resigned", Expired: "expired",
	TakenOver: "taken over", Vanished: "vanished", Unreadable: "unreadable",
}

func (k ChangeKind) String() string {
	if k < Elected || k > Unreadable {
		return fmt.Sprintf("change %d", int(k))
	}
	return kindNames[k]
}

// A Change is something a follower saw happen.
type Change struct {
	Kind ChangeKind
	Info Info      // the record when it was last read
	Time time.Time // when it was seen, by the local clock
	Err  error     // of Unreadable
}

// Requests counts requests to a store, including failed ones, because the store may charge
// for them. Listings of the epochs layouts are not counted separately.
type Requests struct{ Reads, Writes int64 }

// Status is what one candidate knows about its election, for monitoring. Do not make work
// depend on Leading, which may be out of date when you read it: use [Lease.Valid].
type Status struct {
	Key     string
	Holder  string // the name of this candidate
	Leading bool   // its lease is valid now

	// Leader is the leader last seen; HasLeader is false if it no longer leads.
	Leader    Info
	HasLeader bool
	Elected   time.Time // when that leader was first seen

	LastSeen time.Time // when the store last answered
	NextLook time.Time // when the next request is due; zero if none is planned
	Failures int       // failed requests in a row
	// FailingSince is when the candidate's attempts began to fail, and zero if the last
	// one succeeded. Successful reads do not reset it while writes fail.
	FailingSince time.Time
	Requests     Requests // sent since NewElection

	// With ElectionOptions.Peers: when the leader last answered, and how many questions
	// it was asked.
	LastHeard time.Time
	Questions int64
}

// Status returns the present status. It sends nothing and waits for no request, so a health
// check may call it at any rate.
func (e *Election) Status() Status {
	d := &e.lock.d
	d.Enter()
	n := d.now
	s := Status{
		Key: e.lock.d.key, Holder: d.opts.Holder,
		LastSeen: n.last, Failures: n.failures, FailingSince: n.failing, Requests: n.requests,
		LastHeard: n.pollState.heard, Questions: n.pollState.asked,
	}
	if wake, ok := d.Candidate().Wake(); ok {
		s.NextLook = time.Now().Add(wake - clock.Now())
	}
	d.Leave()
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Leading = e.lease != nil && e.lease.Valid()
	s.Leader, s.HasLeader, s.Elected = e.leader, e.leading, e.elected
	return s
}

// WaitForLeadership waits until this candidate leads. It does not campaign. It returns
// ctx.Err() if ctx ends first. The leadership may have ended again when it returns nil.
func (e *Election) WaitForLeadership(ctx context.Context) error {
	return e.await(ctx, func() bool { return e.lease != nil && e.lease.Valid() })
}

// WaitForNextElection waits until this candidate sees a leader elected after since, and
// returns the status. Pass Status.Elected of the previous result, or the zero time for any
// leader. Meanwhile the candidate polls like a follower even if it does not campaign. If ctx
// ends first, it returns the present status and ctx.Err().
func (e *Election) WaitForNextElection(ctx context.Context, since time.Time) (Status, error) {
	defer e.watch()()
	err := e.await(ctx, func() bool { return e.elected.After(since) })
	return e.Status(), err
}

// await waits until the condition, which it checks under the mutex, holds. It takes the channel at
// the same time, so a later change closes that channel and cannot be missed.
func (e *Election) await(ctx context.Context, condition func() bool) error {
	for {
		e.mu.Lock()
		met, news := condition(), e.news
		e.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
