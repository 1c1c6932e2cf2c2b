package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// mount gives a file system of its own, of a quarter of a megabyte.
func mount(t *testing.T) string {
	t.Helper()
	return mountOf(t, "size=256k")
}

func mountOf(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skip("a file system cannot be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// In a directory that takes more than one call of the system to read, a name that is
// replaced between two of them can be missed; tmpfs puts it at the end, or the beginning.
// A listing used to lock all writers out instead.
func TestListLargeDirectoryWhileWriting(t *testing.T) {
	const others, listings = 1000, 20
	dir := mountOf(t, "size=64m")
	st := open(t, dir)
	busy := []string{"a", "m", "z"}
	for _, key := range busy {
		create(t, st, key, "0")
	}
	for i := range others {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("b-%0100d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for _, key := range busy {
		writing.Go(func() {
			for ctx.Err() == nil {
				if err := addOne(ctx, st, key); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for listing := range listings {
		got := keys(t, st, "")
		for _, key := range busy {
			if _, found := slices.BinarySearch(got, key); !found {
				t.Errorf("listing %d does not have %q", listing, key)
			}
		}
		if want := others + len(busy); len(got) != want {
			t.Errorf("listing %d has %d keys, want %d", listing, len(got), want)
		}
	}
	cancel()
	writing.Wait()
}

func TestDiskFull(t *testing.T) {
	dir := mount(t)
	st := open(t, dir)
	was := create(t, st, "k", "first")
	large := bytes.Repeat([]byte("x"), 300<<10)
	for _, only := range []store.Condition{store.IfMatch(was.Version), store.IfAbsent()} {
		_, err := st.Put(t.Context(), "k", large, only)
		wantKind(t, err, store.ErrUnavailable)
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("got %v, want it to match %v", err, unix.ENOSPC)
		}
	}
	wantBody(t, st, "k", "first")
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("the full directory has %q", got)
	}
	if _, err := st.Put(t.Context(), "k", []byte("second"), store.IfMatch(was.Version)); err != nil {
		t.Error(err)
	}
}

func TestReadOnly(t *testing.T) {
	dir := mount(t)
	st := open(t, dir)
	was := create(t, st, "k", "first")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := st.Put(t.Context(), "k", []byte("second"), store.IfMatch(was.Version))
	wantKind(t, err, store.ErrRefused) // nobody writes here until somebody mounts it anew
	wantKind(t, st.Delete(t.Context(), "k"), store.ErrRefused)
	_, err = st.Get(t.Context(), "absent", "")
	wantKind(t, err, store.ErrNotExist)
	if date := store.DateOf(err); !date.IsZero() {
		t.Errorf("a directory that cannot be written gave the Date %v", date)
	}
	wantBody(t, open(t, dir), "k", "first")
	if got := keys(t, st, ""); len(got) != 1 {
		t.Errorf("the listing is %q", got)
	}
}

func TestDenied(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "open/k", "first")
	was := create(t, st, "shut/k", "first")
	create(t, st, "sealed", "first")
	for name, mode := range map[string]os.FileMode{"shut": 0o555, "open": 0o000, "sealed": 0o000} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		asNobody(t, dir)
	}
	_, err := st.Put(t.Context(), "shut/k", []byte("second"), store.IfMatch(was.Version))
	wantKind(t, err, store.ErrDenied)
	_, err = st.Put(t.Context(), "shut/new/k", []byte("first"), store.IfAbsent())
	wantKind(t, err, store.ErrDenied)
	wantKind(t, st.Delete(t.Context(), "shut/k"), store.ErrDenied)
	for _, key := range []string{"open/k", "sealed"} { // for the second no test noticed when it was no denial
		_, err = st.Get(t.Context(), key, "")
		wantKind(t, err, store.ErrDenied)
	}
	for _, prefix := range []string{"open/", "open/far/", "open/far/below/", "open/far/k"} { // no test noticed when it seemed empty
		var errs []error
		for _, err := range st.List(t.Context(), prefix, "") {
			errs = append(errs, err)
		}
		if len(errs) != 1 {
			t.Fatalf("the listing of %q has %d entries and errors, want an error", prefix, len(errs))
		}
		wantKind(t, errs[0], store.ErrDenied)
	}
	wantBody(t, st, "shut/k", "first")
}

// asNobody makes the rest of the test, on its own thread, act on files as
// somebody who may not do everything, to whom dir belongs.
func asNobody(t *testing.T, dir string) {
	t.Helper()
	const nobody = 65534
	filestore.OpenToAll(t, dir)
	for _, path := range []string{dir, filepath.Join(dir, "open"), filepath.Join(dir, "shut"), filepath.Join(dir, "shut", "k"), filepath.Join(dir, "shut", ".leasehold.lock")} {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

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
