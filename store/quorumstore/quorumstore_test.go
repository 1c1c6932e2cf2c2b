package quorumstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/leasehold/leasehold/store"
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
