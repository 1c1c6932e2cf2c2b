package filestore_test

import (
	"context"
	"errors"
	"io/fs"
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
	_, err := st.Put(t.Context(), "shut/new/k", []byte("first"), store.IfAbsent())
	wantError(t, err, "put", "shut/new/k", store.ErrDenied, fs.ErrPermission) // nothing has landed where its directory may not last
	_, err = st.Put(t.Context(), "shut/k", []byte("second"), store.IfMatch(was.Version))
	wantError(t, err, "put", "shut/k", store.ErrUnknownOutcome, fs.ErrPermission)
	if date := store.DateOf(err); date.Before(was.Date) {
		t.Errorf("it was written at %v, after %v", date, was.Date)
	}
	wantBody(t, st, "shut/k", "second")
	wantError(t, st.Delete(t.Context(), "shut/k"), "delete", "shut/k", store.ErrUnknownOutcome, fs.ErrPermission)
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

// ending is a context that ends after the first look at it.
type ending struct {
	context.Context
	looks int
}

func (e *ending) Err() error {
	if e.looks++; e.looks == 1 {
		return nil
	}
	return context.Canceled
}

// A context that has ended by the time that the lock is held keeps the write from landing. No
// test noticed when it landed.
func TestContextEndsAtTheLock(t *testing.T) {
	st := open(t, t.TempDir())
	_, err := st.Put(&ending{Context: t.Context()}, "k", []byte("body"), store.IfAbsent())
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_, err = st.Get(t.Context(), "k", "")
	wantKind(t, err, store.ErrNotExist)
}

// A directory may go once it was seen or made. An object that could not be created then is no
// object that somebody else has created: no test noticed when it was reported so.
func TestDirectoryGoesInTheMidst(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	st := open(t, "/proc/self/cwd") // it is there, and nothing can be made in it
	_, err := st.Put(t.Context(), "k", []byte("body"), store.IfAbsent())
	wantKind(t, err, store.ErrUnavailable)
	_, err = st.Put(t.Context(), "k", []byte("body"), store.IfMatch("v"))
	wantKind(t, err, store.ErrPrecondition)
}
