package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// A takenView remembers what it was told.
type takenView struct{ events []string }

func (v *takenView) Take(ev watchview.Event, _ time.Time) {
	v.events = append(v.events, strings.TrimPrefix(fmt.Sprintf("%T%v", ev, ev), "watchview."))
}

func (v *takenView) Lines(time.Time, int, int) []watchview.Line { return nil }

// TestTypedKeys: what keys do to a view. A sequence may come in two parts, and what is no key for the screen is one for the view.
func TestTypedKeys(t *testing.T) {
	t.Parallel()
	v := &takenView{}
	d := drawing{view: v, frame: watchview.NewFrame(false)}
	empty := d.frame.Draw(nil, 10, 2)
	for _, tt := range []struct {
		typed string
		end   bool
		code  int
		takes string
		anew  bool // all is drawn
	}{
		{"j", false, 0, "Pressed{2}", false},
		{"x", false, 0, "", false}, // it means nothing
		{"\x1b[", false, 0, "", false},
		{"5~k", false, 0, "Pressed{3} Pressed{1}", false},
		{"\x0c", false, 0, "", true},
		{"jq", true, 0, "Pressed{2}", false},
		{"\x03j", true, exitSignal + 2, "", false},
	} {
		v.events = nil
		end, err := d.typed([]byte(tt.typed))
		code := 0
		if e, is := errors.AsType[*exit](err); is {
			code = e.code
		}
		takes := strings.Join(v.events, " ")
		if anew := d.frame.Draw(nil, 10, 2) == empty; end != tt.end || code != tt.code || takes != tt.takes || anew != tt.anew {
			t.Errorf("%q: end %v, %v, takes %q, anew %v; want %+v", tt.typed, end, err, takes, anew, tt)
		}
	}
}

// TestViewTakesAllThatWaits: a view is drawn once for all events that wait, but for no more than that: one that never stopped
// taking would never be drawn.
func TestViewTakesAllThatWaits(t *testing.T) {
	t.Parallel()
	said := func(n int) watchview.Event { return watchview.Said{Text: fmt.Sprint(n)} }
	for _, waiting := range []int{0, 1, 3} {
		v := &takenView{}
		events := make(chan watchview.Event, 3)
		for n := range waiting {
			events <- said(n + 1)
		}
		(&drawing{view: v}).take(said(0), events)
		var want []string
		for n := range waiting + 1 {
			want = append(want, fmt.Sprintf("Said{%d}", n))
		}
		if !slices.Equal(v.events, want) || len(events) != 0 {
			t.Errorf("of %d that wait: %q, and %d are left", waiting, v.events, len(events))
		}
	}
}

// TestMessagesOnView: a message goes to the view without what a line of leasehold's begins with.
func TestMessagesOnView(t *testing.T) {
	t.Parallel()
	var v takenView
	w := toView(func(ev watchview.Event) { v.Take(ev, time.Time{}) })
	for _, text := range []string{"leasehold: a\n", "b: leasehold: c\n\n"} {
		if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	if want := []string{"Said{a}", "Said{b: leasehold: c\n}"}; !slices.Equal(v.events, want) {
		t.Errorf("%q", v.events)
	}
	// Where stderr is no terminal, messages go there as ever.
	var said strings.Builder
	c := console{w: &said}
	back := c.divert(func(watchview.Event) { t.Error("it went to the view") })
	c.tell("here")
	back()
	if said.String() != "leasehold: here\n" {
		t.Errorf("%q", &said)
	}
}

// A failingStore fails each request, a listing after one entry.
type failingStore struct {
	store.Store
	err error
}

func (s failingStore) Get(context.Context, string, store.Version) (*store.Object, error) {
	return nil, s.err
}

func (s failingStore) List(context.Context, string, string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if yield(store.Entry{Key: "a"}, nil) {
			yield(store.Entry{}, s.err)
		}
	}
}

// TestRequestsOnView: a view is told of each request and of its end: why the store failed, unless what it said is an answer, or
// nobody waits for one any more.
func TestRequestsOnView(t *testing.T) {
	t.Parallel()
	failed := func(kind error) error { return &store.Error{Op: "get", Key: "l", Kind: kind} }
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"denied":         {t.Context(), failed(store.ErrDenied), "told"},
		"not there":      {t.Context(), failed(store.ErrNotExist), ""},
		"not new":        {t.Context(), failed(store.ErrNotModified), ""},
		"too large":      {t.Context(), failed(store.ErrTooLarge), ""},
		"an answer":      {t.Context(), nil, ""},
		"given up":       {over, failed(store.ErrUnavailable), ""},
		"over, and well": {over, nil, ""},
	} {
		var v takenView
		s := reportingStore{failingStore{memstore.New(), tt.err}, func(ev watchview.Event) { v.Take(ev, time.Time{}) }, func(error) string { return "told" }}
		want := []string{"Asked{}", "Answered{" + tt.want + "}"}
		if _, err := s.Get(tt.ctx, "l", ""); !errors.Is(err, tt.err) || !slices.Equal(v.events, want) {
			t.Errorf("%s: a read tells %q, %v", name, v.events, err)
		}
		v.events = nil
		var last error
		n := 0
		for _, err := range s.List(tt.ctx, "", "") {
			last = err
			n++
		}
		if !errors.Is(last, tt.err) || n != 2 || !slices.Equal(v.events, want) {
			t.Errorf("%s: a listing of %d tells %q, %v", name, n, v.events, last)
		}
		v.events = nil
		for range s.List(tt.ctx, "", "") { //nolint:errcheck // it is broken off
			break
		}
		if want = []string{"Asked{}", "Answered{}"}; !slices.Equal(v.events, want) {
			t.Errorf("%s: a listing that is broken off tells %q", name, v.events)
		}
	}
}

// TestEventsOfLockForView: what a view of a lock is told from when there is none until it is released: a failure once, then the
// lock in the layout that it is found to have, its renewals too. A semaphore that appears ends that.
func TestEventsOfLockForView(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := &deniedStore{Store: memstore.New()}
		var lines []string
		tell := func(ev watchview.Event) {
			if c, is := ev.(watchview.Changed); is {
				lines = append(lines, fmt.Sprintf("%v %s %s", c.Kind, c.Info.Holder, c.Trouble))
			}
		}
		a := &app{console: console{w: &strings.Builder{}}}
		watch := func(key string, exists, chosen bool) (end func() (admin.Entry, error)) {
			ctx, cancel := context.WithCancel(t.Context())
			opts := leasehold.LockOptions{Layout: leasehold.LayoutObject}
			var e admin.Entry
			var err error
			done := make(chan struct{})
			lines = nil
			go func() {
				defer close(done)
				e, err = a.lockEvents(ctx, target{name: key, key: key, store: st}, &opts, exists, chosen, tell)
			}()
			return func() (admin.Entry, error) {
				cancel()
				<-done
				return e, err
			}
		}
		end := watch("l", false, false)
		st.denies.Store(true)
		time.Sleep(time.Minute)
		st.denies.Store(false)
		lock, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, NoIfMatch: true, Holder: "me"})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Second)
		st.denies.Store(true)
		time.Sleep(6 * time.Second)
		st.denies.Store(false)
		time.Sleep(time.Minute)
		if err = lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		if e, failed := end(); !errors.Is(failed, context.Canceled) || e.Size != 0 {
			t.Errorf("it ends with %+v, %v", e, failed)
		}
		const want = "unreadable  the lock mem:///l: get \"l\": access denied\nelected me \nrenewed me \n" +
			"unreadable me get \"l/0000000004.json\": access denied\nrenewed me \nresigned me "
		if got := strings.Join(slices.Compact(lines), "\n"); got != want {
			t.Errorf("it is told\n%s\nwant\n%s", got, want)
		}

		if lock, err = leasehold.NewLock(st, "o", &leasehold.LockOptions{Holder: "me"}); err != nil {
			t.Fatal(err)
		}
		if lease, err = lock.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		end = watch("o", true, false)
		time.Sleep(time.Second) // the next look would be later
		if _, failed := end(); !errors.Is(failed, context.Canceled) || !slices.Equal(lines, []string{"elected me "}) {
			t.Errorf("of a lock that is there it ends with %v, and is told %q", failed, lines)
		}
		if err = lease.Release(t.Context()); err != nil {
			t.Error(err)
		}

		end = watch("s", false, false)
		sem, err := semaphore.New(st, "s", 2, &semaphore.Options{Holder: "me"})
		if err != nil {
			t.Fatal(err)
		}
		slot, err := sem.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if e, failed := end(); failed != nil || e.Size != 2 || lines != nil {
			t.Errorf("it ends with %+v, %v, and is told %q", e, failed, lines)
		}
		end = watch("s", false, true)
		time.Sleep(time.Minute)
		if e, failed := end(); !errors.Is(failed, context.Canceled) || e.Size != 0 || len(lines) == 0 {
			t.Errorf("with the layout given it ends with %+v, %v, and is told %q", e, failed, lines)
		}
		if err = errors.Join(slot.Release(t.Context()), sem.Close(t.Context())); err != nil {
			t.Error(err)
		}

		var said strings.Builder
		a.console.w = &said
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.lockEvents(over, target{name: "m", key: "m", store: st}, &leasehold.LockOptions{Layout: leasehold.LayoutMarker}, true, true, tell)
		if !errors.Is(err, context.Canceled) || !strings.HasPrefix(said.String(), "leasehold: the layout marker has no tokens") {
			t.Errorf("of a marker it ends with %v, and the library's message is %q", err, &said)
		}
		long := strings.TrimSuffix(strings.Repeat("long/", store.MaxKey/5+1)[:store.MaxKey], "/")
		_, err = a.lockEvents(t.Context(), target{name: "l", key: long, store: st}, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs}, false, true, tell)
		if end, is := errors.AsType[*exit](err); !is || end.code != exitUsage {
			t.Errorf("of a name that is too long for the layout it ends with %v", err)
		}
	})
}

// A deniedStore denies its reads for a while.
type deniedStore struct {
	*memstore.Store
	denies atomic.Bool
}

func (s *deniedStore) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if s.denies.Load() {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrDenied}
	}
	return s.Store.Get(ctx, key, unless)
}

func (s *deniedStore) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	if s.denies.Load() {
		return func(yield func(store.Entry, error) bool) {
			yield(store.Entry{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrDenied})
		}
	}
	return s.Store.List(ctx, prefix, after)
}
