// Command example replicates a database while it has the lease of that.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/benbjohnson/litestream"

	"github.com/leasehold/leasehold"
	leaselitestream "github.com/leasehold/leasehold/adapter/litestream"
	"github.com/leasehold/leasehold/store/filestore"
)

func main() {
	st := must(filestore.New(os.Args[1], nil)) // or storeurl.Open(ctx, "s3://bucket/leases")
	leaser := must(leaselitestream.New(st, "my-db", &leasehold.LockOptions{TTL: 30 * time.Second}))
	lease := must(leaser.AcquireLease(context.Background())) // again every few seconds while it is *litestream.LeaseExistsError
	ctx := leaser.Context(lease)
	done := make(chan bool)
	go func() { replicate(ctx, lease); close(done) }()
	for working := true; working; {
		select {
		case <-done: // also after a loss, since ctx has ended
			working = false
		case <-time.After(lease.TTL() / 3):
			if next, err := leaser.RenewLease(ctx, lease); err == nil {
				lease = next
			}
		}
	}
	must(0, leaser.ReleaseLease(context.Background(), lease))
}

// replicate is the work: it returns when its context ends.
func replicate(_ context.Context, lease *litestream.Lease) {
	fmt.Println("replicating in generation", lease.Generation)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
