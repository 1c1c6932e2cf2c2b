package leaderelection_test

import (
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasehold/leasehold"
	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
	"github.com/leasehold/leasehold/store/memstore"
)

func init() {
	resourcelock.Ours = func(name string, config resourcelock.ResourceLockConfig) resourcelock.Interface {
		lock, err := leasekubernetes.New(memstore.New(), name, &leasehold.LockOptions{TTL: 24 * time.Second}, config)
		if err != nil {
			panic(err)
		}
		return lock
	}
}
