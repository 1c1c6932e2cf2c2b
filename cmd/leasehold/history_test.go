package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
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

// TestLeaseInTable: the table's row for a lease, and for several leases of one holder.
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
		{admin.Term{Info: leasehold.Info{Token: 7, Term: 13}, Leases: 2, First: 6}, "13 6-7 - - - -"},
	} {
		if got := strings.Join(lease(tt.term), " "); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.term, got, tt.want)
		}
	}
}

// TestHistoryThatBreaksOff: if the store fails after some leases, history prints those and then the error. It also fails if it
// cannot write to stdout.
func TestHistoryThatBreaksOff(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	for n := range 5 {
		lock, err := leasehold.NewLock(memory, "l", &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, Holder: []string{"a", "b"}[n%2]})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := lock.Acquire(t.Context())
		if err == nil {
			err = lease.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	long := strings.TrimSuffix(strings.Repeat("long/", store.MaxKey/5+1)[:store.MaxKey], "/")
	for name, tt := range map[string]struct {
		st    store.Store
		key   string
		out   io.Writer
		limit int
		shows int // leases
		want  string
	}{
		"all":           {memory, "l", nil, 0, 5, "<nil>"},
		"some":          {memory, "l", nil, 3, 3, "<nil>"},
		"one":           {memory, "l", nil, 1, 1, "<nil>"},
		"it breaks off": {&tiredStore{Store: memory}, "l", nil, 0, 1, "exit code 77: "},
		"stdout":        {memory, "l", brokenWriter{}, 0, 0, "exit code 70: cannot write to stdout: full"},
		"a long name":   {memory, long, nil, 0, 0, "exit code 64: "},
	} {
		for _, output := range []string{"text", "json"} {
			var out, said bytes.Buffer
			a := &app{stdout: &out, console: console{w: &said}}
			a.output = output
			if tt.out != nil {
				a.stdout = tt.out
			}
			if tired, is := tt.st.(*tiredStore); is {
				tired.reads = 0
			}
			err := a.terms(t.Context(), target{name: "l", key: tt.key, store: tt.st, url: "mem:///l", layout: leasehold.LayoutEpochs}, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs}, tt.limit)
			shows := strings.Count(out.String(), "\n")
			if output == "text" && shows > 0 {
				shows-- // the head
			}
			if !strings.HasPrefix(fmt.Sprint(err), tt.want) || shows != tt.shows || said.Len() > 0 {
				t.Errorf("%s as %s: it shows %d leases, says %q and ends with %v; want %d and %s", name, output, shows, &said, err, tt.shows, tt.want)
			}
		}
	}
}

// TestHistoryOfSlowStore: if the store does not answer, history says so after a while, and then exits.
func TestHistoryOfSlowStore(t *testing.T) {
	t.Parallel()
	for _, chosen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out, said bytes.Buffer
			st := sleepy{memstore.New(), time.Hour}
			a := &app{stdout: &out, console: console{w: &said, least: levelNotice}, at: st}
			began := time.Now()
			err := a.past(t.Context(), target{name: "l", key: "l", store: st, url: "mem:///l", layout: leasehold.LayoutObject}, &leasehold.LockOptions{Layout: leasehold.LayoutObject}, chosen, 0)
			if end, is := errors.AsType[*exit](err); !is || end.code != exitUnavailable || !strings.Contains(err.Error(), "the store did not answer for 30s") || time.Since(began) > 5*time.Minute {
				t.Errorf("layout chosen %v: it ends with %v after %v", chosen, err, time.Since(began))
			}
			if want := "leasehold: mem:// has not answered for 5s: waiting for 30s at most\n"; said.String() != want || out.Len() > 0 {
				t.Errorf("layout chosen %v: it writes %q, and says %q, want %q", chosen, &out, &said, want)
			}
		})
	}
}

// firstReadDenied returns a store that denies its first read.
func firstReadDenied(st store.Store) store.Store {
	return faultstore.Wrap(st, &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.Denied, Op: "get", Nth: 1}}})
}

// TestHistoryOfNothing: history distinguishes a lock without holders so far, a lock in another layout, a missing lock and a
// failed read.
func TestHistoryOfNothing(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	for key, layout := range map[string]leasehold.Layout{"o": leasehold.LayoutObject, "m": leasehold.LayoutMarker} {
		lock, err := leasehold.NewLock(memory, key, &leasehold.LockOptions{Layout: layout, Holder: "me", Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(context.WithoutCancel(t.Context())) }()
	}
	lock, err := leasehold.NewLock(memory, "new", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = admin.Init(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		st         store.Store
		key        string
		layout     leasehold.Layout
		want, says string
	}{
		{memory, "new", leasehold.LayoutObject, "<nil>", "leasehold: nobody has held the lock new yet\n"},
		{memory, "none", leasehold.LayoutObject, "exit code 66: there is no lock none", ""},
		{memory, "m", leasehold.LayoutMarker, "exit code 64: --layout marker keeps no history: a release deletes the object", ""},
		{memory, "o", leasehold.LayoutMarker, "exit code 65: o has the layout object, not marker: give --layout object", ""},
		{firstReadDenied(memory), "none", leasehold.LayoutObject, "exit code 77: ", ""},
	} {
		var out, said bytes.Buffer
		a := &app{stdout: &out, console: console{w: &said}}
		err := a.terms(t.Context(), target{name: tt.key, key: tt.key, store: tt.st, url: "mem:///" + tt.key, layout: tt.layout}, &leasehold.LockOptions{Layout: tt.layout}, 0)
		if !strings.HasPrefix(fmt.Sprint(err), tt.want) || said.String() != tt.says || out.Len() > 0 {
			t.Errorf("%s as %s: it writes %q, says %q and ends with %v; want %q and %s", tt.key, tt.layout, &out, &said, err, tt.says, tt.want)
		}
	}
}
