package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// timesOpen returns how many of this process's descriptors refer to the directory.
func timesOpen(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files are open, %v", len(files), err)
	}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && to == dir {
			n++
		}
	}
	return n
}

// TestWaitForLeaseOpensNothing: a wait for a locked directory leaves no file open between tries, and ends when the directory is
// unlocked.
func TestWaitForLeaseOpensNothing(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	open := func() int { return timesOpen(t, dir) }
	unlock, taken := lockDir(dir)
	if taken || open() != 1 {
		t.Fatalf("taken %v, and %d are open", taken, open())
	}
	for range 10 {
		if _, taken = lockDir(dir); !taken {
			t.Error("two have it locked")
		}
	}
	if n := open(); n != 1 {
		t.Errorf("while it is locked %d are open, want 1", n)
	}
	unlock()
	if unlock, taken = lockDir(dir); taken {
		t.Error("it is locked after its end")
	}
	unlock()
	if n := open(); n != 0 {
		t.Errorf("at the end %d are open", n)
	}
	if unlock, taken = lockDir(filepath.Join(dir, "none")); taken {
		t.Error("a directory that is not there is locked")
	}
	unlock()
}

// TestLeaseInUse: a command waits for a lease in use by another process until its timeout.
func TestLeaseInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := leaseFile(filepath.Join(dir, "lease"))
	first, err := f.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = f.lock(over); err == nil || err.Error() != "exit code 69: another leasehold uses a lease in "+dir {
		t.Errorf("the second ends with %v", err)
	}
	got := make(chan error)
	go func() {
		second, wrong := f.lock(t.Context())
		if wrong == nil {
			second()
		}
		got <- wrong
	}()
	first()
	if err = <-got; err != nil {
		t.Error(err)
	}
}

// TestReadableByOthers: which permissions count as readable by others.
func TestReadableByOthers(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "lease")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o700: false, 0o633: false, 0o640: true, 0o604: true} {
		if err := os.Chmod(at, mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if got := readableByOthers(info); got != want {
			t.Errorf("%v: %v", mode, got)
		}
	}
}

// TestSyncOfDirectory: a file system that cannot sync directories is not an error. One that fails to is.
func TestSyncOfDirectory(t *testing.T) {
	t.Parallel()
	here, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]error{here: nil, "/proc": nil, here + "/none": fs.ErrNotExist} {
		if err := syncDir(dir); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", dir, err, want)
		}
	}
	if n := timesOpen(t, here); n != 0 {
		t.Errorf("it is open %d times", n)
	}
	for err, want := range map[error]error{syscall.EINVAL: nil, syscall.ENOTSUP: nil, syscall.EIO: syscall.EIO} {
		if got := unlessUnsupported(&fs.PathError{Op: "sync", Path: here, Err: err}); !errors.Is(got, want) {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
