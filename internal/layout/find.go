package layout

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// Found is a lock in a store, in whatever layout.
type Found struct {
	Key    string
	store  store.Store
	epochs bool
}

// Find yields possible locks whose keys begin with a prefix, by one listing.
func Find(ctx context.Context, st store.Store, prefix string) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		// A lock's epochs need not be adjacent: those of another one, whose name begins with
		// this name, may come between.
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
		return Snapshot{}, err // nothing there is of use in any layout
	}
	t, no := record.DecodeTable(obj.Body)
	if no != nil {
		return s, err
	}
	t = mapSessions(t, func(way string) string { return follow(way, key) })
	s = snapshot(recordOf(t), obj)
	s.Table = &t
	return s, nil
}

// SnapshotOf returns a table as a Snapshot, without its times.
func SnapshotOf(t record.Table, v protocol.Version) Snapshot {
	return Snapshot{Exists: true, Record: recordOf(t), Version: v, Table: &t}
}

// recordOf returns what a table has in common with a lock's record.
func recordOf(t record.Table) record.Record {
	return record.Record{Layout: record.Layout{Name: record.LayoutTable}, Held: len(t.Holders) > 0, Token: t.Token}
}

// Look reads the lock or semaphore. It costs one Get. With epochs, it costs one List before
// that, or two if there are very many.
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
	if err == nil && f.epochs != (s.Record.Layout.Name == record.LayoutEpochs) {
		return Snapshot{}, misplaced(f.store, key)
	}
	s.Record.Epoch = n
	return s, err
}
