package shard_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// A new coordinator writes the plan that it finds once more before it changes anything:
// only that makes a write fail which the former one has under way. No test noticed when it
// did not, since the plan that it writes next does the same, somewhat later.
func TestNewCoordinatorSealsThePlan(t *testing.T) {
	for name, joins := range map[string]bool{"nobody has come": false, "another waits for more": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := settledFleet(t)
				before, plans := f.last()
				former := f.coordinator()
				f.crash(former)
				if joins {
					f.start("d", nil)
				}
				for _, n := range f.living() { // that it is gone is known after the first plan
					n.st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: prefix + "/workers/" + former.worker.Status().Session, Delay: 2 * time.Second})
				}
				f.settle()
				f.mu.Lock()
				sealed := f.plans[plans]
				f.mu.Unlock()
				if sealed.Token <= before.Token || !slices.Equal(sealed.Workers, before.Workers) || !maps.Equal(sealed.Owners, before.Owners) {
					t.Errorf("the first plan of the new coordinator is\n%+v\nwant that of the former one with a larger token\n%+v", sealed, before)
				}
				looks := 0
				for _, e := range f.coordinator().st.Log() {
					if e.Op == "list" {
						looks++
					} else if e.Op == "put" && e.Key == prefix+"/plan" {
						break
					}
				}
				if looks != 1 {
					t.Errorf("it has written it after %d looks, want the first one", looks)
				}
				f.end()
			})
		})
	}
}

// A coordinator that learns only by the clock that its lease has ended, as after a suspend,
// writes no plan. No test noticed when it did not look.
func TestSuspendedCoordinatorWritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start, slept := time.Now(), new(atomic.Int64)
		t.Cleanup(clock.Set(func() time.Duration { return time.Since(start) + time.Hour + time.Duration(slept.Load()) }))
		f := settledFleet(t)
		c := f.coordinator()
		former := f.planToken()
		gone := f.other()
		membership := prefix + "/workers/" + gone.worker.Status().Session
		var late atomic.Int64
		c.st.Inject(
			// It is suspended while it sees that one is gone, and before it writes that.
			faultstore.Fault{Kind: faultstore.DelayBefore, Op: "list", Key: prefix + "/workers/", When: func(faultstore.Call) bool {
				if _, err := f.st.Get(t.Context(), membership, ""); errors.Is(err, store.ErrNotExist) {
					slept.Store(int64(time.Hour))
				}
				return false
			}},
			faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: prefix + "/plan", When: func(call faultstore.Call) bool {
				var p struct{ Token leasehold.Token }
				if err := json.Unmarshal(call.Body, &p); err == nil && p.Token == former && slept.Load() > 0 {
					late.Add(1)
				}
				return false
			}},
		)
		f.stop(gone)
		for slept.Load() == 0 || f.planToken() == former {
			time.Sleep(time.Second)
		}
		f.settle()
		if n := late.Load(); n > 0 {
			t.Errorf("%d plans were sent with the token of a lease that had ended", n)
		}
		f.end()
	})
}

// planToken is that of the last plan that was written.
func (f *fleet) planToken() leasehold.Token {
	f.t.Helper()
	p, _ := f.last()
	return p.Token
}
