package filestore

import (
	"io/fs"
	"testing"
)

// The permissions of what is made, by those of the directory that it lies in. Processes of
// other users test what comes of them; no test in this one noticed when they were others.
func TestModesByDirectory(t *testing.T) {
	for _, c := range []struct {
		dir                     fs.FileMode
		sameGroup               bool
		lock, object, directory fs.FileMode
	}{
		{0o700, true, 0o600, 0, 0},
		{0o755, true, 0o600, 0, 0},
		{0o720, true, 0o600, 0, 0}, // who may not enter it cannot lock in it
		{0o770, true, 0o660, 0o040, 0o070},
		{0o770, false, 0o600, 0, 0},
		{0o770 | fs.ModeSetgid, true, 0o660, 0o040, 0o070 | fs.ModeSetgid},
		{0o775, true, 0o660, 0o040, 0o070},
		{0o777, true, 0o666, 0o044, 0o077},
		{0o777, false, 0o666, 0o044, 0o077},
		{0o707, true, 0o600, 0, 0},
		{0o777 | fs.ModeSticky, true, 0o600, 0, 0},
		{0o770 | fs.ModeSticky, true, 0o600, 0, 0},
	} {
		lock, object, directory := lockMode(c.dir, c.sameGroup), objectMode(c.dir, c.sameGroup), directoryMode(c.dir, c.sameGroup)
		if lock != c.lock || object != c.object || directory != c.directory {
			t.Errorf("in %v, of the same group %t: a lock file %v, an object %v, a directory %v; want %v, %v, %v",
				c.dir, c.sameGroup, lock, object, directory, c.lock, c.object, c.directory)
		}
	}
}
