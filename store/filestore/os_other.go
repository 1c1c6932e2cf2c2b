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

// openFlags keep an open from following a link and from waiting for the other end of a
// FIFO.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|openFlags, 0) }
func rename(from, to string) error       { return os.Rename(from, to) }
func unlink(path string) error           { return os.Remove(path) }

// syncDir flushes the names in a directory. A file system that has nothing to
// flush there says that the call is not for it.
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

// unusable says why no file can have that name, or "".
func unusable(string) string { return "" }

// refused reports whether the system says in its own way that it did nothing.
func refused(error) bool { return false }

// owner gives user and group of a file.
func owner(info fs.FileInfo) (uid, gid int) {
	st := info.Sys().(*syscall.Stat_t) //nolint:errcheck // it is one on every Unix
	return int(st.Uid), int(st.Gid)
}

// ownerOf says for a message who may open a file.
func ownerOf(info fs.FileInfo) string {
	uid, gid := owner(info)
	if info.Mode()&0o060 != 0 {
		return fmt.Sprintf("the user %d and the group %d", uid, gid)
	}
	return fmt.Sprintf("the user %d", uid)
}

// foreign reports whether the superuser has made a file in another user's directory.
func foreign(info, dir fs.FileInfo) bool {
	uid, _ := owner(info)
	dirUID, _ := owner(dir)
	return os.Geteuid() == 0 && uid != dirUID
}

// adopt gives a file that was just made, or a lock file of one's own, to the group of its
// directory, as far as the process may, and says whether it belongs to it. The superuser
// gives it to the directory's owner as well: else one command of an administrator's would
// lock the others out.
func adopt(f *os.File, info, dir fs.FileInfo) (sameGroup bool) {
	_, gid := owner(info)
	wantUID, wantGID := owner(dir)
	switch {
	case foreign(info, dir):
	case gid == wantGID:
		return true
	default:
		wantUID = -1 // as it is
	}
	return f.Chown(wantUID, wantGID) == nil
}

// shareLock sets who may open the lock file f of a directory. A file system that has no
// permissions says that it cannot, and has none that could be too wide.
func shareLock(f *os.File, dir string) {
	info, d, ok := both(f, dir)
	if ok {
		same := adopt(f, info, d)
		_ = f.Chmod(lockMode(shown(dir, d), same))
	}
}

// shareObject lets those that may write the directory read a file in it.
func shareObject(f *os.File, dir string) { share(f, dir, objectMode) }

// shareDir lets those that may write the directory above write a new one in it. A file
// system may have no permissions.
func shareDir(dir string) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|openFlags, 0)
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // nothing was written
	share(f, filepath.Dir(dir), directoryMode)
}

// share gives what was just made in a directory to its group, with the permissions that
// mode says, and what the superuser has made to the directory's owner.
func share(f *os.File, dir string, mode func(dir fs.FileMode, sameGroup bool) fs.FileMode) {
	info, d, ok := both(f, dir)
	if !ok || d.Mode()&0o020 == 0 && !foreign(info, d) {
		return // there is one writer, and the umask is its own
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

// shown is the mode of a directory as far as it says what the group may do: under an
// access control list it says what anybody on the list may do at most.
func shown(dir string, info fs.FileInfo) fs.FileMode {
	mode := info.Mode()
	if mode&0o020 != 0 && hasACL(dir) {
		mode &^= 0o070
	}
	return mode
}

// restrict sets anew who may open a lock file, if it is this user's and is not as it should
// be: an older version let all users read it, and since then the directory may have been
// given to a group. A process that has it open keeps it open. A file with several names is
// not touched: it may be any file of this user's to which another has made a link.
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
