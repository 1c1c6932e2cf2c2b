package storetest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// deleteBreakages are stores that break the contract of store.Conditional.
var deleteBreakages = []breakage{
	{"deletes whatever is there", deleteIfOf(func(ctx context.Context, b *brokenstore.Store, key string, _ store.Version) error {
		return b.Store.Delete(ctx, key)
	}), []string{deleteIfOther, deleteIfRace}},
	{"looks, then deletes", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			for i := 0; i < 1000 && strings.HasPrefix(key, "race/") && only.Match() != ""; i++ {
				runtime.Gosched() // so that a deleter has looked
			}
			return b.Store.Put(ctx, key, body, only)
		}
		deleteIfOf(func(ctx context.Context, b *brokenstore.Store, key string, v store.Version) error {
			if now, _ := b.Now(ctx, key); now != v {
				return b.Store.DeleteIf(ctx, key, v)
			}
			for i := 0; i < 10000 && strings.HasPrefix(key, "race/"); i++ {
				if now, _ := b.Now(ctx, key); now != v {
					break
				}
				runtime.Gosched()
			}
			return b.Store.Delete(ctx, key)
		})(b)
	}, []string{deleteIfRace}},
	{"deletes never", deleteIfOf(func(context.Context, *brokenstore.Store, string, store.Version) error { return nil }), []string{deleteIfRemoves}},
	{"misses what is not there", deleteIfOf(func(ctx context.Context, b *brokenstore.Store, key string, v store.Version) error {
		if _, there := b.Now(ctx, key); !there {
			return &store.Error{Op: "delete", Key: key, Kind: store.ErrNotExist}
		}
		return b.Store.DeleteIf(ctx, key, v)
	}), []string{deleteIfAbsent}},
	{"deletes although the context has ended", deleteIfOf(func(ctx context.Context, b *brokenstore.Store, key string, v store.Version) error {
		if ended := ctx.Err(); ended != nil {
			_ = b.Store.DeleteIf(context.WithoutCancel(ctx), key, v)
			return &store.Error{Op: "delete", Key: key, Kind: store.ErrUnavailable, Cause: ended}
		}
		return b.Store.DeleteIf(ctx, key, v)
	}), []string{deleteIfUnknown}},
	{"takes no version for any", func(b *brokenstore.Store) {
		b.OnDeleteIf = func(ctx context.Context, key string, v store.Version) error {
			if v == "" {
				return b.Store.Delete(ctx, key)
			}
			return b.Store.DeleteIf(ctx, key, v)
		}
	}, []string{deleteIfZero}},
}

// deleteIfOf makes a DeleteIf that refuses bad arguments.
func deleteIfOf(f func(ctx context.Context, b *brokenstore.Store, key string, v store.Version) error) func(*brokenstore.Store) {
	return func(b *brokenstore.Store) {
		b.OnDeleteIf = func(ctx context.Context, key string, v store.Version) error {
			if err := store.CheckDeleteIf(ctx, key, v); errors.Is(err, store.ErrInvalid) {
				return err
			}
			return f(ctx, b, key, v)
		}
	}
}

func TestStoreThatIsNoConditional(t *testing.T) {
	for _, c := range cases {
		if !strings.HasPrefix(c.name, "conditional delete") {
			continue
		}
		violations, skipped := c.check(t.Context(), brokenstore.Bare{Store: memstore.New()})
		if len(violations) > 0 || !strings.Contains(skipped, "store.Conditional") {
			t.Errorf("%s: skipped with %q, after %v", c.name, skipped, violations)
		}
	}
}
