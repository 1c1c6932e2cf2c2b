// Package filestore keeps objects as files, in a directory of this machine or in one that
// several machines share. Each key is a path below the directory, and each file is exactly the
// body, so you can read a lock with cat.
//
// # How a write lands
//
// A write creates a temporary file beside the object and flushes it to the disk. Only then does
// it take the advisory lock of that directory, on the file .leasehold.lock. Under the lock it
// compares the object's version, which is a hash of its body, and renames the temporary file to
// the object. It then releases the lock, flushes the directory, and returns. Reads and listings
// take no lock: they see the old file or the new one, never a part of one.
//
// If a process is killed at any point, either the old object or the new one remains, and
// perhaps a temporary file, which a later writer removes when it is an hour old. The lock ends
// with its process. A process that is stopped (SIGSTOP) during the short time in which it holds
// the lock blocks other writers until it continues or is killed. They report that the store is
// unavailable when their contexts end, and two writes never land on one condition.
//
// After a power loss, a write that has returned is kept if the disk keeps what it has flushed.
// On a file system that cannot flush a directory, and on Windows, where write-through of a
// rename is only a request, the state before the write may come back: then a token may be used
// twice.
//
// # What a shared directory needs
//
// Advisory locks (flock, on Windows LockFileEx) must work between all machines, and reads must
// see the last rename: neither names nor files may be served from an outdated cache. For NFS,
// use version 4, or 3 with its lock daemon, mounted with noac and lookupcache=none, and without
// nolock or local_lock. If the server revokes the lock of a client that it cannot reach, that
// client's later requests are no longer protected.
//
// # Who may do what
//
// The directory's permissions decide. Users who may write it share its locks. Users who may
// only read it can read and list, but cannot lock out others: only writers can open the lock
// file, because whoever can open it can lock it, and then no holder can renew.
//
// A directory for one user needs no setup. For several users, create a directory of their group
// with the mode 2770, or 2775 if all others may read it:
//
//	install -d -m 2770 -g GROUP DIR
//
// The store then gives the group the permissions it needs on the files and directories it
// creates in DIR, whatever the umask. In a sticky directory, such as /tmp, only the first user
// who writes can use the store: create a directory below it. The same holds with an access
// control list, which the store ignores. On Windows, files inherit the directory's list: give
// no read permission to users who should not lock.
//
// If a lock file or an object is not a regular file, but a link, a FIFO or a device, for
// example, the store refuses it and leaves it as it is.
//
// Never delete .leasehold.lock while the directory is in use: two processes could then hold two
// locks. Directories need not belong to the same store: stores opened on /a and on /a/b exclude
// each other in the directories that both can reach.
//
// # Keys
//
// Keys the file system treats as the same name, such as "A" and "a" on macOS and Windows, are
// one object. An object cannot be below another ("a/b" if "a" is one). The store refuses
// segments that begin with ".leasehold". On Windows it also refuses segments that cannot be
// file names: those with any of <>:"|?*, with a space or dot at the end, or with a device name
// such as NUL. Symbolic links below the store's directory are not followed: keys that lead over
// one are refused, and listings omit them.
package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// Options are the options of [New]. The zero value means the defaults.
type Options struct {
	// FileMode is the mode of new objects, before the umask. Zero means 0666, and then the
	// users who may write the directory always get the permission to read the object, even if
	// the umask removes it. Lock files have modes of their own.
	FileMode fs.FileMode
	// DirMode is the mode of new directories, before the umask. Zero means 0777, and then the
	// users who may write the parent directory may also write the new one.
	DirMode fs.FileMode
	// Private changes the defaults of the modes to 0600 and 0700: only users who may write the
	// directory can read what the store creates in it.
	Private bool
	// MustExist keeps the store from creating its own directory: New and all later calls fail
	// with ErrNoBucket while it does not exist. Use it if the file system of the directory may
	// not be mounted. Otherwise the store would create a directory that only this machine sees,
	// and what is locked there may be locked elsewhere as well.
	MustExist bool
}

// Store is a [store.Store] in a directory. It is safe for concurrent use, also with other
// Stores and other processes on the same directory.
//
// LastModified is the file's modification time, by the clock of the machine that keeps the
// directory. The Date of a Put, landed or refused, is by the same clock, from its temporary
// file; the Date of an ErrNotExist is from a file created for it. The Date of other answers is
// zero, because the reader's clock may differ from that of the directory.
type Store struct {
	dir      string // absolute
	fileMode fs.FileMode
	dirMode  fs.FileMode
	places   sync.Map // of *place by path

	shares    bool // modes follow those of the directory
	mustExist bool
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Large = (*Store)(nil)

	_ store.Conditional = (*Store)(nil)
)

// New returns the store in dir. It creates nothing: the first create makes the directory if it
// does not exist, now or later, unless the options say otherwise. A nil opts means the
// defaults.
func New(dir string, opts *Options) (*Store, error) {
	if dir == "" {
		return nil, fmt.Errorf("filestore: %w: the directory has no name", store.ErrInvalid)
	}
	if opts == nil {
		opts = &Options{}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: %w: %w", store.ErrInvalid, err)
	}
	s := &Store{dir: abs, fileMode: opts.FileMode, dirMode: opts.DirMode, mustExist: opts.MustExist}
	s.shares = opts.FileMode == 0 && opts.DirMode == 0
	private := fs.FileMode(0)
	if opts.Private {
		private = 0o077
	}
	if s.fileMode == 0 {
		s.fileMode = 0o666 &^ private
	}
	if s.dirMode == 0 {
		s.dirMode = 0o777 &^ private
	}
	switch info, err := os.Stat(abs); {
	case err == nil && !info.IsDir():
		return nil, fmt.Errorf("filestore: %w: %s exists and is no directory", store.ErrInvalid, abs)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("filestore: %w: %w", kind(err), err)
	}
	if err := s.there(); err != nil {
		return nil, fmt.Errorf("filestore: %w: %w", kind(err), err)
	}
	return s, nil
}

// String returns the file URL of the directory.
func (s *Store) String() string {
	path := filepath.ToSlash(s.dir)
	if !strings.HasPrefix(path, "/") { // C:/dir
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// Get reads the object without a lock. The end of ctx does not stop a read in progress.
func (s *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := check(ctx, "get", key); err != nil {
		return nil, err
	}
	path, err := s.path(key)
	if err != nil {
		return nil, failed("get", key, err)
	}
	o, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, s.absent(key, err)
	case err != nil:
		return nil, failed("get", key, err)
	case o.Version == unless:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
	}
	o.Key = key
	return o, nil
}

// absent is the error of a read of a missing object.
func (s *Store) absent(key string, err error) error {
	if gone := s.there(); gone != nil {
		return failed("get", key, gone)
	}
	return &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist, Cause: err, Date: s.date()}
}

// Put writes the object if the condition holds. If ctx ends while Put waits for the directory's
// lock, Put fails and nothing has landed. Later the end of ctx has no effect.
func (s *Store) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := store.CheckPut(ctx, key, body, only); err != nil {
		return nil, err
	}
	written, err := s.write(ctx, key, bytes.NewReader(body), only)
	if err != nil {
		return nil, err
	}
	return &store.Object{Key: key, Version: version(body), LastModified: written, Date: written}, nil
}

// write replaces the object with the bytes of r if the condition holds; the zero condition
// always does. It returns the time of the write.
func (s *Store) write(ctx context.Context, key string, r io.Reader, only store.Condition) (time.Time, error) {
	path, err := s.path(key)
	dir := filepath.Dir(path)
	switch {
	case err != nil:
	case only.Match() == "":
		err = s.mkdir(dir)
	default:
		err = s.there()
	}
	if err != nil {
		return time.Time{}, failed("put", key, err)
	}
	temp, written, err := s.writeTemp(dir, r)
	if errors.Is(err, fs.ErrNotExist) && only.Match() != "" {
		return time.Time{}, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition, Cause: err}
	}
	if err != nil {
		return time.Time{}, failed("put", key, err)
	}
	s.sweep(dir, written)
	if err := s.swap(ctx, temp, path, only); err != nil {
		_ = os.Remove(temp) // if this fails, a later writer removes it
		return time.Time{}, &store.Error{Op: "put", Key: key, Kind: kind(err), Cause: err, Date: written}
	}
	if err := syncDir(dir); err != nil {
		return time.Time{}, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: err, Date: written}
	}
	return written, nil
}

// swap renames temp to the object's path if the condition holds.
func (s *Store) swap(ctx context.Context, temp, path string, only store.Condition) error {
	unlock, err := s.lock(ctx, filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	if err := compare(path, only); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return renamed(rename(temp, path))
}

// compare returns an error if the condition does not hold for the object at path.
func compare(path string, only store.Condition) error {
	var current store.Version
	absent := false
	switch o, err := read(path); {
	case err == nil:
		current = o.Version
	case errors.Is(err, fs.ErrNotExist):
		absent = true
	case !errors.Is(err, store.ErrTooLarge): // a file that is too large exists, with a version that no Put has returned
		return err
	}
	if only.Valid() && (absent != only.Absent() || current != only.Match()) {
		return problemf(store.ErrPrecondition, "the condition was: %v", only)
	}
	return nil
}

// Delete removes the object, if it exists.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := check(ctx, "delete", key); err != nil {
		return err
	}
	return s.delete(ctx, key, store.Condition{})
}

// DeleteIf removes the object if it has that version, which is compared under the directory's
// lock as in Put.
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := store.CheckDeleteIf(ctx, key, v); err != nil {
		return err
	}
	return s.delete(ctx, key, store.IfMatch(v))
}

// delete removes the object if the condition holds; the zero condition always does.
func (s *Store) delete(ctx context.Context, key string, only store.Condition) error {
	path, err := s.path(key)
	if err != nil {
		return failed("delete", key, err)
	}
	err = s.remove(ctx, path, only)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err = s.there(); err != nil {
			return failed("delete", key, err)
		}
		return nil
	case err != nil:
		return failed("delete", key, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return &store.Error{Op: "delete", Key: key, Kind: store.ErrUnknownOutcome, Cause: err}
	}
	return nil
}

// remove takes the lock, because a writer that has compared must not find its object deleted.
func (s *Store) remove(ctx context.Context, path string, only store.Condition) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	unlock, err := s.lock(ctx, filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	if err := usable(path); err != nil {
		return err
	}
	if only.Valid() {
		if _, err := os.Lstat(path); err != nil { // it was deleted since
			return err
		}
		if err := compare(path, only); err != nil {
			return err
		}
	}
	return renamed(unlink(path))
}

// date returns the directory's time, or zero if the directory is not writable.
func (s *Store) date() time.Time {
	f, err := s.createTemp(s.dir)
	if err != nil {
		return time.Time{}
	}
	info, err := f.Stat()
	_ = errors.Join(f.Close(), os.Remove(f.Name())) // if this fails, a later writer removes it
	if err != nil {
		return time.Time{}
	}
	s.sweep(s.dir, info.ModTime())
	return info.ModTime()
}

func check(ctx context.Context, op, key string) error {
	if err := store.CheckKey(op, key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return failed(op, key, err)
	}
	return nil
}
