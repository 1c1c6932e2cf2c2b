package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// freeLock is the record of a free lock. It has a place for further members.
const freeLock = `{"format":1,"token":7,"state":"free","holder":"me","address":"","ttl_ms":15000,"write_id":"x.1","session":"","renewed_at":"2026-01-01T00:00:00Z"%s}`

// storeWith returns a store with these objects, and the semaphore s with 3 slots.
func storeWith(t *testing.T, objects map[string]string) store.Store {
	t.Helper()
	st := memstore.New()
	for key, body := range objects {
		if _, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	sem, err := semaphore.New(st, "s", 3, &semaphore.Options{Holder: "me"})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := sem.Acquire(t.Context(), 1)
	if err == nil {
		err = errors.Join(lease.Release(t.Context()), sem.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestLockElsewhere: a lock of the name in another layout, or a semaphore, is named with the flags that take it. A name that is
// too long for other layouts is in none of them.
func TestLockElsewhere(t *testing.T) {
	t.Parallel()
	long := strings.TrimSuffix(strings.Repeat("long/", store.MaxKey/5+1)[:store.MaxKey], "/")
	st := storeWith(t, map[string]string{
		"o": fmt.Sprintf(freeLock, ""), "e/0000000001.json": fmt.Sprintf(freeLock, `,"layout":"epochs"`), "i/0000000001.json": fmt.Sprintf(freeLock, `,"layout":"epochs","if_match":true`), long: fmt.Sprintf(freeLock, ""),
		"m": `{"format":1,"state":"held","holder":"me","address":"","ttl_ms":15000,"write_id":"x.1","session":"","layout":"marker","renewed_at":"2026-01-01T00:00:00Z"}`,
	})
	for _, tt := range []struct {
		key    string
		layout leasehold.Layout
		want   string
	}{
		{"o", leasehold.LayoutObject, ""},
		{"o", leasehold.LayoutEpochs, "exit code 65: o has the layout object, not epochs: give --layout object"},
		{"o", layoutTable, "exit code 65: o is a lock with the layout object: leasehold run takes it without --slots, --fair, --shared and --exclusive"},
		{"e", leasehold.LayoutObject, "exit code 65: e has the layout epochs, not object: give --layout epochs, and if_match=false among the parameters of its store's URL"},
		{"i", leasehold.LayoutObject, "exit code 65: i has the layout epochs, not object: give --layout epochs"},
		{"m", leasehold.LayoutObject, "exit code 65: m has the layout marker, not object: give --layout marker, and if_match=false if its holders do"},
		{"m", leasehold.LayoutMarker, ""},
		{"none", leasehold.LayoutObject, ""},
		{"none", layoutTable, ""},
		{"s", leasehold.LayoutObject, "exit code 65: s is a semaphore with 3 slots: leasehold run takes them with --slots 3"},
		{"s", layoutTable, ""}, // it is where it was looked for
		{long, leasehold.LayoutObject, ""},
	} {
		got := ""
		if err := elsewhere(t.Context(), target{name: tt.key, key: tt.key, store: st, layout: tt.layout}); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%.10s in %s: %q, want %q", tt.key, tt.layout, got, tt.want)
		}
	}
}

// TestWhatIsWrongWithALock: errors have their exit codes and name the layout in which the lock exists. A lock in the expected
// layout is not searched for in others.
func TestWhatIsWrongWithALock(t *testing.T) {
	t.Parallel()
	st := storeWith(t, map[string]string{
		"e/0000000001.json": fmt.Sprintf(freeLock, `,"layout":"epochs","if_match":true`),
		"both":              fmt.Sprintf(freeLock, ""), "both/0000000001.json": fmt.Sprintf(freeLock, `,"layout":"epochs","if_match":true`),
	})
	const (
		epochs  = "exit code 65: e has the layout epochs, not object: give --layout epochs"
		bySlots = "exit code 65: s is a semaphore with 3 slots: leasehold run takes them with --slots 3"
	)
	for _, tt := range []struct {
		key  string
		err  error
		want string
	}{
		{"e", nil, "<nil>"},
		{"e", leasehold.ErrForeignObject, epochs},
		{"e", &store.Error{Op: "get", Key: "e", Kind: store.ErrInvalid}, epochs},
		{"e", fmt.Errorf("%w: %w", leasehold.ErrForeignObject, leasehold.ErrMoved), "exit code 65: "},
		{"e", record.ErrIfMatch, "exit code 65: e is used with If-Match: "},
		{"e", record.ErrNoIfMatch, "exit code 65: e is used without If-Match: "},
		{"e", &store.Error{Op: "get", Key: "e", Kind: store.ErrDenied}, "exit code 77: "},
		{"e", semaphore.ErrSize, "exit code 65: " + semaphore.ErrSize.Error()},
		{"s", semaphore.ErrSize, bySlots},
		{"s", leasehold.ErrForeignObject, bySlots},
		{"none", leasehold.ErrForeignObject, "exit code 65: " + leasehold.ErrForeignObject.Error()},
		{"none", &store.Error{Op: "get", Key: "none", Kind: store.ErrInvalid}, "exit code 64: "},
	} {
		p := target{name: tt.key, key: tt.key, store: st, layout: leasehold.LayoutObject}
		if got := fmt.Sprint(explain(t.Context(), p, tt.err)); !strings.HasPrefix(got, tt.want) || strings.Contains(got, "give --layout") != strings.Contains(tt.want, "give --layout") {
			t.Errorf("%s, %v: %s, want %s", tt.key, tt.err, got, tt.want)
		}
	}
	lock, err := leasehold.NewLock(firstReadDenied(st), "e", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = inspect(t.Context(), target{name: "e", key: "e", store: st, layout: leasehold.LayoutObject}, lock); !strings.HasPrefix(fmt.Sprint(err), "exit code 77: ") {
		t.Errorf("a read that fails ends with %v", err)
	}
	for key, want := range map[string]string{"both": "<nil>", "e": epochs, "s": "exit code 65: ", "none": "<nil>"} {
		lock, err := leasehold.NewLock(st, key, &leasehold.LockOptions{Layout: leasehold.LayoutObject})
		if err != nil {
			t.Fatal(err)
		}
		if info, err := inspect(t.Context(), target{name: key, key: key, store: st, layout: leasehold.LayoutObject}, lock); !strings.HasPrefix(fmt.Sprint(err), want) || info.Exists != (key == "both") {
			t.Errorf("%s: %+v, %v, want %s", key, info, err, want)
		}
	}
}

// TestLooksLogNothing: read-only commands do not warn about what a layout lacks.
func TestLooksLogNothing(t *testing.T) {
	var logged bytes.Buffer
	leasetest.LogByDefault(t, &logged)
	st := memstore.New()
	p := target{name: "l", key: "l", store: st, layout: leasehold.LayoutObject}
	if err := elsewhere(t.Context(), p); err != nil {
		t.Error(err)
	}
	p.layout = leasehold.LayoutMarker
	err := (&app{stdout: io.Discard, console: console{w: io.Discard}}).terms(t.Context(), p, &leasehold.LockOptions{Layout: p.layout}, 0)
	if err == nil || logged.Len() > 0 {
		t.Errorf("it ends with %v, and logs %q", err, &logged)
	}
}
