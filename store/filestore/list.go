package filestore

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/leasehold/leasehold/store"
)

// List yields the objects in byte order of their keys. It reads one directory at a time and
// each file in it, because the version is a hash of the body. Files over MaxBody, which only
// PutLarge writes, are listed without a version.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		w := walk{s: s, ctx: ctx, prefix: prefix, after: after, yield: yield}
		err := ctx.Err()
		if err == nil {
			err = s.there()
		}
		if err == nil {
			err = w.begin()
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(store.Entry{}, failed("list", prefix, err))
		}
	}
}

var errStopped = errors.New("the caller has stopped the iteration")

// A walk is one listing in progress.
type walk struct {
	s             *Store
	ctx           context.Context
	prefix, after string
	yield         func(store.Entry, error) bool
}

// begin starts in the directory named by the prefix, to avoid reading those above it.
func (w *walk) begin() error {
	slash := strings.LastIndex(w.prefix, "/")
	if slash < 0 {
		return w.directory("", w.s.dir)
	}
	base := w.prefix[:slash]
	if store.CheckKey("list", base) != nil {
		return nil // the prefix cannot begin a key
	}
	path, err := w.s.path(base)
	if errors.Is(kind(err), store.ErrInvalid) {
		return nil
	}
	if err != nil {
		return err
	}
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return ignoreNotExist(err)
	}
	return w.directory(base+"/", path)
}

// directory lists the objects below path, whose keys all begin with above.
func (w *walk) directory(above, path string) error {
	found, err := w.names(path)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(found))
	for name := range found {
		if store.CheckKey("list", above+strings.TrimSuffix(name, "/")) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err = w.ctx.Err(); err != nil {
			return err
		}
		key, below := above+name, filepath.Join(path, name)
		switch {
		case !strings.HasSuffix(key, "/"):
			err = w.object(key, below)
		case w.mayHold(key):
			err = w.directory(key, below)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names returns the names in a directory that may be objects, and directories with a trailing
// slash. All keys below the directory d begin with "d/", so the order of these names is the
// order of the keys, and "d.x" comes before it.
//
// It takes no lock, because users who may only read the directory cannot lock it, and a slow
// listing must not block writers.
func (w *walk) names(path string) (map[string]bool, error) {
	return steady(w.ctx, func() (map[string]bool, bool, error) { return reading(path, readNames) })
}

// reading reads the names in a directory once, and reports whether it has changed meanwhile. A
// deleted directory has no names.
func reading(path string, read func(string) (map[string]bool, error)) (names map[string]bool, changed bool, err error) {
	before, err := os.Stat(path)
	if err != nil {
		return nil, false, ignoreNotExist(err)
	}
	if names, err = read(path); err != nil {
		return nil, false, ignoreNotExist(err)
	}
	after, err := os.Stat(path)
	return names, err != nil || !after.ModTime().Equal(before.ModTime()), nil
}

// maxReadings bounds how often a directory is read for one listing.
const maxReadings = 10

// steady reads names until two readings agree and nothing has changed during the last, and
// returns the names of all readings. POSIX does not guarantee that a reader sees a name while
// it is replaced, and some file systems move it to the end. So a name is missed only if it was
// replaced during each of the readings. Names that no longer exist by then are dropped when
// their objects are read.
func steady(ctx context.Context, read func() (names map[string]bool, changed bool, err error)) (map[string]bool, error) {
	all := make(map[string]bool)
	var last map[string]bool
	for n := range maxReadings {
		names, changed, err := read()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, names)
		if n > 0 && !changed && maps.Equal(names, last) {
			break
		}
		last = names
	}
	return all, nil
}

func readNames(path string) (map[string]bool, error) {
	entries, err := os.ReadDir(path)
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		switch {
		case isReserved(e.Name()):
		case e.Type().IsRegular():
			names[e.Name()] = true
		case e.IsDir():
			names[e.Name()+"/"] = true
		}
	}
	return names, err
}

// mayHold reports whether a directory can contain requested keys.
func (w *walk) mayHold(dir string) bool {
	return (strings.HasPrefix(dir, w.prefix) || strings.HasPrefix(w.prefix, dir)) &&
		(dir > w.after || strings.HasPrefix(w.after, dir))
}

func (w *walk) object(key, path string) error {
	if !strings.HasPrefix(key, w.prefix) || key <= w.after {
		return nil
	}
	e := store.Entry{Key: key}
	o, err := read(path)
	switch {
	case err == nil:
		e.Version, e.Size, e.LastModified = o.Version, int64(len(o.Body)), o.LastModified
	case errors.Is(err, fs.ErrNotExist) || errors.Is(kind(err), store.ErrInvalid):
		return nil // deleted or replaced by something else
	case errors.Is(err, store.ErrTooLarge):
		info, statErr := os.Lstat(path)
		if statErr != nil {
			return ignoreNotExist(statErr)
		}
		e.Size, e.LastModified = info.Size(), info.ModTime()
	default:
		return err
	}
	if !w.yield(e, nil) {
		return errStopped
	}
	return nil
}

func ignoreNotExist(err error) error {
	if isAny(err, fs.ErrNotExist, syscall.ENOTDIR) {
		return nil
	}
	return err
}
