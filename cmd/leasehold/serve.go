package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/internal/reread"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store/probe"
)

// A serveCmd is one use of serve.
type serveCmd struct {
	*app
	listen string
	files  localhttp.Files
	conns  int
	proof  string
	opts   serve.Options
	given  func(flag string) bool

	address  localhttp.Address
	http     localhttp.Options
	secrets  *localhttp.Secrets
	target   target
	states   states
	server   *serve.Server
	notifier *notifier
	ready    atomic.Bool
	stopping atomic.Bool
	signals  chan os.Signal
}

func (a *app) serve() *cobra.Command {
	c := &serveCmd{app: a, signals: make(chan os.Signal, 8)}
	cmd := &cobra.Command{
		Use:   "serve [flags] [PREFIX]",
		Short: "Serve locks over HTTP to programs in any language",
		Long: `Serve locks over HTTP to programs in any language, on this machine.

PREFIX is the URL of a store, such as s3://bucket/locks or file:///dir, or a
prefix of names that ends in a slash, such as jobs/. By default, all names are
served. A program acquires a lock, sends keepalives while it works, and releases
the lock:

  POST   /v1/locks/KEY/acquire         {"wait":"30s","ttl":"15s","holder":"me"}
  POST   /v1/leases/LEASE/keepalive
  GET    /v1/leases/LEASE?wait=30s     answered as soon as the lease is lost
  DELETE /v1/leases/LEASE

Put a random "id" into the body of acquire. If the response is lost, the same
request then returns the same lease.

API: GET /v1/locks, /v1/locks/KEY and /v1/locks/KEY/history show the holders,
and GET /v1/events streams changes as server-sent events. For leaders, there are
POST /v1/elections/KEY/campaign and GET /v1/elections/KEY. /healthz, /readyz and
/metrics are for monitoring. /openapi.json describes them all.

Leases: each response has left_ms, the time for which the lease is valid. Stop
your work by then, unless a keepalive has extended it. No other caller gets the
lock earlier, even if this process is killed. A caller that is silent for its
own ttl loses its lease. Pass the token to resources that can reject a former
holder. All leases share one heartbeat, a write every --ttl/3. Keepalives cost
no requests.

Terraform: with --terraform, serve also stores the states of Terraform and
OpenTofu, for their http backend. Set address, lock_address and unlock_address
to http://HOST:PORT/terraform/NAME, and the password to the token, for any user
name. A run displaced by force-unlock cannot overwrite its successor's state.
Without PREFIX, only the locks of the states are served.

Access: every user of this machine can reach 127.0.0.1. Only you can reach a
socket (unix:/path). An address that other machines can reach needs TLS
(--tls-cert, --tls-key), and either a token (--http-token-file), sent as a
bearer token or password, or client certificates (--tls-client-ca). Requests
from web pages of another origin are rejected.

Reloading: the files of --http-token-file, --tls-cert, --tls-key and
--tls-client-ca are reloaded every 10 s and on SIGHUP. If one is invalid, a
message says why, and the previous content stays in use.

Stopping: on SIGINT, SIGTERM or SIGQUIT, and on SIGHUP without such files, serve
stops granting and extending leases, and tells the callers. It releases each
lease when its caller does, or when the time given to the caller has passed.
Then it exits with 0, within --ttl and a few seconds. Another signal, a second
or more later, ends it at once with 128+n.

systemd: with Type=notify, systemd is notified when serve is ready and when it
stops, and of its state.

Exit codes: 64, 65, 66, 69, 70, 77 and 78 as for leasehold run, if serve cannot
start.`,
		Example: `  leasehold serve s3://my-bucket/locks
  leasehold serve --http unix:/run/leasehold/serve.sock jobs/
  leasehold serve --terraform s3://my-bucket/tf --http-token-file token
  curl -d '{"wait":"30s"}' -H 'Content-Type: application/json' \
      http://127.0.0.1:4041/v1/locks/backup/acquire`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), append(args, "")[0])
		},
	}
	c.flags(cmd.Flags())
	c.given = cmd.Flags().Changed
	return cmd
}

func (c *serveCmd) flags(f *pflag.FlagSet) {
	o := &c.opts
	f.StringVar(&c.listen, "http", "127.0.0.1:4041", "listen on this `address`, such as 127.0.0.1:4041 or\nunix:/run/x.sock")
	f.StringVar(&c.files.Token, "http-token-file", "", "`file` with the callers' token, sent as a bearer token or\npassword")
	f.StringVar(&c.states.prefix, "terraform", "", "store Terraform states under `PREFIX`, and serve them below\n"+terraformPath)
	f.StringVar(&c.files.Cert, "tls-cert", "", "certificate `file` (PEM) for TLS; required for an address\nthat other machines can reach")
	f.StringVar(&c.files.Key, "tls-key", "", "key `file` (PEM) for TLS")
	f.StringVar(&c.files.ClientCA, "tls-client-ca", "", "CA `file` (PEM) that must sign the callers' certificates")
	f.IntVar(&c.conns, "connections", 4096, "at most `N` connections; beyond that, the longest idle one\nis closed")
	f.DurationVar(&o.TTL, "ttl", leasehold.DefaultTTL, "lease `duration`: others take over a little later if this\nprocess is killed")
	f.StringVar(&o.Holder, "holder", "", "holder `name` for callers that give none (default HOST/PID)")
	f.StringVar(&o.Address, "address", "", "holder `address` in the record")
	f.BoolVar(&c.mkdir, mkdirFlag, false, mkdirHelp)
	f.StringVar(&c.proof, "proof", "", "`file` with a report of leasehold doctor -o json: refuse a\nstore that was not found safe")
	f.IntVar(&o.Leases, "max-leases", 10_000, "at most `N` leases")
	f.IntVar(&o.Waiting, "max-waiting", 1000, "at most `N` requests that wait for a lock, and as many for\nthe end of a lease")
	f.IntVar(&o.Subscribers, "max-subscribers", 64, "at most `N` event streams")
	f.DurationVar(&o.Every, "every", 5*time.Second, "`interval` between polls while there is an event stream;\nat least 1s")
	f.IntVar(&o.Budget, "budget", 600, "on average, send at most `N` requests a minute to the store\nfor callers that ask who holds what")
	f.IntVar(&o.Limit, "limit", 1000, "read at most `N` locks in a poll")
	f.BoolVar(&o.AllowBreak, "allow-break", false, "let callers break any lock by its token")
	f.StringArrayVar(&o.MetricKeys, "metric-key", nil, "`pattern` of keys with a label in /metrics, such as\n'backup-*'; repeatable")
	f.StringVar(&o.Price, "price", "", "`store` whose list prices are used (default that of the URL):\n"+strings.Join(priceNames, ", "))
}

// check makes sure of the flags before the store is asked.
func (c *serveCmd) check() (err error) {
	if c.address, err = localhttp.ParseAddress(c.listen); err != nil {
		return usage("--http: %w", err)
	}
	if c.secrets, err = c.files.Open(); err != nil {
		return usage("%w", err)
	}
	c.http.Token, c.http.TLS = c.secrets.Token, c.secrets.TLS
	if err = openToOthers(c.address, c.http, "give --http-token-file or --tls-client-ca"); err != nil {
		return err
	}
	switch ttl := c.opts.TTL; {
	case ttl < leasehold.MinTTL || ttl > leasehold.MaxTTL:
		return usage("--ttl %v is not between %v and %v", ttl, leasehold.MinTTL, leasehold.MaxTTL)
	case c.opts.Every < leastEvery:
		return usage("--every %v is less than %v", c.opts.Every, leastEvery)
	}
	for flag, n := range map[string]int{
		"connections": c.conns, "max-leases": c.opts.Leases, "max-waiting": c.opts.Waiting,
		"max-subscribers": c.opts.Subscribers, "budget": c.opts.Budget, "limit": c.opts.Limit,
	} {
		if n < 1 {
			return usage("--%s %d is less than 1", flag, n)
		}
	}
	return c.makeRoom(localhttp.MaxConns())
}

// makeRoom bounds the connections by the files that this process may open, and by them those that wait, which have a
// connection each, and must leave some for those that hold.
func (c *serveCmd) makeRoom(most int) error {
	if c.conns > most {
		switch {
		case c.given("connections"):
			return usage("--connections %d: this process may open too few files for more than %d: raise ulimit -n", c.conns, most)
		case most < 8:
			return usage("this process may open too few files for connections and a store: raise ulimit -n")
		}
		c.conns = most
		if !c.given("max-subscribers") {
			c.opts.Subscribers = min(c.opts.Subscribers, most/8)
		}
		if !c.given("max-waiting") {
			c.opts.Waiting = min(c.opts.Waiting, max(1, (most-c.opts.Subscribers)/3))
		}
		c.console.warn("this process may open few files, so there are at most %d connections, %d waiting callers and %d streams of events: raise ulimit -n for more",
			c.conns, c.opts.Waiting, c.opts.Subscribers)
	}
	if least := 2*c.opts.Waiting + c.opts.Subscribers; c.conns < least {
		return usage("--connections %d is less than all may take that wait: twice --max-waiting and --max-subscribers are %d", c.conns, least)
	}
	c.http.Conns = c.conns
	return nil
}

func (c *serveCmd) run(ctx context.Context, prefix string) (err error) {
	if err = c.check(); err != nil {
		return err
	}
	if err = c.locatePrefixes(ctx, prefix); err != nil {
		return err
	}
	if err = c.prove(); err != nil {
		return err
	}
	if name := priceName(c.target.storeURL); c.opts.Price == "" && name != "" {
		if _, none := cost.ListPrices().Store(name); none == nil {
			c.opts.Price = name
		}
	}
	c.opts.Prefix, c.opts.Logger = c.target.key, c.console.logger()
	c.opts.URL = func(key string) string {
		url, failed := urlOf(c.target.storeURL, key)
		if failed != nil {
			return key // the store was opened by the rest of it
		}
		return url
	}
	if c.server, err = serve.New(c.target.store, &c.opts); err != nil {
		return unusable(err)
	}
	if err = c.keepStates(); err != nil {
		return err
	}
	c.http.Refuse = c.server.Refuse
	listener, err := localhttp.ListenWith(ctx, c.address, c.http)
	if err != nil {
		return usage("--http %v: %w", c.address, err)
	}
	return c.serveOn(ctx, listener)
}

// prove reads the report that says what the store is worth, if there is to be one.
func (c *serveCmd) prove() error {
	if c.proof == "" {
		return nil
	}
	f, err := os.Open(c.proof)
	if err != nil {
		return usage("--proof: %w", err)
	}
	defer func() { _ = f.Close() }()
	report, err := probe.ReadReport(f)
	if err != nil {
		return usage("--proof %s: %w: make one with leasehold doctor --output json", c.proof, err)
	}
	c.target.store, c.opts.Proof = report.Adapt(c.target.store), report
	if c.states.prefix != "" {
		c.states.target.store = report.Adapt(c.states.target.store)
	}
	return nil
}

// where is how the address is written to ask there.
func (c *serveCmd) where(l *localhttp.Server) string {
	switch address := l.Address(); {
	case strings.HasPrefix(address, "unix:"):
		return address
	case c.http.TLS != nil:
		return "https://" + address
	default:
		return "http://" + address
	}
}

// serveOn answers until a signal comes, and longer, until no caller relies on a lease.
func (c *serveCmd) serveOn(ctx context.Context, listener *localhttp.Server) error {
	rereads := c.files != (localhttp.Files{})
	if rereads {
		follow(ctx, &c.console, secretsOfHTTP, c.secrets.Set)
	}
	notifyOf(c.signals, orders(rereads)...)
	failed := make(chan error, 1)
	go func() { failed <- listener.Serve(c.server, c.opts.Logger) }()
	c.notifier = notify(ctx, &c.console, c.standing, func() bool { return true })
	defer c.notifier.end()
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = listener.Stop(last)
	}()
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- c.server.Start(starting) }()
	for {
		select {
		case err := <-started:
			if err != nil {
				return c.unstarted(err)
			}
			c.ready.Store(true)
			c.notifier.begins()
			c.console.tell("serving the locks under %s on %s", c.name(), c.where(listener))
			c.tellOfStates(listener)
		case err := <-failed:
			_ = c.server.Stop(ended(ctx))
			return &exit{exitInternal, fmt.Errorf("--http %v is not answered any more: %w", c.address, err)}
		case sig := <-c.signals:
			cancel()
			return c.stop(ctx, sig)
		}
	}
}

// secretsOfHTTP is what messages call [localhttp.Files].
const secretsOfHTTP = "the files of the token and of TLS"

// follow reads files again when they change, until ctx ends, and on SIGHUP, which is never left to its default again, so
// that it does not end this process while that stops.
func follow(ctx context.Context, console *console, what string, files *reread.Set) {
	now := make(chan os.Signal, 1)
	notifyOf(now, syscall.SIGHUP)
	go files.Follow(ctx, now, func(err error) { console.reloaded(what, err) })
}

// reloaded reports that files were reloaded, or why not.
func (t *console) reloaded(what string, err error) {
	if err != nil {
		t.warn("%s were not reloaded, and what was read before counts: %s (mended files are read within %v, and on SIGHUP)", what, oneLine(err), reread.Every)
	} else {
		t.tell("%s were reloaded", what)
	}
}

// ended is a context that has.
func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// unstarted is the exit because there is no session.
func (c *serveCmd) unstarted(err error) error {
	if errors.Is(err, probe.ErrUnproven) {
		return unusable(err)
	}
	return failed(err)
}

func (c *serveCmd) name() string {
	if c.target.name == "" {
		return c.target.storeURL
	}
	return c.target.name
}

// standing says in a line how it stands, for people.
func (c *serveCmd) standing() string {
	switch err := c.server.Ready(); {
	case c.stopping.Load():
		return "stopping: callers end their work"
	case !c.ready.Load():
		return "beginning a session in " + c.name()
	case err != nil:
		return "not ready: " + plain.Word(oneLine(err))
	}
	return "serving the locks under " + c.name()
}

// stop ends it all: well, or at once if another signal comes.
func (c *serveCmd) stop(ctx context.Context, sig os.Signal) error {
	c.stopping.Store(true)
	c.notifier.stops()
	c.console.tell("stopping after %v: no lease is given or prolonged any more, and each is released when its caller ends its work", sig)
	// No caller was told of a time that ends after the session's TTL; then it takes some requests.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*c.opts.TTL+10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var leaving sync.WaitGroup
		leaving.Go(func() { c.leaveStates(last) })
		err := c.server.Stop(last)
		leaving.Wait()
		done <- err
	}()
	e := ending{time.Now()}
	for {
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, leasehold.ErrLost) {
				c.console.warn("not all was released, so others may have to wait for the TTL: %s", oneLine(err))
			}
			return nil
		case again := <-c.signals:
			if !e.again() {
				continue
			}
			cancel()
			<-done //nolint:errcheck // it is cut short, which is said below
			return stopped(again, errors.New("ended at once by a second signal: what was held is free a little after the TTL"))
		}
	}
}
