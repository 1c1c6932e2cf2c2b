// Package leasegocron lets schedulers of github.com/go-co-op/gocron/v2 in several processes share their jobs: a
// [Locker] has each run of a job made by one of them, an [Elector] has all jobs run by the one that leads.
//
// The locks are leases: one that cannot be renewed ends. gocron has no way to tell a job of that, so make its task
// with [Locker.Task] or [Elector.Task], whose context ends with the lease, before another scheduler can run the job.
// A task made with gocron.NewTask is locked too, and goes on after a loss.
package leasegocron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/turn"
)

var (
	_ gocron.Locker  = (*Locker)(nil)
	_ gocron.Elector = (*Elector)(nil)
)

// A Func is the work of a job. Its context ends with the one that gocron has for the job, and with the lease; then it
// must return. The lease's token goes along with whatever a former holder must not overwrite.
//
// Where the lease is lost before it returns, gocron gets an error that matches [leasehold.ErrLost], joined with its
// own: the run has failed, and AfterJobRunsWithError and the monitors hear of that.
type Func func(ctx context.Context, lease *leasehold.Lease) error

// task makes a task of gocron's. enter gives the lease of a run that has gocron's context, a context that ends it, and
// what to call after it.
//
// The function of the task has a name of this package in the program, which gocron takes for that of the job if it is
// given no other: see [Locker.Lock]. Inlined it would have one of the caller's.
//
//go:noinline
func task(f Func, enter func(ctx context.Context) (lease *leasehold.Lease, until context.Context, leave func(), err error)) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		lease, until, leave, err := enter(ctx)
		if err != nil {
			return fmt.Errorf("the job is not run: %w", err)
		}
		defer leave()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(until, func() { cancel(context.Cause(until)) })()
		if err = context.Cause(until); err == nil { // it may have ended since gocron asked
			err = f(ctx, lease)
		}
		if lost := lease.Err(); errors.Is(lost, leasehold.ErrLost) {
			err = errors.Join(err, lost)
		}
		return err
	})
}

// LockerOptions are the options of [NewLocker]. The zero value, like nil, gives the defaults.
type LockerOptions struct {
	// HoldAtLeast keeps the lock of a job from all schedulers for so long after a run has begun, however short the
	// run was: a scheduler whose clock is late would run the job again otherwise. It should be more than the clocks
	// differ by, and must be shorter than the job's interval, by 2 s for the whole seconds of the store's clock, or
	// runs are left out. At most 24 h. Default 5 s; negative: none. Layouts without tokens cannot keep it: Lock fails
	// there unless it is negative.
	HoldAtLeast time.Duration

	// Logger gets the error of each lock that was lost or whose release was not confirmed, since gocron drops
	// those. Default: gocron.NewLogger(gocron.LogLevelError), which writes to stdout.
	Logger gocron.Logger
}

// A Locker makes one scheduler at a time run a job, by a lock whose key is the job's name. It is for
// gocron.WithDistributedLocker and gocron.WithDistributedJobLocker, of one scheduler or several in this process, and
// safe for concurrent use. It has no goroutines and needs no closing; close its [leasehold.Locks] after the scheduler
// was shut down.
type Locker struct {
	locks *leasehold.Locks
	opts  LockerOptions

	mu sync.Mutex
	// By the end of gocron's context of the job, which both Lock and the task get. One run at a time has the lock.
	runs map[<-chan struct{}]*leasehold.Lease
}

// NewLocker makes a Locker of these locks. It sends nothing. It fails if locks is nil.
func NewLocker(locks *leasehold.Locks, opts *LockerOptions) (*Locker, error) {
	if locks == nil {
		return nil, errors.New("leasegocron: the locks are nil; make them with leasehold.NewLocks")
	}
	l := &Locker{locks: locks, runs: map[<-chan struct{}]*leasehold.Lease{}}
	if opts != nil {
		l.opts = *opts
	}
	l.opts.HoldAtLeast = cmp.Or(l.opts.HoldAtLeast, turn.DefaultHoldAtLeast)
	l.opts.Logger = cmp.Or(l.opts.Logger, gocron.NewLogger(gocron.LogLevelError))
	return l, nil
}

// Task makes the task of a job that this Locker locks: see [Func]. Give the job a name, with gocron.WithName. In a
// job that has no lock of this Locker the task fails and f is not called.
func (l *Locker) Task(f Func) gocron.Task { return task(f, l.enter) }

// enter finds the lease of a run.
func (l *Locker) enter(ctx context.Context) (lease *leasehold.Lease, until context.Context, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease = l.runs[ctx.Done()]; lease == nil {
		return nil, nil, nil, errors.New("it has no lock of this Locker; give that to the scheduler or the job, and let no elector or WithDisabledDistributedJobLocker overrule it")
	}
	return lease, lease.Context(), func() {}, nil
}

// Lock tries for the lock of the job with that name, once. gocron calls it before each run, and Unlock of the result
// after it. Unlock releases the lock, whether its context has ended or not, and waits for 5 s at most: after that the
// release goes on in the background. Its error is that of [leasehold.Lease.Release].
//
// Where another has it, or had it less than HoldAtLeast ago, the error matches [leasehold.ErrHeld], and the run is
// left to that one. A holder whose record looks abandoned is watched, for its TTL and a margin, and taken over from
// unless it turns out to be alive; so a run may begin that much later. Other errors are those of
// [leasehold.Locks.TryAcquire]: the store has failed for a while, or the name cannot be a key. Names are kept as they
// are, in 1024 bytes of which 200 may be without a slash.
//
// It refuses the name that a job with a Task has when it was given none, since all of them would have that one.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	if strings.HasPrefix(name, "github.com/leasehold/leasehold/adapter/gocron.") {
		return nil, errors.New("leasegocron: a job with a Task has no name of its own; give it one with gocron.WithName")
	}
	lease, err := turn.Take(ctx, l.locks, name, l.opts.HoldAtLeast)
	if err != nil {
		return nil, fmt.Errorf("leasegocron: job %q: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[ctx.Done()] = lease
	return unlock(func(last context.Context) error {
		l.mu.Lock()
		delete(l.runs, ctx.Done())
		l.mu.Unlock()
		last, cancel := context.WithTimeout(context.WithoutCancel(last), 5*time.Second)
		defer cancel()
		err := lease.Release(last)
		if err != nil {
			l.opts.Logger.Error("the lock of a job was lost, or its release is not confirmed", "job", name, "error", err)
		}
		return err
	}), nil
}

// unlock is the lock of one run.
type unlock func(context.Context) error

func (u unlock) Unlock(ctx context.Context) error { return u(ctx) }

// An Elector makes one scheduler run all jobs: the one whose process leads an election. It is for
// gocron.WithDistributedElector, and safe for concurrent use. It leads only while [Elector.Run] runs.
type Elector struct {
	election *leasehold.Election

	mu   sync.Mutex
	term *term // nil: it does not lead
}

// term is one time of leading.
type term struct {
	ctx   context.Context // ends with the lease, and when the leader is to resign
	lease *leasehold.Lease
	jobs  sync.WaitGroup
}

// NewElector makes an Elector of a candidate, whose Run must not be called but by this Elector's. It fails if that is
// nil.
func NewElector(election *leasehold.Election) (*Elector, error) {
	if election == nil {
		return nil, errors.New("leasegocron: the election is nil; make it with leasehold.NewElection")
	}
	return &Elector{election: election}, nil
}

// Run campaigns and leads, again and again, until ctx ends: see [leasehold.Election.Run], whose errors it returns. Call
// it once, on a goroutine of its own. When ctx ends, the contexts of the tasks that run end, and the lease is kept
// until they have returned, or its grace is over.
func (e *Elector) Run(ctx context.Context) error { return e.election.Run(ctx, e.lead) }

func (e *Elector) lead(ctx context.Context, lease *leasehold.Lease) error {
	t := &term{ctx: ctx, lease: lease}
	e.set(t)
	<-ctx.Done()
	e.set(nil) // no job of this term begins any more
	t.jobs.Wait()
	return nil
}

func (e *Elector) set(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// IsLeader returns nil if this process leads at this moment, by the clock, and otherwise an error that matches
// [leasehold.ErrNotLeading], or ctx's. It answers at once and sends nothing. gocron calls it before each run of a job.
// The job begins a moment later: only a task of [Elector.Task] does not run if the lease has ended meanwhile.
func (e *Elector) IsLeader(ctx context.Context) error {
	_, _, leave, err := e.enter(ctx)
	if err == nil {
		leave()
	}
	return cmp.Or(ctx.Err(), err)
}

// Task makes the task of a job: see [Func]. Its context ends with the lease of the leader, and when the leader resigns.
// It fails, and f is not called, if this process does not lead when it is to begin.
func (e *Elector) Task(f Func) gocron.Task { return task(f, e.enter) }

// enter begins a job of the present term.
func (e *Elector) enter(context.Context) (lease *leasehold.Lease, until context.Context, leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.term
	if t == nil || t.ctx.Err() != nil || !t.lease.Valid() {
		return nil, nil, nil, fmt.Errorf("leasegocron: %w; only one process is, and only while its Elector.Run runs", leasehold.ErrNotLeading)
	}
	t.jobs.Add(1)
	return t.lease, t.ctx, t.jobs.Done, nil
}
