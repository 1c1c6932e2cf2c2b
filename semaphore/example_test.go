package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/memstore"
)

// Ten workers share three licences of a solver, on however many machines they run.
func Example() {
	ctx, st := context.Background(), memstore.New() // or storeurl.Open(ctx, "s3://bucket/prefix")
	licences, err := semaphore.New(st, "licences/solver", 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	var solving, most atomic.Int64
	var workers sync.WaitGroup
	errs := make([]error, 10)
	for n := range errs {
		workers.Go(func() {
			errs[n] = licences.Do(ctx, 1, func(ctx context.Context, lease *leasehold.Lease) error {
				most.Store(max(most.Load(), solving.Add(1))) // ctx ends before the slot is free for others
				solving.Add(-1)
				return nil
			})
		})
	}
	workers.Wait()
	fmt.Println("at most three at a time:", most.Load() <= 3, errors.Join(errs...))
	fmt.Println(licences.Close(ctx)) // when the service shuts down
	// Output:
	// at most three at a time: true <nil>
	// <nil>
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
