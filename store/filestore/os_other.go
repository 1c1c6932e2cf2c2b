//go:build !windows

package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// openFlags keep an open from following a link and from waiting for the other end of a FIFO.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|openFlags, 0) }
func rename(from, to string) error       { return os.Rename(from, to) }
func unlink(path string) error           { return os.Remove(path) }

// syncDir flushes the names in a directory. File systems with nothing to flush return an error
// that says so.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if err = f.Sync(); isAny(err, syscall.EINVAL, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// unusable returns why a file cannot have that name, or "".
func unusable(string) string { return "" }

// refused reports whether a system-specific error means that nothing was done.
func refused(error) bool { return false }

// owner returns user and group of a file.
func owner(info fs.FileInfo) (uid, gid int) {
	st := info.Sys().(*syscall.Stat_t) //nolint:errcheck // it is one on every Unix
	return int(st.Uid), int(st.Gid)
}

// ownerOf describes, for a message, who may open a file.
func ownerOf(info fs.FileInfo) string {
	uid, gid := owner(info)
	if info.Mode()&0o060 != 0 {
		return fmt.Sprintf("the user %d and the group %d", uid, gid)
	}
	return fmt.Sprintf("the user %d", uid)
}

// foreign reports whether the superuser has created a file in another user's directory.
func foreign(info, dir fs.FileInfo) bool {
	uid, _ := owner(info)
	dirUID, _ := owner(dir)
	return os.Geteuid() == 0 && uid != dirUID
}

// adopt gives a new file, or an own lock file, to the group of its directory, as far as the
// process may, and reports whether it belongs to that group. The superuser also gives it to the
// directory's owner: otherwise one command by an administrator would lock out the others.
func adopt(f *os.File, info, dir fs.FileInfo) (sameGroup bool) {
	_, gid := owner(info)
	wantUID, wantGID := owner(dir)
	switch {
	case foreign(info, dir):
	case gid == wantGID:
		return true
	default:
		wantUID = -1 // unchanged
	}
	return f.Chown(wantUID, wantGID) == nil
}

// shareLock sets who may open the lock file f of a directory. On a file system without
// permissions it fails, but there they cannot be too wide.
func shareLock(f *os.File, dir string) {
	info, d, ok := both(f, dir)
	if ok {
		same := adopt(f, info, d)
		_ = f.Chmod(lockMode(shown(dir, d), same))
	}
}

// shareObject lets users who may write the directory read a file in it.
func shareObject(f *os.File, dir string) { share(f, dir, objectMode) }

// shareDir lets users who may write the parent directory write a new directory in it. It does
// nothing if the file system has no permissions.
func shareDir(dir string) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|openFlags, 0)
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // nothing was written
	share(f, filepath.Dir(dir), directoryMode)
}

// share gives a new file or directory to the parent's group, with the permissions in mode. What
// the superuser has created, it also gives to the parent's owner.
func share(f *os.File, dir string, mode func(dir fs.FileMode, sameGroup bool) fs.FileMode) {
	info, d, ok := both(f, dir)
	if !ok || d.Mode()&0o020 == 0 && !foreign(info, d) {
		return // there is one writer, with its own umask
	}
	same := adopt(f, info, d)
	if need := mode(shown(dir, d), same); info.Mode()&need != need {
		_ = f.Chmod(info.Mode() | need)
	}
}

func both(f *os.File, dir string) (info, d fs.FileInfo, ok bool) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, false
	}
	d, err = os.Stat(dir)
	return info, d, err == nil
}

// shown returns a directory's mode as far as it describes the permissions of the group: with an
// access control list, the group bits are the maximum for everyone on the list.
func shown(dir string, info fs.FileInfo) fs.FileMode {
	mode := info.Mode()
	if mode&0o020 != 0 && hasACL(dir) {
		mode &^= 0o070
	}
	return mode
}

// restrict corrects the mode of a lock file of this user, whose directory may have been given to
// a group since it was made. Processes that have opened it keep
// it open. A file with several names is left alone, because another user may have linked it to
// any file of this user.
func restrict(path string, info fs.FileInfo) {
	dir := filepath.Dir(path)
	d, err := os.Stat(dir)
	if err != nil {
		return
	}
	uid, gid := owner(info)
	_, group := owner(d)
	want := lockMode(shown(dir, d), gid == group)
	if uid != os.Geteuid() || info.Mode().Perm() == want && (gid == group || d.Mode()&0o020 == 0) {
		return
	}
	f, err := open(path)
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // nothing was written
	now, _ := f.Stat()
	if os.SameFile(info, now) && now.Sys().(*syscall.Stat_t).Nlink == 1 { //nolint:errcheck // it is one on every Unix
		shareLock(f, dir)
	}
}
