package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// An electCmd is one use of elect: a job that is done again and again.
type electCmd struct {
	job
	once     bool
	peering  peering
	monitor  monitor
	election *leasehold.Election
	pause    time.Duration // before the last campaign; 0 if there was none
}

func (a *app) elect() *cobra.Command {
	c := &electCmd{job: a.newJob()}
	cmd := &cobra.Command{
		Use:   "elect [flags] LOCK -- CMD [ARG…]",
		Short: "Campaign, run a command while leading, campaign again",
		Long: `Campaign for LOCK, run a command while leading, and campaign again.

The command runs while this candidate leads, and does not outlive the lease, just as
in leasehold run. When it ends by itself, this candidate resigns, so that another
can lead, and campaigns again after a back-off: half of --ttl at first, when every
follower has looked, twice as long after each further quick end, up to a minute, and
from the start again once a command has run for longer than a minute. When the lease
is lost, the command is ended and this candidate campaigns again. --once ends all that
with the command.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the command, and so are SIGUSR1,
SIGUSR2, SIGWINCH and SIGCONT. When it has ended after one of the first four, or when it is not running, this candidate resigns and ends too. SIGHUP
is for many commands the order to read their configuration again: it ends this
candidate only if the command dies of it, or ends with code 129, or is not running and
there are no files to read again (below).

The command's environment is that of leasehold run: LEASEHOLD_LOCK,
LEASEHOLD_HOLDER, LEASEHOLD_JOB_STORE, LEASEHOLD_JOB_LAYOUT, and LEASEHOLD_TOKEN,
which is greater with each leader: whatever the command writes to can refuse a smaller
one. It is not there with the layouts that have no tokens: see leasehold run --help.

With --peer-listen the candidates ask the leader itself over HTTPS, instead of the
store, which then costs them next to nothing; and when a leader resigns the next one
begins at once. The answer is at https://ADDRESS/health/leadership, for load balancers too.

With --http, GET /leader tells who leads, /healthz and /readyz are for probes, and
/metrics is for Prometheus. Under systemd with Type=notify, systemd is told when the
campaign begins, how it stands and when it ends, and its watchdog is answered while
/healthz would be 200; the command does not get NOTIFY_SOCKET and WATCHDOG_*.

The files of --peer-cert, --peer-key, --peer-ca, --peer-token-file, --http-token-file,
--tls-cert and --tls-key are read again every 10 s, and on SIGHUP. If one cannot be used,
a message says why, and what was read before stays in use.

Exit codes:
  0      a signal was passed on to the command, which then ended with 0
  128+n  signal n ended it all: the command ended otherwise, or was not running
  126    the command was found, but cannot be run
  127    the command was not found
  0-255  with --once: the command's own
  76     with --once: the lease was lost (see --lost-exit-code)
  64, 65, 66, 69, 70, 77, 78: no campaign is possible; see leasehold run --help`,
		Example: `  leasehold elect leaders/scheduler -- ./scheduler
  leasehold elect --address 10.0.1.42:8443 s3://bucket/leaders/web -- ./primary.sh
  leasehold elect --http 127.0.0.1:4040 leaders/scheduler -- ./scheduler
  leasehold elect --peer-listen :8443 --peer-cert me.pem --peer-key me.key \
      --peer-ca ca.pem s3://bucket/leaders/web -- ./primary.sh`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), cmd, args) },
	}
	f := cmd.Flags()
	c.flags(f)
	f.BoolVar(&c.once, "once", false, "end with the command, with its exit code")
	f.BoolVar(&c.opts.FastStart, "fast-start", false, "take over at once from a leader that, by the store's clock, is long gone;\nonly for a store whose clock is known to be right: see leasehold doctor")
	c.peering.flags(f)
	c.monitor.flags(f)
	return cmd
}

func (c *electCmd) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	if err := c.check(cmd, args); err != nil {
		return err
	}
	if err := c.monitor.check(); err != nil {
		return err
	}
	var err error
	if c.target, err = c.locate(ctx, args[0], c.opts.Layout); err != nil {
		return err
	}
	if err = c.prove(); err != nil {
		return err
	}
	if _, quorum := c.target.store.(*quorumstore.Store); quorum && c.opts.FastStart {
		c.console.warn("--fast-start changes nothing here: a quorum of stores has no clock to tell who is long gone")
	}
	if err = c.claims.open(ctx, c.target); err != nil {
		return err
	}
	if err = c.peering.open(ctx, &c.opts); err != nil {
		return err
	}
	if err = c.monitor.open(ctx, &c.job); err != nil {
		return err
	}
	c.opts.Logger, c.final = c.console.logger(), c.once
	c.election, err = leasehold.NewElection(c.target.store, c.target.key, &leasehold.ElectionOptions{
		LockOptions: c.opts,
		Peers:       c.peering.peers(),
		OnLeader: func(i leasehold.Info) {
			if i.Holder != c.election.Status().Holder {
				c.waitsFor(blockerOf(i, time.Now()))
			}
		},
	})
	if err != nil {
		return unusable(err)
	}
	stop, err := c.peering.serve(ctx, &c.job, c.election)
	if err != nil {
		return err
	}
	defer stop()
	c.candidate = c.election
	c.rereads = c.peering.files != nil || c.monitor.files != (localhttp.Files{})
	defer c.monitor.begin(ctx, c.election)()
	c.listen()
	return c.campaign(ctx)
}

// campaign returns when it is all over. A fault from the beginning is an error;
// once there was a lease, an outage of the store is waited out.
func (c *electCmd) campaign(ctx context.Context) error {
	c.notifier.begins()
	for led := false; ; {
		lease, err := c.await(ctx, leased(c.election.Campaign))
		switch {
		case err == nil:
			led = true
			err = c.lead(ctx, lease)
		case led && passing(err):
			c.again(slog.LevelWarn, c.opts.TTL/3, c.message(err), "campaigning for %s failed, and goes on in %v: %s", c.target.name, c.opts.TTL/3, c.message(err))
			err = c.sleep(ctx, c.opts.TTL/3)
		}
		if err != nil {
			return explain(ctx, c.target, err)
		}
	}
}

// passing tells whether what went wrong can be expected to pass.
func passing(err error) bool {
	_, final := errors.AsType[*exit](err)
	code := codeOf(err) // others are for a person to mend, such as a resource that refuses the token
	return !final && (code == exitUnavailable || code == exitInternal) && !leasehold.Final(err)
}

// lead runs the command, and rests before the next campaign unless it is all over.
func (c *electCmd) lead(ctx context.Context, lease held) error {
	c.happened(levelNotice, lease, event{Event: eventAcquired}, "leading %s as %s%s", c.target.name, lease.Holder(), withToken(lease.Token()))
	began, ended := time.Now(), c.monitor.leads(lease)
	r := c.hold(ctx, lease)
	ended(r.lost != nil)
	if end := c.end(r); end != nil {
		return end
	}
	return c.rest(ctx, r, time.Since(began))
}

// end is an exit, with code 0 too, if it is all over, and nil if it is not.
func (c *electCmd) end(r run) error {
	stop := c.meant(r)
	switch {
	case r.idle && passing(r.err) && !c.once:
		return nil
	case r.err != nil && r.lost == nil: // it can be run no better next time
		return c.verdict(r)
	case stop != 0 && !c.once:
		c.console.remark("no longer leading %s: the command ended with code %d after signal %d (%v)", c.target.name, r.Code, stop, stop)
		if r.Code == 0 { // it was told to end, and has ended well
			return &exit{}
		}
		return stopped(stop, nil)
	case !c.once:
		return nil
	case r.lost == nil:
		c.console.remark("no longer leading %s: the command ended with code %d", c.target.name, r.Code)
	}
	if verdict := c.verdict(r); verdict != nil {
		return verdict
	}
	return &exit{}
}

// meant gives the signal that meant not only the command but all, or 0.
func (c *electCmd) meant(r run) (stop syscall.Signal) {
	died := syscall.Signal(r.Code - exitSignal)
	if died == syscall.SIGINT || died == syscall.SIGQUIT {
		stop = died // from a terminal, it comes to the command alone
	}
	for _, sig := range c.passedOn {
		if sig != syscall.SIGHUP || died == syscall.SIGHUP {
			stop = sig
		}
	}
	return stop
}

// rest lets another lead first, unless the next campaign has to wait anyway.
func (c *electCmd) rest(ctx context.Context, r run, ran time.Duration) error {
	if r.lost != nil {
		c.again(levelNotice, 0, "", "no longer leading %s: the lease was lost, and the command was ended: %v; campaigning again", c.target.name, r.lost)
		return nil
	}
	c.pause = backoff(c.pause, c.opts.TTL/2, ran)
	why, cause := fmt.Sprintf("the command ended with code %d", r.Code), ""
	if r.idle {
		cause = c.message(r.err)
		why = cause
	}
	c.again(levelNotice, c.pause, cause, "no longer leading %s: %s; campaigning again in %v", c.target.name, why, c.pause.Round(time.Millisecond))
	return c.sleep(ctx, c.pause)
}

// sleep ends with an error if a signal comes first.
func (c *electCmd) sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case sig := <-c.signals:
		return c.interrupted(ctx, acquisition{}, sig, ending{time.Now()})
	}
}

// backoff is the pause after a command that ran for so long, when the pause
// before was last.
func backoff(last, first, ran time.Duration) time.Duration {
	longest := max(first, time.Minute)
	if last == 0 || ran > longest {
		return first
	}
	return min(2*last, longest)
}
