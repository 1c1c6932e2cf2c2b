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
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/internal/lock"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store/probe"
)

const defaultGrace = 5 * time.Second

// The flag of commands that write what they name.
const (
	mkdirFlag = "mkdir"
	mkdirHelp = "create the directory of a file:// URL if it does not exist;\nnot if its file system may be unmounted"
)

// A job is a lock, and a command that runs while it is held: what run and elect
// have in common.
type job struct {
	*app
	opts     leasehold.LockOptions
	grace    time.Duration
	lostCode int
	shell    bool
	claims   claims
	proof    string // a file

	argv []string
	// candidate is what the lease comes from, a Lock or an Election.
	candidate interface {
		Settle(ctx context.Context) error
	}
	target   target
	signals  chan os.Signal
	relayed  chan os.Signal // for the command alone
	blockers chan *blocker  // whom the wait is for
	renewed  chan struct{}
	passedOn []syscall.Signal // to the command that runs now, or ran last
	notifier *notifier        // of the service manager
	final    bool             // all ends with the command
	rereads  bool             // SIGHUP has files read again, so it is no order to end
	// announced is set where it was said already for whom the wait is.
	announced bool
}

func (a *app) newJob() job {
	renewed := make(chan struct{}, 1)
	return job{
		app: a, signals: make(chan os.Signal, 8), relayed: make(chan os.Signal, 8), blockers: make(chan *blocker, 1), renewed: renewed,
		opts: leasehold.LockOptions{Trace: &locktrace.Trace{
			Renewed: func(context.Context, locktrace.Renewed) { poke(renewed) },
			Trouble: func(_ context.Context, e locktrace.Trouble) { a.troubled(e.Err) },
		}, Logger: lock.Untroubled(a.console.logger())},
	}
}

func (j *job) flags(f *pflag.FlagSet) {
	j.lockFlags(f)
	f.DurationVar(&j.opts.TTL, "ttl", leasehold.DefaultTTL, "lease `duration`: others take over a little later if the\nholder dies")
	f.BoolVar(&j.opts.Sweep, "sweep", false, "with --layout marker, without If-Match: delete a dead\nholder's marker; unsafe if two processes do it at once")
	j.claims.flag(f)
	f.DurationVar(&j.grace, "grace", defaultGrace, "`duration` from SIGTERM to SIGKILL, at most --ttl/3\nunless set")
	f.IntVar(&j.lostCode, "lost-exit-code", exitLost, "exit `code` if the lease is lost")
	f.BoolVar(&j.shell, "shell", false, "run CMD, a single argument, with the shell")
}

// lockFlags are those of a lock that is acquired, whatever is done under it.
func (j *job) lockFlags(f *pflag.FlagSet) {
	f.StringVar(&j.opts.Holder, "holder", "", "holder `name` in the record (default HOST/PID)")
	f.StringVar(&j.opts.Address, "address", "", "holder `address` in the record")
	f.StringToStringVar(&j.opts.Meta, "meta", nil, "store `key=value` in the record; repeatable")
	f.Lookup("meta").DefValue = "" // not "[]"
	f.BoolVar(&j.opts.Existing, "existing", false, "fail if the lock does not exist; see leasehold init")
	f.BoolVar(&j.mkdir, mkdirFlag, false, mkdirHelp)
	layoutFlag(f, &j.opts.Layout)
	f.StringVar(&j.proof, "proof", "", "`file` with a report of leasehold doctor -o json: refuse a\nstore that was not found safe")
}

// prove reads the report that says what the store is worth, if there is to be one.
func (j *job) prove() error {
	if j.proof == "" {
		return nil
	}
	f, err := os.Open(j.proof)
	if err != nil {
		return usage("--proof: %w", err)
	}
	defer func() { _ = f.Close() }()
	report, err := probe.ReadReport(f)
	if err != nil {
		return usage("--proof %s: %w: make one with leasehold doctor --output json", j.proof, err)
	}
	j.target.store, j.opts.Proof = report.Adapt(j.target.store), report
	return nil
}

// settleIfMatch finds out whether the lock can be used with If-Match, which NewLock does for itself.
func (j *job) settleIfMatch() error {
	if err := leasehold.Internal.Proven(&j.opts, j.target.store, j.target.key); err != nil {
		return unusable(err)
	}
	return nil
}

// unrenewed reports that the lease is that of a marker without If-Match, which is not renewed.
func (j *job) unrenewed() bool { return j.opts.Layout == leasehold.LayoutMarker && j.opts.NoIfMatch }

// unusable is the exit for a lock that cannot be made.
func unusable(err error) error {
	if errors.Is(err, probe.ErrUnproven) {
		return failed(err)
	}
	return &exit{exitUsage, err}
}

// waitsFor shows whom the wait is for, unless it was shown already.
func (j *job) waitsFor(b *blocker) {
	select {
	case <-j.blockers: // nobody has looked at it yet
	default:
	}
	j.blockers <- b
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
		return usage("no command given: write it after --, as in leasehold %s LOCK -- CMD", cmd.Name())
	case dash == 0:
		return usage("no lock given: write it before --, as in leasehold %s LOCK -- CMD", cmd.Name())
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
	if j.opts.Sweep && j.opts.Layout != leasehold.LayoutMarker {
		return usage("--sweep is for --layout %s: with --layout %s a lock is taken over without", leasehold.LayoutMarker, j.opts.Layout)
	}
	if j.opts.Existing && !j.opts.Layout.Tokens() {
		return usage("--existing and --layout %s exclude each other: a marker exists only while the lock is held", j.opts.Layout)
	}
	if len(j.claims.names) > 0 && !j.opts.Layout.Tokens() {
		return usage("--claim and --layout %s exclude each other: there is no token to claim with", j.opts.Layout)
	}
	if err := checkCode("lost", j.lostCode); err != nil {
		return err
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

func checkCode(name string, code int) error {
	if code < 0 || code > 255 {
		return usage("--%s-exit-code %d is not between 0 and 255", name, code)
	}
	return nil
}

func shell() []string {
	if runtime.GOOS == "windows" {
		return []string{"cmd.exe", "/C"}
	}
	return []string{"/bin/sh", "-c"}
}

// listen asks for the signals that are passed on to the command. Those that are no order to end mean nothing while it
// does not run.
func (j *job) listen() {
	notifyOf(j.signals, orders(j.rereads)...)
	notifyOf(j.relayed, relayable...)
	if j.rereads {
		notifyOf(j.relayed, syscall.SIGHUP)
	}
}

// listen asks for the signals that a user ends a command with, until stop is called.
func listen(signals chan<- os.Signal) (stop func()) {
	notifyOf(signals, orders(false)...)
	return func() { signal.Stop(signals) }
}

// orders are the signals that a user ends a command with. Where SIGHUP has files read again, it is none of them.
func orders(rereads bool) []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !rereads {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// notifyOf asks for signals, but not for those that are ignored, as under nohup: it stays so.
func notifyOf(c chan<- os.Signal, signals ...os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// A run is one use of a lease: the command, from its start until nothing of it is
// left, and what became of the lease meanwhile.
type run struct {
	guardian.Status
	err  error // why there was no start
	idle bool  // because of what was to be claimed
	lost error // why the command was ended before its time
	over bool  // because its time was up
}

// hold claims what is to be claimed, runs the command for as long as the lease lasts,
// and releases it.
func (j *job) hold(ctx context.Context, lease held) run {
	var status guardian.Status
	err := j.claim(lease) //nolint:contextcheck // it ends with the lease
	idle := err != nil
	if !idle {
		status, err = j.supervise(lease)
	}
	if j.final {
		j.notifier.stops()
	}
	r, at := run{Status: status, err: err, idle: idle}, time.Now()
	j.judge(&r, lease, endOf(lease))
	tell := j.release(ctx, lease, ending{})
	j.ended(lease, r, at)
	tell()
	return r
}

// judge finds out what became of the lease, before it is released. end is when the lease ends however
// often it is renewed.
func (j *job) judge(r *run, lease held, end time.Time) {
	lost := lease.Err()
	// The command is ended --grace before the lease is. Where no renewal could have made that later,
	// nothing was lost but time.
	final := !end.IsZero() && !lease.Deadline().Before(end.Add(-time.Millisecond))
	r.over = r.Expired && final || errors.Is(lost, leasehold.ErrTimeUp)
	switch {
	case errors.Is(r.err, fence.ErrFenced): // which ended the lease
	case r.over:
		r.lost = leasehold.ErrTimeUp
	case errors.Is(lost, leasehold.ErrLost):
		r.lost = errors.New(strings.TrimPrefix(oneLine(lost), leasehold.ErrLost.Error()+": "))
	case errors.Is(r.err, guardian.ErrTooLate) || r.Expired:
		r.lost = errors.New("no renewal came through in time")
	}
	if r.lost != nil && !r.over && j.unrenewed() {
		r.lost = fmt.Errorf("its TTL of %v was over, and a marker is not renewed", j.opts.TTL)
	}
}

// claim seals the resources with the lease's token, unless a signal comes first.
func (j *job) claim(lease held) error {
	if len(j.claims.objects) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(lease.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- j.claims.claim(ctx, lease) }()
	select {
	case err := <-done:
		return err
	case sig := <-j.signals:
		cancel()
		<-done //nolint:errcheck // the signal is the reason, whatever came of it
		return stopped(sig, fmt.Errorf("%v: gave up before the command began", sig))
	}
}

// verdict is the exit code of it all, and one line if it is not the command's own.
func (j *job) verdict(r run) error {
	refused, isRefused := errors.AsType[*guardian.CommandError](r.err)
	switch {
	case isRefused:
		return &exit{refused.Code, r.err}
	case r.err != nil && !errors.Is(r.err, guardian.ErrTooLate):
		return failed(r.err)
	case r.lost != nil:
		return &exit{j.lostCode, fmt.Errorf("the lease on %s was lost while the command ran, which was ended: %w", j.target.name, r.lost)}
	case r.Code != 0:
		return &exit{r.Code, nil}
	}
	return nil
}

// release lets the next holder start at once. The function that it returns says what became of it.
func (j *job) release(ctx context.Context, lease held, e ending) (tell func()) {
	ends := lease.Deadline()
	err := j.last(ctx, e, "releasing "+j.target.name, lease.Release)
	return func() { j.released(lease, ends, err) }
}
