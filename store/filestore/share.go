package filestore

import "io/fs"

// The permissions of what the store creates follow those of its directory: exactly the users
// who may write the directory share its locks. Access control lists are ignored.

// lockMode returns the mode of a directory's lock file. Exactly the users who may write the
// directory may open it, because whoever can open it can lock it, and then no holder can renew.
// sameGroup reports whether the file belongs to the directory's group. In a sticky directory,
// such as /tmp, users cannot replace files of others, so there only the owner of the file can
// lock.
func lockMode(dir fs.FileMode, sameGroup bool) fs.FileMode {
	mode := fs.FileMode(0o600)
	switch {
	case dir&fs.ModeSticky != 0:
	case dir&0o033 == 0o033: // the group and all other users may write
		mode |= 0o066
	case dir&0o030 == 0o030 && sameGroup:
		mode |= 0o060
	}
	return mode
}

// objectMode returns the permissions an object needs in addition to those that the umask
// leaves: users who may replace it must be able to read it.
func objectMode(dir fs.FileMode, sameGroup bool) fs.FileMode {
	return lockMode(dir, sameGroup) & 0o044
}

// directoryMode returns the permissions a new directory needs: users who may write its parent
// write objects in it.
func directoryMode(dir fs.FileMode, sameGroup bool) fs.FileMode {
	switch lockMode(dir, sameGroup) {
	case 0o666:
		return 0o077
	case 0o660:
		return 0o070 | dir&fs.ModeSetgid
	}
	return 0
}
