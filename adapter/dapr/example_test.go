package leasedapr_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dapr/components-contrib/lock"
	"github.com/dapr/components-contrib/metadata"

	leasedapr "github.com/leasehold/leasehold/adapter/dapr"
)

func Example() {
	ctx, a, b := context.Background(), &leasedapr.Store{}, &leasedapr.Store{} // two sidecars
	props := lock.Metadata{Base: metadata.Base{Properties: map[string]string{"url": "mem://locks"}}}
	err := errors.Join(a.InitLockStore(ctx, props), b.InitLockStore(ctx, props))
	taken, err1 := a.TryLock(ctx, &lock.TryLockRequest{ResourceID: "order", LockOwner: "me", ExpiryInSeconds: 30})
	other, err2 := b.TryLock(ctx, &lock.TryLockRequest{ResourceID: "order", LockOwner: "you", ExpiryInSeconds: 30})
	freed, err3 := b.Unlock(ctx, &lock.UnlockRequest{ResourceID: "order", LockOwner: "me"}) // by the other sidecar
	fmt.Println(taken.Success, other.Success, freed.Status == lock.Success)
	fmt.Println(errors.Join(err, err1, err2, err3, a.Close(), b.Close()))
	// Output:
	// true false true
	// <nil>
}
