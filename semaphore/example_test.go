package semaphore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/memstore"
)

func Example() {
	ctx, st := context.Background(), memstore.New() // or s3store.New, filestore.New
	sem, err := semaphore.New(st, "licences/solver", 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = sem.Do(ctx, 1, func(_ context.Context, lease *leasehold.Lease) error {
		fmt.Println("a slot:", lease.Valid())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: a slot: true
}

func ExampleRWLock() {
	ctx, st := context.Background(), memstore.New()
	lock, err := semaphore.NewRWLock(st, "tables/orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Close(ctx)
	reader, err := lock.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = lock.TryLock(ctx)
	fmt.Println("a writer beside a reader:", err != nil)
	if err = reader.Release(ctx); err != nil {
		log.Fatal(err)
	}
	writer, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("a writer:", writer.Valid())
	if err = writer.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a writer beside a reader: true
	// a writer: true
}
