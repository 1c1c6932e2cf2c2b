package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/windows"
)

// openFlags: Windows has no FIFOs among its files, and that nothing is a link is checked
// before and after.
const openFlags = 0

// On Windows the access control list of the directory says who may open what lies in it.
func shareLock(*os.File, string)   {}
func shareObject(*os.File, string) {}
func shareDir(string)              {}
func restrict(string, fs.FileInfo) {}
func ownerOf(fs.FileInfo) string   { return "the users on its access control list" }

// syncDir: a directory cannot be flushed here. rename writes through.
func syncDir(string) error { return nil }

func open(path string) (f *os.File, err error) {
	err = retry(func() error {
		f, err = os.Open(path)
		return err
	})
	return f, err
}

func rename(from, to string) error {
	old, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	err = retry(func() error {
		return windows.MoveFileEx(old, name, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
	})
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func unlink(path string) error {
	return retry(func() error { return os.Remove(path) })
}

// retry calls f again while it says that somebody has the file open: a name
// cannot be replaced while it is being read, nor read while it is replaced. The
// system calls that "access denied" as well, so a real denial is told late.
func retry(f func() error) error {
	const longest = 100 * time.Millisecond
	err := f()
	for wait := time.Millisecond; wait < longest && refused(err); wait *= 2 {
		time.Sleep(wait)
		err = f()
	}
	return err
}

// refused reports whether the system says in its own way that it did nothing.
func refused(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED) ||
		errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

// unusable says why no file can have that name, or "".
func unusable(segment string) string {
	switch {
	case strings.ContainsAny(segment, `<>:"|?*`):
		return `has one of <>:"|?*`
	case strings.HasSuffix(segment, ".") || strings.HasSuffix(segment, " "):
		return "ends with a dot or a space"
	case !filepath.IsLocal(segment):
		return "is the name of a device"
	}
	return ""
}
