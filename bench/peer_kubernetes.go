package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/leasehold/leasehold"
)

// A decider goes through terms: it campaigns, leads and resigns at once. Each write is one
// decision, and the store counts them.
type decider struct {
	name      string
	term      func(context.Context) error
	decisions func() int64
}

// The elections that are compared.
const (
	ownElection = "leasehold, election"
	bareElector = "client-go v0.37.2"
	fakeElector = "client-go v0.37.2, fake clientset"
)

// decisions measures how fast an election decides when its store answers at once.
func decisions(ctx context.Context, b *bench) error {
	deciders, err := openDeciders()
	if err != nil {
		return err
	}
	terms := 2000
	if b.short {
		terms = 50
	}
	for round := range b.rounds {
		err := turns(deciders, func(d decider) error {
			before := d.decisions()
			t, err := measure(terms, func() error { return d.term(ctx) })
			each := float64(d.decisions()-before) / float64(terms)
			b.add("decisions", "null", d.name, "decisions/s", round, 1e6*each/t.p50)
			b.add("decisions", "null", d.name, "allocations", round, t.allocs/each)
			return err
		})
		if err != nil {
			return err
		}
	}
	s := b.section("How fast an election decides")
	s.say("One candidate without rivals campaigns, leads and resigns at once, again and again, on a store that answers at once. A decision is a write: that it leads, that it still leads, that it resigns. leasehold encodes its record in that time; client-go hands over a structure, which its transport would encode, and there is none here. It also ran over its own fake clientset.")
	rows := [][]string{{"", "decisions a second", "allocations for each"}}
	for _, d := range deciders {
		rows = append(rows, []string{
			d.name, b.of("decisions", "null", d.name, "decisions/s").String(),
			number(b.of("decisions", "null", d.name, "allocations").median),
		})
	}
	s.table(rows)
	return nil
}

func openDeciders() ([]decider, error) {
	st := &null{}
	el, err := leasehold.NewElection(st, "election", nil)
	if err != nil {
		return nil, err
	}
	ours := decider{ownElection, func(ctx context.Context) error {
		if _, err := el.Campaign(ctx); err != nil {
			return err
		}
		return el.Resign(ctx)
	}, st.writes.Load}
	bare, err := openKubernetes(bareElector, &nullLeases{})
	if err != nil {
		return nil, err
	}
	clientset, err := openKubernetes(fakeElector, fake.NewSimpleClientset().CoordinationV1())
	return []decider{ours, bare, clientset}, err
}

// openKubernetes makes a LeaderElector with the intervals of Kubernetes' own components. No
// term lasts that long.
func openKubernetes(name string, leases coordination.LeasesGetter) (decider, error) {
	counted := &countedLock{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "election", Namespace: "default"},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: "candidate"},
	}}
	var resign context.CancelFunc
	el, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            counted,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { resign() },
			OnStoppedLeading: func() {},
		},
	})
	term := func(ctx context.Context) error {
		before := counted.writes
		ctx, resign = context.WithCancel(klog.NewContext(ctx, klog.Logger{})) // else each term is logged
		el.Run(ctx)
		if counted.writes < before+2 {
			return fmt.Errorf("%s: it wrote %d times in a term, not at least twice", name, counted.writes-before)
		}
		return nil
	}
	return decider{name, term, counted.decisions}, err
}

// A countedLock counts the writes. A LeaderElector writes from one goroutine.
type countedLock struct {
	resourcelock.Interface
	writes int64
}

func (l *countedLock) decisions() int64 { return l.writes }

func (l *countedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.writes++
	return l.Interface.Create(ctx, r)
}

func (l *countedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.writes++
	return l.Interface.Update(ctx, r)
}

// nullLeases take every write and encode nothing.
type nullLeases struct {
	coordination.LeaseInterface // nil: what is not here, nobody calls
	lease                       *v1.Lease
}

func (n *nullLeases) Leases(string) coordination.LeaseInterface { return n }

func (n *nullLeases) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Lease, error) {
	if n.lease == nil {
		return nil, apierrors.NewNotFound(v1.Resource("leases"), name)
	}
	return n.lease, nil
}

func (n *nullLeases) Create(_ context.Context, l *v1.Lease, _ metav1.CreateOptions) (*v1.Lease, error) {
	n.lease = l
	return l, nil
}

func (n *nullLeases) Update(_ context.Context, l *v1.Lease, _ metav1.UpdateOptions) (*v1.Lease, error) {
	n.lease = l
	return l, nil
}
