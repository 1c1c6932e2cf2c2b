// Shards divides numbered shards among all processes that run it.
//
//	go run ./examples/shards --store file:///tmp/store &
//	go run ./examples/shards --store file:///tmp/store &
//	leasehold shards file:///tmp/store/demo
//
// Each process prints which shards it begins and ends to work on. Start more, interrupt
// some, kill some: the shards go to those that are left.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store/storeurl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("shards", flag.ContinueOnError)
	url := flags.String("store", "", "`URL` of the store")
	prefix := flags.String("prefix", "demo", "what all keys begin with")
	n := flags.Int("n", 12, "`number` of shards; the same for all")
	weight := flags.Int("weight", 1, "of this process, beside the others'")
	ttl := flags.Duration("ttl", leasehold.DefaultTTL, "how long the others wait for a process that is gone")
	holder := flags.String("holder", "", "`name` of this process (default HOST/PID)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	st, err := storeurl.Open(ctx, *url)
	if err != nil {
		return err
	}
	var names []string
	for i := range *n {
		names = append(names, fmt.Sprintf("%04d", i))
	}
	worker, err := shard.NewWorker(st, *prefix, names, &shard.Options{TTL: *ttl, Weight: *weight, Holder: *holder})
	if err != nil {
		return err
	}
	return worker.Run(ctx, func(ctx context.Context, s shard.Shard) error {
		fmt.Fprintf(stdout, "%s begin %s token %v\n", time.Now().Format(time.TimeOnly), s.Name, s.Token)
		<-ctx.Done() // real work looks at ctx, and takes the token along
		fmt.Fprintf(stdout, "%s end   %s: %v\n", time.Now().Format(time.TimeOnly), s.Name, context.Cause(ctx))
		return nil
	})
}
