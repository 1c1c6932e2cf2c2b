package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store/memstore"
)

// A job that keeps its state in an object. The holder claims the state with its lease, and from
// then on no write of a former holder lands, however late it arrives.
func ExampleObject() {
	ctx, st := context.Background(), memstore.New()
	lock, err := leasehold.NewLock(st, "jobs/import", &leasehold.LockOptions{Layout: leasehold.LayoutObject})
	if err != nil {
		log.Fatal(err)
	}
	state, err := fence.NewObject(st, "state.json", nil)
	if err != nil {
		log.Fatal(err)
	}
	var former fence.Token
	work := func(step string) error {
		return lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			done, err := state.Claim(ctx, lease)
			if err != nil {
				return err
			}
			fmt.Println("done so far:", done.Exists)
			if step == "one" {
				former = fence.Token(lease.Token())
			}
			return state.Put(ctx, lease, strings.NewReader(step))
		})
	}
	if err = errors.Join(work("one"), work("two")); err != nil {
		log.Fatal(err)
	}
	err = state.Put(ctx, former, strings.NewReader("late"))
	fmt.Println("refused:", errors.Is(err, fence.ErrFenced))
	// Output:
	// done so far: false
	// done so far: true
	// refused: true
}
