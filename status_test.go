package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestKindsOfChange: each has its number, which never changes, and its name.
func TestKindsOfChange(t *testing.T) {
	var names []string
	for k := leasehold.ChangeKind(-1); k <= 8; k++ {
		names = append(names, k.String())
	}
	want := []string{"change -1", "change 0", "elected", "renewed", "resigned", "expired", "taken over", "vanished", "unreadable", "change 8"}
	if !slices.Equal(names, want) || leasehold.Elected != 1 || leasehold.Unreadable != 7 {
		t.Errorf("%q, want %q", names, want)
	}
}

// TestStatus: what a candidate knows of itself, before it has done anything, while it leads, while it cannot
// reach the store, and when it has lost.
func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "me", Layout: leasehold.LayoutObject}})
		check := func(what string, want leasehold.Status) {
			t.Helper()
			got := e.Status()
			if got.HasLeader != (got.Leader.Holder == "me" && !got.Elected.IsZero()) && want.HasLeader {
				t.Errorf("%s: the leader is %+v since %v", what, got.Leader, got.Elected)
			}
			got.Leader, got.Elected = leasehold.Info{}, time.Time{}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s:\n%+v, want\n%+v", what, got, want)
			}
		}
		check("at first", leasehold.Status{Key: "leaders/scheduler", Holder: "me"})
		led, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := e.WaitForLeadership(led); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before it leads: %v", err)
		}
		began := time.Now()
		lease, err := e.Campaign(t.Context())
		if err != nil || e.WaitForLeadership(t.Context()) != nil {
			t.Fatal(err)
		}
		leads := leasehold.Status{
			Key: "leaders/scheduler", Holder: "me", Leading: true, HasLeader: true,
			LastSeen: began, NextLook: began.Add(protocol.Renewal(leasehold.DefaultTTL)), Requests: leasehold.Requests{Reads: 1, Writes: 1},
		}
		check("as it leads", leads)
		if s := e.Status(); !s.Elected.Equal(began) || s.Leader.Token != lease.Token() {
			t.Errorf("%+v", s)
		}
		st.Partition(true)
		time.Sleep(protocol.Renewal(leasehold.DefaultTTL))
		synctest.Wait()
		failing := time.Now()
		if s := e.Status(); s.Failures < 1 || !s.LastSeen.Equal(began) || !s.Leading || !s.FailingSince.Equal(failing) {
			t.Errorf("without its store: %+v", s)
		}
		<-lease.Done()
		if s := e.Status(); s.Failures < 2 || !s.FailingSince.Equal(failing) {
			t.Errorf("still without its store: %+v, want it to fail since %v", s, failing)
		}
		led, stop = context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := e.WaitForLeadership(led); !errors.Is(err, context.DeadlineExceeded) || e.Status().Leading {
			t.Errorf("when it has lost: %v, %+v", err, e.Status())
		}
		st.Partition(false)
		_ = lease.Release(t.Context())
		if s := e.Status(); s.Failures != 0 || !s.FailingSince.IsZero() {
			t.Errorf("with its store again: %+v", s)
		}
	})
}

// TestFailingSince: a store that answers reads and fails to write is one that fails. The reads in
// between used to make it look well: no two failures came in a row.
func TestFailingSince(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &refusing{Store: memstore.New(), ops: "put"}
		st.set(store.ErrUnavailable)
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			lease, err := e.Campaign(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			_ = lease.Release(t.Context())
		})
		time.Sleep(time.Minute)
		if s := e.Status(); s.FailingSince.Sub(began) > time.Second || s.FailingSince.IsZero() || time.Since(s.LastSeen) > 10*time.Second {
			t.Errorf("after a minute since %v: %+v", began, s)
		}
		st.mend()
		all.Wait()
		if s := e.Status(); !s.FailingSince.IsZero() {
			t.Errorf("when it can write: %+v", s)
		}
	})
}

// reading counts the reads that are under way, each of which takes an hour unless it is ended.
type reading struct {
	store.Store
	busy, all atomic.Int64
}

func (r *reading) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	r.all.Add(1)
	r.busy.Add(1)
	defer r.busy.Add(-1)
	select {
	case <-time.After(time.Hour):
	case <-ctx.Done():
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
	}
	return r.Store.Get(ctx, key, unless)
}

// TestEndOfALook: when nobody observes any more, the look under way is ended; not that of a campaign.
func TestEndOfALook(t *testing.T) {
	for _, campaigns := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			st := &reading{Store: memstore.New()}
			e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
			ctx, stop := context.WithCancel(t.Context())
			campaign, end := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				for range e.Observe(ctx) {
					t.Error("nothing happens")
				}
			})
			synctest.Wait()
			all.Go(func() { // which goes on with the look that is under way
				for range e.Observe(ctx) {
					t.Error("nothing happens")
				}
			})
			if time.Sleep(time.Second); st.all.Load() != 1 || e.Status().Failures != 0 {
				t.Errorf("for two that observe %d looks were begun: %+v", st.all.Load(), e.Status())
			}
			if campaigns {
				all.Go(func() { _, _ = e.Campaign(campaign) })
				synctest.Wait()
			}
			before := st.all.Load()
			stop()
			synctest.Wait()
			if busy, more := st.busy.Load(), st.all.Load()-before; (busy > 0) != campaigns || more > 0 {
				t.Errorf("campaigns %v: %d looks are under way, and %d were begun", campaigns, busy, more)
			}
			end()
			all.Wait()
			synctest.Wait()
		})
	}
}

// TestQueueWithoutThoseWhoGaveUp: who gives up in the queue takes nobody's turn, wherever he stands.
func TestQueueWithoutThoseWhoGaveUp(t *testing.T) {
	for gone := range 4 {
		bubble(t, func(t *testing.T) {
			lock := newLock(t, newStore(), nil)
			lease := acquire(t, lock)
			ctx, leave := context.WithCancel(t.Context())
			var served []int
			var all sync.WaitGroup
			for i := range 4 {
				of := t.Context()
				if i == gone {
					of = ctx
				}
				all.Go(func() {
					l, err := lock.Acquire(of)
					if (i == gone) != errors.Is(err, context.Canceled) {
						t.Errorf("%d, where %d gives up: %v", i, gone, err)
					}
					if err == nil {
						served = append(served, i)
						release(t, l)
					}
				})
				synctest.Wait()
			}
			leave()
			synctest.Wait()
			if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) || len(served) > 0 {
				t.Errorf("%d gave up, and the turn is free: %v, %v", gone, err, served)
			}
			release(t, lease)
			all.Wait()
			if want := slices.Delete([]int{0, 1, 2, 3}, gone, gone+1); !slices.Equal(served, want) {
				t.Errorf("%d gave up, and %v were served", gone, served)
			}
			release(t, acquire(t, lock))
		})
	}
}
