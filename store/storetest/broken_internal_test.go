package storetest

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A broken store is a good one of which some methods were replaced.
type broken struct {
	*memstore.Store
	get    func(ctx context.Context, key string, unless store.Version) (*store.Object, error)
	put    func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error)
	delete func(ctx context.Context, key string) error
	list   func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error]

	putLarge func(ctx context.Context, key string, r io.Reader) (int64, error)
	getLarge func(ctx context.Context, key string) (io.ReadCloser, int64, error)
}

func (b *broken) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if b.get == nil {
		return b.Store.Get(ctx, key, unless)
	}
	return b.get(ctx, key, unless)
}

func (b *broken) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if b.put == nil {
		return b.Store.Put(ctx, key, body, only)
	}
	return b.put(ctx, key, body, only)
}

func (b *broken) Delete(ctx context.Context, key string) error {
	if b.delete == nil {
		return b.Store.Delete(ctx, key)
	}
	return b.delete(ctx, key)
}

func (b *broken) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	if b.list == nil {
		return b.Store.List(ctx, prefix, after)
	}
	return b.list(ctx, prefix, after)
}

func (b *broken) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	if b.putLarge == nil {
		return b.Store.PutLarge(ctx, key, r)
	}
	return b.putLarge(ctx, key, r)
}

func (b *broken) GetLarge(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if b.getLarge == nil {
		return b.Store.GetLarge(ctx, key)
	}
	return b.getLarge(ctx, key)
}

// force writes without a condition.
func (b *broken) force(ctx context.Context, key string, body []byte) (*store.Object, error) {
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

func (b *broken) now(ctx context.Context, key string) (store.Version, bool) {
	o, err := b.Store.Get(context.WithoutCancel(ctx), key, "")
	if err != nil {
		return "", false
	}
	return o.Version, true
}

// putThen replaces Put by one that does something to each answer.
func putThen(change func(ctx context.Context, key string, o *store.Object, err error) (*store.Object, error)) func(*broken) {
	return func(b *broken) {
		b.put = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			return change(ctx, key, o, err)
		}
	}
}

// getThen replaces Get by one that does something to each answer.
func getThen(change func(key string, o *store.Object, err error) (*store.Object, error)) func(*broken) {
	return func(b *broken) {
		b.get = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			return change(key, o, err)
		}
	}
}

// listThen replaces List by one that does something to the entries.
func listThen(change func([]store.Entry) []store.Entry) func(*broken) {
	return func(b *broken) {
		b.list = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
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

func TestBrokenStoresAreCaught(t *testing.T) {
	for i, breakage := range slices.Concat(largeBreakages, breakages) {
		t.Run(breakage.name, func(t *testing.T) {
			t.Parallel()
			violations := Check(t.Context(), func() (store.Store, error) {
				b := &broken{Store: memstore.New()}
				breakage.apply(b)
				if i >= len(largeBreakages) {
					return bare{b}, nil // large bodies take their time
				}
				return b, nil
			})
			assertCited(t, violations, breakage.cited)
		})
	}
}

// TestEverySentenceIsDefended fails for a sentence that no broken store breaks:
// a case that cites it might be unable to fail.
func TestEverySentenceIsDefended(t *testing.T) {
	defended := []string{getTooLarge} // by TestPlantedBody
	for _, breakage := range slices.Concat(breakages, largeBreakages) {
		defended = append(defended, breakage.cited...)
	}
	for _, sentence := range sentences {
		if !slices.Contains(defended, sentence) {
			t.Errorf("no broken store breaks %q", sentence)
		}
	}
}

func assertCited(t *testing.T, violations []Violation, cited []string) {
	t.Helper()
	for _, sentence := range cited {
		if !slices.ContainsFunc(violations, func(v Violation) bool { return v.Sentence == sentence }) {
			t.Errorf("not cited: %q", sentence)
		}
	}
	if t.Failed() {
		for _, v := range violations {
			t.Logf("%s: %v", v.Case, v)
		}
	}
}
