//go:build linux || darwin

package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/filestore"
)

// plants are what may lie in the place of a file without being one.
var plants = map[string]func(t *testing.T, path string){
	"a FIFO": func(t *testing.T, path string) {
		t.Helper()
		if err := unix.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
	},
	"a link to a file": func(t *testing.T, path string) {
		t.Helper()
		target := filepath.Join(t.TempDir(), "target")
		if err := os.WriteFile(target, []byte("body"), 0o666); err != nil { //nolint:gosec // that is what makes it dangerous
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	},
	"a link to nothing": func(t *testing.T, path string) {
		t.Helper()
		if err := os.Symlink(filepath.Join(t.TempDir(), "nothing"), path); err != nil {
			t.Fatal(err)
		}
	},
	"a link to itself": func(t *testing.T, path string) {
		t.Helper()
		if err := os.Symlink(path, path); err != nil {
			t.Fatal(err)
		}
	},
	"a directory": func(t *testing.T, path string) {
		t.Helper()
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	},
	"a socket": func(t *testing.T, path string) {
		t.Helper()
		t.Chdir(filepath.Dir(path)) // a socket's path may not be long
		ln, err := net.Listen("unix", filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
	},
	"a device": func(t *testing.T, path string) {
		t.Helper()
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
			t.Skip("a device cannot be made here: ", err)
		}
	},
}

// allCalls are all that a store can be asked of a key, each as one that gives its error.
func allCalls(st *filestore.Store, key string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"get": func(ctx context.Context) error {
			_, err := st.Get(ctx, key, "")
			return err
		},
		"get large": func(ctx context.Context) error {
			_, _, err := st.GetLarge(ctx, key)
			return err
		},
		"create": func(ctx context.Context) error {
			_, err := st.Put(ctx, key, []byte("body"), store.IfAbsent())
			return err
		},
		"update": func(ctx context.Context) error {
			_, err := st.Put(ctx, key, []byte("body"), store.IfMatch("v"))
			return err
		},
		"put large": func(ctx context.Context) error {
			_, err := st.PutLarge(ctx, key, bytes.NewReader([]byte("body")))
			return err
		},
		"delete": func(ctx context.Context) error { return st.Delete(ctx, key) },
		"list": func(ctx context.Context) error {
			for _, err := range st.List(ctx, "", "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// wantError wants an error that says all that is known of it: what was done, to which object,
// and the error of the file system.
func wantError(t *testing.T, err error, op, key string, kind, cause error) {
	t.Helper()
	wantKind(t, err, kind)
	if e, ok := errors.AsType[*store.Error](err); ok && (e.Op != op || e.Key != key || !errors.Is(err, cause)) {
		t.Errorf("%v is of %q and %q, want %q and %q for %v", err, e.Op, e.Key, op, key, cause)
	}
}

// within ends the test if a call does not come back: nothing else would.
func within(t *testing.T, what string, do func(context.Context) error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do(t.Context()) }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s hangs", what)
		return nil
	}
}

// TestNoLockFile: a thing in the place of the lock file that is no file is not opened,
// since that need not end, and not locked, since others may have it under another name.
// Reads go on beside it. A FIFO there used to hang every call but Get, and a link was
// followed.
func TestNoLockFile(t *testing.T) {
	for name, plant := range plants {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir)
			create(t, st, "k", "first")
			lock := filepath.Join(dir, ".leasehold.lock")
			if err := os.Remove(lock); err != nil {
				t.Fatal(err)
			}
			plant(t, lock)
			before, err := os.Lstat(lock)
			if err != nil {
				t.Fatal(err)
			}
			for op, do := range allCalls(st, "k") {
				switch err := within(t, op, do); op {
				case "get", "get large", "list":
					if err != nil {
						t.Errorf("%s: %v", op, err)
					}
				default:
					wantKind(t, err, store.ErrRefused)
				}
			}
			if after, err := os.Lstat(lock); err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
				t.Errorf("%v was there; now it is %v, %v", before, after, err)
			}
			wantBody(t, st, "k", "first")
			if got, want := names(t, dir), []string{".leasehold.lock", "k"}; !slices.Equal(got, want) {
				t.Errorf("the directory has %q, want %q", got, want)
			}
		})
	}
}

// TestNoObject: what lies in the place of an object and is no file is no object: nothing
// waits for it, reads through it, or writes over it.
func TestNoObject(t *testing.T) {
	for name, plant := range plants {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir)
			create(t, st, "other", "body")
			plant(t, filepath.Join(dir, "k"))
			for op, do := range allCalls(st, "k") {
				err := within(t, op, do)
				if op == "list" {
					if err != nil {
						t.Errorf("list: %v", err)
					}
					continue
				}
				wantKind(t, err, store.ErrInvalid)
			}
			if got, want := keys(t, st, ""), []string{"other"}; !slices.Equal(got, want) {
				t.Errorf("the listing is %q, want %q", got, want)
			}
			if got, want := names(t, dir), []string{".leasehold.lock", "k", "other"}; !slices.Equal(got, want) {
				t.Errorf("the directory has %q, want %q", got, want)
			}
		})
	}
}

// TestMustExist: a store that makes no directory makes none, whatever it is asked, and no
// object is absent where there is no place for one.
func TestMustExist(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "not", "there")
	must := &filestore.Options{MustExist: true}
	if st, err := filestore.New(dir, must); !errors.Is(err, store.ErrNoBucket) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("New gave %v, %v", st, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	st, err := filestore.New(dir, must)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.RemoveAll(filepath.Dir(dir)); err != nil { // as if it were not mounted any more
		t.Fatal(err)
	}
	for _, key := range []string{"k", "jobs/k"} {
		for op, do := range allCalls(st, key) {
			wantKind(t, within(t, op, do), store.ErrNoBucket)
			if got := names(t, above); len(got) != 0 {
				t.Errorf("%s made %q", op, got)
			}
		}
	}
	if err = os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	create(t, st, "jobs/k", "body") // what lies in its directory is the store's to make
	wantBody(t, st, "jobs/k", "body")
}

// TestLooksMakeNothing: only a create makes the directory. New used to.
func TestLooksMakeNothing(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "not", "there")
	st := open(t, dir)
	for op, do := range allCalls(st, "k") {
		switch op {
		case "create", "put large":
			continue
		case "get", "get large":
			wantError(t, within(t, op, do), "get", "k", store.ErrNotExist, fs.ErrNotExist)
		case "update":
			wantError(t, within(t, op, do), "put", "k", store.ErrPrecondition, fs.ErrNotExist)
		default:
			if err := within(t, op, do); err != nil {
				t.Errorf("%s: %v", op, err)
			}
		}
		if got := names(t, above); len(got) != 0 {
			t.Errorf("%s made %q", op, got)
		}
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), st.Delete(t.Context(), "k")); err != nil { // there is nothing to lock
		t.Error(err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("a deletion of nothing made %q", got)
	}
	create(t, st, "k", "body")
}

// TestFileInPlaceOfTheDirectory: a file may have been put where the store would have made its
// directory. That will not pass: no test noticed when it was reported as if it would.
func TestFileInPlaceOfTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	st := open(t, dir)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for op, do := range allCalls(st, "k") {
		if op == "create" || op == "put large" {
			err := within(t, op, do)
			if wantKind(t, err, store.ErrInvalid); !strings.Contains(err.Error(), dir+" exists and is no directory") {
				t.Errorf("%s: %v does not say why", op, err)
			}
		}
	}
}

// TestDirectoryOfNoPlace: from a directory that is gone no other leads anywhere. No test
// noticed when the store was made of none.
func TestDirectoryOfNoPlace(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if st, err := filestore.New("dir", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("New gave %v, %v", st, err)
	}
}

// TestContextThatHasEnded: nothing is begun under a context that has ended. No test noticed
// when it was.
func TestContextThatHasEnded(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "k", "body")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for op, do := range allCalls(st, "k") {
		if err := do(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", op, err)
		}
	}
	wantBody(t, st, "k", "body")
}
