package resourcelock

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// Ours makes the adapter's lock. It stands in a variable, since what makes it imports this package.
var Ours func(name string, config ResourceLockConfig) Interface

// LeaseLock stands in the place of client-go's. The lock is the adapter's; the fake API server of the tests is
// asked before each call, and what it fails with is a fault on the way. What that says of a lock's state is no
// fault: of that the adapter's lock decides. If the test begins with a lock that this candidate holds, it is
// acquired first.
type LeaseLock struct {
	LeaseMeta  metav1.ObjectMeta
	Client     coordinationv1client.LeasesGetter
	LockConfig ResourceLockConfig
	Labels     map[string]string

	lease *coordinationv1.Lease
	ours  Interface
}

func (l *LeaseLock) inner() Interface {
	if l.ours == nil {
		l.ours = Ours(l.LeaseMeta.Name, l.LockConfig)
	}
	return l.ours
}

// fault is what the network does with a call.
func fault(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (l *LeaseLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	lease, err := l.Client.Leases(l.LeaseMeta.Namespace).Get(ctx, l.LeaseMeta.Name, metav1.GetOptions{})
	if err = fault(err); err != nil {
		return nil, nil, err
	}
	if lease != nil && l.ours == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == l.Identity() {
		if err = l.inner().Create(context.WithoutCancel(ctx), LeaderElectionRecord{HolderIdentity: l.Identity()}); err != nil {
			return nil, nil, err
		}
	}
	return l.inner().Get(ctx)
}

func (l *LeaseLock) object(r LeaderElectionRecord) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: l.LeaseMeta, Spec: LeaderElectionRecordToLeaseSpec(&r)}
}

func (l *LeaseLock) Create(ctx context.Context, r LeaderElectionRecord) error {
	_, err := l.Client.Leases(l.LeaseMeta.Namespace).Create(ctx, l.object(r), metav1.CreateOptions{})
	if err = fault(err); err != nil {
		return err
	}
	return l.inner().Create(ctx, r)
}

func (l *LeaseLock) Update(ctx context.Context, r LeaderElectionRecord) error {
	_, err := l.Client.Leases(l.LeaseMeta.Namespace).Update(ctx, l.object(r), metav1.UpdateOptions{})
	if err = fault(err); err != nil {
		return err
	}
	return l.inner().Update(ctx, r)
}

func (l *LeaseLock) RecordEvent(s string) { l.inner().RecordEvent(s) }
func (l *LeaseLock) Describe() string     { return l.inner().Describe() }
func (l *LeaseLock) Identity() string     { return l.LockConfig.Identity }

func LeaseSpecToLeaderElectionRecord(s *coordinationv1.LeaseSpec) *LeaderElectionRecord {
	return &LeaderElectionRecord{
		HolderIdentity:       ptr.Deref(s.HolderIdentity, ""),
		LeaseDurationSeconds: int(ptr.Deref(s.LeaseDurationSeconds, 0)),
		AcquireTime:          metav1.Time(ptr.Deref(s.AcquireTime, metav1.MicroTime{})),
		RenewTime:            metav1.Time(ptr.Deref(s.RenewTime, metav1.MicroTime{})),
		LeaderTransitions:    int(ptr.Deref(s.LeaseTransitions, 0)),
		Strategy:             ptr.Deref(s.Strategy, ""),
		PreferredHolder:      ptr.Deref(s.PreferredHolder, ""),
	}
}

func LeaderElectionRecordToLeaseSpec(r *LeaderElectionRecord) coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{
		HolderIdentity:       &r.HolderIdentity,
		LeaseDurationSeconds: ptr.To(int32(r.LeaseDurationSeconds)),
		AcquireTime:          ptr.To(metav1.MicroTime(r.AcquireTime)),
		RenewTime:            ptr.To(metav1.MicroTime(r.RenewTime)),
		LeaseTransitions:     ptr.To(int32(r.LeaderTransitions)),
		Strategy:             &r.Strategy,
		PreferredHolder:      &r.PreferredHolder,
	}
}
