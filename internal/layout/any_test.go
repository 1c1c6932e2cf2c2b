package layout_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestLookAny: a lock is found whatever its layout is, for a bounded number of requests, and
// looks as it does in its own layout.
func TestLookAny(t *testing.T) {
	stores(t, func(t *testing.T, st *tapped) {
		found := func(key, want string) layout.Snapshot {
			t.Helper()
			var s layout.Snapshot
			var err error
			cost := st.cost(func() { s, err = layout.LookAny(t.Context(), st, key) })
			if err != nil || cost != want {
				t.Errorf("%s: it cost %s, want %s; %v", key, cost, want, err)
			}
			return s
		}
		if s := found("none", "1 GET, 0 PUT, 1 LIST, 0 DELETE"); s.Exists {
			t.Errorf("there is none, and it is %+v", s)
		}
		for want, l := range map[record.Layout]layout.Layout{
			{}:                          layout.Object{Store: st, Key: "o"},
			{Name: record.LayoutMarker}: layout.Marker{Store: st, Key: "m"},
			{Name: record.LayoutEpochs}: layout.Epochs{Store: st, Key: "e"},
			{Name: record.LayoutEpochs, IfMatch: true}: layout.Epochs{Store: st, Key: "i", IfMatch: true},
		} {
			name := want.Name
			var before layout.Snapshot
			if name == record.LayoutMarker {
				before = look(t, l, "")
			}
			written := write(t, l, candidate.Claim, before)
			requests := "1 GET, 0 PUT, 1 LIST, 0 DELETE"
			if _, ok := l.(layout.Epochs); ok {
				requests = "2 GET, 0 PUT, 1 LIST, 0 DELETE"
			}
			key := l.String()[strings.LastIndexByte(l.String(), '/')+1:]
			s := found(key, requests)
			if s.Record.Layout != want || s.Version != written.Version || s.Record.Epoch != written.Record.Epoch || !s.Record.Held {
				t.Errorf("%q looks like %+v, want %+v", name, s, written)
			}
			if own := look(t, l, ""); own.Version != s.Version {
				t.Errorf("%q has version %q in its own layout, and %q", name, own.Version, s.Version)
			}
		}
	})
}

// TestLookAnyIsAmbiguous: of two locks under one name none is chosen, whatever they are.
func TestLookAnyIsAmbiguous(t *testing.T) {
	for _, upper := range []string{"object", "marker", "something that this version does not understand"} {
		for way, lower := range []string{"epochs", "epochs", "something that this version does not understand"} {
			t.Run(fmt.Sprint(upper, "/", lower, way), func(t *testing.T) {
				st := &tapped{Store: memstore.New()}
				switch upper {
				case "object":
					write(t, layout.Object{Store: st, Key: "l"}, candidate.Free, layout.Snapshot{})
				case "marker":
					m := layout.Marker{Store: st, Key: "l"}
					write(t, m, candidate.Claim, look(t, m, ""))
				default:
					plant(t, st, "l", "pid 7")
				}
				if lower == "epochs" {
					write(t, layout.Epochs{Store: st, Key: "l", IfMatch: way == 1}, candidate.Claim, layout.Snapshot{})
				} else {
					plant(t, st, layout.EpochKey("l", 1), `{"format":9}`)
				}
				s, err := layout.LookAny(t.Context(), st, "l")
				switch {
				case upper == lower:
					if s.Exists || !errors.Is(err, record.ErrForeign) {
						t.Errorf("of neither it says %+v, %v", s, err)
					}
				case s.Exists || !errors.Is(err, layout.ErrAmbiguous) || !strings.Contains(err.Error(), upper+" and "+lower+": give --layout"):
					t.Errorf("it is %+v, %v", s, err)
				}
			})
		}
	}
}

// TestLookAnyRefuses: what is no lock, or is one in another's place.
func TestLookAnyRefuses(t *testing.T) {
	stores(t, func(t *testing.T, st *tapped) {
		plant(t, st, "garbage", "pid 7")
		plant(t, st, "deep/0000000001.json", "pid 7")
		write(t, layout.Object{Store: st, Key: "wrong/0000000001.json"}, candidate.Claim, layout.Snapshot{})
		write(t, layout.Heartbeat{Store: st, Key: "session"}, candidate.Claim, layout.Snapshot{})
		for _, key := range []string{"garbage", "deep", "wrong", "session"} {
			if s, err := layout.LookAny(t.Context(), st, key); s.Exists || !errors.Is(err, record.ErrForeign) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: %+v, %v", key, s, err)
			}
		}
		// A directory of locks is no lock, and says so where it is a directory.
		write(t, layout.Object{Store: st, Key: "jobs/l"}, candidate.Claim, layout.Snapshot{})
		if s, err := layout.LookAny(t.Context(), st, "jobs"); s.Exists || err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("of what others lie below it says %+v, %v", s, err)
		}
		// A name that leaves no room for epochs has none.
		long := strings.Repeat("x/", (store.MaxKey-1)/2) + "x"
		empty := &tapped{Store: memstore.New()}
		if cost := empty.cost(func() {
			_, err := layout.LookAny(t.Context(), empty, long)
			wants(t, "of a long name", err, error(nil))
		}); cost != "1 GET, 0 PUT, 0 LIST, 0 DELETE" {
			t.Errorf("of a long name it asks %s", cost)
		}
	})
}

// TestLookAnyIsBounded: the listing ends, and so does the chase after epochs that change.
func TestLookAnyIsBounded(t *testing.T) {
	st := &tapped{Store: memstore.New()}
	for i := range 10_001 {
		plant(t, st.Store, fmt.Sprintf("shards/%05d", i), "")
	}
	var err error
	if cost := st.cost(func() { _, err = layout.LookAny(t.Context(), st, "shards") }); cost != "1 GET, 0 PUT, 11 LIST, 0 DELETE" {
		t.Errorf("it cost %s", cost)
	}
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "more than 10000 objects lie below the lock's name, so its layout is not found out: give --layout") {
		t.Errorf("got %v", err)
	}
	remove(t, st.Store, "shards/10000")
	if _, err = layout.LookAny(t.Context(), st, "shards"); err != nil {
		t.Errorf("got %v", err)
	}

	e := layout.Epochs{Store: st, Key: "e", IfMatch: true}
	s := write(t, e, candidate.Claim, layout.Snapshot{})
	renewals := 1
	st.before = func(op, key string) {
		if op == "get" && key == layout.EpochKey("e", 1) && renewals > 0 {
			renewals--
			s = write(t, e, candidate.Renew, s)
		}
	}
	var got layout.Snapshot
	if cost := st.cost(func() { got, err = layout.LookAny(t.Context(), st, "e") }); err != nil || got.Version != s.Version || cost != "3 GET, 1 PUT, 2 LIST, 0 DELETE" {
		t.Errorf("one renewal meanwhile: %+v, %v for %s", got, err, cost)
	}
	renewals = 100
	if cost := st.cost(func() { _, err = layout.LookAny(t.Context(), st, "e") }); !errors.Is(err, store.ErrUnavailable) || cost != "9 GET, 8 PUT, 8 LIST, 0 DELETE" {
		t.Errorf("renewals without end: %v for %s", err, cost)
	}
}

// TestLookAnyAtManyEpochs: the past costs one listing.
func TestLookAnyAtManyEpochs(t *testing.T) {
	past(t, func(t *testing.T, e layout.Epochs, st *tapped) {
		for i := range 9_999 { // made by hand: only their keys matter
			plant(t, st.Store, layout.EpochKey(e.Key, int64(i+1)), "{}")
		}
		body := free(t, e.Layout())
		plant(t, st.Store, layout.EpochKey(e.Key, 10_000), body)
		collected(t, e, layout.DefaultCollection)
		var s layout.Snapshot
		var err error
		cost := st.cost(func() { s, err = layout.LookAny(t.Context(), st, e.Key) })
		if err != nil || s.Record.Epoch != 10_000 || cost != "2 GET, 0 PUT, 2 LIST, 0 DELETE" {
			t.Errorf("%+v, %v for %s", s, err, cost)
		}
	})
}
