package leasehold_test

import (
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/memstore"
)

// A marker that may not be swept yet is no trouble with the store: the candidate that waits
// for its holder, which is gone, used to be told that the store fails.
func TestWaitForMarkerIsNoTrouble(t *testing.T) {
	if here() != leasehold.LayoutObject {
		t.Skip("the same in every layout")
	}
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		candidate := func(holder string) *leasehold.Lock {
			lock, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{
				Layout: leasehold.LayoutMarker, Sweep: true, Holder: holder,
				OnTrouble: func(err error) { t.Errorf("%s has trouble: %v", holder, err) },
			})
			if err != nil {
				t.Fatal(err)
			}
			return lock
		}
		gone := acquire(t, candidate("gone"))
		next := acquire(t, candidate("next"))
		_ = next.Release(t.Context())
		_ = gone.Release(t.Context()) // which is lost
	})
}
