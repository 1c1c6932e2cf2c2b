package leasehold

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// ElectionOptions are the options of [NewElection]. The zero value and nil mean the defaults.
type ElectionOptions struct {
	LockOptions // without PollInterval

	// Frequent is how often a follower polls while the leader is new or late, and
	// Infrequent how often it polls while the leader is steady. By default a follower
	// polls once soon after each renewal, every TTL/3, and every TTL/24 when one is late.
	// If Infrequent is longer than the TTL, a failover takes longer by the difference.
	Frequent, Infrequent time.Duration

	// Grace is how long the leader's work may take to stop when the leader resigns or
	// shuts down. The lease is renewed meanwhile. After that it is no longer valid, but
	// it is released only when the work has stopped. Default TTL/3.
	Grace time.Duration

	// Retries are the backoff after the first, second, … store error in a row, which
	// then doubles, up to 4 s. Default 100 ms, 1 s.
	Retries []time.Duration

	// Peers lets a follower ask the leader at its Address instead of the store, which
	// then gets one request per two TTLs. The follower learns at once when the leader
	// resigns or its process exits. If the leader does not answer, the follower polls
	// the store again. The leader must answer by peer.Attend.
	Peers Peers

	// Renewals makes Observe also yield the leader's renewals.
	Renewals bool

	// OnElected is called by [Election.Run] when this candidate has become the leader,
	// before the work begins, with the context of the work. If it returns an error, the
	// error is logged, and the candidate resigns and campaigns again.
	OnElected func(ctx context.Context, lease *Lease) error
}

// An Election is one candidate for a leadership, which is a lock. At most one leader's lease is
// valid at any instant. An Election is safe for concurrent use.
//
// The names are those of etcd's package concurrency, and Run is like the leader election in
// Kubernetes' client-go, except that a lease is released only after the work under it has
// returned. So a shutdown does not let the next leader in early.
type Election struct {
	lock *Lock
	opts ElectionOptions

	mu        engine.Mutex
	lease     *Lease
	term      *term // of Run, while it leads
	successor string
	leader    Info // the leader last seen
	leading   bool // whether there is a leader
	elected   time.Time
	observers map[*observer]bool
	waiters   waiters

	watching engine.Mutex
	watchers int // calls that need the candidate to poll
}

// NewElection returns a candidate for the election stored in st under key. It sends nothing, and
// fails if the key or an option is invalid.
func NewElection(st store.Store, key string, opts *ElectionOptions) (*Election, error) {
	var o ElectionOptions
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("election %q: %w", key, err)
	}
	e := &Election{observers: map[*observer]bool{}}
	e.mu.Rank(engine.RankElection)
	e.watching.Rank(engine.RankWatching)
	o.kind = locktrace.Election
	lock, err := newLock(st, key, &o.LockOptions, func(cfg *candidate.Config) {
		cfg.Role = candidate.Follower{Taking: o.taking(), Frequent: o.Frequent, Infrequent: o.Infrequent, Peers: o.Peers != nil}
		cfg.Retries = o.Retries
	})
	if err != nil {
		return nil, err
	}
	o.LockOptions = *lock.d.opts
	if o.Grace == 0 {
		o.Grace = protocol.Renewal(o.TTL)
	}
	e.lock, e.opts = lock, o
	n := lock.d.now
	n.changed, n.peers, n.longestWaiting = e.saw, o.Peers, e.waiters.longest
	return e, nil
}

func (o *ElectionOptions) check() error {
	switch {
	case o.Frequent < 0 || o.Infrequent < 0:
		return fmt.Errorf("an interval is negative: Frequent %v, Infrequent %v", o.Frequent, o.Infrequent)
	case o.Infrequent > 0 && o.Frequent > o.Infrequent:
		return fmt.Errorf("the interval Frequent %v is longer than Infrequent %v", o.Frequent, o.Infrequent)
	case o.PollInterval != 0:
		return fmt.Errorf("the option PollInterval %v is for locks: the followers of an election have Frequent and Infrequent", o.PollInterval)
	case o.Grace < 0:
		return fmt.Errorf("the grace %v is negative", o.Grace)
	}
	for _, pause := range o.Retries {
		if pause < 0 {
			return fmt.Errorf("a retry comes after %v, which is negative", pause)
		}
	}
	return nil
}

// Campaign waits until this candidate is the leader and returns its lease. End the lease with
// [Election.Resign] or [Lease.Release]. Errors and the end of ctx are as for [Lock.Acquire],
// and [ErrResigned] if the candidate resigns before Campaign has returned. While this candidate
// leads, another call waits until that lease is released.
func (e *Election) Campaign(ctx context.Context) (*Lease, error) {
	return e.won(e.lock.Acquire(ctx))
}

// TryCampaign is Campaign without waiting, as [Lock.TryAcquire] is Acquire without waiting. If
// there is a leader, in this process or another one, it returns a [*HeldError]. A leader that
// resigned in favour of a successor counts as leading until the successor has had time to take
// over.
func (e *Election) TryCampaign(ctx context.Context) (*Lease, error) {
	return e.won(e.lock.TryAcquire(ctx))
}

// won returns the result of a campaign. Another goroutine may have resigned already, because the
// lease exists before the campaign returns it.
func (e *Election) won(lease *Lease, err error) (*Lease, error) {
	if err == nil && errors.Is(lease.Err(), ErrReleased) {
		return nil, fmt.Errorf("the campaign for %v was won, and then %w", e.lock.d.at, ErrResigned)
	}
	return lease, err
}

// Run campaigns, calls lead while this candidate leads, and campaigns again when lead has
// returned. It returns ctx.Err() when ctx ends, with the lease released and nothing left
// running.
//
// The context passed to lead ends when the lease is lost, when ctx ends and when the candidate
// resigns; lead must then return. If the lease is lost, the context ends before anyone else can
// be the leader. In the other cases the lease is renewed for up to [ElectionOptions.Grace], so
// that nobody else leads before lead has returned. Run calls lead on its own goroutine, for one
// term at a time. If lead panics, the lease is released and the panic continues.
//
// When lead returns, with or without an error, the candidate resigns and lets others go first,
// for half a TTL but at most 30 s, or 1.5 × Infrequent if that is longer.
//
// While the store is unreachable, Run retries. It returns another error than ctx.Err() only if
// that error is permanent: see [Final]. If the last release is not confirmed, the error is
// ctx.Err() joined with the reason.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, lease *Lease) error) error {
	var unreleased error // of the last term
	failures := 0        // of campaigns, in a row
	for {
		t := newTerm(ctx, e.opts.Grace)
		lease, err := e.lock.acquireFor(ctx, candidate.Terms{}, t)
		if t.lease != nil {
			unreleased = e.serve(ctx, t, err == nil, lead)
		}
		pause := e.pause()
		switch {
		case err == nil:
			failures = 0
			if errors.Is(lease.Err(), ErrLost) && !errors.Is(lease.Err(), protocol.ErrGivenUp) {
				continue // another candidate leads by now, or the store is unreachable
			}
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), unreleased)
		// Someone must fix this. Retrying would only hide it.
		case Final(err):
			return errors.Join(err, unreleased)
		default:
			e.lock.d.opts.Logger.Warn("campaign failed, will try again", "lock", e.lock.d.at.String(), "error", err)
			failures++
			pause = protocol.Pause(failures, e.opts.Retries)
		}
		select {
		// Candidates that failed at the same moment must not all retry at the same moment.
		case <-time.After(pause + rand.N(pause/4)):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), unreleased)
		}
	}
}

// longestPause is how long a candidate that has resigned lets others go first at most, unless
// Infrequent is long. With a long TTL it may return before others have polled, but if there are no
// others, nobody would lead for hours.
const longestPause = 30 * time.Second

// pause returns how long this candidate lets others go first. By then each follower has polled and
// made its attempt.
func (e *Election) pause() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(min(protocol.Renewal(e.opts.TTL)*3/2, longestPause), e.opts.Infrequent*3/2)
}

// serve leads for one term, if lead is true, and releases its lease. The error says why the lock may
// still be held.
func (e *Election) serve(ctx context.Context, t *term, lead bool, work func(context.Context, *Lease) error) (unreleased error) {
	defer func() { unreleased = e.finish(ctx, t) }() // also if the work panics
	if !lead {
		return nil
	}
	// The end of the lease cancels the work at once, because another candidate may lead next. The end
	// of ctx asks the work to stop, while the lease is renewed for the grace period.
	defer context.AfterFunc(t.lease.Context(), func() { t.cancel(context.Cause(t.lease.Context())) })()
	defer context.AfterFunc(ctx, func() { t.stop(context.Cause(ctx)) })()
	log := e.lock.d.opts.Logger
	if e.opts.OnElected != nil && t.work.Err() == nil {
		late := time.AfterFunc(e.lock.d.opts.TTL, func() {
			log.Warn("OnElected does not return, and the work waits for it", "lock", e.lock.d.at.String())
		})
		err := e.opts.OnElected(t.work, t.lease)
		late.Stop()
		if err != nil {
			log.Warn("resigning, since OnElected failed", "lock", e.lock.d.at.String(), "error", err)
			return nil
		}
	}
	// OnElected may have taken longer than the term: do not begin work in a term that has ended.
	if t.work.Err() != nil || t.lease.Err() != nil {
		return nil
	}
	if err := work(t.work, t.lease); err != nil && t.work.Err() == nil {
		log.Warn("resigning, since the work failed", "lock", e.lock.d.at.String(), "error", err)
	}
	return nil
}

// finish releases the lease of a term whose work has returned. The error says why the lock may still
// be held.
func (e *Election) finish(ctx context.Context, t *term) error {
	t.stopped()
	e.mu.Lock()
	// Read the successor together with clearing the term: a later ResignTo finds no term to stop and
	// waits for this release.
	successor := e.successor
	e.term = nil
	e.mu.Unlock()
	last, done := lock.Last(ctx)
	defer done()
	err := t.lease.core.Free(last, successor)
	if err != nil {
		e.lock.d.opts.Logger.Warn("leadership not released", "lock", e.lock.d.at.String(), "error", err)
	}
	t.end = t.lease.core.Ended(err)
	close(t.over)
	return err
}

// Resign ends this candidate's leadership and returns when the lock is free. Under Run it stops
// the work first, so lead must not call it and wait. After Campaign, stop the work before you
// call Resign. If followers ask this candidate through Peers, the one that has waited longest
// becomes its successor. Errors and the end of ctx are as for [Lease.Release], and
// [ErrNotLeading] if this candidate does not lead.
func (e *Election) Resign(ctx context.Context) error { return e.ResignTo(ctx, "") }

// ResignTo is Resign in favour of a successor, named by its [LockOptions.Holder]. Other
// candidates let it go first for TTL/3 and the margin. It is a hint in the record: no guarantee
// rests on it, and nothing checks that such a candidate exists. Raft calls the same idea
// leadership transfer.
//
// Under Run the work continues until the successor knows from the next renewal, for at most
// 11/24 of the TTL or 15 s. The successor then takes over within about a second of the release.
func (e *Election) ResignTo(ctx context.Context, successor string) error {
	e.mu.Lock()
	t, lease := e.term, e.lease
	e.successor = successor
	e.mu.Unlock()
	switch {
	case t != nil:
		e.giveNotice(ctx, t, successor)
		t.stop(ErrResigned)
		if _, err := lock.Wait(ctx, t.lease.Context(), t.over); err != nil {
			return fmt.Errorf("the work of %v has not stopped and been released yet: %w", e.lock.d.at, err)
		}
		return t.end
	case lease == nil || lease.core.Settled():
		return ErrNotLeading
	}
	return lease.core.Release(ctx, successor)
}

// giveNotice lets the work of a term continue until the successor knows that it is next. A successor
// that asks this candidate as a peer learns of the release at once.
func (e *Election) giveNotice(ctx context.Context, t *term, successor string) {
	if successor == "" || e.waiters.has(successor) {
		return
	}
	known := time.NewTimer(e.lock.d.nameSuccessor(successor) - clock.Now())
	defer known.Stop()
	select {
	case <-known.C:
	case <-t.work.Done(): // it was stopped, or has returned
	case <-ctx.Done():
	}
}

// Settle is [Lock.Settle] for abandoned campaigns.
func (e *Election) Settle(ctx context.Context) error { return e.lock.Settle(ctx) }

// IsLeader reports whether this candidate's lease is valid now: see [Lease.Valid].
func (e *Election) IsLeader() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lease != nil && e.lease.Valid()
}

// update changes the TTL from the next write on, and the intervals from the next one on. A zero TTL
// means the present one, and a zero interval the default. Candidates with different TTLs are safe
// together. Grace does not change. If a value is out of bounds, update fails and changes nothing.
//
// The present lease stays valid as its last write promised until the next renewal is sent.
// If that promises less, the holder relies on less from then on (rule A7).
func (e *Election) update(c candidate.Retune) error {
	e.mu.Lock()
	if c.TTL == 0 {
		c.TTL = e.opts.TTL
	}
	e.mu.Unlock()
	if c.TTL < MinTTL || c.TTL > MaxTTL {
		return fmt.Errorf("the TTL %v is not between %v and %v", c.TTL, MinTTL, MaxTTL)
	}
	if err := (&ElectionOptions{Frequent: c.Frequent, Infrequent: c.Infrequent}).check(); err != nil {
		return err
	}
	c.TTL = c.TTL.Truncate(time.Millisecond)
	e.lock.d.Tell(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.TTL, e.opts.Infrequent = c.TTL, c.Infrequent // for the pauses of Run
	return nil
}

// A term is one time of leading under Run. It is created before the campaign, because the term
// and its lease become known together (see saw). A Resign from then on stops the term, and the
// lease lasts until its work has stopped.
type term struct {
	work   context.Context
	cancel context.CancelCauseFunc // of the work
	grace  time.Duration
	lease  *Lease // set by saw
	once   sync.Once
	late   *time.Timer   // grace timer, set by once
	over   chan struct{} // closed when the release is settled, or the wait for it has timed out
	end    error         // result of the release; set before over is closed
}

func newTerm(ctx context.Context, grace time.Duration) *term {
	t := &term{grace: grace, over: make(chan struct{})}
	t.work, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return t
}

// stop ends the work, and ends the lease if the work does not stop within the grace period.
func (t *term) stop(cause error) {
	t.once.Do(func() {
		t.cancel(cause)
		t.late = time.AfterFunc(t.grace, func() { t.lease.Abandon(nil) })
	})
}

// stopped is called when the work has returned.
func (t *term) stopped() {
	// Keeps a later stop from starting the grace period. If stop is already running, this waits
	// until it has set late.
	t.once.Do(func() {})
	if t.late != nil {
		t.late.Stop()
	}
	t.cancel(nil)
}

// Observe yields changes of leadership as this candidate sees them, beginning with the current
// leader if there is one, until ctx ends. Meanwhile the candidate polls like a follower, even if
// it does not campaign. Two changes between two polls are seen as one. Any number of goroutines
// may observe. Changes are kept until the consumer takes them, so a consumer that stops must
// leave the loop.
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
	case Renewed:
		e.leader, e.leading = c.Info, true
	case Resigned, Expired, Vanished:
		e.leading = false
	case Unreadable:
	}
	if fresh := c.Kind == Elected || c.Kind == TakenOver; fresh || e.leading != was {
		e.lock.d.tracer().Leader(locktrace.Leader{
			Known: e.leading, WasKnown: was, New: fresh, Name: e.leader.Holder, Address: e.leader.Address, Token: int64(e.leader.Token),
		})
	}
	for o := range e.observers {
		if c.Kind != Renewed || e.opts.Renewals {
			o.add(c)
		}
	}
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

// ChangeKind is what happened to a leadership between two polls of a candidate.
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

// Status is what one candidate knows about its election, for monitoring. Do not make work depend
// on Leading: use [Lease.Valid].
type Status struct {
	Key     string
	Holder  string // the name of this candidate
	Leading bool   // its lease is valid now

	Leader    Info      // the leader last seen
	HasLeader bool      // Leader still leads
	Elected   time.Time // when that leader was first seen

	LastSeen     time.Time // when the store last answered
	NextLook     time.Time // when the next request is due; zero if none is planned
	Failures     int       // failed requests in a row
	FailingSince time.Time // of the first failed attempt in a row, read or write; or zero
	// Reads and Writes are the numbers of requests, with failed ones, without the listings
	// of epochs.
	Reads, Writes int64

	LastHeard time.Time // when the leader last answered as a peer
	Questions int64     // to the leader as a peer
}

// Status returns the present status. It sends nothing, so a health check may call it at any rate.
func (e *Election) Status() Status {
	d := &e.lock.d
	d.Enter()
	n := d.now
	s := Status{
		Key: e.lock.d.key, Holder: d.opts.Holder,
		LastSeen: n.last, Failures: n.failures, FailingSince: n.failing, Reads: n.reads, Writes: n.writes,
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
