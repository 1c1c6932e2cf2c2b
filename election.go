package leasehold

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/internal/lockorder"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/retry"
	"github.com/leasehold/leasehold/store"
)

// ElectionOptions are the options of [NewElection]. The zero value, like nil, gives
// the defaults.
type ElectionOptions struct {
	// LockOptions are those of the lock that the election lies in: all of them apply but PollInterval,
	// which is refused. OnWait is called for each campaign that has to wait.
	LockOptions

	// Frequent is how often a follower looks while the leader is new or late, and
	// Infrequent how often while it is steady. By default both follow from the
	// leader's TTL: a follower finds out when the leader renews and looks once
	// soon after each renewal, which is once every TTL/3; until it knows, and when
	// a renewal is late, it looks every TTL/24, and then less and less often. An
	// Infrequent longer than the TTL makes a failover as much longer. Both may be
	// changed later: see [Election.Update].
	Frequent, Infrequent time.Duration

	// Grace is how long the work of a leader may take to stop when it resigns or
	// is shut down. Meanwhile the lease is renewed. After that the lease is given
	// up: it is no longer valid, and freed only when the work has stopped.
	// Default TTL/3.
	Grace time.Duration

	// Retries are the pauses after failures of the store, in a row. After those
	// the pauses double. None is shorter than 50 ms, doubled for each failure in the
	// row but the first, none is longer than 4 s, and all end with the lease. Default
	// 100 ms, 1 s.
	Retries []time.Duration

	// Peers lets this candidate, while it follows, ask a leader whose record has an
	// address instead of the store, which then gets one request from it in two TTLs
	// while the leader answers. The leader must answer with what [Election.Attend] says;
	// package peer does both over HTTPS. It finds out at once when the leader
	// resigns, and when its process ends. If the leader is silent three times in a
	// row, or says that it does not lead, the store is asked again, frequently.
	// Default: none.
	Peers Peers

	// Renewals makes Observe yield the leader's renewals too.
	Renewals bool

	// OnElected is called when this candidate has become the leader, before the
	// work begins. If it returns an error, the candidate resigns at once. Its
	// context ends as the work's does.
	// Only [Election.Run] calls it, on its own goroutine: the lease is renewed meanwhile, and lead
	// waits. An error is logged; the candidate campaigns again after the usual pause.
	OnElected func(ctx context.Context, lease *Lease) error
	// OnLeader is called for each new leader that is seen, this one included.
	// It runs in order with the callbacks of LockOptions. Only a candidate that campaigns or
	// observes sees leaders at all.
	OnLeader func(Info)
}

// An Election is one candidate for the leadership that a lock stands for. The
// guarantee and its limit are those of the package documentation: at most one
// leader's lease is valid at any instant as long as clocks run at nearly the same
// rate, and only the token stops a request that is already on its way. It is safe
// for concurrent use.
//
// The verbs are those of etcd's package concurrency, and Run is shaped like the leader election
// of Kubernetes. The difference that matters: here a lease is released only after the work under
// it has returned, so a shutdown lets nobody in early.
type Election struct {
	lock *Lock
	opts ElectionOptions

	mu        lockorder.Mutex
	lease     *Lease
	term      *term // of Run, while it leads
	successor string
	leader    Info // the leader last seen
	leading   bool // there is one
	elected   time.Time
	observers map[*observer]bool
	news      chan struct{} // closed at the next change
	waiters   waiters

	watching lockorder.Mutex
	watchers int // calls that need the candidate to look
}

// NewElection makes a candidate for the election that lies in st under key. It
// sends nothing. It fails if the key or an option cannot be used, and says which.
//
// The options are copied, so a change to them afterwards has no effect: see [Election.Update].
// An error is a mistake in the program or its configuration, and to try again is of no use.
func NewElection(st store.Store, key string, opts *ElectionOptions) (*Election, error) {
	var o ElectionOptions
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("election %q: %w", key, err)
	}
	e := &Election{observers: map[*observer]bool{}, news: make(chan struct{})}
	e.mu.Rank(lockorder.Election)
	e.watching.Rank(lockorder.Watching)
	o.kind = KindElection
	lock, err := newLock(st, key, &o.LockOptions, func(cfg *protocol.Config) {
		cfg.Follow = true
		cfg.Frequent, cfg.Infrequent, cfg.Retries = o.Frequent, o.Infrequent, o.Retries
		cfg.Peers = o.Peers != nil
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

// Campaign waits until this candidate is the leader and returns its lease. End it
// with [Election.Resign], or [Lease.Release]. Errors and the end of ctx are as for
// [Lock.Acquire]. If the candidate resigns before Campaign has returned, which then
// returns no lease, the error matches [ErrResigned].
//
// Call Campaign for one term at a time. A call that comes while this candidate leads, by Run or
// by an earlier Campaign, waits until that lease is released.
func (e *Election) Campaign(ctx context.Context) (*Lease, error) {
	return e.won(e.lock.Acquire(ctx))
}

// TryCampaign is Campaign that does not wait: if another leads, this process included, it returns
// a [*HeldError] that says who. It is one attempt, as by [Lock.TryAcquire], with the same errors,
// and what it has seen [Election.Leader] and [Election.Status] say afterwards.
//
// A leader that is gone it does not wait out. It takes over from one only when this candidate has
// seen the record unchanged for its TTL and margin, by earlier calls or because it observes: see
// [Lock.TryAcquire]. A leader that has resigned in favour of another counts as one that leads, until
// that one has had the time to come first: see [Election.ResignTo]. While Run campaigns or leads,
// TryCampaign finds the lock held.
func (e *Election) TryCampaign(ctx context.Context) (*Lease, error) {
	return e.won(e.lock.TryAcquire(ctx))
}

// won is what a campaign returns. Other goroutines may resign as soon as there is a
// lease, which is before the campaign has returned it.
func (e *Election) won(lease *Lease, err error) (*Lease, error) {
	if err == nil && errors.Is(lease.Err(), ErrReleased) {
		return nil, fmt.Errorf("the campaign for %v was won, and then %w", e.lock.d.at, ErrResigned)
	}
	return lease, err
}

// Run campaigns, calls lead while this candidate leads, campaigns again when that
// has ended, and so on until ctx ends; then it returns ctx.Err(), with the lease
// released and nothing left running. The context that lead gets ends with the
// lease, with ctx, and when the candidate resigns; then lead must return. It is not
// called if that has happened before it would be.
//
// When lead returns, with an error or without, the candidate resigns, lets the
// others go first for half a TTL, but for 30 s at most, or for one and a half times
// Infrequent if that is longer, and campaigns again. A lease that is lost
// while lead runs ends its context, before anybody else can be the leader.
//
// While leading goes on after ctx has ended or Resign was called, the lease is
// renewed for the grace period, so that nobody else leads before lead has
// returned; see [ElectionOptions.Grace].
//
// If the store does not confirm the last release, so that the lock may still be taken
// for held, Run returns ctx.Err() joined with an error that says so. It returns an
// error that does not match ctx.Err() only if campaigning makes no sense: access is
// denied, the object is not a lock, its token is too large, the bucket does not exist
// or, with Existing, the object. A store that cannot be reached is waited out.
//
// lead is called on the goroutine of Run, for one term at a time. If it panics, the lease is
// released and the panic goes on.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, lease *Lease) error) error {
	var unreleased error // of the last term
	failures := 0        // of campaigns, in a row
	for {
		t := newTerm(ctx, e.opts.Grace)
		lease, err := e.lock.acquireFor(ctx, protocol.Terms{}, t)
		if t.lease != nil {
			unreleased = e.serve(ctx, t, err == nil, lead)
		}
		pause := e.pause()
		switch {
		case err == nil:
			failures = 0
			if errors.Is(lease.Err(), ErrLost) && !errors.Is(lease.Err(), protocol.ErrGivenUp) {
				continue // another leads by now, or the store is away
			}
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), unreleased)
		// A person has to mend this. A candidate that went on trying would only hide it.
		case Final(err):
			return errors.Join(err, unreleased)
		default:
			e.lock.d.opts.Logger.Warn("campaign failed, will try again", "lock", e.lock.d.at.String(), "error", err)
			failures++
			pause = retry.Pause(failures, e.opts.Retries)
		}
		select {
		// Candidates that failed at one moment must not all come back at one moment.
		case <-time.After(pause + rand.N(pause/4)):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), unreleased)
		}
	}
}

// longestPause bounds how long a candidate that has resigned lets the others go first by
// itself. With a long TTL it may be back before they have looked; but where there are no
// others, nobody would lead for hours.
const longestPause = 30 * time.Second

// pause is how long this candidate lets the others go first: each follower has looked by
// then, and those that spread their attempts have made them.
func (e *Election) pause() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(min(protocol.Renewal(e.opts.TTL)*3/2, longestPause), e.opts.Infrequent*3/2)
}

// serve leads for one term, unless it was undone, and returns why the lock may not be free.
func (e *Election) serve(ctx context.Context, t *term, lead bool, work func(context.Context, *Lease) error) (unreleased error) {
	defer func() { unreleased = e.finish(ctx, t) }() // also if the work panics
	if !lead {
		return nil
	}
	// The end of the lease cancels the work at once, since another may lead next. The end of ctx
	// only asks the work to stop: the lease goes on for the grace, so that nobody else leads yet.
	defer context.AfterFunc(t.lease.Context(), func() { t.cancel(context.Cause(t.lease.Context())) })()
	defer context.AfterFunc(ctx, func() { t.stop(context.Cause(ctx)) })()
	log := e.lock.d.opts.Logger
	if e.opts.OnElected != nil && t.work.Err() == nil {
		late := time.AfterFunc(e.lock.d.opts.TTL, func() { e.lock.d.hangs("OnElected") })
		err := e.opts.OnElected(t.work, t.lease)
		late.Stop()
		if err != nil {
			log.Warn("resigning, since OnElected failed", "lock", e.lock.d.at.String(), "error", err)
			return nil
		}
	}
	// OnElected may have taken longer than the term: no work begins in one that is over.
	if t.work.Err() != nil || t.lease.Err() != nil {
		return nil
	}
	if err := work(t.work, t.lease); err != nil && t.work.Err() == nil {
		log.Warn("resigning, since the work failed", "lock", e.lock.d.at.String(), "error", err)
	}
	return nil
}

// finish releases the lease of a term whose work has returned, and returns why the lock may
// not be free.
func (e *Election) finish(ctx context.Context, t *term) error {
	t.stopped()
	e.mu.Lock()
	// The successor is read as the term is taken away. A ResignTo that comes later finds no term
	// to stop, and waits for this release instead.
	successor := e.successor
	e.term = nil
	e.mu.Unlock()
	last, done := lock.Last(ctx)
	defer done()
	err := t.lease.free(last, successor)
	if err != nil {
		e.lock.d.opts.Logger.Warn("leadership not released", "lock", e.lock.d.at.String(), "error", err)
	}
	t.end = t.lease.ended(err)
	close(t.over)
	return err
}

// Resign ends this candidate's leadership and returns when the lock is free. Where
// followers ask this candidate itself, it names the one that has waited for longest
// as its successor. Under
// Run the work is stopped first, so it must not wait for Resign itself: it returns
// instead. After Campaign the work must have stopped before. Errors and the end of ctx
// are as for [Lease.Release]: nil says that the lock is certainly not this candidate's
// any more. It returns [ErrNotLeading] if there is nothing to resign from.
func (e *Election) Resign(ctx context.Context) error { return e.ResignTo(ctx, "") }

// ResignTo is Resign, and names the holder that is to lead next. The others let it
// go first for a third of the TTL and the margin; if it does not come, they do.
// That is a courtesy: no promise rests on it.
//
// Under Run the work goes on until the successor has seen, in the record of the next renewal, that it
// is next; then it takes over within about a second of the release. That takes at most 11/24 of the
// TTL. The work is stopped at once if it would take longer than 15 s, if the successor asks this
// candidate as a peer, and when ctx ends or somebody calls [Election.Resign] meanwhile.
//
// The successor is a [LockOptions.Holder], and nobody checks that there is such a candidate. Raft
// calls the same idea leadership transfer; there it is part of the protocol, and here a hint in
// the record. Errors are as for [Election.Resign].
func (e *Election) ResignTo(ctx context.Context, successor string) error {
	e.mu.Lock()
	t, lease := e.term, e.lease
	e.successor = successor
	e.mu.Unlock()
	switch {
	case t != nil:
		e.giveNotice(ctx, t, successor)
		t.stop(ErrResigned)
		if _, err := lock.Wait(ctx, t.lease.ctx, t.over); err != nil {
			return fmt.Errorf("the work of %v has not stopped and been released yet: %w", e.lock.d.at, err)
		}
		return t.end
	case lease == nil || lease.settled.Load():
		return ErrNotLeading
	}
	return lease.releaseTo(ctx, successor)
}

// giveNotice lets the work of a term go on until the successor knows that it is next. One that asks
// this candidate itself hears of the release at once.
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

// Settle is [Lock.Settle], for campaigns that were given up.
func (e *Election) Settle(ctx context.Context) error { return e.lock.Settle(ctx) }

// IsLeader looks at the clock and reports whether this candidate's lease is valid
// now: see [Lease.Valid].
func (e *Election) IsLeader() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lease != nil && e.lease.Valid()
}

// Leader is the leader last seen by this candidate, which is as fresh as its last
// look, and false if it has seen none, or seen that its time is over. It sends
// nothing. Only a candidate that campaigns or observes looks.
func (e *Election) Leader() (Info, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leader, e.leading
}

// ElectionConfig is what may be changed while an election runs.
// A zero interval goes back to the default; it does not leave the interval as it is.
type ElectionConfig struct {
	TTL                  time.Duration // 0: as it is
	Frequent, Infrequent time.Duration // 0: from the leader's TTL
}

// Update changes the TTL and the intervals, from the next write and the next pause
// on. Candidates with different TTLs are safe together.
//
// It fails if a value is out of its bounds, and then changes nothing. A lease that is held keeps
// the validity of its last write until the next renewal is sent; where that promises less, the
// holder believes less from the sending on (rule A7). Grace stays as it was.
func (e *Election) Update(c ElectionConfig) error {
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
	e.lock.d.Tell(protocol.Retune{TTL: c.TTL.Truncate(time.Millisecond), Frequent: c.Frequent, Infrequent: c.Infrequent})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.TTL, e.opts.Infrequent = c.TTL, c.Infrequent // for the pauses of Run
	return nil
}
