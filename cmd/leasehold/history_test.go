package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
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

// TestLeaseInTable: what the table has of a lease, and of several of one holder.
func TestLeaseInTable(t *testing.T) {
	t.Parallel()
	began, ended := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), time.Date(2026, 1, 2, 3, 5, 6, 0, time.Local)
	for _, tt := range []struct {
		term admin.Term
		want string
	}{
		{admin.Term{Info: leasehold.Info{Token: 7}, Leases: 1, First: 7}, "- 7 - - - -"},
		{
			admin.Term{Info: leasehold.Info{Token: 7, Term: 1, Holder: "me\x1b", AcquiredAt: began}, Ended: ended, Why: "released", Leases: 1, First: 7},
			`1 7 "me\x1b" 2026-01-02 03:04:05 2026-01-02 03:05:06 released`,
		},
		{admin.Term{Info: leasehold.Info{Token: 7, Term: 3}, Leases: 2, First: 6}, "3 6-7 - - - -"},
	} {
		if got := strings.Join(lease(tt.term), " "); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.term, got, tt.want)
		}
	}
}
