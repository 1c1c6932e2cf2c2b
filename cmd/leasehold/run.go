package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/guardian"
)

const defaultGrace = 5 * time.Second

// A job is one use of run: a lock, and a command that runs while it is held.
type job struct {
	*app
	opts     leasehold.LockOptions
	layout   string
	wait     wait
	grace    time.Duration
	heldCode int
	lostCode int
	shell    bool

	argv    []string
	place   place
	lock    *leasehold.Lock
	signals chan os.Signal
	holders chan leasehold.Info // whom the wait is for
	renewed chan struct{}
}

func (a *app) run() *cobra.Command {
	j := &job{
		app: a, wait: wait{forever: true}, signals: make(chan os.Signal, 8),
		holders: make(chan leasehold.Info, 1), renewed: make(chan struct{}, 1),
	}
	cmd := &cobra.Command{
		Use:   "run [flags] LOCK -- CMD [ARG…]",
		Short: "Hold a lock while a command runs",
		Long: `Hold a lock while a command runs.

The command never outlives the lease. When the lease cannot be renewed, or
leasehold itself is killed or stopped, the command's process group gets SIGTERM
--grace before the lease ends and SIGKILL at its end, and so does whatever the
command has started, also in other groups. What the command leaves behind when it
ends is ended in the same way, before the lock is released. See the limits of that
in the documentation: no signal can recall a request that is already on its way.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the command. Its environment
has LEASEHOLD_LOCK (the URL), LEASEHOLD_STORE, LEASEHOLD_HOLDER and
LEASEHOLD_TOKEN, a number that is greater with each acquisition: whatever the
command writes to can refuse a smaller one.

` + exitHelp,
		Example: `  leasehold run backup -- restic backup /srv
  leasehold run --wait 0 s3://bucket/locks/nightly -- ./nightly.sh
  leasehold run --shell jobs/report -- 'psql -f report.sql | mail -s report ops'`,
		RunE: func(cmd *cobra.Command, args []string) error { return j.run(cmd.Context(), cmd, args) },
	}
	j.flags(cmd)
	return cmd
}

func (j *job) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&j.opts.TTL, "ttl", leasehold.DefaultTTL, "how long the lock outlives a holder that is gone")
	f.StringVar(&j.opts.Holder, "holder", "", "`name` of this holder, for people (default HOST/PID)")
	f.StringVar(&j.opts.Address, "address", "", "where this holder can be reached, for whoever reads it")
	f.StringToStringVar(&j.opts.Meta, "meta", nil, "`key=value` to keep in the record; may be repeated")
	f.Lookup("meta").DefValue = "" // not "[]"
	f.BoolVar(&j.opts.Existing, "existing", false, "never make the lock's object; see leasehold init")
	f.StringVar(&j.layout, "layout", "object", "how the lock lies in the store; this version knows object")
	f.Var(&j.wait, "wait", "how long to wait for a live holder: 0, a `duration`, or forever")
	f.DurationVar(&j.grace, "grace", defaultGrace, "from SIGTERM to SIGKILL; by default at most a third of --ttl")
	f.IntVar(&j.heldCode, "conflict-exit-code", exitHeld, "exit `code` when another holds the lock")
	f.IntVar(&j.lostCode, "lost-exit-code", exitLost, "exit `code` when the lease was lost")
	f.BoolVar(&j.shell, "shell", false, "CMD is one argument, for the shell to run")
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
		return fmt.Errorf("%q is neither forever nor a duration such as 0, 30s or 5m", text)
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

func (j *job) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	if err := j.check(cmd, args); err != nil {
		return err
	}
	j.opts.Logger = j.talk.logger()
	j.opts.OnWait = func(i leasehold.Info) {
		select {
		case <-j.holders: // nobody has looked at it yet
		default:
		}
		j.holders <- i
	}
	j.opts.OnRenew = func(*leasehold.Lease) { poke(j.renewed) }
	var err error
	if j.place, j.lock, err = open(ctx, args[0], &j.opts); err != nil {
		return err
	}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) { // under nohup it stays so
			signal.Notify(j.signals, sig)
		}
	}
	lease, err := j.acquire(ctx)
	if err != nil {
		return err
	}
	j.talk.note("holding %s as %s, token %d", j.place.name, lease.Holder(), lease.Token())
	status, err := j.supervise(lease)
	lost := lease.Err()
	j.release(ctx, lease)
	return j.verdict(status, err, lost)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// check makes sure of all that can be wrong before the store is asked.
func (j *job) check(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0 || len(args) == dash:
		return usage("no command given: write it after --, as in leasehold run LOCK -- CMD")
	case dash == 0:
		return usage("no lock given: write it before --, as in leasehold run LOCK -- CMD")
	case dash > 1:
		return usage("%q is one argument too many before --: give one lock, and the command after --", args[1])
	}
	j.argv = args[1:]
	if j.shell {
		if len(j.argv) > 1 {
			return usage("--shell takes the command as one argument, and there are %d: put it in quotes", len(j.argv))
		}
		j.argv = append(shell(), j.argv[0])
	}
	if j.layout != "object" {
		return usage("--layout %q is not in this version: it knows object", j.layout)
	}
	for name, code := range map[string]int{"conflict": j.heldCode, "lost": j.lostCode} {
		if code < 0 || code > 255 {
			return usage("--%s-exit-code %d is not between 0 and 255", name, code)
		}
	}
	ttl := j.opts.TTL
	switch {
	case ttl < leasehold.MinTTL || ttl > leasehold.MaxTTL:
		// Here, because to the library 0 means the default.
		return usage("--ttl %v is not between %v and %v", ttl, leasehold.MinTTL, leasehold.MaxTTL)
	case j.grace < 0:
		return usage("--grace %v is less than 0", j.grace)
	case !cmd.Flags().Changed("grace"):
		j.grace = min(j.grace, ttl/3)
	case j.grace > ttl/3:
		return usage("--grace %v is more than a third of --ttl %v, which leaves too little time for renewals: use --ttl %v or more", j.grace, ttl, 3*j.grace)
	}
	return nil
}

func shell() []string {
	if runtime.GOOS == "windows" {
		return []string{"cmd.exe", "/C"}
	}
	return []string{"/bin/sh", "-c"}
}

// verdict is the exit code of it all, and one line if it is not the command's own.
func (j *job) verdict(status guardian.Status, err, lost error) error {
	refused, isRefused := errors.AsType[*guardian.CommandError](err)
	switch {
	case isRefused:
		return &exit{refused.Code, err}
	case err != nil && !errors.Is(err, guardian.ErrTooLate):
		return &exit{exitInternal, err}
	case errors.Is(lost, leasehold.ErrLost) || err != nil || status.Expired:
		if lost == nil {
			lost = errors.New("no renewal came through in time")
		}
		return &exit{j.lostCode, fmt.Errorf("the lease on %s was lost while the command ran, which was ended: %s",
			j.place.name, strings.TrimPrefix(oneLine(lost), leasehold.ErrLost.Error()+": "))}
	case status.Code != 0:
		return &exit{status.Code, nil}
	}
	return nil
}

// release lets the next holder start at once. It bounds itself by what it can
// gain: at its deadline the lease ends anyway.
func (j *job) release(ctx context.Context, lease *leasehold.Lease) {
	ends := lease.Deadline()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(5*time.Second, j.opts.TTL))
	defer cancel()
	err := lease.Release(ctx)
	switch {
	case err == nil:
		j.talk.note("released %s", j.place.name)
	case !errors.Is(err, leasehold.ErrLost):
		j.talk.warn("could not release %s: %s: others may have to wait up to %v longer",
			j.place.name, oneLine(err), max(time.Until(ends), 0).Round(time.Second))
	}
}
