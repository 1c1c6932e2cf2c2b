package manager_test

import (
	"context"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	leasekubernetes "github.com/leasehold/leasehold/adapter/kubernetes"
	leasemanager "github.com/leasehold/leasehold/adapter/kubernetes/controllerruntime"
	"github.com/leasehold/leasehold/store/memstore"
)

func init() { manager.Ours = elect }

var st = memstore.New()

// elect has a manager elected by the adapter's lock, under the name of the lock that it was to have.
func elect(options *manager.Options, theirs resourcelock.Interface) resourcelock.Interface {
	lock, err := leasekubernetes.New(st, theirs.Describe(), nil, resourcelock.ResourceLockConfig{Identity: theirs.Identity()})
	if err != nil {
		panic(err)
	}
	leasemanager.Elect(options, lock)
	if f, ok := theirs.(fake.ControllableResourceLockInterface); ok {
		return controllable{options.LeaderElectionResourceLockInterface, f}
	}
	return options.LeaderElectionResourceLockInterface
}

// controllable is the adapter's lock under the control of their fake: the specs block elections by it, and read the
// records that the lock has accepted.
type controllable struct {
	resourcelock.Interface
	fake fake.ControllableResourceLockInterface
}

func (c controllable) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := c.Interface.Create(ctx, r); err != nil {
		return err
	}
	return c.fake.Create(ctx, r)
}

func (c controllable) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := c.Interface.Update(ctx, r); err != nil {
		return err
	}
	return c.fake.Update(ctx, r)
}

func (c controllable) BlockLeaderElection()   { c.fake.BlockLeaderElection() }
func (c controllable) UnblockLeaderElection() { c.fake.UnblockLeaderElection() }
