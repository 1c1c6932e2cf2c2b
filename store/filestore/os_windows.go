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

// openFlags is 0: Windows has no FIFOs in directories, and links are checked before and after
// opening.
const openFlags = 0

// On Windows, the directory's access control list decides who may open its files.
func shareLock(*os.File, string)   {}
func shareObject(*os.File, string) {}
func shareDir(string)              {}
func restrict(string, fs.FileInfo) {}
func ownerOf(fs.FileInfo) string   { return "the users on its access control list" }

// syncDir does nothing, because directories cannot be flushed. rename writes through.
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

// retry repeats f while another process has the file open: a name cannot be replaced while it
// is being read, or read while it is being replaced. The system also calls that "access
// denied", so a real denial is reported late.
func retry(f func() error) error {
	const longest = 100 * time.Millisecond
	err := f()
	for wait := time.Millisecond; wait < longest && refused(err); wait *= 2 {
		time.Sleep(wait)
		err = f()
	}
	return err
}

// refused reports whether a system-specific error means that nothing was done.
func refused(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED) ||
		errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

// unusable returns why a file cannot have that name, or "".
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
