package filestore_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store"
)

// The version of a body is the same for all who look, of whatever version of this package: no
// test noticed when it had a byte more.
func TestVersionOfABody(t *testing.T) {
	const want = "230d8358dc8e8890b4c58deeb62912ee"
	st := open(t, t.TempDir())
	if got := st.VersionOf([]byte("body")); got != want {
		t.Errorf("the version is %q, want %q", got, want)
	}
	if o := create(t, st, "k", "body"); o.Version != want {
		t.Errorf("put gave the version %q, want %q", o.Version, want)
	}
}

// A look at what is absent makes a file for its date, so it also removes what others that
// crashed have left, where nobody ever writes. No test noticed when it did not.
func TestLookSweeps(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, ".leasehold.tmp-left")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, dir).Get(t.Context(), "k", "")
	wantKind(t, err, store.ErrNotExist)
	if got := names(t, dir); !slices.Equal(got, nil) {
		t.Errorf("the directory has %q", got)
	}
}
