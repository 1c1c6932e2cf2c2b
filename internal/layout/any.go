package layout

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
)

// ErrAmbiguous: there are locks of two layouts under one name, which do not notice each other.
var ErrAmbiguous = errors.New("the name has locks of two layouts")

const (
	// mostListed bounds a listing under an unknown name: a prefix taken for a lock may have
	// very many objects below it.
	mostListed = 10_000
	// mostLooks bounds how often changing epochs are read again.
	mostLooks = 8
)

// LookAny reads the lock with this name, in whatever layout. It reads every possible location,
// even after it has found one, because an unnoticed lock could be held. Two locks give
// ErrAmbiguous.
//
// If there is none, the Snapshot says so. If the object under the key is a lock and the listing
// failed, LookAny returns both the object's Snapshot and the listing's error.
//
// It costs one Get and one List; with epochs, one more Get, and one more List if there are very
// many. Epochs that change in between are read again, 8 times at most.
func LookAny(ctx context.Context, st store.Store, key string) (Snapshot, error) {
	one, err := Found{Key: key, store: st}.Look(ctx)
	if err == nil && one.Record.Layout == heartbeat {
		one, err = Snapshot{}, fmt.Errorf("the object %v is %w: it is the heartbeat of a session", Object{st, key}, record.ErrForeign)
	}
	foreign := errors.Is(err, record.ErrForeign)
	if err != nil && !foreign && !errors.Is(err, store.ErrInvalid) { // a directory has no object where there are some below
		return Snapshot{}, err
	}
	e := Epochs{Store: listedShortly{st}, Key: key}
	if e.Check() != nil {
		return one, err // no epoch could have such a key
	}
	many, failure := e.any(ctx, st)
	switch {
	case many.Exists && (one.Exists || foreign), errors.Is(failure, record.ErrForeign) && one.Exists:
		return Snapshot{}, fmt.Errorf("%w: %s and %s: give --layout, to say which one is meant", ErrAmbiguous, lookOf(one), lookOf(many))
	case many.Exists:
		return many, nil
	case failure != nil && !foreign:
		return one, failure
	}
	return one, err
}

// lookOf returns the user's name for what is there.
func lookOf(s Snapshot) string {
	switch name := s.Record.Layout.Name; {
	case !s.Exists:
		return "something that this version does not understand"
	case name == "":
		return "object"
	default:
		return name
	}
}

// any reads the highest epoch, whether the lock is used with If-Match or without. A record of another
// layout is an error; no record at all is not.
func (e Epochs) any(ctx context.Context, st store.Store) (Snapshot, error) {
	for range mostLooks {
		top, err := e.highest(ctx, 0)
		if err != nil || top.Key == "" {
			return Snapshot{}, err
		}
		s, err := get(ctx, st, top.Key, record.AnyLayout, "")
		switch {
		case errors.Is(err, store.ErrNotExist) || err == nil && store.Version(s.Version) != top.Version:
			continue // as in latest: it must be the very object that was listed
		case err != nil:
			return Snapshot{}, err
		case s.Record.Layout.Name != record.LayoutEpochs:
			return Snapshot{}, misplaced(st, top.Key)
		}
		return e.at(e.number(top.Key), s), nil
	}
	return Snapshot{}, &store.Error{Op: "list", Key: e.Key, Kind: store.ErrUnavailable, Cause: errMoved}
}

func misplaced(st store.Store, key string) error {
	return fmt.Errorf("the object %v is %w: it is a record, and its key is not one of its layout", Object{st, key}, record.ErrForeign)
}

// listedShortly is a store whose listings end with an error when they get too long.
type listedShortly struct{ store.Store }

func (s listedShortly) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for entry, err := range s.Store.List(ctx, prefix, after) {
			if n++; n > mostListed {
				yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrInvalid, Cause: errCrowded})
				return
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

var errCrowded = fmt.Errorf("more than %d objects lie below the lock's name, so its layout is not found out: give --layout", mostListed)
