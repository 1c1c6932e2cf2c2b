package leasemanager_test

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
	leasemanager "github.com/leasehold/leasehold/adapter/kubernetes/controllerruntime"
	"github.com/leasehold/leasehold/store/memstore"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	st := memstore.New() // or storeurl.Open(ctx, "s3://bucket/locks")
	lock := must(leasekubernetes.New(st, "controller", nil, resourcelock.ResourceLockConfig{Identity: must(os.Hostname())}))
	options := manager.Options{LeaderElectionReleaseOnCancel: true, Metrics: server.Options{BindAddress: "0"}}
	leasemanager.Elect(&options, lock)
	m := must(manager.New(&rest.Config{}, options)) // or config.GetConfigOrDie()
	must(0, m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		fmt.Println("leading", lock.Lease().Token() != 0) // return when ctx ends
		stop()
		<-ctx.Done()
		return nil
	})))
	must(0, m.Start(ctx))
	must(0, lock.Close(context.Background()))
	// Output:
	// leading true
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
