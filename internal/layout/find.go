package layout

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Found is a lock that lies in a store, in whatever layout.
type Found struct {
	Key    string
	store  store.Store
	epochs bool
}

// Find yields what may be locks whose keys begin with a prefix, by one listing.
func Find(ctx context.Context, st store.Store, prefix string) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		// The epochs of a lock need not lie side by side: those of another whose
		// name goes on where this one's ends may come between.
		found := map[string]bool{}
		for entry, err := range st.List(ctx, prefix, "") {
			if err != nil {
				yield(Found{}, err)
				return
			}
			lock, _, isEpoch := Epoch(entry.Key)
			switch {
			case isEpoch && (found[lock] || !strings.HasPrefix(lock, prefix)) || isSignpost(entry.Key):
				continue
			case isEpoch:
				found[lock] = true
			default:
				lock = entry.Key
			}
			if !yield(Found{lock, st, isEpoch}, nil) {
				return
			}
		}
	}
}

func isSignpost(key string) bool {
	i := strings.LastIndex(key, "/!")
	return i > 0 && Epochs{Key: key[:i]}.signpost(key) > 0
}

// Look reads the lock. It costs one Get, and one List before it if there are epochs,
// two if there are very many.
func (f Found) Look(ctx context.Context) (Snapshot, error) {
	key, n := f.Key, int64(0)
	if f.epochs {
		e := Epochs{Store: f.store, Key: f.Key}
		top, err := e.highest(ctx, 0)
		if err != nil || top.Key == "" {
			return Snapshot{}, err
		}
		key, n = top.Key, e.number(top.Key)
	}
	s, err := get(ctx, f.store, key, record.AnyLayout, "")
	if errors.Is(err, store.ErrNotExist) {
		return Snapshot{Date: store.DateOf(err)}, nil
	}
	if name := s.Record.Layout; err == nil && f.epochs != (name == EpochsName || name == EpochsIfMatchName) {
		return Snapshot{}, fmt.Errorf("the object %v is %w: it is a record, and its key is not one of its layout", Object{f.store, key}, record.ErrForeign)
	}
	s.Record.Epoch = n
	return s, err
}
