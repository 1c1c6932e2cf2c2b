package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
)

// A runCmd is one use of the command run: a job that has a lock to wait for.
type runCmd struct {
	job
	wait     wait
	heldCode int
	maxHold  time.Duration // 0: for as long as the command takes
	atLeast  time.Duration
	slots    slotFlags
	kind     string // of semaphore, as the flag that says so; "": it is a lock
	holding  holding
	contest  contest
	trying   atomic.Bool // without waiting

	cooling   time.Time // since when this machine has known of the rest that has refused the lock
	uncounted error     // why it cannot be counted from there
}

func (a *app) run() *cobra.Command {
	h := &runCmd{job: a.newJob(), wait: wait{forever: true}}
	h.final = true
	cmd := &cobra.Command{
		Use:   "run [flags] LOCK -- CMD [ARG…]",
		Short: "Run a command while holding a lock",
		Long: `Run a command while holding a lock.

Waiting: leasehold waits until the lock is free, and prints the holder at once
and then once a minute. If the store fails, it retries and prints the reason.
-q silences both. With --wait 0 -q, a conflict is reported only by the exit code.

Losing the lease: if the lease cannot be renewed, or if leasehold is killed or
stopped, the command and all processes that it started get SIGTERM --grace
before the lease ends, and SIGKILL at its end. On Linux this holds as long as
leasehold or one of its two helper processes, job-watcher and job-guardian, is
neither killed nor stopped. Processes that the command leaves behind are ended
in the same way before the lock is released, and named. No signal can recall a
request that is already on its way: see the documentation on fencing.

Several at a time: --slots N runs at most N such commands at a time, and
--weight W takes W of the slots. --fair is a lock, and --shared and --exclusive
are a reader/writer lock. Waiters take turns in order of arrival, and are told
their position. All users of one lock must use the same of these flags. --claim
works with --fair and --exclusive only, because otherwise several commands work
at the same time.

Signals: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH and
SIGCONT are forwarded to the command. A command that ignores SIGTERM keeps
running and its lease is renewed; --max-hold limits that. The command ignores
SIGHUP and SIGINT if leasehold does, as under nohup. Other ignored signals are
reset to their default, because Go programs cannot detect them.

Environment: the command gets LEASEHOLD_LOCK (the URL), LEASEHOLD_HOLDER,
LEASEHOLD_JOB_STORE (the store's URL), LEASEHOLD_JOB_LAYOUT and LEASEHOLD_TOKEN,
a number that grows with each acquisition, so that a resource can reject a
smaller one. They are no defaults for a leasehold in the command.

systemd: with Type=notify, systemd is notified when the command starts and while
it waits for the lock. The command does not get NOTIFY_SOCKET and WATCHDOG_*.

` + layoutHelp + `

` + exitHelp,
		Example: `  leasehold run backup -- restic backup /srv
  leasehold run --wait 0 s3://bucket/locks/nightly -- ./nightly.sh
  leasehold run --slots 3 licences/solver -- ./solve.sh
  leasehold run --shell jobs/report -- 'psql -f report.sql | mail -s report ops'`,
		RunE: func(cmd *cobra.Command, args []string) error { return h.run(cmd.Context(), cmd, args) },
	}
	f := cmd.Flags()
	h.flags(f)
	f.Var(&h.wait, "wait", "how long to wait: 0, a `duration`, or forever")
	f.DurationVar(&h.maxHold, "max-hold", 0, "end the command when it has held the lock this long:\nSIGTERM --grace earlier, then SIGKILL (default no limit)")
	f.DurationVar(&h.atLeast, "hold-at-least", 0, "hold the lock at least this long, even if the command\nends earlier; at most 24h")
	h.slots.flags(f)
	f.IntVar(&h.heldCode, "conflict-exit-code", exitHeld, "exit `code` if the lock is held")
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
	if err := h.checkTerms(cmd); err != nil {
		return err
	}
	var err error
	if h.kind, err = h.slots.check(cmd, h); err != nil {
		return err
	}
	if err = h.prepare(ctx, args[0]); err != nil {
		return err
	}
	if err = h.claims.open(ctx, h.target); err != nil {
		return err
	}
	h.listen()
	h.notifier = notify(ctx, &h.console,
		func() string { return h.holding.standing(h.target.name) },
		func() bool { return h.holding.fit(h.opts.TTL, time.Now()) })
	defer h.notifier.end()
	lease, err := h.obtain(ctx)
	if err != nil {
		return err
	}
	h.holding.lease.Store(&lease)
	h.happened(slog.LevelInfo, lease, event{Event: eventAcquired}, "holding %s as %s%s", h.target.name, lease.Holder(), withToken(lease.Token()))
	r := h.hold(ctx, lease)
	if r.over {
		r.lost = fmt.Errorf("--max-hold %v is over", h.maxHold)
	}
	return h.verdict(r)
}

// prepare makes the candidate.
func (h *runCmd) prepare(ctx context.Context, name string) (err error) {
	h.opts.Trace.Waiting = func(_ context.Context, e locktrace.Waiting) { h.blocked(blockerOn(e)) }
	told := h.opts.Trace.Trouble
	h.opts.Trace.Trouble = func(ctx context.Context, e locktrace.Trouble) {
		if !h.trying.Load() {
			told(ctx, e)
		}
	}
	if h.target, err = h.locate(ctx, name, h.opts.Layout); err != nil {
		return err
	}
	if err = h.prove(); err != nil {
		return err
	}
	if h.contest, err = h.enroll(); err != nil {
		return unusable(err)
	}
	h.candidate = h.contest
	return nil
}

// enroll makes what the lease is to come from.
func (h *runCmd) enroll() (contest, error) {
	if h.kind != "" {
		h.target.layout = layoutTable
		return h.slots.enroll(h.kind, h.target, h.semaphoreOptions())
	}
	if err := leasehold.Internal.Proven(&h.opts, h.target.store, h.target.key); err != nil { // NewLock does it for itself
		return nil, err
	}
	lock, err := leasehold.NewLock(h.target.store, h.target.key, &h.opts)
	if err != nil {
		return nil, err
	}
	return &lockContest{lock, h.terms(), h.unrenewed() && !h.opts.Sweep}, nil
}

// blocked takes in whom the wait is for.
func (h *runCmd) blocked(b *blocker) {
	h.holding.waitsFor.Store(b)
	h.notifier.changed()
	h.waitsFor(b)
}

// checkTerms makes sure of what the flags ask of the lease, before the store is asked.
func (h *runCmd) checkTerms(cmd *cobra.Command) error {
	const day = 24 * time.Hour
	switch {
	case cmd.Flags().Changed("max-hold") && h.maxHold < time.Second:
		return usage("--max-hold %v is less than 1s", h.maxHold)
	case h.maxHold > 0 && h.maxHold <= h.grace:
		return usage("--max-hold %v leaves the command no time before --grace %v begins: use a longer one", h.maxHold, h.grace)
	case h.atLeast < 0 || h.atLeast > day:
		return usage("--hold-at-least %v is not between 0 and 24h", h.atLeast)
	case h.maxHold > 0 && h.atLeast > h.maxHold:
		return usage("--hold-at-least %v is more than --max-hold %v", h.atLeast, h.maxHold)
	case h.atLeast > 0 && !h.opts.Layout.Tokens():
		return usage("--hold-at-least and --layout %s exclude each other: a lock that is free has no marker that could say so", h.opts.Layout)
	}
	return nil
}

// terms are what the flags ask of the lease.
func (h *runCmd) terms() (opts []leasehold.AcquireOption) {
	if h.maxHold > 0 {
		opts = append(opts, leasehold.WithMaxHold(h.maxHold))
	}
	if h.atLeast > 0 {
		opts = append(opts, leasehold.WithHoldAtLeast(h.atLeast))
	}
	return opts
}

// obtain waits for the lock as --wait says.
func (h *runCmd) obtain(ctx context.Context) (held, error) {
	switch {
	case h.wait.forever:
		return h.enter(ctx, h.contest.acquire)
	case h.wait.limit > 0:
		limited, cancel := context.WithTimeout(ctx, h.wait.limit)
		defer cancel()
		lease, err := h.await(limited, h.contest.acquire)
		if h.cooled(ctx, err) {
			lease, err = h.await(ctx, h.contest.try)
		}
		return lease, h.refused(ctx, err)
	}
	h.trying.Store(true) // it ends with the third failure, and says why
	lease, err := h.await(ctx, h.contest.try)
	if h.cooled(ctx, err) {
		lease, err = h.await(ctx, h.contest.try)
	}
	if err == nil {
		h.trying.Store(false) // what goes wrong from now on goes on
		return lease, nil
	}
	gone := h.contest.gone(ctx, err)
	if gone == nil {
		return nil, h.refused(ctx, err)
	}
	// Not to wait for a live holder must not mean to be locked out for ever by
	// a dead one: with --wait 0 in every candidate, nobody would ever watch it
	// for long enough to take over.
	limit := takeover(gone.ttl)
	h.announced = true
	h.trying.Store(false)
	h.console.event(slog.LevelWarn, event{
		Event: eventWaiting, party: gone.party,
		Message: fmt.Sprintf("%s looks to be gone: watching for up to %v to take %s over", gone.holder, limit.Round(time.Second), h.target.name),
	})
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return h.enter(limited, h.contest.acquire)
}

// takeover is how long it takes at most to take a lock over from a holder that
// is gone: its TTL and margin, the jitter, and the requests.
func takeover(ttl time.Duration) time.Duration {
	return ttl + ttl/12 + ttl/10 + 3*time.Second
}

// enter awaits one attempt, and says what its end means to the user.
func (h *runCmd) enter(ctx context.Context, acquire func(context.Context) (held, error)) (held, error) {
	lease, err := h.await(ctx, acquire)
	return lease, h.refused(ctx, err)
}

// refused returns the error for the user if an acquisition failed, and nil if it did not.
func (h *runCmd) refused(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, leasehold.ErrHeld) && h.quiet && h.wait == wait{} && h.uncounted == nil:
		return &exit{h.heldCode, nil} // it is what was asked for, and cron would send it by mail
	case errors.Is(err, leasehold.ErrHeld):
		return &exit{h.heldCode, h.conflict(err)}
	case errors.Is(err, context.DeadlineExceeded) && codeOf(err) == exitUnavailable:
		why := fmt.Sprintf("the store of %s did not answer", h.target.name)
		if failure, ok := errors.AsType[*store.Error](err); ok {
			why = h.message(failure)
		}
		return &exit{exitUnavailable, fmt.Errorf("%s; --wait %s ran out", why, h.wait.String())}
	}
	return explain(ctx, h.target, err)
}

// conflict is an error that matches ErrHeld as the command says it.
func (h *runCmd) conflict(err error) error {
	if held, ok := errors.AsType[*leasehold.HeldError](err); ok {
		return heldBy{h.target, h.wait, h.cooling, h.uncounted, h.unrenewed(), held}
	}
	return err
}

// ranOut is how a message goes on where it was waited for so long.
func (w *wait) ranOut() string {
	if w.limit == 0 {
		return ""
	}
	return fmt.Sprintf(", and --wait %s ran out", w.String())
}

// A heldBy is a HeldError as the command says it.
type heldBy struct {
	target    target
	wait      wait
	cooling   time.Time // see runCmd
	uncounted error
	unrenewed bool
	*leasehold.HeldError
}

func (h heldBy) Error() string {
	text, token := fmt.Sprintf("%s is held by %s", h.target.name, h.Info.Holder), h.Info.Token
	switch {
	case h.Info.Size > 0:
		text, token = slotsTaken(h.target.name, h.Info), alone(h.Info)
	case h.Info.Rest > 0:
		from := time.Now()
		if !h.cooling.IsZero() {
			from = h.cooling
		}
		text = fmt.Sprintf("%s %s", h.target.name, rests(h.Info, from))
	}
	if token != leasehold.NoToken {
		text += fmt.Sprintf(" (token %v)", token)
	}
	if n := len(h.Info.Waiters); n > 0 && h.wait.limit == 0 { // else this process was one of them
		text += fmt.Sprintf(", and %d wait", n)
	}
	text += h.wait.ranOut()
	switch {
	case h.Info.Rest <= 0 || h.Info.Age >= 0:
	case h.uncounted != nil:
		text += fmt.Sprintf("; the store does not tell for how long it has rested, and this machine cannot count it: %v: a longer --wait or leasehold break gets past it", h.uncounted)
	default:
		text += "; the store does not tell for how long it has rested, so this machine counts from " + h.cooling.Local().Format(time.DateTime) + ", when it first saw that"
	}
	if h.Info.Abandoned && h.unrenewed {
		text += "; it looks to be gone, and its marker has to be deleted: see --sweep and leasehold gc"
	}
	return text
}

func (h heldBy) Unwrap() error { return h.HeldError }
