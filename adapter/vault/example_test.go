package leasevault_test

import (
	"context"
	"errors"
	"fmt"

	leasevault "github.com/leasehold/leasehold/adapter/vault"
	"github.com/leasehold/leasehold/store/memstore"
)

func Example() {
	backend, err := leasevault.New(memstore.New(), nil) // in earnest a store of storeurl.Open
	lock, err2 := backend.LockWith("core/lock", "server-1")
	lost, err3 := lock.Lock(nil)
	held, by, err4 := lock.Value()
	fmt.Println("is the active server:", lost != nil, held, by)
	select { // work until lost is closed
	case <-lost:
	default:
	}
	fmt.Println(errors.Join(err, err2, err3, err4, lock.Unlock(), backend.Close(context.Background())))
	// Output:
	// is the active server: true true server-1
	// <nil>
}
