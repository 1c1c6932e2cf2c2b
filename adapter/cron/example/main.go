// Command example runs a job once, whichever of several processes comes first.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/robfig/cron/v3"

	"github.com/leasehold/leasehold"
	leasecron "github.com/leasehold/leasehold/adapter/cron"
	"github.com/leasehold/leasehold/store/filestore"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	locks := must(leasehold.NewLocks(must(filestore.New(os.Args[1], nil)), nil)) // or storeurl.Open(ctx, "s3://bucket/jobs")
	ran := make(chan bool, 1)
	report := leasecron.NewJob(ctx, locks, "report", func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("the report is written under token", lease.Token()) // return when ctx ends
		ran <- true
		return nil
	}, nil)
	c := cron.New(cron.WithChain(cron.Recover(cron.DefaultLogger)))
	must(c.AddJob("@every 1s", report)) // "@hourly", "30 4 * * *"
	c.Start()
	<-ran
	stop()
	<-c.Stop().Done()
	must(0, locks.Close(context.Background()))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
