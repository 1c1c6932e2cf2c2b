package layout

import (
	"context"
	"errors"
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

// getAny reads a record of any layout, or a table.
func getAny(ctx context.Context, st store.Store, key string) (Snapshot, error) {
	obj, failure := st.Get(ctx, key, "")
	s, err := decoded(st, key, record.AnyLayout, obj, failure)
	switch {
	case failure != nil || err == nil:
		return s, err
	case errors.Is(err, record.ErrMoved):
		return Snapshot{}, err // nothing lies there that a user of any layout could take
	}
	t, no := record.DecodeTable(obj.Body)
	if no != nil {
		return s, err
	}
	t = mapSessions(t, func(way string) string { return follow(way, key) })
	s = snapshot(RecordOf(t), obj)
	s.Table = &t
	return s, nil
}

// RecordOf is what a table has in common with the record of a lock.
func RecordOf(t record.Table) record.Record {
	return record.Record{Layout: record.LayoutTable, Held: len(t.Holders) > 0, Token: t.Token}
}

// Look reads the lock, or the semaphore. It costs one Get, and one List before it if there are epochs,
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
	s, err := getAny(ctx, f.store, key)
	if errors.Is(err, store.ErrNotExist) {
		return Snapshot{Date: store.DateOf(err)}, nil
	}
	if name := s.Record.Layout; err == nil && f.epochs != (name == EpochsName || name == EpochsIfMatchName) {
		return Snapshot{}, misplaced(f.store, key)
	}
	s.Record.Epoch = n
	return s, err
}
