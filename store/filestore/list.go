package filestore

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/store"
)

// List yields the objects in the byte order of their keys, reading a directory
// at a time and each file in it, since the version is made from the body. A file
// over MaxBody, which only PutLarge writes, is listed without a version.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		w := walk{s: s, ctx: ctx, prefix: prefix, after: after, yield: yield}
		err := ctx.Err()
		if err == nil {
			err = w.begin()
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(store.Entry{}, failed("list", prefix, err))
		}
	}
}

var errStopped = errors.New("the caller has stopped the iteration")

// A walk is one listing under way.
type walk struct {
	s             *Store
	ctx           context.Context
	prefix, after string
	yield         func(store.Entry, error) bool
}

// begin starts in the directory that the prefix names, so as not to read those
// above it.
func (w *walk) begin() error {
	slash := strings.LastIndex(w.prefix, "/")
	if slash < 0 {
		return w.directory("", w.s.dir)
	}
	base := w.prefix[:slash]
	if store.CheckKey("list", base) != nil {
		return nil // no key begins so
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

// directory lists what is below path, all of whose keys begin with above.
func (w *walk) directory(above, path string) error {
	entries, err := w.read(path)
	if err != nil {
		return err
	}
	// All keys below the directory d begin with "d/", so with that as its name
	// the order of the names is the order of the keys: "d.x" comes before it.
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch {
		case isReserved(e.Name()) || store.CheckKey("list", above+e.Name()) != nil:
		case e.Type().IsRegular():
			names = append(names, e.Name())
		case e.IsDir():
			names = append(names, e.Name()+"/")
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

// read reads the names in a directory while no writer changes them: of a name
// that is replaced meanwhile, POSIX does not promise that it is seen at all.
func (w *walk) read(path string) ([]fs.DirEntry, error) {
	if _, err := os.Lstat(filepath.Join(path, lockName)); err == nil {
		unlock, err := w.s.lock(w.ctx, path, shared)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	entries, err := os.ReadDir(path)
	return entries, ignoreNotExist(err)
}

// mayHold reports whether a key that begins with the directory's can be one
// that was asked for.
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
	case errors.Is(err, fs.ErrNotExist):
		return nil
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
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
