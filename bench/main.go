// Bench measures leasehold beside what people use for locks and leader election, all of it
// really run, on this machine, in one run:
//
//	go run .            everything; it takes 35 minutes, and writes ../docs/benchmarks.md
//	go run . -short     every experiment for a moment, to see that all of it works
//	go run . -only NAME
//	go run . -seed N    draw the times of an earlier run again
//
// Servers are built and started as the tests do it, and etcd too; Redis, PostgreSQL and the
// command etcdctl are Debian's. A subject that is not available is left out, and the
// document says so.
//
// Subjects take turns: each round measures each of them once, in an order that is drawn
// anew, and what is compared was measured in the same round. Tables show the median of the
// rounds and their spread. Only ratios of one run mean anything; machines are noisy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// An experiment measures one thing for all subjects and adds samples to the results.
type experiment struct {
	name string
	run  func(context.Context, *bench) error
}

// experiments, in the order of the document.
var experiments = []experiment{
	{"floor", floors},
	{"acquire", acquireRelease},
	{"held", tryHeld},
	{"handover", handover},
	{"crash", crash},
	{"contention", contention},
	{"process", processes},
	{"followers", served},
	{"overhead", overhead},
	{"decisions", decisions},
	{"command", commands},
	{"scale", scale},
	{"quorum", quorums},
	{"verdict", verdict},
}

// A bench is one run.
type bench struct {
	*results
	mu     sync.Mutex // of the results, where subjects run at once
	short  bool
	rounds int
	host   *host
	places []*place
}

func run(ctx context.Context, args []string) (err error) {
	if is, err := child(ctx); is {
		return err
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	short := flags.Bool("short", false, "run every experiment for a moment, and write the document to standard output")
	only := flags.String("only", "", "run these experiments, separated by commas, and write the document to standard output")
	rounds := flags.Int("rounds", 5, "how often each subject is measured; less often where it takes long")
	seed := flags.Uint64("seed", 0, "of the times that are drawn; 0: another one for each run")
	servers := flags.String("servers", "gofakes3,versitygw,minio", "the S3 servers to measure with")
	if err = flags.Parse(args); err != nil {
		return err
	}
	wanted, err := choose(*only)
	if err != nil {
		return err
	}
	b := &bench{results: newResults(), short: *short, rounds: *rounds, host: newHost(ctx)}
	if b.short {
		b.rounds = 2
	}
	if b.Rounds, b.Seed = b.rounds, *seed; b.Seed == 0 {
		b.Seed = uint64(b.Began.Unix())
	}
	fmt.Fprintf(os.Stderr, "seed %d\n", b.Seed)
	defer b.host.close()
	if err = b.host.protect(func() { b.places = openPlaces(b.host, strings.Split(*servers, ",")) }); err != nil {
		return err
	}
	for _, e := range wanted {
		began := time.Now()
		fmt.Fprintf(os.Stderr, "%s …\n", e.name)
		var failed error
		if err = b.host.protect(func() { failed = e.run(ctx, b) }); err != nil || failed != nil {
			err = fmt.Errorf("%s: %w", e.name, errors.Join(err, failed))
			return errors.Join(err, b.print(os.Stdout)) // what there is
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", e.name, time.Since(began).Round(time.Second))
	}
	if b.short || *only != "" {
		return b.print(os.Stdout)
	}
	return b.write("../docs")
}

// choose gives the experiments with these names, or all.
func choose(names string) ([]experiment, error) {
	if names == "" {
		return experiments, nil
	}
	var chosen []experiment
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(experiments, func(e experiment) bool { return e.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no experiment %q", name)
		}
		chosen = append(chosen, experiments[i])
	}
	return chosen, nil
}
