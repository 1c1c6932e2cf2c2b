package detached_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/detached"
	"github.com/leasehold/leasehold/store/memstore"
)

// The first step of a pipeline locks an environment, and the last step, in another process,
// frees it.
func Example() {
	ctx, st := context.Background(), memstore.New()
	environment := func() *leasehold.Lock {
		lock, err := leasehold.NewLock(st, "environments/test", &leasehold.LockOptions{TTL: time.Hour, Layout: leasehold.LayoutObject})
		if err != nil {
			log.Fatal(err)
		}
		return lock
	}
	lease, err := environment().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	d, err := detached.From(ctx, lease)
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(d) // keep it in a file that only its owner can read
	if err != nil {
		log.Fatal(err)
	}

	if d, err = detached.Parse(text); err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Key, detached.Release(ctx, environment(), d))
	// Output:
	// environments/test <nil>
}
