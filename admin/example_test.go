package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store/memstore"
)

// A tool finds a lock whose holder is known to be dead, and frees it before its time is over.
func Example() {
	ctx := context.Background()
	st := memstore.New() // or storeurl.Open(ctx, "s3://bucket/prefix")
	dead, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Holder: "web-1", Layout: leasehold.LayoutObject})
	if err != nil {
		log.Fatal(err)
	}
	if _, err = dead.Acquire(ctx); err != nil {
		log.Fatal(err)
	}

	for info, err := range admin.List(ctx, st, "jobs/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Key, "is held by", info.Holder)
		lock, err := leasehold.NewLock(st, info.Key, &leasehold.LockOptions{Layout: info.Layout})
		if err != nil {
			log.Fatal(err)
		}
		// The token makes sure that it is this lease that is broken and no later one.
		after, err := admin.Break(ctx, lock, info.Token)
		fmt.Println("held:", after.Held, err)
	}
	// Output:
	// jobs/backup is held by web-1
	// held: false <nil>
}
