package serve

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/leasehold/leasehold/store"
)

// maxRecalled bounds what is remembered, in bytes. An object that does not fit is read again by each look.
const maxRecalled = 16 << 20

// A recall remembers what looks at everything have read, so that the next one reads only what has changed: of an object
// that the listing shows with the version that is remembered nothing is read, and any other read is conditional. One
// look uses it at a time, whose reads may be many at a time.
type recall struct {
	mu   sync.Mutex
	look int // counts them
	of   map[string]*recalled
	size int
}

// recalled is an object as it was read.
type recalled struct {
	object store.Object
	read   time.Time // when it was answered
	look   int       // that saw last that it is so
}

// weight is what remembering it takes.
func (o *recalled) weight() int { return len(o.object.Key) + len(o.object.Body) + 256 }

// now is what a read would be answered with now, as far as that is known: an object that has not changed, and the
// store's time, which has gone on.
func (o *recalled) now() *store.Object {
	object := o.object
	if !object.Date.IsZero() {
		object.Date = object.Date.Add(time.Since(o.read))
	}
	return &object
}

// begin begins a look by way of a store.
func (r *recall) begin(st store.Store) store.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look++
	if r.of == nil {
		r.of = map[string]*recalled{}
	}
	return &recalling{st, r}
}

// end ends a look at everything that has succeeded: what it did not come by is forgotten.
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

// keep takes in an object that was read.
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

// listed takes in that an object has a version.
func (r *recall) listed(e store.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.of[e.Key]; o != nil && e.Version != "" && o.object.Version == e.Version {
		o.look = r.look
	}
}

// known is what is remembered of an object, and whether this look knows that it is so.
func (r *recall) known(key string) (o recalled, is, sure bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.of[key]; found != nil {
		return *found, true, found.look == r.look
	}
	return recalled{}, false, false
}

// A recalling store is the store of one look.
type recalling struct {
	store.Store
	recall *recall
}

func (s *recalling) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, is, sure := s.recall.known(key)
	switch {
	case unless != "" || !is:
		// as it is asked for
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

// took takes in how a read was answered.
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
