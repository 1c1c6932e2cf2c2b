package filestore_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/leasehold/leasehold/store"
)

// The rename has happened, and that it will last could not be made sure: the directory can be
// written and not opened, so its names cannot be flushed. Nobody knows what a crash leaves. No
// test noticed when that was taken for a success.
func TestNamesThatCannotBeFlushed(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "open/k", "first")
	was := create(t, st, "shut/k", "first")
	if os.Geteuid() == 0 {
		asNobody(t, dir)
	}
	if err := os.Chmod(filepath.Join(dir, "shut"), 0o300); err != nil {
		t.Fatal(err)
	}
	_, err := st.Put(t.Context(), "shut/k", []byte("second"), store.IfMatch(was.Version))
	wantKind(t, err, store.ErrUnknownOutcome)
	wantBody(t, st, "shut/k", "second")
	wantKind(t, st.Delete(t.Context(), "shut/k"), store.ErrUnknownOutcome)
	_, err = st.Get(t.Context(), "shut/k", "")
	wantKind(t, err, store.ErrNotExist)
}

// A deletion waits for the lock of the directory, as a write does: a writer that has compared
// must not find its object gone. No test noticed when it did not.
func TestDeletionTakesTheLock(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "k", "first")
	other := flock.New(filepath.Join(dir, ".leasehold.lock"))
	if err := other.Lock(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := st.Delete(ctx, "k"); err == nil {
		t.Error("it was deleted while another had the lock")
	}
	wantBody(t, st, "k", "first")
	if err := other.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := st.Delete(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}
