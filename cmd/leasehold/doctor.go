package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/internal/plain"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/storeurl"
)

func (a *app) doctor() *cobra.Command {
	d := diagnosis{app: a, use: string(leasehold.LayoutObject), open: storeurl.OpenExisting}
	cmd := &cobra.Command{
		Use:   "doctor STORE",
		Short: "Test whether a store is safe for locks",
		Long: `Test whether a store is safe for locks.

Many S3-compatible servers ignore the conditions of writes without an error. On
such a server, every candidate gets the lock.

STORE is the URL of a bucket or container, of a prefix in it, or of a directory.
The tests write scratch objects under STORE/leasehold-probe-…, and remove them,
even after an interrupt. doctor first prints the highest number of requests and
bytes that it will send, and finally the actual numbers.

Tests:
  writes    conditional writes, one by one and in races over several
            connections, with 2 and with 128 at a time
  bodies    small and large; shorter, longer, as long as the previous one, or
            different in one byte
  objects   written often, not for a while, or just deleted
  keys      long, deep, not ASCII, or alike except for case, composed letters,
            dots, spaces or escapes
  reads     whether reads and listings show the last write or delete completely,
            and whether raced objects are unchanged seconds later
  store     its clock and speed, its settings, and the rights of your
            credentials

The tests take at least 10 seconds. Most of the bytes are in bodies of 1 MiB,
and in one of 8 MiB that is sent in parts. --largest-body leaves them out, and
the fences that need them. Listings of more than 1000 objects need more than
1000 --races.

Verdict: doctor reports whether each layout, --fast-start and fences are safe,
and if not, why. Sessions and semaphores are safe where the layout object is. A
finding is marked BAD if it rules out --use, and "no" if it rules out only
another use, which is named.

Quorums: each member is tested, and then the whole. A quorum is safe if all of
these are. If a member fails, the others are still tested.

Reports: save the output of --output json, and pass it to leasehold run --proof
or to LockOptions.Proof. They refuse a store that was not found safe.

Exit codes:
  0      the store is safe for --use
  69     the store could not be reached
  77     the store denied writing
  78     the store is not safe for --use
  128+n  signal n ended the tests; uses that were not tested are neither safe
         nor unsafe`,
		Example: `  leasehold doctor s3://bucket
  leasehold doctor gs://bucket/locks
  leasehold doctor 'azblob://container?account=myaccount'
  leasehold doctor --use epochs 's3://bucket/locks?endpoint=https://s3.example'
  leasehold doctor quorum://main
  leasehold doctor --output json file:///mnt/shared/locks > proof.json`,
		Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case d.races < 1:
				return usage("--races %d is less than 1", d.races)
			case d.largest < 1 || d.largest > store.MaxBody:
				return usage("--largest-body %d is not from 1 to %d", d.largest, store.MaxBody)
			case !slices.Contains(probe.Uses(), d.use):
				return usage("--use %q is none of %s", d.use, strings.Join(probe.Uses(), ", "))
			}
			return d.diagnose(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	f.IntVar(&d.races, "races", 1500, "how many creates and how many updates race")
	f.IntVar(&d.largest, "largest-body", store.MaxBody, "leave out tests that need bodies of more `bytes`")
	f.StringVar(&d.use, "use", d.use, "`use` that decides the exit code: a layout, \"epochs without\nIf-Match\", \"marker without If-Match\", fence.Object,\nfencelog.Log or \"fast start\"")
	return cmd
}

// A diagnosis is one use of the command doctor.
type diagnosis struct {
	*app
	races, largest int
	use            string
	price          *cost.Price // nil: requests cost nothing, or it is not known what

	open func(ctx context.Context, url string) (store.Store, error) // a store once more
}

// diagnose probes the store, and shows what comes out as it comes.
func (d *diagnosis) diagnose(ctx context.Context, where string) error {
	p := target{name: where, storeURL: where}
	if !strings.Contains(where, "://") {
		return usage("%q is not the URL of a store: write one such as s3://bucket/prefix or file:///dir", where)
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	ctx, sig := d.interruptible(ctx)
	if quorum, ok := p.store.(*quorumstore.Store); ok {
		return d.diagnoseQuorum(ctx, p, quorum, sig)
	}
	d.price = priceAt(p.store.String())
	report, err := d.probe(ctx, p.store, "", func(ctx context.Context) (store.Store, error) {
		return d.open(ctx, p.storeURL)
	})
	if report == nil {
		return failed(err)
	}
	if printErr := d.print(d.text(report), report); printErr != nil {
		return printErr
	}
	if sig := sig(); sig != nil {
		return stopped(sig, errInterrupted)
	}
	return d.outcome(report, err)
}

var errInterrupted = errors.New("interrupted: the report is not complete")

// probe says what it will cost, and what could not be removed.
func (d *diagnosis) probe(
	ctx context.Context, st store.Store, prefix string, again func(context.Context) (store.Store, error),
) (*probe.Report, error) {
	opts := d.options(again)
	opts.Prefix = prefix
	d.console.tell("%s: at most %d requests%s, and %s in bodies%s", st, opts.Requests(), beyond(st, opts), megabytes(opts.Bytes()),
		d.dollars(", for less than $%.2f at the list prices of %s", probe.Requests{Put: opts.Requests()}))
	report, err := probe.Run(ctx, st, opts)
	d.console.show("")
	if report != nil && report.Left > 0 {
		d.console.warn("%s under %sleasehold-probe-*/ could not be removed", plural(report.Left, "scratch object"), prefix)
	}
	return report, err
}

// beyond says which requests the number that is announced does not have.
func beyond(st store.Store, opts *probe.Options) string {
	if _, ok := st.(*quorumstore.Store); ok {
		return ", each of which is several to its members"
	}
	if _, ok := st.(store.Inspector); ok {
		return fmt.Sprintf(" (where past versions are kept, %d more to delete those)", opts.Purges())
	}
	return ""
}

// options are those of the probe. On a terminal it shows how far it is.
func (d *diagnosis) options(again func(context.Context) (store.Store, error)) *probe.Options {
	opts := &probe.Options{Races: d.races, LargestBody: d.largest, Open: again}
	if d.output != "json" {
		opts.OnFinding = func(f probe.Finding) {
			d.console.show("")
			_ = d.write(d.finding(f))
		}
	}
	if d.console.interactive() {
		opts.OnProgress = func(now probe.Progress) {
			d.console.show(fmt.Sprintf("leasehold: %s: %d of at most %d requests", now.Doing, now.Requests, now.Limit))
		}
	}
	return opts
}

// outcome is how the command ends: the report decides, of all findings that it has.
func (d *diagnosis) outcome(report *probe.Report, err error) error {
	if err == nil {
		err = report.Proves(report.Store, d.use)
	}
	if err != nil {
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
			a.console.tell("cleaning up")
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

// finding is the line about one. BAD is what the exit code is about, and nothing else.
func (d *diagnosis) finding(f probe.Finding) string {
	mark := map[probe.Result]string{probe.OK: "ok", probe.Bad: "BAD", probe.Note: "note", probe.Unknown: "?"}[f.Result]
	detail := plain.Word(f.Detail)
	if f.Result == probe.Bad && !slices.Contains(f.Against(), d.use) {
		mark = "no"
		detail += " (it rules out " + strings.Join(f.Against(), ", ") + ")"
	}
	if detail == "" {
		return fmt.Sprintf("%-4s  %s\n", mark, f.Name)
	}
	return fmt.Sprintf("%-4s  %s: %s\n", mark, f.Name, detail)
}

// text is what follows the findings.
func (d *diagnosis) text(r *probe.Report) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	for _, l := range r.Latency {
		line("%-15s  %6d times   p50 %8v   p99 %8v   worst %8v", l.Op, l.Count, short(l.P50), short(l.P99), short(l.Worst))
	}
	q := r.Requests
	line("\n%d requests in %v, with %s in bodies: %d GET, %d PUT, %d LIST, %d DELETE, %d about settings%s",
		q.Total(), r.Took.Duration().Round(100*time.Millisecond), megabytes(r.Sent), q.Get, q.Put, q.List, q.Delete, q.Inspect,
		d.dollars("; $%.3f at the list prices of %s", q))
	line("\nVerdict on %s", r.Store)
	for _, v := range r.Verdicts {
		line("  %-23s %s", v.Use, verdictWord(v))
		for _, why := range v.Why {
			if !v.Untried {
				line("  %-23s   %s", "", plain.Word(why))
			}
		}
	}
	line("  %-23s %v; at least %v", "TTL", r.TTL.Suggested.Duration(), r.TTL.Least.Duration())
	if r.UnquotedETags {
		line("\nThis server compares ETags without their quotes. In all URLs of locks on it, and here,\nwrite unquoted_etags=true among the parameters.")
	}
	if r.Proves(r.Store, "epochs") != nil && r.Proves(r.Store, "epochs without If-Match") == nil {
		line("\nLocks here must do without If-Match: in all their URLs, write if_match=false among the\nparameters, and use --layout epochs.")
	}
	missing := slices.ContainsFunc(r.Findings, func(f probe.Finding) bool { return strings.Contains(f.Detail, "these credentials") })
	if len(r.Policy) > 0 && (d.verbose || missing) {
		line("\nThe smallest policy of a holder, in the layout object:\n%s", r.Policy)
	}
	return b.String()
}

func verdictWord(v probe.Verdict) string {
	switch {
	case v.Safe:
		return "safe"
	case v.Untried:
		return "not tried"
	}
	return "NO"
}

// dollars says what requests cost, in a format with the price and the name of the list,
// or nothing.
func (d *diagnosis) dollars(format string, r probe.Requests) string {
	if d.price == nil {
		return ""
	}
	usd := d.price.Of(cost.Requests{Get: float64(r.Get), Put: float64(r.Put), List: float64(r.List + r.Inspect), Delete: float64(r.Delete)})
	return fmt.Sprintf(format, usd, d.price.Title)
}

// priceAt is the list price of requests to a store, where its URL says whose it is.
func priceAt(storeURL string) *cost.Price {
	name := priceName(storeURL)
	if name == "" {
		return nil
	}
	price, err := cost.ListPrices().Store(name)
	if err != nil {
		panic(err) // it is in the program
	}
	return price
}

// priceName is the name of the list of prices for a store, or empty.
func priceName(storeURL string) string {
	u, err := url.Parse(storeURL)
	if err != nil {
		return ""
	}
	name := map[string]string{"s3": "s3", "gs": "gcs", "azblob": "azure"}[u.Scheme]
	if endpoint := u.Query().Get("endpoint"); endpoint != "" && name != "" {
		name = provider(endpoint)
	}
	if name == "s3" && strings.HasSuffix(u.Host, "--x-s3") {
		name = "s3-express"
	}
	return name
}

// provider is the name of the list of prices for an endpoint, or empty.
func provider(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	for suffix, name := range map[string]string{
		".amazonaws.com":            "s3",
		".r2.cloudflarestorage.com": "r2",
		".storage.googleapis.com":   "gcs",
		".blob.core.windows.net":    "azure",
		".blob.storage.azure.net":   "azure",
	} {
		if strings.HasSuffix("."+u.Hostname(), suffix) {
			return name
		}
	}
	return ""
}

// megabytes is a number of bytes, rounded up.
func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+999_999)/1_000_000) }

// short rounds a duration to three digits.
func short(m probe.Micros) time.Duration {
	d := m.Duration()
	unit := time.Microsecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
