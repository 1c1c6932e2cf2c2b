package filestore

import "io/fs"

// The permissions of what the store makes follow those of the directory that it lies in:
// the users that may write the directory share its locks, and nobody else does. Access
// control lists are not looked at.

// lockMode gives the mode of the lock file of a directory: those that may write the
// directory may open the file, and no others, because whoever can open it can lock it, and
// as long as it is locked no holder renews. sameGroup says that the file belongs to the
// directory's group. In a directory that is sticky, as /tmp, a user cannot write what
// belongs to another, so there only the owner of the file locks.
func lockMode(dir fs.FileMode, sameGroup bool) fs.FileMode {
	mode := fs.FileMode(0o600)
	switch {
	case dir&fs.ModeSticky != 0:
	case dir&0o033 == 0o033: // the users that are not of the group may write, and the group too
		mode |= 0o066
	case dir&0o030 == 0o030 && sameGroup:
		mode |= 0o060
	}
	return mode
}

// objectMode gives the permissions that an object needs besides those that the umask
// leaves it: users that write it in turn must be able to read it.
func objectMode(dir fs.FileMode, sameGroup bool) fs.FileMode {
	return lockMode(dir, sameGroup) & 0o044
}

// directoryMode gives the permissions that a directory needs which the store makes in
// another: the users that may write the one write objects in the other.
func directoryMode(dir fs.FileMode, sameGroup bool) fs.FileMode {
	switch lockMode(dir, sameGroup) {
	case 0o666:
		return 0o077
	case 0o660:
		return 0o070 | dir&fs.ModeSetgid
	}
	return 0
}
