package fencelog_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/store/memstore"
)

// Two holders of a lock append to one log, and the former one is refused.
func ExampleLog() {
	ctx := context.Background()
	log, _ := fencelog.New(memstore.New(), "orders")
	former, _ := log.Claim(ctx, fence.Token(41))
	_, _ = former.Append(ctx, []byte("one"))

	next, _ := log.Claim(ctx, fence.Token(42))
	_, err := former.Append(ctx, []byte("late"))
	fmt.Println(errors.Is(err, fence.ErrFenced))
	_, _ = next.Append(ctx, []byte("two"), []byte("three"))
	for e, err := range log.Read(ctx, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d, token %v: %s\n", e.Position, e.Token, e.Records)
	}
	// Output:
	// true
	// 2, token 41: [one]
	// 4, token 42: [two three]
}
