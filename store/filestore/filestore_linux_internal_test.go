//go:build linux

package filestore

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// On a file system without hard links a lock file is made all the same. Queues for messages
// are files of one that has none.
func TestFileSystemWithoutLinks(t *testing.T) {
	dir := shared(t, 0, 0, 0o700)
	runtime.LockOSThread() // for good: the thread is of no use to others
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWIPC), unix.Mount("mqueue", dir, "mqueue", 0, "")); err != nil {
		t.Skip("a file system cannot be mounted here: ", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	give(t, dir, 0, team, 0o770)
	lock := filepath.Join(dir, lockName)
	for range 2 {
		if err := makeLock(lock); err != nil {
			t.Fatal(err)
		}
		if got, want := possessionOf(t, lock), (possession{0, team, 0o660}); got != want {
			t.Errorf("the lock file is %+v, want %+v", got, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

// A file system that has nothing to flush in a directory says that the call is not for it, as
// /proc does. No test noticed when nothing could be written there.
func TestDirectoryWithNothingToFlush(t *testing.T) {
	if err := syncDir("/proc/self"); err != nil {
		t.Error(err)
	}
}

// A file that is shorter than it was said to be is not read as if it ended there. Those of
// /sys all say that they are a page long. No test noticed when the rest was zeros.
func TestFileShorterThanItsSize(t *testing.T) {
	if o, err := read("/sys/kernel/uevent_seqnum"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("it holds %+v, %v", o, err)
	}
}
