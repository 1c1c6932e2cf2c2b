package leasekubernetes_test

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
	leaseelector "github.com/leasehold/leasehold/adapter/kubernetes/elector"
	"github.com/leasehold/leasehold/store/memstore"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	st := memstore.New() // or storeurl.Open(ctx, "s3://bucket/locks")
	lock := must(leasekubernetes.New(st, "controller", nil, resourcelock.ResourceLockConfig{Identity: must(os.Hostname())}))
	must(0, leaseelector.Run(ctx, lock, leaderelection.LeaderElectionConfig{
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				fmt.Println("leading", lock.Lease().Token() != 0) // return when ctx ends
				stop()
				<-ctx.Done()
			},
			OnStoppedLeading: func() { fmt.Println("not leading") },
		},
	}))
	must(0, lock.Close(context.Background()))
	// Output:
	// leading true
	// not leading
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
