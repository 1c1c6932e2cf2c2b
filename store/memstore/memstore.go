// Package memstore keeps objects in the memory of one process. It is the reference for the
// behaviour of a store: for tests, for simulations, and for candidates in a single program.
//
// It starts no goroutines and never blocks while it holds its mutex, so it works inside a
// testing/synctest bubble.
package memstore

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// Store is a [store.Store] in memory. It is safe for concurrent use. Versions are never reused,
// not even for the same body under the same key.
//
// LastModified and Date are time.Now in full resolution, so a record's age is exact here, while
// most stores round it to whole seconds.
type Store struct {
	mu      sync.Mutex
	objects map[string]store.Object
	writes  uint64
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Large = (*Store)(nil)

	_ store.Conditional = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	return &Store{objects: make(map[string]store.Object)}
}

func (s *Store) String() string { return "mem://" }

// Get reads the object. It fails if the context has ended.
func (s *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if err := check(ctx, "get", key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	switch {
	case !ok:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist, Date: time.Now()}
	case unless == o.Version:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified, Date: time.Now()}
	case len(o.Body) > store.MaxBody:
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrTooLarge, Cause: fmt.Errorf("%d bytes, more than %d", len(o.Body), store.MaxBody), Date: time.Now()}
	}
	o.Body = bytes.Clone(o.Body)
	o.Date = time.Now()
	return &o, nil
}

// Put writes the object if the condition holds. Its outcome is never unknown.
func (s *Store) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := store.CheckPut(ctx, key, body, only); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	// An absent object has the version "", which is what IfAbsent matches.
	if s.objects[key].Version != only.Match() {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition, Date: now}
	}
	o := s.keep(key, append([]byte{}, body...), now) // not nil, so that an empty body stays one
	return &o, nil
}

// keep stores body under key, and returns the object without its body. The mutex must be held.
func (s *Store) keep(key string, body []byte, now time.Time) store.Object {
	s.writes++
	o := store.Object{
		Key:          key,
		Version:      store.Version(strconv.FormatUint(s.writes, 10)),
		LastModified: now,
		Date:         now,
	}
	kept := o
	kept.Body = body
	s.objects[key] = kept
	return o
}

// Delete removes the object, if it exists.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := check(ctx, "delete", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	return nil
}

// DeleteIf removes the object if it has that version.
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := store.CheckDeleteIf(ctx, key, v); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[key]; ok && o.Version != v {
		return &store.Error{Op: "delete", Key: key, Kind: store.ErrPrecondition, Date: time.Now()}
	}
	delete(s.objects, key)
	return nil
}

// List yields the objects as they were when the iteration began.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if err := ended(ctx, "list", prefix); err != nil {
			yield(store.Entry{}, err)
			return
		}
		for _, e := range s.entries(prefix, after) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *Store) entries(prefix, after string) []store.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var entries []store.Entry
	for key, o := range s.objects {
		if key > after && strings.HasPrefix(key, prefix) {
			entries = append(entries, store.Entry{
				Key:          key,
				Version:      o.Version,
				Size:         int64(len(o.Body)),
				LastModified: o.LastModified,
			})
		}
	}
	slices.SortFunc(entries, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries
}

func check(ctx context.Context, op, key string) error {
	if err := store.CheckKey(op, key); err != nil {
		return err
	}
	return ended(ctx, op, key)
}

func ended(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return &store.Error{Op: op, Key: key, Kind: store.ErrUnavailable, Cause: err}
	}
	return nil
}
