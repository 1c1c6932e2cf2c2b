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
	"github.com/leasehold/leasehold/locktrace"
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
		Short: "Run a command while leading an election",
		Long: `Run a command while leading an election, and campaign again when it ends.

The command runs while this candidate leads, and does not outlive the lease, as
with leasehold run. When the command ends, this candidate resigns, so that another
can lead, and campaigns again after a backoff: --ttl/2 at first, twice as long
after each further early end, up to a minute. The backoff starts again once a
command has run for longer than a minute. If the lease is lost, the command is
stopped and this candidate campaigns again. With --once, leasehold exits when the
command ends.

Signals: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH and SIGCONT
are forwarded to the command. When the command has ended after one of the first
four, or if it is not running, this candidate resigns and exits. Many commands
reload on SIGHUP: it ends this candidate only if the command dies of it or exits
with 129, or if the command is not running and there are no files to reload.

Environment: the command gets the variables of leasehold run. LEASEHOLD_TOKEN grows
with each leader, so that a resource can reject a smaller one. Layouts without
tokens do not set it.

Peers: with --peer-listen, candidates ask the leader over HTTPS instead of the
store, at next to no cost, and when the leader resigns the next one begins at once.
The answer is at https://ADDRESS/health/leadership, also for load balancers.

Monitoring: with --http, GET /leader shows the leader, /healthz and /readyz are for
probes, and /metrics is for Prometheus. Under systemd with Type=notify, systemd is
notified of the campaign's state, and its watchdog is answered while /healthz is
200. The command does not get NOTIFY_SOCKET and WATCHDOG_*.

The files of --peer-cert, --peer-key, --peer-ca, --peer-token-file,
--http-token-file, --tls-cert and --tls-key are reloaded every 10 s and on SIGHUP.
If one is invalid, a message says why, and the previous content stays in use.

Exit codes:
  0      the command exited with 0 after a forwarded signal
  128+n  signal n ended leasehold: the command exited with another code, or was
         not running
  126    the command cannot be executed
  127    the command was not found
  0-255  with --once: the command's own exit code
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
	f.BoolVar(&c.once, "once", false, "exit with the command, with its exit code")
	f.BoolVar(&c.opts.FastStart, "fast-start", false, "take over at once from a leader that is dead by the store's\nclock; only if leasehold doctor found that clock right")
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
	if err = c.settleIfMatch(); err != nil {
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
	c.final = c.once
	c.opts.Trace.Leader = func(_ context.Context, e locktrace.Leader) {
		if e.New && e.Name != e.Holder {
			c.waitsFor(blockerOf(leasehold.Info{Holder: e.Name, Address: e.Address, Token: leasehold.Token(e.Token)}, e.Time))
		}
	}
	c.election, err = leasehold.NewElection(c.target.store, c.target.key, &leasehold.ElectionOptions{
		LockOptions: c.opts,
		Peers:       c.peering.peers(),
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
