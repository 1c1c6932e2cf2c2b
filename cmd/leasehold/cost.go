package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

// A costCmd is one use of cost.
type costCmd struct {
	*app
	plan    cost.Plan
	file    string // of prices; empty: those that we came with
	name    string // of the store whose prices count
	byURL   bool   // unless the URL of a store says whose they are
	measure bool
	length  time.Duration

	prices  *cost.Prices
	price   *cost.Price
	members []memberPrice // of a quorum
}

// A memberPrice is whose prices are those of a member.
type memberPrice struct {
	url   string
	price *cost.Price // nil: it costs nothing
}

// priceNames are the names of cost.ListPrices. Parsing the prices takes longer than building all the flags, and few
// commands need them.
var priceNames = []string{"s3", "s3-express", "r2", "gcs", "azure"}

// mostCandidates is how many candidates of several locks a measurement has.
const mostCandidates = 1000

func (a *app) cost() *cobra.Command {
	c := &costCmd{app: a}
	mode := string(cost.Store)
	cmd := &cobra.Command{
		Use:   "cost [flags] [STORE]",
		Short: "Estimate monthly requests and cost",
		Long: `Estimate the monthly requests and cost of a plan.

A plan is a number of locks that are always held, and their candidates. The
numbers are computed with the formulas in docs/cost.md, and no requests are
sent. The output also has the costs of other protocols at the same TTL, and the
largest savings. A month has 730 hours. Free tiers, discounts, storage and
transfer are left out.

Modes, for --mode:
  store    an election; followers poll the store
  peer     an election; followers poll the leader, and the store once in two
           TTLs
  wait     a lock that the others wait for, as with leasehold run
  session  like wait, in programs: each candidate is a process with one session
           for all locks, and the locks are spread over the processes
  fair     a fair lock, as with leasehold run --fair: the others queue, each a
           process with a session; for turns under four minutes see docs/cost.md

Stores: the URL of STORE says whose prices count, and with if_match=false that
epochs and markers do without If-Match. Only --measure sends it requests.

Quorums: with the URL of a quorum as STORE, such as quorum://NAME, the numbers
include the requests to all members. Each has the price of its own store:
nothing for a directory, and --price for a server without list prices.

Measuring: with --measure, candidates in this process also run the plan, for
--for after a warm-up of a little over two TTLs, and their requests are counted.
They go to STORE, such as s3://bucket/prefix, or to memory. Each lock has the
planned number of candidates, but several locks have at most 1000 in all. Peers
are polled within the process, and no leader resigns. At the end, even after
SIGINT or SIGTERM, all locks are released and their objects deleted. Their names
are new each time.

Prices: the file of --prices has the format of internal/cost/prices.json.`,
		Example: `  leasehold cost --ttl 15s --candidates 5 --locks 100 --mode peer
  leasehold cost --price s3-express --infrequent 30s
  leasehold cost --locks 100 quorum://main
  leasehold cost --measure --for 1m s3://my-bucket/scratch
  leasehold cost --measure --for 1m gs://my-bucket/scratch`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.plan.Mode = cost.Mode(mode)
			c.byURL = !cmd.Flags().Changed("price")
			if err := c.check(args, cmd.Flags().Changed("for")); err != nil {
				return err
			}
			return c.tell(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&c.plan.TTL, "ttl", leasehold.DefaultTTL, "lease `duration`; a holder renews every third of it")
	f.IntVar(&c.plan.Candidates, "candidates", 3, "candidates per lock, including its holder")
	f.IntVar(&c.plan.Locks, "locks", 1, "number of locks")
	f.StringVar(&mode, "mode", mode, "`mode` of the candidates that do not hold the lock: store,\npeer, wait, session or fair")
	layoutFlag(f, &c.plan.Layout)
	f.DurationVar(&c.plan.Infrequent, "infrequent", 0, "`interval` of polls of a steady leader (default each renewal)\nor, with --mode wait, by waiters (default TTL/3, 1.5s to 10s)")
	f.Float64Var(&c.plan.Changes, "changes", 1, "`number` of changes of holder per lock and day")
	f.StringVar(&c.name, "price", "s3", "use the prices of this `store`, by default those of STORE if\nit has any: "+strings.Join(priceNames, ", "))
	f.StringVar(&c.file, "prices", "", "`file` with prices to use instead of the built-in ones")
	f.BoolVar(&c.measure, "measure", false, "also run the plan, and count its requests")
	f.DurationVar(&c.length, "for", time.Minute, "how long to count with --measure")
	return cmd
}

// check reads the prices and says what is wrong with the flags.
func (c *costCmd) check(args []string, long bool) (err error) {
	switch {
	case !c.measure && long:
		return usage("--for without --measure: nothing is counted")
	case c.measure && (c.length <= 0 || c.length > 24*time.Hour):
		return usage("--for %v is not between 0s and 24h0m0s", c.length)
	}
	var members []string
	if len(args) > 0 {
		if members, err = storeurl.Members(args[0]); err != nil { // it is no URL of any store
			return failed(err)
		}
		u, _ := url.Parse(args[0]) // as Members has
		c.plan.NoIfMatch = u.Query().Get("if_match") == "false"
	}
	if c.prices, err = readPrices(c.file); err != nil {
		return err
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "quorum:") {
		if err = c.priceMembers(args[0], members); err != nil {
			return err
		}
		return c.checkPlan()
	}
	if c.price, err = c.priceAt(strings.Join(args, "")); err != nil {
		return err
	}
	return c.checkPlan()
}

// priceAt returns the prices for the store with that URL.
func (c *costCmd) priceAt(storeURL string) (*cost.Price, error) {
	if c.byURL {
		if price, err := c.prices.Store(priceName(storeURL)); err == nil {
			return price, nil
		}
	}
	price, err := c.prices.Store(c.name)
	if err != nil {
		return nil, usage("--price: %w", err)
	}
	return price, nil
}

func (c *costCmd) checkPlan() error {
	if err := c.plan.CheckAt(c.price); err != nil {
		return usage("%w", err)
	}
	return nil
}

// priceMembers finds the price of each member of a quorum. Nothing is asked.
func (c *costCmd) priceMembers(quorum string, urls []string) (err error) {
	if len(urls) != 3 && len(urls) != 5 {
		return usage("%s: %d members: a quorum has 3 or 5", shown(quorum), len(urls))
	}
	var prices []*cost.Price
	for _, url := range urls {
		m := memberPrice{url: url}
		if !c.byURL || !strings.HasPrefix(url, "file:") {
			if m.price, err = c.priceAt(url); err != nil {
				return err
			}
		}
		c.members, prices = append(c.members, m), append(prices, m.price)
	}
	c.plan.Members = len(urls)
	c.price = cost.Mean("quorum", "the quorum's members", prices)
	return nil
}

// readPrices reads a file, or without one gives the prices that we came with.
func readPrices(file string) (*cost.Prices, error) {
	if file == "" {
		return cost.ListPrices(), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, usage("--prices: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	prices, err := cost.ReadPrices(f)
	if err != nil {
		return nil, usage("--prices %s: %w", file, err)
	}
	return prices, nil
}

// tell measures, if it is to, and prints the bill.
func (c *costCmd) tell(ctx context.Context, args []string) error {
	b := c.bill()
	if c.measure {
		m, where, err := c.count(ctx, strings.Join(args, ""))
		if err != nil {
			return err
		}
		b.Measured = c.counted(m, where)
	}
	return c.print(b.text(), b)
}

// count runs the plan in a store, or in memory, until it is measured or a signal comes.
func (c *costCmd) count(ctx context.Context, where string) (*cost.Measured, string, error) {
	var st store.Store = memstore.New()
	if where == "" {
		where = "memory"
	} else {
		p := target{name: where, storeURL: where, opening: c.opening()}
		if err := p.open(ctx); err != nil {
			return nil, "", err
		}
		st, c.at = p.store, p.store
	}
	locks := min(c.plan.Locks, max(1, mostCandidates/c.plan.Candidates))
	c.console.tell("measuring in %s: %s, %s each, for %v after %v", where, plural(locks, "lock"), plural(c.plan.Candidates, "candidate"), c.length, 2*c.plan.TTL)
	signals := make(chan os.Signal, 8)
	defer listen(signals)()
	type outcome struct {
		m   *cost.Measured
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		m, err := cost.Measure(ctx, st, "leasehold-cost-"+strings.ToLower(rand.Text()), c.plan, locks, c.length)
		done <- outcome{m, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, "", failed(o.err)
		}
		return o.m, where, nil
	case sig := <-signals:
		cancel()
		if o := <-done; o.err != nil {
			return nil, "", stopped(sig, fmt.Errorf("the measurement was ended by a signal (%v): %w", sig, o.err))
		}
		return nil, "", stopped(sig, nil) // it came with the end
	}
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
