package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/leasehold/leasehold/store"
)

// usable returns an error if the file at path cannot be an object.
func usable(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return irregular(path, info)
	}
	return nil
}

func irregular(path string, info fs.FileInfo) error {
	return problemf(store.ErrInvalid, "%s is %s, not a file: use another key", path, kindOfFile(info.Mode()))
}

// kindOfFile describes a file that is not regular.
func kindOfFile(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

// openObject opens an object's file.
func openObject(path string) (*os.File, fs.FileInfo, error) {
	if err := usable(path); err != nil {
		return nil, nil, err
	}
	f, err := open(path)
	if err != nil {
		return nil, nil, err
	}
	return regular(path, f)
}

// regular checks the open file, because it may have been replaced since the check of the path.
func regular(path string, f *os.File) (*os.File, fs.FileInfo, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = irregular(path, info)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// read reads the file as an object without a key.
func read(path string) (*store.Object, error) {
	f, info, err := openObject(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if info.Size() > store.MaxBody {
		return nil, problemf(store.ErrTooLarge, "%s has %d bytes, more than %d", path, info.Size(), store.MaxBody)
	}
	body := make([]byte, info.Size())
	if _, err := io.ReadFull(f, body); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return &store.Object{Body: body, Version: version(body), LastModified: info.ModTime()}, nil
}

// VersionOf implements [store.Hashed].
func (s *Store) VersionOf(body []byte) store.Version { return version(body) }

// version returns the first 128 bits of the body's SHA-256.
func version(body []byte) store.Version {
	sum := sha256.Sum256(body)
	return store.Version(hex.EncodeToString(sum[:16]))
}
