// Command example runs a job once, whichever of several processes comes first.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold/leasehold"
	leasegocron "github.com/leasehold/leasehold/adapter/gocron"
	"github.com/leasehold/leasehold/store/filestore"
)

func main() {
	locks := must(leasehold.NewLocks(must(filestore.New(os.Args[1], nil)), nil)) // or storeurl.Open(ctx, "s3://bucket/jobs")
	locker := must(leasegocron.NewLocker(locks, nil))
	scheduler := must(gocron.NewScheduler(gocron.WithDistributedLocker(locker)))
	ran := make(chan bool)
	must(scheduler.NewJob(gocron.DurationJob(time.Hour), locker.Task(func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("the report is written under token", lease.Token()) // return when ctx ends
		ran <- true
		return nil
	}), gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartImmediately())))
	scheduler.Start()
	<-ran
	must(0, scheduler.Shutdown())
	must(0, locks.Close(context.Background()))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
