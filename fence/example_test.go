package fence_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store/memstore"
)

// Two holders of a lock write the same object. The tokens come from their leases; here
// they are numbers.
func ExampleObject() {
	ctx := context.Background()
	st := memstore.New()
	former, _ := fence.NewObject(st, "state.json", nil)
	_ = former.Put(ctx, fence.Token(41), strings.NewReader(`{"step": 1}`))

	next, _ := fence.NewObject(st, "state.json", nil)
	v, _ := next.Claim(ctx, fence.Token(42))
	body, _ := v.ReadAll(ctx)
	fmt.Println("claimed", string(body))

	err := former.Put(ctx, fence.Token(41), strings.NewReader(`{"step": 2}`))
	fmt.Println(err)
	// Output:
	// claimed {"step": 1}
	// mem:// state.json refuses token 41: a holder with token 42 has claimed it
}
