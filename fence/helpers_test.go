package fence_test

import (
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// newStore is an empty store with content hashes, behind a network that can be made bad.
func newStore(faults ...faultstore.Fault) *faultstore.Store {
	return fencecheck.NewStore(1, faults...)
}

func newObject(t *testing.T, st store.Store, opts *fence.ObjectOptions) *fence.Object {
	t.Helper()
	o, err := fence.NewObject(st, "state.json", opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// bubble runs f in virtual time. Whatever it leaves running fails the test.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
