package quorumstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/storetest"
)

// TestConformance: a quorum of three or of five is a store like any other.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run([]string{3: "three", 5: "five"}[n], func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) store.Store { return inMemory(t, n) })
		})
	}
}

// inMemory is a quorum over so many stores in memory.
func inMemory(t *testing.T, n int) *quorumstore.Store {
	t.Helper()
	var members []store.Store
	for i := range n {
		members = append(members, named{memstore.New(), fmt.Sprintf("mem://%d", i)})
	}
	st, err := quorumstore.New(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	return st
}

// named is a store with a name of its own.
type named struct {
	*memstore.Store
	name string
}

func (n named) String() string { return n.name }

// TestAbandonedRead: an answer to an earlier read, which nobody waits for any more, does not say what there is now.
func TestAbandonedRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, other := newQuorum(t, 3)
		before := put(t, other, "lock", "1", store.IfAbsent())
		var slow []*place
		for _, p := range places {
			slow = append(slow, p.alias(p.name))
		}
		st := open(t, slow)
		put(t, st, "another", "x", store.IfAbsent()) // the configuration is known from here on
		synctest.Wait()
		for _, p := range slow {
			p.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "get", Key: "lock", Nth: 1, Delay: 5 * time.Second})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := st.Get(ctx, "lock", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want the end of the context", err)
		}
		put(t, other, "lock", "2", store.IfMatch(before))
		reads(t, st, "lock", "2")
		synctest.Wait()
	})
}

// TestListBesideOneBeingFilled: a member that is new has not yet what the others have, so a listing is not made of it.
func TestListBesideOneBeingFilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places, st := newQuorum(t, 3)
		places[1].Partition(true)
		put(t, st, "lock", "x", store.IfAbsent()) // which the second one has missed
		places[1].Partition(false)
		by := newPlace("mem://new")
		unfilled := faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", When: func(c faultstore.Call) bool { return c.Key == "lock" }}
		for _, p := range append(places[1:3:3], by) {
			p.Inject(unfilled)
		}
		if err := open(t, places, by).Replace(t.Context(), "mem://0", by); err == nil {
			t.Fatal("the new member is whole without the object")
		}
		for _, p := range append(places[1:3:3], by) {
			p.Clear()
		}
		places[2].Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "list", Delay: 2 * time.Second})
		var keys []string
		for e, err := range open(t, places, by).List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key)
		}
		if len(keys) != 1 {
			t.Errorf("%q are listed, want the one object", keys)
		}
		time.Sleep(time.Minute) // until all requests have ended
	})
}
