package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// largeBreakages are stores that break the contract of store.Large.
var largeBreakages = []breakage{
	{"keeps half of a large body", func(b *brokenstore.Store) {
		b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
			body, err := io.ReadAll(r)
			if err != nil {
				return b.Store.PutLarge(ctx, key, failing{err})
			}
			return b.Store.PutLarge(ctx, key, bytes.NewReader(body[:(len(body)+1)/2]))
		}
	}, []string{putLargeWrites}},
	{"puts the parts of a large body together in another order", func(b *brokenstore.Store) {
		b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
			body, err := io.ReadAll(r)
			if err != nil {
				return b.Store.PutLarge(ctx, key, failing{err})
			}
			if part := 1 << 20; len(body) > 2*part {
				body = slices.Concat(body[part:2*part], body[:part], body[2*part:])
			}
			return b.Store.PutLarge(ctx, key, bytes.NewReader(body))
		}
	}, []string{getLargeOpens}},
	{"shows a large body in the making", func(b *brokenstore.Store) {
		b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
			half, err := io.ReadAll(io.LimitReader(r, severalParts/2))
			if err != nil || store.CheckKey("put", key) != nil || ctx.Err() != nil {
				return b.Store.PutLarge(ctx, key, failing{err})
			}
			_, _ = b.Store.PutLarge(ctx, key, bytes.NewReader(half))
			return b.Store.PutLarge(ctx, key, io.MultiReader(bytes.NewReader(half), r))
		}
	}, []string{putLargeWhole}},
	{"takes what failed for whole", putLargeOf(func(err error) bool { return err != nil }), []string{putLargeReader}},
	{"takes any EOF for the end", putLargeOf(func(err error) bool { return errors.Is(err, io.EOF) }), []string{putLargeReader}},
	{"takes an unexpected EOF for the end", putLargeOf(func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }), []string{putLargeReader}},
	{"hides why the reader failed", func(b *brokenstore.Store) {
		b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
			n, err := b.Store.PutLarge(ctx, key, r)
			if errors.Is(err, store.ErrInvalid) {
				err = &store.Error{Op: "put", Key: key, Kind: store.ErrInvalid}
			}
			return n, err
		}
	}, []string{putLargeReader}},
	{"writes a large body although the context has ended", func(b *brokenstore.Store) {
		b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
			return b.Store.PutLarge(context.WithoutCancel(ctx), key, r)
		}
	}, []string{putLargeEnded}},
	{"says unavailable for a large body that landed", func(b *brokenstore.Store) {
		b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
			if ctx.Err() != nil {
				return b.Store.PutLarge(ctx, key, r)
			}
			n, err := b.Store.PutLarge(context.WithoutCancel(ctx), key, r)
			if ended := ctx.Err(); err == nil && ended != nil {
				return 0, &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable, Cause: ended}
			}
			return n, err
		}
	}, []string{putLargeUnknown}},
	{"puts large bodies under any key", func(b *brokenstore.Store) {
		slash := strings.NewReplacer(`\`, "/")
		b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
			return b.Store.PutLarge(ctx, slash.Replace(key), r)
		}
	}, []string{keysChecked}},
	{"opens only large bodies", func(b *brokenstore.Store) {
		b.OnGetLarge = func(ctx context.Context, key string) (io.ReadCloser, int64, error) {
			if key == "large/put" {
				return nil, 0, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
			}
			return b.Store.GetLarge(ctx, key)
		}
	}, []string{getLargeOpens}},
	{"opens what is not there", func(b *brokenstore.Store) {
		b.OnGetLarge = func(ctx context.Context, key string) (io.ReadCloser, int64, error) {
			r, n, err := b.Store.GetLarge(ctx, key)
			if errors.Is(err, store.ErrNotExist) {
				return io.NopCloser(strings.NewReader("")), 0, nil
			}
			return r, n, err
		}
	}, []string{getLargeNotExist}},
	{"breaks off with EOF", brokenOff(io.EOF), []string{getLargeBreaks}},
	{"breaks off with an error without a kind", brokenOff(io.ErrUnexpectedEOF), []string{errorsTyped}},
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// putLargeOf makes a PutLarge to which some errors of the reader are its end.
func putLargeOf(end func(error) bool) func(*brokenstore.Store) {
	return func(b *brokenstore.Store) {
		b.OnPutLarge = func(ctx context.Context, key string, r io.Reader) (int64, error) {
			return b.Store.PutLarge(ctx, key, forgiving{r, end})
		}
	}
}

type forgiving struct {
	io.Reader
	end func(error) bool
}

func (f forgiving) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if f.end(err) {
		err = io.EOF
	}
	return n, err
}

// brokenOff makes a GetLarge whose bodies end with err in the middle.
func brokenOff(err error) func(*brokenstore.Store) {
	return func(b *brokenstore.Store) {
		b.OnGetLarge = func(ctx context.Context, key string) (io.ReadCloser, int64, error) {
			r, n, getErr := b.Store.GetLarge(ctx, key)
			if getErr != nil {
				return r, n, getErr
			}
			return io.NopCloser(io.MultiReader(io.LimitReader(r, n/2), failing{err})), n, nil
		}
	}
}

func TestStoreThatIsNoLarge(t *testing.T) {
	for _, c := range cases {
		violations, skipped := c.check(t.Context(), brokenstore.Bare{Store: memstore.New()})
		for _, v := range violations {
			t.Errorf("%s: %v", c.name, v)
		}
		if strings.HasPrefix(c.name, "large") != strings.Contains(skipped, "store.Large") {
			t.Errorf("%s: skipped with %q", c.name, skipped)
		}
	}
}
