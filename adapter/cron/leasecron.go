// Package leasecron has each run of a job of github.com/robfig/cron/v3 made by one of several processes that have the
// same schedule: a [Job] takes a lock of the job's name, and a [Wrapper] does so around a job that there is.
//
// The locks are leases: one that cannot be renewed ends. The context of a Job ends with it, before another process can
// run the job. A job of cron's own has no context: behind a Wrapper it goes on after a loss, and the log says so.
package leasecron

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/turn"
	"github.com/leasehold/leasehold/store"
)

var _ cron.Job = (*job)(nil)

// releasing bounds how long a release keeps cron.
const releasing = 5 * time.Second

// A Func is the work of a [Job]. Its context ends with the one that the job was made with, and with the lease; then it
// must return. The lease's token goes along with whatever a former holder must not overwrite. An error is logged.
type Func func(ctx context.Context, lease *leasehold.Lease) error

// Options are the options of [NewJob] and [Wrapper]. The zero value, like nil, gives the defaults.
type Options struct {
	// HoldAtLeast keeps the lock of a job from all processes for so long after a run has begun, however short the run
	// was: a process whose clock is late would run the job again otherwise. It should be more than the clocks differ
	// by, and must be shorter than the job's interval, by 2 s for the whole seconds of the store's clock, or runs are
	// left out. At most 24 h. Default 5 s; negative: none. Layouts without tokens cannot keep it: no
	// run is made there unless it is negative.
	HoldAtLeast time.Duration

	// Logger gets, as errors, each run that was not made for another reason than that another process has it, each
	// lock that was lost or whose release is not confirmed, and the errors of a [Func]; and as information each run
	// that was left to another. Default cron.DefaultLogger, which writes the errors to stdout.
	Logger cron.Logger
}

type job struct {
	ctx   context.Context //nolint:containedctx // cron runs a job without one
	locks *leasehold.Locks
	name  string
	f     Func
	opts  Options
}

// NewJob makes a job whose runs are made by one process at a time, under the lock with that name. It is for
// cron.AddJob. Wrappers of cron's chains go around it: cron.Recover, and cron.DelayIfStillRunning, with which a run
// that was delayed is left out while the lock is held at least. cron.SkipIfStillRunning is not needed.
//
// cron does not tell a job to stop: end ctx for that. Then the context of a run ends, and no other begins. Close locks
// after the context that cron.Stop returns has ended.
//
// A run tries for the lock once. If another process has it, or had it less than HoldAtLeast ago, the run is left to
// that one. A holder whose record looks abandoned is watched, for its TTL and a margin, and taken over from unless it
// turns out to be alive; so a run may begin that much later.
//
// Names are keys of the locks: 1024 bytes at most, of which 200 may be without a slash. Neither cron.AddJob nor a run
// returns an error, so of a name that cannot be a key, and of locks that are nil, the Logger is told here and at each
// run, which is not made.
func NewJob(ctx context.Context, locks *leasehold.Locks, name string, f Func, opts *Options) cron.Job {
	j := &job{ctx: ctx, locks: locks, name: name, f: f}
	if opts != nil {
		j.opts = *opts
	}
	j.opts.HoldAtLeast = cmp.Or(j.opts.HoldAtLeast, turn.DefaultHoldAtLeast)
	j.opts.Logger = cmp.Or(j.opts.Logger, cron.DefaultLogger)
	if err := j.check(); err != nil {
		j.error(err, "the job cannot be run")
	}
	return j
}

// Wrapper makes a wrapper for cron.NewChain, which locks a job of cron's own as [NewJob] does. The job cannot be told
// of a loss, or that ctx has ended.
//
// It is for one job, of which the name is: if it wraps another one too, as in cron.WithChain, that one is not run, and
// the Logger is told why. Put it last in its chain, so that the others do not count a run that another process makes.
func Wrapper(ctx context.Context, locks *leasehold.Locks, name string, opts *Options) cron.JobWrapper {
	var used atomic.Bool
	return func(inner cron.Job) cron.Job {
		f := func(context.Context, *leasehold.Lease) error {
			inner.Run()
			return nil
		}
		if used.Swap(true) {
			f = nil
		}
		return NewJob(ctx, locks, name, f, opts)
	}
}

func (j *job) check() error {
	switch {
	case j.locks == nil:
		return errors.New("leasecron: the locks are nil; make them with leasehold.NewLocks")
	case j.f == nil:
		return errors.New("leasecron: there is no work, or a Wrapper has wrapped another job before; make a wrapper for each job")
	}
	return store.CheckKey("lock", j.name)
}

func (j *job) error(err error, what string) { j.opts.Logger.Error(err, what, "job", j.name) }

// Run makes one run, if no other process does.
func (j *job) Run() {
	if err := j.check(); err != nil {
		j.error(err, "the job cannot be run")
		return
	}
	lease, err := turn.Take(j.ctx, j.locks, j.name, j.opts.HoldAtLeast)
	switch {
	case errors.Is(err, leasehold.ErrHeld) || j.ctx.Err() != nil:
		j.opts.Logger.Info("skip", "job", j.name, "reason", err)
		return
	case err != nil:
		j.error(err, "the job was not run")
		return
	}
	ctx, cancel := context.WithCancelCause(j.ctx)
	lost := context.AfterFunc(lease.Context(), func() {
		cancel(context.Cause(lease.Context()))
		j.error(context.Cause(lease.Context()), "the lock of the job was lost while it ran")
	})
	defer func() { // also if the work panics
		cancel(nil)
		unheard := lost()
		last, done := context.WithTimeout(context.WithoutCancel(j.ctx), releasing)
		defer done()
		if err := lease.Release(last); err != nil && (unheard || !errors.Is(err, leasehold.ErrLost)) {
			j.error(err, "the lock of the job was lost, or its release is not confirmed")
		}
	}()
	if err := j.f(ctx, lease); err != nil {
		j.error(err, "the job failed")
	}
}
