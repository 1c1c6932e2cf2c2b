package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWaitForLeaseOpensNothing: a wait for a directory that another has locked leaves no file open, however long it is, and ends
// when the other does.
func TestWaitForLeaseOpensNothing(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	open := func() (n int) {
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
}

// TestSyncOfDirectory: a file system that cannot flush a directory is as good as one that has.
func TestSyncOfDirectory(t *testing.T) {
	t.Parallel()
	for dir, fails := range map[string]bool{t.TempDir(): false, "/proc": false, t.TempDir() + "/none": true} {
		if err := syncDir(dir); (err != nil) != fails {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
