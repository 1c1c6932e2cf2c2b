package filestore_test

import (
	"errors"
	"os"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// TestPurge: a directory goes with all that is in it, and nothing else does.
func TestPurge(t *testing.T) {
	dir := t.TempDir()
	st, err := filestore.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"scratch/a", "scratch/b/c", "scratchy", "kept/a"} {
		if _, err = st.Put(t.Context(), key, []byte("x"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	n, err := st.Purge(t.Context(), "scratch")
	if n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err = os.Stat(dir + "/scratch"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, key := range []string{"scratchy", "kept/a"} {
		if _, err = st.Get(t.Context(), key, ""); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "..", "kept/../..", "/", ".leasehold.lock"} {
		n, err = st.Purge(t.Context(), bad)
		if n != 0 || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %d, %v", bad, n, err)
		}
	}
	if _, err = st.Purge(t.Context(), "never"); err != nil {
		t.Error(err)
	}
}
