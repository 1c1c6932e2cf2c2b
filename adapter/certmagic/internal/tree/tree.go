// Package tree keeps values of any size by paths in a store, and lists them as a file system would: what
// certmagic.Storage is without its locks.
//
// A value lies under values/, as it is, by its path with an "=" at its end; if it has over 1 MiB it lies under large/, which
// takes a store that is a [store.Large]. A write is conditional on what was there, and done again if that has changed: of two writers one
// comes last, and its value stays whole. Directories are what paths have in front of their slashes, and are gone with
// the last value in them.
package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
)

// A Tree is safe for concurrent use. Its calls honor the end of their contexts, and retry failures of the store for half
// a minute. An error matches fs.ErrNotExist if there is no such value or directory, and only then, and
// store.ErrInvalid if the path is none.
type Tree struct {
	st            store.Store
	values, large string // prefixes of keys
}

// New keeps a tree in st under values/ and large/.
func New(st store.Store) *Tree { return &Tree{st, "values/", "large/"} }

// Info describes a value or a directory.
type Info struct {
	Size     int64
	Modified time.Time // of a directory: of the newest value below it
	Dir      bool
}

// Store writes the value.
func (t *Tree) Store(ctx context.Context, path string, value []byte) error {
	object, err := t.objectOf(path)
	body := value
	if err == nil && liesApart(value) {
		body, err = t.storeApart(ctx, value)
	}
	if err != nil {
		return t.failed("store", path, err)
	}
	var before []byte
	unknown := false // a write may have landed, whatever comes then
	err = again(ctx, func(once context.Context) error {
		only := store.IfAbsent()
		now, failure := t.st.Get(once, object, "")
		switch {
		case failure == nil:
			only = store.IfMatch(now.Version)
			if !bytes.Equal(now.Body, body) { // else it may be what was written here a moment ago
				before = now.Body
			}
		case !errors.Is(failure, store.ErrNotExist):
			return failure
		}
		_, failure = t.st.Put(once, object, body, only)
		unknown = unknown || errors.Is(failure, store.ErrUnknownOutcome)
		if errors.Is(failure, store.ErrNotExist) { // it was deleted meanwhile
			failure = fmt.Errorf("%w: %w", store.ErrConflict, failure)
		}
		return failure
	})
	switch {
	case err == nil:
		t.drop(ctx, before)
	case liesApart(value) && !unknown:
		t.drop(ctx, body)
	}
	return t.failed("store", path, err)
}

// Load reads the value.
func (t *Tree) Load(ctx context.Context, path string) (value []byte, err error) {
	object, err := t.objectOf(path)
	if err == nil {
		err = again(ctx, func(once context.Context) error {
			o, failure := t.st.Get(once, object, "")
			if failure == nil {
				value, failure = t.content(ctx, o.Body)
			}
			return failure
		})
	}
	return value, t.failed("load", path, err)
}

// Delete deletes the value, and all below the path. That there is none is no error.
func (t *Tree) Delete(ctx context.Context, path string) error {
	object, err := t.objectOf(path)
	if err == nil {
		err = t.remove(ctx, object)
	}
	if err == nil {
		var objects []string
		objects, _, err = t.below(ctx, path)
		for i := 0; err == nil && i < len(objects); i++ {
			err = t.remove(ctx, objects[i])
		}
	}
	return t.failed("delete", path, err)
}

// remove deletes an object, and what it points to.
func (t *Tree) remove(ctx context.Context, object string) error {
	return again(ctx, func(ctx context.Context) error {
		o, err := t.st.Get(ctx, object, "")
		if errors.Is(err, store.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = t.st.Delete(ctx, object)
		}
		if err == nil {
			t.drop(ctx, o.Body)
		}
		return err
	})
}

// Stat describes what has the path: "" is the directory of all, which is always there.
func (t *Tree) Stat(ctx context.Context, path string) (Info, error) {
	if path != "" {
		info, err := t.statValue(ctx, path)
		if !errors.Is(err, store.ErrNotExist) {
			return info, t.failed("stat", path, err)
		}
	}
	objects, newest, err := t.below(ctx, path)
	if err == nil && len(objects) == 0 && path != "" {
		err = store.ErrNotExist
	}
	return Info{Modified: newest, Dir: true}, t.failed("stat", path, err)
}

func (t *Tree) statValue(ctx context.Context, path string) (info Info, err error) {
	object, err := t.objectOf(path)
	if err != nil {
		return info, err
	}
	err = again(ctx, func(once context.Context) error {
		o, failure := t.st.Get(once, object, "")
		if failure != nil {
			return failure
		}
		info = Info{int64(len(o.Body)), o.LastModified, false}
		if _, size, ok := t.pointer(o.Body); ok {
			info.Size = size
		}
		return nil
	})
	return info, err
}

// List gives the paths of values and directories in a directory, or with recursive of all below it, in no order. "" is
// the directory of all; a value has none. It costs one request for each 1000 values below dir, recursive or not.
func (t *Tree) List(ctx context.Context, dir string, recursive bool) (paths []string, err error) {
	objects, _, err := t.below(ctx, dir)
	skip := len(dir)
	if dir != "" {
		skip++
	}
	seen := map[string]bool{}
	for _, object := range objects {
		path, bad := t.pathOf(object)
		if bad != nil {
			continue
		}
		for end, depth := skip, 0; end < len(path) && (recursive || depth == 0); depth++ {
			end++ // past the slash, or into the name
			if i := strings.IndexByte(path[end:], '/'); i >= 0 {
				end += i
			} else {
				end = len(path)
			}
			if p := path[:end]; !seen[p] {
				seen[p] = true
				paths = append(paths, p)
			}
		}
	}
	if err == nil && len(paths) == 0 {
		_, err = t.Stat(ctx, dir)
		return nil, err
	}
	return paths, t.failed("list", dir, err)
}

// below lists the objects in a directory, and says when the newest was written.
func (t *Tree) below(ctx context.Context, dir string) (objects []string, newest time.Time, err error) {
	prefix, err := t.prefixOf(dir)
	if err != nil {
		return nil, newest, err
	}
	err = again(ctx, func(context.Context) error {
		objects, newest = nil, time.Time{}
		once, cancel := context.WithTimeout(ctx, transferTimeout)
		defer cancel()
		for e, err := range t.st.List(once, prefix, "") {
			if err != nil {
				return err
			}
			objects = append(objects, e.Key)
			if e.LastModified.After(newest) {
				newest = e.LastModified
			}
		}
		return nil
	})
	return objects, newest, err
}

// failed says of what an error is.
func (t *Tree) failed(op, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotExist):
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return fmt.Errorf("%s %q in %v: %w", op, path, t.st, err)
}

const (
	requestTimeout  = 10 * time.Second // some servers never answer one that came at a bad moment
	transferTimeout = time.Minute      // of a listing, or of a value that lies apart
	patience        = 30 * time.Second
)

// again calls f until it succeeds or fails for good, unless ctx has ended; after half a minute not anew. The context that
// f gets is for one small request or two.
func again(ctx context.Context, f func(ctx context.Context) error) (err error) {
	for n, begin := 1, time.Now(); ctx.Err() == nil; n++ {
		once, cancel := context.WithTimeout(ctx, requestTimeout)
		err = f(once)
		cancel()
		if err == nil || ctx.Err() == nil && (final(err) || time.Since(begin) >= patience) {
			return err
		}
		timer := time.NewTimer(protocol.Pause(n, []time.Duration{protocol.MinPause}))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	if err == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// final reports that to try again is of no use.
func final(err error) bool {
	missing := errors.Is(err, store.ErrNotExist) && !errors.Is(err, store.ErrConflict)
	return missing || errors.Is(err, store.ErrTooLarge) || store.Final(err)
}
