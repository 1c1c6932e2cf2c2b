// Package brokenstore makes stores that are wrong in one way, for the tests of what is to find
// them out.
package brokenstore

import (
	"context"
	"errors"
	"io"
	"iter"

	_ "github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A Store is a good one of which some methods were replaced.
type Store struct {
	*memstore.Store
	OnGet    func(ctx context.Context, key string, unless store.Version) (*store.Object, error)
	OnPut    func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error)
	OnDelete func(ctx context.Context, key string) error
	OnList   func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error]

	OnPutLarge func(ctx context.Context, key string, r io.Reader) (int64, error)
	OnGetLarge func(ctx context.Context, key string) (io.ReadCloser, int64, error)

	OnDeleteIf func(ctx context.Context, key string, v store.Version) error
}

// Get is OnGet, if that is set.
func (b *Store) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if b.OnGet == nil {
		return b.Store.Get(ctx, key, unless)
	}
	return b.OnGet(ctx, key, unless)
}

// Put is OnPut, if that is set.
func (b *Store) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if b.OnPut == nil {
		return b.Store.Put(ctx, key, body, only)
	}
	return b.OnPut(ctx, key, body, only)
}

// Delete is OnDelete, if that is set.
func (b *Store) Delete(ctx context.Context, key string) error {
	if b.OnDelete == nil {
		return b.Store.Delete(ctx, key)
	}
	return b.OnDelete(ctx, key)
}

// List is OnList, if that is set.
func (b *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	if b.OnList == nil {
		return b.Store.List(ctx, prefix, after)
	}
	return b.OnList(ctx, prefix, after)
}

// PutLarge is OnPutLarge, if that is set.
func (b *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	if b.OnPutLarge == nil {
		return b.Store.PutLarge(ctx, key, r)
	}
	return b.OnPutLarge(ctx, key, r)
}

// GetLarge is OnGetLarge, if that is set.
func (b *Store) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if b.OnGetLarge == nil {
		return b.Store.GetLarge(ctx, key)
	}
	return b.OnGetLarge(ctx, key)
}

// DeleteIf is OnDeleteIf, if that is set.
func (b *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if b.OnDeleteIf == nil {
		return b.Store.DeleteIf(ctx, key, v)
	}
	return b.OnDeleteIf(ctx, key, v)
}

// Force writes without a condition.
func (b *Store) Force(ctx context.Context, key string, body []byte) (*store.Object, error) {
	for {
		only := store.IfAbsent()
		if o, err := b.Store.Get(ctx, key, ""); err == nil {
			only = store.IfMatch(o.Version)
		}
		if o, err := b.Store.Put(ctx, key, body, only); !errors.Is(err, store.ErrPrecondition) {
			return o, err
		}
	}
}

// Now is the version that there is.
func (b *Store) Now(ctx context.Context, key string) (store.Version, bool) {
	o, err := b.Store.Get(context.WithoutCancel(ctx), key, "")
	if err != nil {
		return "", false
	}
	return o.Version, true
}

// PutThen replaces Put by one that does something to each answer.
func PutThen(change func(ctx context.Context, key string, o *store.Object, err error) (*store.Object, error)) func(*Store) {
	return func(b *Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			return change(ctx, key, o, err)
		}
	}
}

// GetThen replaces Get by one that does something to each answer.
func GetThen(change func(key string, o *store.Object, err error) (*store.Object, error)) func(*Store) {
	return func(b *Store) {
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			return change(key, o, err)
		}
	}
}

// ListThen replaces List by one that does something to the entries.
func ListThen(change func([]store.Entry) []store.Entry) func(*Store) {
	return func(b *Store) {
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				var entries []store.Entry
				for e, err := range b.Store.List(ctx, prefix, after) {
					if err != nil {
						yield(e, err)
						return
					}
					entries = append(entries, e)
				}
				for _, e := range change(entries) {
					if !yield(e, nil) {
						return
					}
				}
			}
		}
	}
}

// Bare is a store with the methods of [store.Store] only.
type Bare struct{ store.Store }
