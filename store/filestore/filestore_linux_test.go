package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

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
