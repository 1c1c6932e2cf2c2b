package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storetest"
	"github.com/leasehold/leasehold/store/storeurl"
)

func (a *app) doctor() *cobra.Command {
	var (
		races int
		use   = string(leasehold.LayoutObject)
	)
	cmd := &cobra.Command{
		Use:   "doctor STORE",
		Short: "Prove by experiments that a store is safe for locks",
		Long: `Prove by experiments that a store is safe for locks.

STORE is the URL of a bucket, of a prefix in it or of a directory. The experiments
are made on scratch objects under STORE/leasehold-probe-…, which are removed again,
also after an interrupt. How many requests it makes at most is said before; how many
it made, after.

Many servers that speak S3 overlook the conditions of writes without a word, and a
lock on them is always had by everybody. So this tries whether they are kept, one
after the other and in races over several connections; whether reads and listings
show what was just written; what the times in answers are worth; how fast the store
is; what these credentials may do; and what the bucket is set to. The verdict says
for each layout, for --fast-start and for fences whether they are safe here, and if
not, why.

With --output json the report can be kept, and given to "leasehold run --proof" and
to LockOptions.Proof, which then refuse a store that was not found safe.

Exit codes: 0 if the store is safe for --use, 78 if it is not, 69 if it could not be
reached, 77 if nothing may be written, 128+n after signal n.`,
		Example: `  leasehold doctor s3://bucket
  leasehold doctor --use epochs 's3://bucket/locks?endpoint=https://storage.example'
  leasehold doctor --output json file:///mnt/shared/locks > proof.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if races < 1 {
				return usage("--races %d is less than 1", races)
			}
			if !slices.Contains(storetest.Uses(), use) {
				return usage("--use %q is none of %s", use, strings.Join(storetest.Uses(), ", "))
			}
			return a.diagnose(cmd.Context(), args[0], use, races)
		},
	}
	f := cmd.Flags()
	f.IntVar(&races, "races", 1500, "how many creates, and how many updates, race")
	f.StringVar(&use, "use", use, "what the exit code is about: "+strings.Join(storetest.Uses(), ", "))
	return cmd
}

// diagnose probes the store, and shows what comes out as it comes.
func (a *app) diagnose(ctx context.Context, url, use string, races int) error {
	p := place{name: url, storeURL: url}
	if !strings.Contains(url, "://") {
		return usage("%q is not the URL of a store: write one such as s3://bucket/prefix or file:///dir", url)
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	ctx, sig := a.interruptible(ctx)
	opts := &storetest.ProbeOptions{
		Races: races,
		Open:  func(ctx context.Context) (store.Store, error) { return storeurl.Open(ctx, p.storeURL) },
	}
	a.talk.tell("%s: at most %d requests, for less than $%.2f on S3", p.store, opts.Requests(), priceOf(storetest.Requests{Put: opts.Requests()}))
	if a.output != "json" {
		opts.OnFinding = func(f storetest.Finding) { _ = a.write(findingLine(f)) }
	}
	report, err := storetest.Probe(ctx, p.store, opts)
	if report == nil {
		return failed(err)
	}
	if printErr := a.print(reportText(report, a.verbose), report); printErr != nil {
		return printErr
	}
	if report.Left > 0 {
		a.talk.warn("%d scratch objects under %s*/ could not be removed", report.Left, "leasehold-probe-")
	}
	if sig := sig(); sig != nil {
		return stopped(sig, errors.New("interrupted: the report is not complete"))
	}
	if err != nil {
		return failed(err)
	}
	if err = report.Proves(report.Store, use); err != nil {
		return failed(err)
	}
	return nil
}

// interruptible gives a context that ends with the first signal, and a function that
// says which one that was.
func (a *app) interruptible(ctx context.Context) (context.Context, func() os.Signal) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var got os.Signal
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case got = <-signals:
			a.talk.tell("cleaning up")
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() os.Signal {
		signal.Stop(signals)
		cancel()
		<-done
		return got
	}
}

func findingLine(f storetest.Finding) string {
	mark := map[storetest.Result]string{storetest.OK: "ok", storetest.Bad: "BAD", storetest.Note: "note", storetest.Unknown: "?"}[f.Result]
	if f.Detail == "" {
		return fmt.Sprintf("%-4s  %s\n", mark, f.Name)
	}
	return fmt.Sprintf("%-4s  %s: %s\n", mark, f.Name, printable(f.Detail))
}

// reportText is what follows the findings.
func reportText(r *storetest.Report, verbose bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	for _, l := range r.Latency {
		line("%-15s  %6d times   p50 %8v   p99 %8v   worst %8v", l.Op, l.Count, short(l.P50), short(l.P99), short(l.Worst))
	}
	q := r.Requests
	line("\n%d requests in %v: %d GET, %d PUT, %d LIST, %d DELETE, %d about settings; $%.3f on S3",
		q.Total(), r.Took.Duration().Round(100*time.Millisecond), q.Get, q.Put, q.List, q.Delete, q.Inspect, priceOf(q))
	line("\nVerdict on %s", r.Store)
	for _, v := range r.Verdicts {
		if v.Safe {
			line("  %-16s safe", v.Use)
			continue
		}
		line("  %-16s NO", v.Use)
		for _, why := range v.Why {
			line("  %-16s   %s", "", why)
		}
	}
	line("  %-16s %v; at least %v", "TTL", r.TTL.Suggested.Duration(), r.TTL.Least.Duration())
	if r.UnquotedETags {
		line("\nThis server compares ETags without their quotes. In all URLs of locks on it, and here,\nwrite unquoted_etags=true among the parameters.")
	}
	missing := slices.ContainsFunc(r.Findings, func(f storetest.Finding) bool { return strings.Contains(f.Detail, "these credentials") })
	if len(r.Policy) > 0 && (verbose || missing) {
		line("\nThe smallest policy of a holder, in the layout object:\n%s", r.Policy)
	}
	return b.String()
}

// priceOf is what requests cost on S3 by its list prices.
func priceOf(r storetest.Requests) float64 {
	price, err := cost.ListPrices().Store("s3")
	if err != nil {
		panic(err) // it is in the program
	}
	return price.Of(cost.Requests{Get: float64(r.Get), Put: float64(r.Put), List: float64(r.List + r.Inspect), Delete: float64(r.Delete)})
}

// short rounds a duration to three digits.
func short(m storetest.Micros) time.Duration {
	d := m.Duration()
	unit := time.Microsecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
