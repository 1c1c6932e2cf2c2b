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
		Long: `Serve locks over HTTP, to programs in any language on this machine.

PREFIX is the URL of a store, such as s3://bucket/locks or file:///dir, or the beginning
of bare names, with a slash at its end, such as jobs/; without it, all bare names are
served. A program acquires a lock, keeps it by a keepalive now and then, and releases it:

  POST   /v1/locks/KEY/acquire         {"wait":"30s","ttl":"15s","holder":"me"}
  POST   /v1/leases/LEASE/keepalive
  GET    /v1/leases/LEASE?wait=30s     answered as soon as the lease is lost
  DELETE /v1/leases/LEASE

With a random "id" in its body, an acquire whose answer was lost gives the same lease when
it is sent again.

GET /v1/locks, /v1/locks/KEY and /v1/locks/KEY/history show who holds what, and
GET /v1/events tells of changes as server-sent events. POST /v1/elections/KEY/campaign
and GET /v1/elections/KEY are for leaders. /healthz, /readyz and /metrics are there too;
/openapi.json has all of it.

With --terraform, Terraform and OpenTofu keep their states there, by their http backend: the
address, the lock_address and the unlock_address are http://HOST:PORT/terraform/NAME, and
the password is the token, for a user of any name. A run that was displaced by force-unlock
cannot overwrite its successor's state. The locks that are served then are those of the
states, unless PREFIX names others.

All leases are under one heartbeat, of one write each third of --ttl, whatever the number
of callers; a keepalive costs no request. A caller is told for how long its lease is
valid, in left_ms, and must have stopped by then, unless a keepalive has told it more:
even if this process is killed, nobody else gets the lock before that. A caller that is
not heard of for its own ttl loses its lock. The token is for whatever must refuse a
former holder.

The address is for this machine, unless there is TLS (--tls-cert, --tls-key) and either
a token that all callers bear, or have for a password (--http-token-file), or an
authority that has signed their certificates (--tls-client-ca). Every user of this machine can reach 127.0.0.1; a socket
(unix:/path) is for this user alone. No page of another origin in a browser is answered.

The files of --http-token-file, --tls-cert, --tls-key and --tls-client-ca are read again
every 10 s, and on SIGHUP; what cannot be used is told, and what was read before counts.

On SIGINT, SIGTERM or SIGQUIT, and on SIGHUP if there are no such files, no lease is given
or prolonged any more, callers are told, each lease is released when its caller releases
it or when the time is over that its caller was told, and then serve ends with 0: within
--ttl and a few seconds. Another signal, a second or more later, ends it at once, with
128+n. Under systemd with Type=notify, systemd is told when it is ready, how it stands
and that it stops.

Exit codes: 64, 65, 66, 69, 70, 77 and 78 as of leasehold run, if it cannot begin.`,
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
	f.StringVar(&c.listen, "http", "127.0.0.1:4041", "`address` to answer on, such as 127.0.0.1:4041 or unix:/run/x.sock")
	f.StringVar(&c.files.Token, "http-token-file", "", "`file` with the token of those that ask, a bearer token or a password")
	f.StringVar(&c.states.prefix, "terraform", "", "keep the states of Terraform under `PREFIX`, and answer it below "+terraformPath)
	f.StringVar(&c.files.Cert, "tls-cert", "", "certificate `file` (PEM), to speak TLS; for an address that is not this machine's\nthere must be one")
	f.StringVar(&c.files.Key, "tls-key", "", "`file` (PEM) with its key")
	f.StringVar(&c.files.ClientCA, "tls-client-ca", "", "`file` (PEM) with the authorities that callers' certificates must be signed by")
	f.IntVar(&c.conns, "connections", 4096, "`N` connections at a time; then those are closed that have asked nothing for longest")
	f.DurationVar(&o.TTL, "ttl", leasehold.DefaultTTL, "how long all locks outlive this process, if it is killed")
	f.StringVar(&o.Holder, "holder", "", "`name` of those holders that do not name themselves (default HOST/PID)")
	f.StringVar(&o.Address, "address", "", "where this server can be reached, for whoever reads it in a lock")
	f.BoolVar(&c.mkdir, mkdirFlag, false, mkdirHelp)
	f.StringVar(&c.proof, "proof", "", "`file` with a report of \"leasehold doctor --output json\": refuse a store that was\nnot found safe")
	f.IntVar(&o.Leases, "max-leases", 10_000, "`N` leases at a time")
	f.IntVar(&o.Waiting, "max-waiting", 1000, "`N` requests that wait for a lock at a time, and as many for the end of a lease")
	f.IntVar(&o.Subscribers, "max-subscribers", 64, "`N` streams of events at a time")
	f.DurationVar(&o.Every, "every", 5*time.Second, "the `pause` between two looks at everything while there is a stream of events,\n1s or more")
	f.IntVar(&o.Budget, "budget", 600, "send `N` requests a minute at most, on average, for those who ask who holds what")
	f.IntVar(&o.Limit, "limit", 1000, "read `N` locks at most in a look at everything")
	f.BoolVar(&o.AllowBreak, "allow-break", false, "let those who ask break the locks of others, by their tokens")
	f.StringArrayVar(&o.MetricKeys, "metric-key", nil, "`pattern` of the keys that /metrics tells apart, such as 'backup-*'; can be repeated")
	f.StringVar(&o.Price, "price", "", "`store` whose list prices count for the cost that is told (default that of the URL, if\nit is a cloud's): "+strings.Join(priceNames, ", "))
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
	go files.Follow(ctx, now, func(err error) {
		if err != nil {
			console.warn("%s were not reloaded, and what was read before counts: %s (mended files are read within %v, and on SIGHUP)", what, oneLine(err), reread.Every)
			return
		}
		console.tell("%s were reloaded", what)
	})
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
