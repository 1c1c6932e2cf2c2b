package serve

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// maxRecalled limits the size of remembered objects, in bytes. Objects beyond that are read
// every time.
const maxRecalled = 16 << 20

// A recall remembers the objects in a read of all objects, so that the next one reads only
// changed ones. It skips objects listed with their remembered version, and makes other reads
// conditional. One read of all objects may use it at a time, with many requests at once.
type recall struct {
	mu   sync.Mutex
	look int // number of the current read of all objects
	of   map[string]*recalled
	size int
}

type recalled struct {
	object store.Object
	read   time.Time // when the answer arrived
	look   int       // the last one that confirmed it
}

// weight returns the bytes counted for the object.
func (o *recalled) weight() int { return len(o.object.Key) + len(o.object.Body) + 256 }

// now returns what a read would return now: the unchanged object, with the store's time moved
// forward.
func (o *recalled) now() *store.Object {
	object := o.object
	if !object.Date.IsZero() {
		object.Date = object.Date.Add(time.Since(o.read))
	}
	return &object
}

// begin begins a read of all objects, and returns the store to use for it.
func (r *recall) begin(st store.Store) store.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look++
	if r.of == nil {
		r.of = map[string]*recalled{}
	}
	return &recalling{st, r}
}

// end ends a successful read of all objects, and forgets those it has not met.
func (r *recall) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, o := range r.of {
		if o.look != r.look {
			r.forget(key)
		}
	}
}

// forget drops an object. The mutex is locked.
func (r *recall) forget(key string) {
	if o := r.of[key]; o != nil {
		r.size -= o.weight()
		delete(r.of, key)
	}
}

// keep remembers an object.
func (r *recall) keep(object store.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(object.Key)
	o := &recalled{object, time.Now(), r.look}
	if object.Version == "" || r.size+o.weight() > maxRecalled {
		return
	}
	r.of[object.Key], r.size = o, r.size+o.weight()
}

// listed notes an object's version in a listing.
func (r *recall) listed(e store.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.of[e.Key]; o != nil && e.Version != "" && o.object.Version == e.Version {
		o.look = r.look
	}
}

// known returns a remembered object, and whether the current read of all objects has confirmed
// it.
func (r *recall) known(key string) (o recalled, is, sure bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.of[key]; found != nil {
		return *found, true, found.look == r.look
	}
	return recalled{}, false, false
}

// A recalling store is the store of one read of all objects.
type recalling struct {
	store.Store
	recall *recall
}

func (s *recalling) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, is, sure := s.recall.known(key)
	switch {
	case unless != "" || !is:
		// pass it on as it is
	case sure:
		return o.now(), nil
	default:
		object, err := s.Store.Get(ctx, key, o.object.Version)
		if errors.Is(err, store.ErrNotModified) {
			date := store.DateOf(err)
			if date.IsZero() {
				date = o.now().Date
			}
			o.object.Date = date
			s.recall.keep(o.object)
			return &o.object, nil
		}
		return s.took(key, object, err)
	}
	object, err := s.Store.Get(ctx, key, unless)
	return s.took(key, object, err)
}

// took notes the answer to a read.
func (s *recalling) took(key string, object *store.Object, err error) (*store.Object, error) {
	switch {
	case err == nil:
		kept := *object
		kept.Key = key
		s.recall.keep(kept)
	case errors.Is(err, store.ErrNotExist):
		s.recall.mu.Lock()
		s.recall.forget(key)
		s.recall.mu.Unlock()
	}
	return object, err
}

func (s *recalling) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range s.Store.List(ctx, prefix, after) {
			if err == nil {
				s.recall.listed(e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
