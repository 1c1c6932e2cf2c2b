package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
)

// A runCmd is one use of the command run: a job that has a lock to wait for.
type runCmd struct {
	job
	wait     wait
	heldCode int
	lock     *leasehold.Lock
	trying   atomic.Bool // without waiting
}

func (a *app) run() *cobra.Command {
	h := &runCmd{job: a.newJob(), wait: wait{forever: true}}
	h.minutely = true
	cmd := &cobra.Command{
		Use:   "run [flags] LOCK -- CMD [ARG…]",
		Short: "Hold a lock while a command runs",
		Long: `Hold a lock while a command runs.

The command does not outlive the lease. When the lease cannot be renewed, or
leasehold itself is killed or stopped, the command's process group gets SIGTERM
--grace before the lease ends and SIGKILL at its end, and so does whatever the
command has started, also in other groups. That holds on Linux as long as leasehold
or one of the two processes that it starts beside the command, job-watcher and
job-guardian, is neither killed nor stopped. Processes that the command leaves behind
when it ends are ended in the same way, before the lock is released. See the limits of
that in the documentation: no signal can recall a request that is already on its way.

A run that waits says for whom, at once and then once a minute, and why a store that
fails is tried again. -q silences that; with --wait 0 it silences a conflict too, which
is then the exit code alone.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the command. Its environment
has LEASEHOLD_LOCK (the URL), LEASEHOLD_HOLDER and LEASEHOLD_TOKEN, a number that is
greater with each acquisition: whatever the command writes to can refuse a smaller
one. LEASEHOLD_JOB_STORE is the URL of the lock's store, LEASEHOLD_JOB_LAYOUT its
layout. None of these is a default of anything: a leasehold within the command has
those that you have set yourself, as outside of it.

` + layoutHelp + `

` + exitHelp,
		Example: `  leasehold run backup -- restic backup /srv
  leasehold run --wait 0 s3://bucket/locks/nightly -- ./nightly.sh
  leasehold run --shell jobs/report -- 'psql -f report.sql | mail -s report ops'`,
		RunE: func(cmd *cobra.Command, args []string) error { return h.run(cmd.Context(), cmd, args) },
	}
	f := cmd.Flags()
	h.flags(f)
	f.Var(&h.wait, "wait", "how long to wait for a live holder: 0, a `duration`, or forever")
	f.IntVar(&h.heldCode, "conflict-exit-code", exitHeld, "exit `code` when another holds the lock")
	return cmd
}

// wait is the value of --wait.
type wait struct {
	forever bool
	limit   time.Duration
}

func (w *wait) Set(text string) error {
	if text == "forever" {
		*w = wait{forever: true}
		return nil
	}
	limit, err := time.ParseDuration(text)
	if err != nil || limit < 0 {
		return errors.New("it is neither forever nor a duration such as 0, 30s or 5m")
	}
	*w = wait{limit: limit}
	return nil
}

func (w *wait) String() string {
	switch {
	case w.forever:
		return "forever"
	case w.limit == 0:
		return "0"
	}
	return w.limit.String()
}

func (*wait) Type() string { return "duration" }

func (h *runCmd) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	if err := h.check(cmd, args); err != nil {
		return err
	}
	if err := checkCode("conflict", h.heldCode); err != nil {
		return err
	}
	h.opts.Logger = h.console.logger()
	h.opts.OnWait = h.waitsFor
	told := h.opts.OnTrouble
	h.opts.OnTrouble = func(err error) {
		if !h.trying.Load() {
			told(err)
		}
	}
	var err error
	if h.target, err = h.locate(ctx, args[0], h.opts.Layout); err != nil {
		return err
	}
	if err = h.prove(); err != nil {
		return err
	}
	if h.lock, err = leasehold.NewLock(h.target.store, h.target.key, &h.opts); err != nil {
		return unusable(err)
	}
	if err = h.claims.open(ctx, h.target); err != nil {
		return err
	}
	h.candidate = h.lock
	listen(h.signals)
	lease, err := h.acquire(ctx)
	if err != nil {
		return err
	}
	h.console.note("holding %s as %s%s", h.target.name, lease.Holder(), withToken(lease.Token()))
	return h.verdict(h.hold(ctx, lease))
}

// acquire waits for the lock as --wait says.
func (h *runCmd) acquire(ctx context.Context) (*leasehold.Lease, error) {
	switch {
	case h.wait.forever:
		return h.enter(ctx, h.lock.Acquire)
	case h.wait.limit > 0:
		limited, cancel := context.WithTimeout(ctx, h.wait.limit)
		defer cancel()
		return h.enter(limited, h.lock.Acquire)
	}
	h.trying.Store(true) // it ends with the third failure, and says why
	lease, err := h.enter(ctx, h.lock.TryAcquire)
	held, ok := errors.AsType[*leasehold.HeldError](err)
	if err == nil {
		h.trying.Store(false) // what goes wrong from now on goes on
	}
	if !ok || !held.Info.Abandoned || h.opts.Layout == leasehold.LayoutMarker && !h.opts.Sweep {
		return lease, err
	}
	// Not to wait for a live holder must not mean to be locked out for ever by
	// a dead one: with --wait 0 in every candidate, nobody would ever watch it
	// for long enough to take over.
	limit := takeover(held.Info.TTL)
	h.announced = true
	h.trying.Store(false)
	h.console.warn("%s looks to be gone: watching for up to %v to take %s over", held.Info.Holder, limit.Round(time.Second), h.target.name)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return h.enter(limited, h.lock.Acquire)
}

// takeover is how long it takes at most to take a lock over from a holder that
// is gone: its TTL and margin, the jitter, and the requests.
func takeover(ttl time.Duration) time.Duration {
	return ttl + ttl/12 + ttl/10 + 3*time.Second
}

// enter awaits one attempt, and says what its end means to the user.
func (h *runCmd) enter(ctx context.Context, acquire func(context.Context) (*leasehold.Lease, error)) (*leasehold.Lease, error) {
	lease, err := h.await(ctx, acquire)
	return lease, h.refused(ctx, err)
}

// refused says what the end of an acquisition means to the user.
func (h *runCmd) refused(ctx context.Context, err error) error {
	held, ok := errors.AsType[*leasehold.HeldError](err)
	switch {
	case err == nil:
		return nil
	case ok && h.quiet && h.wait == wait{}:
		return &exit{h.heldCode, nil} // it is what was asked for, and cron would send it by mail
	case ok:
		return &exit{h.heldCode, heldBy{h.target, h.wait, held}}
	case errors.Is(err, context.DeadlineExceeded) && codeOf(err) == exitUnavailable:
		why := fmt.Sprintf("the store of %s did not answer", h.target.name)
		if failure, ok := errors.AsType[*store.Error](err); ok {
			why = h.message(failure)
		}
		return &exit{exitUnavailable, fmt.Errorf("%s; --wait %s ran out", why, h.wait.String())}
	}
	return explain(ctx, h.target, err)
}

// A heldBy is a HeldError as the command says it.
type heldBy struct {
	target target
	wait   wait
	*leasehold.HeldError
}

func (h heldBy) Error() string {
	text := fmt.Sprintf("%s is held by %s", h.target.name, h.Info.Holder)
	if h.Info.Token != leasehold.NoToken {
		text += fmt.Sprintf(" (token %v)", h.Info.Token)
	}
	if h.wait.limit > 0 {
		text += fmt.Sprintf(", and --wait %s ran out", h.wait.String())
	}
	if h.Info.Abandoned && h.target.layout == leasehold.LayoutMarker {
		text += "; it looks to be gone, and its marker has to be deleted: see --sweep and leasehold gc"
	}
	return text
}

func (h heldBy) Unwrap() error { return h.HeldError }
