package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/brokenstore"
	"github.com/leasehold/leasehold/store"
)

// A breakage makes a store that breaks the contract in one way, and names the
// sentences that must be cited for it.
type breakage struct {
	name  string
	apply func(*brokenstore.Store)
	cited []string
}

var breakages = []breakage{
	{"ignores IfAbsent", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if err := store.CheckPut(ctx, key, body, only); err != nil || !only.Absent() {
				return b.Store.Put(ctx, key, body, only)
			}
			return b.Force(ctx, key, body)
		}
	}, []string{putPrecondition, compareAndSwap}},
	{"ignores IfMatch", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if err := store.CheckPut(ctx, key, body, only); err != nil || only.Absent() {
				return b.Store.Put(ctx, key, body, only)
			}
			return b.Force(ctx, key, body)
		}
	}, []string{putPrecondition, compareAndSwap}},
	{"checks, then writes", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			v, there := b.Now(ctx, key)
			if err := store.CheckPut(ctx, key, body, only); err != nil || there == only.Absent() || v != only.Match() {
				return b.Store.Put(ctx, key, body, only)
			}
			runtime.Gosched()
			return b.Force(ctx, key, body)
		}
	}, []string{compareAndSwap}},
	{"refuses all in a race", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if strings.HasPrefix(key, "race/") && bytes.Contains(body, []byte("writer")) {
				return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}, []string{preconditionIsTrue, putWrites}},
	{"tells the winner of a race that it lost", brokenstore.PutThen(func(_ context.Context, key string, o *store.Object, err error) (*store.Object, error) {
		if err == nil && strings.HasPrefix(key, "race/") {
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrConflict}
		}
		return o, err
	}), []string{landedIsUnknown}},
	{"lands a race twice, the second unknown", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			if errors.Is(err, store.ErrPrecondition) && strings.HasPrefix(key, "race/") {
				_, _ = b.Force(ctx, key, body)
				return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome}
			}
			return o, err
		}
	}, []string{compareAndSwap}},
	{"repeats a write in secret", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if o, err := b.Store.Put(ctx, key, body, only); err != nil {
				return o, err
			}
			return b.Store.Put(ctx, key, body, only)
		}
	}, []string{landedIsUnknown}},
	{"says unavailable for a write that landed", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			if _, limited := ctx.Deadline(); err != nil || !limited {
				return o, err
			}
			<-ctx.Done()
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
		}
	}, []string{putUnknown}},
	{"reads what was before the last write", func(b *brokenstore.Store) {
		var mu sync.Mutex
		stale := make(map[string]*store.Object)
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			was, _ := b.Store.Get(context.Background(), key, "")
			o, err := b.Store.Put(ctx, key, body, only)
			if err == nil && was != nil {
				mu.Lock()
				stale[key] = was
				mu.Unlock()
			}
			return o, err
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			if o := stale[key]; o != nil {
				delete(stale, key)
				return o, nil
			}
			return b.Store.Get(ctx, key, unless)
		}
	}, []string{readsLatest}},
	{"shows a part of a body", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if only.Absent() || len(body) < 32<<10 || len(body) == store.MaxBody {
				return b.Store.Put(ctx, key, body, only)
			}
			o, err := b.Store.Put(ctx, key, body[:len(body)/2], only)
			if err != nil {
				return o, err
			}
			for range 100 {
				runtime.Gosched()
			}
			return b.Store.Put(ctx, key, body, store.IfMatch(o.Version))
		}
	}, []string{neverTorn}},
	{"never says not modified", func(b *brokenstore.Store) {
		b.OnGet = func(ctx context.Context, key string, _ store.Version) (*store.Object, error) {
			return b.Store.Get(ctx, key, "")
		}
	}, []string{getNotModified}},
	{"has a nil object for none", brokenstore.GetThen(func(_ string, o *store.Object, err error) (*store.Object, error) {
		if errors.Is(err, store.ErrNotExist) {
			return nil, nil //nolint:nilnil // that is what it does wrong
		}
		return o, err
	}), []string{getReads, getNotExist}},
	{"says that the bucket is missing for no object", brokenstore.GetThen(func(key string, o *store.Object, err error) (*store.Object, error) {
		if errors.Is(err, store.ErrNotExist) {
			return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNoBucket}
		}
		return o, err
	}), []string{getNotExist}},
	{"has errors without a kind", brokenstore.GetThen(func(key string, o *store.Object, err error) (*store.Object, error) {
		if errors.Is(err, store.ErrNotExist) {
			return nil, fmt.Errorf("get %q: %w", key, store.ErrNotExist)
		}
		return o, err
	}), []string{errorsTyped}},
	{"has errors of another key", brokenstore.GetThen(func(key string, o *store.Object, err error) (*store.Object, error) {
		if errors.Is(err, store.ErrNotExist) {
			return nil, &store.Error{Op: "get", Key: "prefix/" + key, Kind: store.ErrNotExist}
		}
		return o, err
	}), []string{errorsTyped}},
	{"has a kind of its own", brokenstore.PutThen(func(_ context.Context, key string, o *store.Object, err error) (*store.Object, error) {
		if errors.Is(err, store.ErrPrecondition) {
			return nil, &store.Error{Op: "put", Key: key, Kind: errors.New("status 412"), Cause: err}
		}
		return o, err
	}), []string{errorsTyped}},
	{"says conflict for a condition that does not hold", brokenstore.PutThen(func(_ context.Context, key string, o *store.Object, err error) (*store.Object, error) {
		if errors.Is(err, store.ErrPrecondition) {
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrConflict}
		}
		return o, err
	}), []string{putPrecondition}},
	{"hides the end of the context", brokenstore.PutThen(func(ctx context.Context, key string, o *store.Object, err error) (*store.Object, error) {
		if ctx.Err() != nil {
			return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnavailable}
		}
		return o, err
	}), []string{errorsTyped}},
	{"writes although the context has ended", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			return b.Store.Put(context.WithoutCancel(ctx), key, body, only)
		}
	}, []string{putEnded}},
	{"takes the zero condition", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if err := store.CheckPut(ctx, key, body, store.IfAbsent()); err != nil || only.Valid() {
				return b.Store.Put(ctx, key, body, only)
			}
			return b.Force(ctx, key, body)
		}
	}, []string{putRefuses}},
	{"keeps the beginning of a body over MaxBody", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			return b.Store.Put(ctx, key, body[:min(len(body), store.MaxBody)], only)
		}
	}, []string{putRefuses}},
	{"calls two bodies of one length the same version", func(b *brokenstore.Store) {
		// Update n of a key is named by its length, so IfMatch is ignored too.
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			if err := store.CheckPut(ctx, key, body, only); err != nil || only.Absent() {
				return sized(b.Store.Put(ctx, key, body, only))(len(body))
			}
			return sized(b.Force(ctx, key, body))(len(body))
		}
		b.OnGet = func(ctx context.Context, key string, _ store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, "")
			if err != nil {
				return nil, err
			}
			return sized(o, nil)(len(o.Body))
		}
	}, []string{versionsDiffer}},
	{"quotes the versions that Get gives", brokenstore.GetThen(func(_ string, o *store.Object, err error) (*store.Object, error) {
		if err == nil {
			o.Version = `"` + o.Version + `"`
		}
		return o, err
	}), []string{putWrites}},
	{"gives no version with a put", brokenstore.PutThen(func(_ context.Context, _ string, o *store.Object, err error) (*store.Object, error) {
		if err == nil {
			o.Version = ""
		}
		return o, err
	}), []string{zeroVersion}},
	{"returns nothing from a put", brokenstore.PutThen(func(_ context.Context, _ string, _ *store.Object, err error) (*store.Object, error) {
		return nil, err
	}), []string{putWrites}},
	{"returns another key", brokenstore.PutThen(func(_ context.Context, key string, o *store.Object, err error) (*store.Object, error) {
		if err == nil {
			o.Key = "prefix/" + key
		}
		return o, err
	}), []string{putWrites}},
	{"reads text as text", brokenstore.GetThen(func(_ string, o *store.Object, err error) (*store.Object, error) {
		if err == nil {
			o.Body = bytes.ReplaceAll(o.Body, []byte("\r\n"), []byte("\n"))
		}
		return o, err
	}), []string{getReads}},
	{"keeps the caller's slice", func(b *brokenstore.Store) {
		var mu sync.Mutex
		bodies := make(map[store.Version][]byte)
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				bodies[o.Version] = body
			}
			return o, err
		}
		b.OnGet = func(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
			o, err := b.Store.Get(ctx, key, unless)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				o.Body = bodies[o.Version]
			}
			return o, err
		}
	}, []string{getReads}},
	{"unescapes keys", func(b *brokenstore.Store) {
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, strings.ReplaceAll(key, "%41", "A"), body, only)
			if err == nil {
				o.Key = key
			}
			return o, err
		}
	}, []string{keysKept}},
	{"takes a key with a backslash", func(b *brokenstore.Store) {
		slash := strings.NewReplacer(`\`, "/")
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, slash.Replace(key), body, only)
			if err == nil {
				o.Key = key
			}
			return o, err
		}
	}, []string{keysChecked}},
	{"takes any key to read", brokenstore.GetThen(func(key string, o *store.Object, err error) (*store.Object, error) {
		if errors.Is(err, store.ErrInvalid) {
			return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotExist}
		}
		return o, err
	}), []string{keysChecked}},
	{"does not delete", func(b *brokenstore.Store) {
		b.OnDelete = func(_ context.Context, key string) error { return store.CheckKey("delete", key) }
	}, []string{deleteRemoves}},
	{"cannot delete twice", func(b *brokenstore.Store) {
		b.OnDelete = func(ctx context.Context, key string) error {
			if _, there := b.Now(ctx, key); !there && store.CheckKey("delete", key) == nil {
				return &store.Error{Op: "delete", Key: key, Kind: store.ErrNotExist}
			}
			return b.Store.Delete(ctx, key)
		}
	}, []string{deleteRemoves}},
	{"lists as a tree is walked", brokenstore.ListThen(func(entries []store.Entry) []store.Entry {
		slices.SortFunc(entries, func(a, b store.Entry) int {
			return slices.Compare(strings.Split(a.Key, "/"), strings.Split(b.Key, "/"))
		})
		return entries
	}), []string{listYields}},
	{"lists one page", brokenstore.ListThen(func(entries []store.Entry) []store.Entry {
		return entries[:min(len(entries), 1000)]
	}), []string{listYields}},
	{"lists whole segments only", func(b *brokenstore.Store) {
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			if prefix != "" && !strings.HasSuffix(prefix, "/") {
				prefix += "/"
			}
			return b.Store.List(ctx, prefix, after)
		}
	}, []string{listYields}},
	{"lists after and with the key", func(b *brokenstore.Store) {
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return b.Store.List(ctx, prefix, strings.TrimSuffix(after, "c"))
		}
	}, []string{listYields}},
	{"lists late", func(b *brokenstore.Store) {
		var mu sync.Mutex
		var last string
		b.OnPut = func(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
			o, err := b.Store.Put(ctx, key, body, only)
			mu.Lock()
			defer mu.Unlock()
			last = key
			return o, err
		}
		brokenstore.ListThen(func(entries []store.Entry) []store.Entry {
			mu.Lock()
			defer mu.Unlock()
			return slices.DeleteFunc(entries, func(e store.Entry) bool { return e.Key == last })
		})(b)
	}, []string{listShowsAnswered}},
	{"cannot stop a listing", func(b *brokenstore.Store) {
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				for e, err := range b.Store.List(ctx, prefix, after) {
					yield(e, err)
				}
			}
		}
	}, []string{listStopsEarly}},
	{"lists on after an error", func(b *brokenstore.Store) {
		b.OnList = func(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
			return func(yield func(store.Entry, error) bool) {
				ended := ctx.Err()
				for e, err := range b.Store.List(context.WithoutCancel(ctx), prefix, after) {
					if ended != nil && !yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrUnavailable, Cause: ended}) {
						return
					}
					if !yield(e, err) {
						return
					}
				}
			}
		}
	}, []string{listErrorLast}},
	{"dates answers by another clock", brokenstore.PutThen(func(_ context.Context, _ string, o *store.Object, err error) (*store.Object, error) {
		if err == nil {
			o.Date = o.Date.Add(-time.Hour)
		}
		return o, err
	}), []string{dateClock}},
}

func sized(o *store.Object, err error) func(int) (*store.Object, error) {
	return func(size int) (*store.Object, error) {
		if err == nil {
			o.Version = store.Version(fmt.Sprint("size ", size))
		}
		return o, err
	}
}
