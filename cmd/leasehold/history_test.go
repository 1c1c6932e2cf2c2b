package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A tiredStore denies all reads but the first.
type tiredStore struct {
	*memstore.Store
	reads int
}

func (s *tiredStore) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if s.reads++; s.reads > 1 {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrDenied}
	}
	return s.Store.Get(ctx, key, unless)
}

// TestHistoryOfFailingStore: where the store fails before it is known whether a lock without a past exists, that is said, and
// not that there is none.
func TestHistoryOfFailingStore(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	for _, tt := range []struct {
		st   store.Store
		code int
	}{
		{memory, exitAbsent},
		{&tiredStore{Store: memory}, exitDenied},
	} {
		var out, said bytes.Buffer
		a := &app{stdout: &out, console: console{w: &said}}
		p := target{name: "l", key: "l", store: tt.st, url: "mem:///l", layout: leasehold.LayoutObject}
		err := a.terms(t.Context(), p, &leasehold.LockOptions{Layout: leasehold.LayoutObject}, 0)
		if end, is := errors.AsType[*exit](err); !is || end.code != tt.code || out.Len() > 0 || said.Len() > 0 {
			t.Errorf("%v, want code %d; it writes %q and says %q", err, tt.code, &out, &said)
		}
	}
}
