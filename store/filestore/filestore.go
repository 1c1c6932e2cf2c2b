// Package filestore keeps objects as files, in a directory of this machine or
// in one that several machines share. Each key is a path below the directory
// and each file is the body as it is, so that a lock can be read with cat.
//
// # How a write lands
//
// The body is written to a temporary file beside the object and flushed to the
// disk. Only then is the advisory lock of that directory taken, on its file
// .leasehold.lock; under it the object's version, which is a hash of its body,
// is compared, and the temporary file renamed over the object. The lock is
// released, and the directory flushed before the write is answered. A read and a
// listing take no lock: they see the old file or the new one, never a part of one.
//
// A process that is killed, at any point, leaves the old object or the new one,
// and perhaps a temporary file, which a later writer removes when it is an hour
// old. The lock goes with the process that held it. A process that is stopped
// (SIGSTOP) in the short time that it holds the lock makes the others wait until
// it goes on or is killed: they report that the store is unavailable when their
// contexts end, and two writes never land on one condition.
//
// Power loss after an answer keeps the write, as far as the disk keeps what it
// says it has flushed. A file system that cannot flush a directory, and Windows,
// where a rename is only asked to be written through, may go back to the state
// before: then a token may be given out twice.
//
// # What a shared directory needs
//
// Advisory locks (flock, on Windows LockFileEx) that exclude each other between
// all machines, and reads that see the last rename: neither of names nor of
// files may anything older be served from a cache. For NFS that is version 4, or
// 3 with its lock daemon, mounted with noac and lookupcache=none; nolock and
// local_lock must not be set. A lock that the server takes away from a client
// that it cannot reach no longer protects what that client still sends.
//
// # Who may do what
//
// The permissions of the directory decide. The users that may write it share its
// locks; those that may only read it can look and list, and keep nobody out: the
// lock file can be opened by writers only, because whoever can open it can lock it,
// and while it is locked no holder renews.
//
// A directory for one user needs nothing. One for several belongs to a group of
// theirs and has the mode 2770, or 2775 if all others may look:
//
//	install -d -m 2770 -g GROUP DIR
//
// The store then gives the group what it needs of the files and directories that it
// makes in DIR, whatever the umask of who runs it. In a directory that is sticky, as
// /tmp, the first user that writes has it alone: make one below it. So it is with an
// access control list, which the store does not look at. On Windows the directory's
// list is inherited: give no right to read to users that should not lock.
//
// A lock file of an older version, which all users could read, is made what it should
// be when its owner next writes there.
//
// Anything but a regular file in the place of a lock file or an object (a link, a FIFO, a
// device) is refused and left as it is.
//
// Never delete .leasehold.lock while the directory is in use: two processes
// could then hold two locks. No directory needs to be of the same store: stores
// opened on /a and on /a/b exclude each other over what both can reach.
//
// # Keys
//
// Keys that the file system takes for one name are one object, as "A" and "a" are on
// macOS and Windows. No object can lie below another ("a/b" where "a" is
// one). A segment that begins with ".leasehold" is refused, on Windows also one
// that no file there can be named: with any of <>:"|?*, with a space or dot at
// its end, or a device such as NUL. Below the store's directory no symbolic link
// is followed: a key that leads over one is refused, and a listing leaves it out.
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

// Options change how a store makes files. The zero value is the default.
type Options struct {
	// FileMode is the mode of new objects, before the umask. If it is zero, that is
	// 0666, and what the umask takes from those that may write the directory, so that
	// they could not read the object, is given back. Lock files have modes of their own.
	FileMode fs.FileMode
	// DirMode is the mode of new directories, before the umask. If it is zero, that is
	// 0777, and those that may write the directory above may write the new one.
	DirMode fs.FileMode
	// Private makes 0600 and 0700 of the modes that are zero: whoever may not write the
	// directory may not read what the store makes in it either.
	Private bool
	// MustExist keeps the store from making its own directory: New fails with
	// ErrNoBucket if there is none, and so does every call later. A directory on a file system that may not be
	// mounted should be opened so, since one that is made in its place is seen by this
	// machine alone, and what is locked there may be locked elsewhere as well.
	MustExist bool
}

// Store is a [store.Store] in a directory. It is safe for concurrent use, also
// with other Stores and other processes on the same directory.
//
// LastModified is the file's, by the clock of the machine that keeps the
// directory. The same clock gives the Date of a Put, landed or refused, which is
// when its temporary file was written, and, from a file made for it, that of an
// ErrNotExist. The Date of other answers is zero, because the reader's clock
// need not be the one of the directory.
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

// New returns the store in dir. It makes nothing: the first create makes the directory
// if there is none, now or later, unless the options say otherwise. A nil opts means the
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

// String gives the file URL of the directory.
func (s *Store) String() string {
	path := filepath.ToSlash(s.dir)
	if !strings.HasPrefix(path, "/") { // C:/dir
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// Get reads the object, taking no lock. A context that ends does not stop a
// read that is under way.
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

// absent is the error of a read of what is not there.
func (s *Store) absent(key string, err error) error {
	if gone := s.there(); gone != nil {
		return failed("get", key, gone)
	}
	return &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist, Cause: err, Date: s.date()}
}

// Put writes the object if the condition holds. A context that ends while Put
// waits for the directory's lock ends the call, and nothing has landed; after
// that it no longer matters.
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

// write makes a file of what r yields, and of the file the object, if the condition
// holds; the zero condition always does. It returns when the file was written.
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
		_ = os.Remove(temp) // what stays is removed by a later writer
		return time.Time{}, &store.Error{Op: "put", Key: key, Kind: kind(err), Cause: err, Date: written}
	}
	if err := syncDir(dir); err != nil {
		return time.Time{}, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: err, Date: written}
	}
	return written, nil
}

// swap puts the file temp in the place of the object if the condition holds.
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

// compare says why nothing may be written to path.
func compare(path string, only store.Condition) error {
	var current store.Version
	absent := false
	switch o, err := read(path); {
	case err == nil:
		current = o.Version
	case errors.Is(err, fs.ErrNotExist):
		absent = true
	case !errors.Is(err, store.ErrTooLarge): // too large is there, of no version that a Put gave
		return err
	}
	if only.Valid() && (absent != only.Absent() || current != only.Match()) {
		return problemf(store.ErrPrecondition, "the condition was: %v", only)
	}
	return nil
}

// Delete removes the object, if there is one.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := check(ctx, "delete", key); err != nil {
		return err
	}
	return s.delete(ctx, key, store.Condition{})
}

// DeleteIf removes the object if it has that version, which is compared under the directory's lock, as that of a write.
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

// remove excludes writers: one that has compared must not find its object gone.
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
		if _, err := os.Lstat(path); err != nil { // it is gone since
			return err
		}
		if err := compare(path, only); err != nil {
			return err
		}
	}
	return renamed(unlink(path))
}

// date asks the directory for the time, or gives zero if it may not be written.
func (s *Store) date() time.Time {
	f, err := s.createTemp(s.dir)
	if err != nil {
		return time.Time{}
	}
	info, err := f.Stat()
	_ = errors.Join(f.Close(), os.Remove(f.Name())) // what stays is removed by a later writer
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
