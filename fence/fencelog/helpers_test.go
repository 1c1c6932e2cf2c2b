package fencelog_test

import (
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/fence/fencelog"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// newStore is an empty store with content hashes, behind a network that can be made bad.
func newStore(faults ...faultstore.Fault) *faultstore.Store {
	return fencecheck.NewStore(1, faults...)
}

func newLog(t *testing.T, st store.Store) *fencelog.Log {
	t.Helper()
	l, err := fencelog.New(st, "wal")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// bubble runs f in virtual time. Whatever it leaves running fails the test.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
