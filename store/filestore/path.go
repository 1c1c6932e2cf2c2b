package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/leasehold/leasehold/store"
)

// reserved is the prefix of files that are not objects.
const reserved = ".leasehold"

// path returns the path of the object. It fails if a parent exists but is not a directory.
func (s *Store) path(key string) (string, error) {
	segments := strings.Split(key, "/")
	for _, segment := range segments {
		if isReserved(segment) {
			return "", problemf(store.ErrInvalid, "the segment %q begins with %s, which this store keeps for itself", segment, reserved)
		}
		if why := unusable(segment); why != "" {
			return "", problemf(store.ErrInvalid, "no file can be named as the segment %q: it %s", segment, why)
		}
	}
	dir := s.dir
	last := len(segments) - 1
	for _, segment := range segments[:last] {
		dir = filepath.Join(dir, segment)
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // and neither does anything below it
		case err != nil:
			return "", err
		case !info.IsDir():
			return "", problemf(store.ErrInvalid, "%s is no directory, so there can be no objects below it: use another key", dir)
		}
	}
	return filepath.Join(dir, segments[last]), nil
}

// isReserved ignores case, as some file systems do.
func isReserved(segment string) bool {
	runes := []rune(segment)
	return strings.EqualFold(string(runes[:min(len(runes), len(reserved))]), reserved)
}

// mkdir creates a directory and its parents, and flushes each entry into the parent: otherwise
// a power loss could remove an object with its directory. A store that does not create its own
// directory still creates those below it.
func (s *Store) mkdir(dir string) error {
	if dir == s.dir && s.mustExist {
		return s.there()
	}
	err := os.Mkdir(dir, s.dirMode)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		if err = s.mkdir(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, s.dirMode)
	}
	if err == nil && s.shares && (len(dir) > len(s.dir) || isGroups(filepath.Dir(dir))) {
		shareDir(dir)
	}
	switch {
	case err == nil:
		return syncDir(filepath.Dir(dir))
	case isDir(dir): // it may exist, or be a drive that cannot be created
		return nil
	case errors.Is(err, fs.ErrExist):
		return problemf(store.ErrInvalid, "%s exists and is no directory", dir)
	}
	return err
}

// isGroups reports whether a directory outside of the store is set up for its group to share.
// Then one member's umask must not exclude the others.
func isGroups(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode()&fs.ModeSetgid != 0 && info.Mode()&0o020 != 0
}

// there returns an error if the store must not create its directory and it does not exist.
func (s *Store) there() error {
	if _, err := os.Stat(s.dir); s.mustExist && errors.Is(err, fs.ErrNotExist) {
		return problemf(store.ErrNoBucket, "%w: make the directory, or see that its file system is mounted", err)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
