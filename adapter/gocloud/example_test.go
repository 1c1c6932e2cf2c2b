package gocloud_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/memblob"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/adapter/gocloud"
	"github.com/leasehold/leasehold/store"
)

// A lock in a bucket whose driver has no updates: with epochs it does without If-Match.
func Example() {
	ctx := context.Background()
	bucket, err := blob.OpenBucket(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer bucket.Close()
	st, err := gocloud.New(bucket, "mem://", gocloud.CreateOnly{})
	if err != nil {
		log.Fatal(err)
	}
	lock, err := leasehold.NewLock(st, "locks/backup", &leasehold.LockOptions{Layout: leasehold.LayoutEpochs})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err = lock.Do(ctx, func(_ context.Context, lease *leasehold.Lease) error {
			fmt.Println("held with token", lease.Token())
			return nil
		}); err != nil {
			log.Fatal(err)
		}
	}
	_, err = leasehold.NewLock(st, "locks/backup", &leasehold.LockOptions{Layout: leasehold.LayoutObject})
	fmt.Println("one object that is written over is refused:", errors.Is(err, store.ErrRefused))
	// Output:
	// held with token 1
	// held with token 3
	// one object that is written over is refused: true
}
