package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/memstore"
)

// tried is one attempt to lead, which takes no time.
func tried(t *testing.T, e *leasehold.Election) (*leasehold.Lease, error) {
	t.Helper()
	began := time.Now()
	lease, err := e.TryCampaign(t.Context())
	if after := time.Since(began); after != 0 || (lease == nil) != (err != nil) {
		t.Errorf("after %v: %v, %v", after, lease, err)
	}
	return lease, err
}

// refusedBy checks that an attempt was refused, and who leads.
func refusedBy(t *testing.T, err error, leader string) {
	t.Helper()
	held, ok := errors.AsType[*leasehold.HeldError](err)
	if !ok || !errors.Is(err, leasehold.ErrHeld) || held.Info.Holder != leader || !held.Info.Held {
		t.Errorf("%v, and %s leads", err, leader)
	}
}

// TestTryCampaign: one attempt, which wins or says who leads, and what it has seen the election knows.
func TestTryCampaign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		b := budgets[here()]
		one := newCampaigner(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
		two := newCampaigner(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "b"}})
		lease, err := tried(t, one.Election)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(lasting(61 * time.Second)) // it is renewed, and not at this moment
		if leader, ok := one.Leader(); !ok || leader.Holder != "a" || leader.Token != lease.Token() || !one.IsLeader() || !one.Status().Leading {
			t.Errorf("it leads: %v, %+v", one.IsLeader(), leader)
		}
		if got := cost(two.net, func() { _, err = tried(t, two.Election) }); got != b.inspect {
			t.Errorf("an attempt that is refused: %v, want %v", got, b.inspect)
		}
		refusedBy(t, err, "a")
		if s := two.Status(); !s.HasLeader || s.Leading || s.Leader.Holder != "a" || !s.NextLook.IsZero() {
			t.Errorf("it was refused, and its status is %+v", s)
		}
		if got := cost(one.net, func() { _, err = tried(t, one.Election) }); got != (requests{}) {
			t.Errorf("an attempt of the leader: %v", got)
		}
		refusedBy(t, err, "a")
		if err = one.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lease, err = tried(t, two.Election); err != nil {
			t.Fatal(err)
		}
		_, err = tried(t, one.Election)
		refusedBy(t, err, "b")
		release(t, lease)
		if _, leads := two.Leader(); leads || two.IsLeader() {
			t.Error("it has released its lease, and leads")
		}
	})
}

// TestTryCampaignBesideOthers: under Run another attempt finds the leadership taken; one that was given up is
// undone; and ctx that has ended is told before anything is sent.
func TestTryCampaignBesideOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		c := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
		time.Sleep(time.Second)
		_, err := tried(t, c.Election)
		refusedBy(t, err, "a")
		c.quit(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if got := cost(c.net, func() { _, err = c.TryCampaign(ended) }); got != (requests{}) || !errors.Is(err, context.Canceled) {
			t.Errorf("the context had ended: %v, %v", got, err)
		}
		lease, err := tried(t, c.Election) // and the attempt that failed keeps nobody out
		if err != nil {
			t.Fatal(err)
		}
		release(t, lease)
	})
}

// An attempt right after the leader resigned, by a candidate that observes, was told that the leader leads:
// followers that wait let each other go first, each for a moment by lot.
func TestTryCampaignOfAnObserver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			st := memstore.New()
			one := newCampaigner(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
			two := newCampaigner(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "b"}})
			if _, err := tried(t, one.Election); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			resigned := make(chan bool)
			go func() {
				for c := range two.Observe(ctx) {
					if c.Kind == leasehold.Resigned {
						resigned <- true
					}
				}
			}()
			time.Sleep(time.Second)
			if err := one.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-resigned
			lease, err := two.TryCampaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			stop()
			release(t, lease)
			synctest.Wait()
		}
	})
}
