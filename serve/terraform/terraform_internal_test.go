package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// Each error becomes the status that has Terraform try again, give up, or say who holds the lock.
func TestRefusalOf(t *testing.T) {
	t.Parallel()
	for want, errs := range map[int][]error{
		http.StatusConflict:              {fence.ErrFenced},
		http.StatusNotFound:              {store.ErrNotExist, ErrNoState},
		http.StatusUnprocessableEntity:   {fence.ErrForeign, leasehold.ErrForeignObject, errForeign, leasehold.ErrTokenTooLarge},
		http.StatusRequestEntityTooLarge: {store.ErrTooLarge},
		http.StatusInternalServerError:   {errDamaged, store.ErrRefused, store.ErrInvalid, lacks(store.ErrNotExist)},
		http.StatusServiceUnavailable:    {errors.New("broken"), store.ErrUnavailable, context.DeadlineExceeded},
	} {
		for _, err := range errs {
			err = fmt.Errorf("wrapped: %w", err)
			if got := refusalOf("the state", err); !reflect.DeepEqual(got, &refusal{status: want, detail: "the state: " + err.Error()}) {
				t.Errorf("%v: %+v, want %d", err, got, want)
			}
		}
	}
}

// What Terraform tells of a lock comes back from its record as it was, cut where it is too long; of a lock that is somebody
// else's there is as much as the record has.
func TestLockInfo(t *testing.T) {
	t.Parallel()
	long := func(of string, n int) string { return strings.Repeat(of, n) }
	created := time.Date(2026, 11, 20, 10, 30, 45, 123456789, time.UTC)
	for _, tc := range []struct{ sent, want LockInfo }{
		{LockInfo{ID: "x"}, LockInfo{ID: "x", Who: "somebody", Created: time.Unix(5, 0)}},
		{LockInfo{"x", "apply", "why", "me@host", "1.11.4", created, "path"}, LockInfo{"x", "apply", "why", "me@host", "1.11.4", created, "path"}},
		{
			LockInfo{long("i", 128), long("o", 257), long("n", 513), long("w", 257), long("v", 257), created, long("p", 513)},
			LockInfo{long("i", 128), long("o", 256), long("n", 512), long("w", 256), long("v", 256), created, long("p", 512)},
		},
	} {
		text, err := json.Marshal(tc.sent)
		if err != nil {
			t.Fatal(err)
		}
		i, err := parseLockInfo(text)
		if err != nil {
			t.Error(err)
		}
		record := leasehold.Info{Held: true, Meta: i.meta(), Holder: "somebody", AcquiredAt: time.Unix(5, 0), Token: 7, TTL: time.Minute}
		if got := lockInfoOf(record); got != tc.want {
			t.Errorf("%+v, want %+v", got, tc.want)
		}
		if who := i.holder(); tc.sent.Who == "" && who != "terraform" || tc.sent.Who != "" && who != tc.want.Who {
			t.Errorf("the holder is %q", who)
		}
	}
	if m := (LockInfo{ID: "x", Who: "me"}).meta(); !reflect.DeepEqual(m, map[string]string{"ID": "x", "Who": "me"}) {
		t.Errorf("the record has %v", m)
	}
	const gone = "(the process that keeps this lock looks to be gone: it can be had in a little over 1m0s)"
	other := leasehold.Info{Held: true, Abandoned: true, Holder: "somebody", AcquiredAt: time.Unix(5, 0), Token: 7, TTL: time.Minute}
	if got, want := lockInfoOf(other), (LockInfo{ID: "leasehold-7", Who: "somebody", Info: gone, Created: time.Unix(5, 0)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	other.Meta = map[string]string{"Info": "why"}
	if got := lockInfoOf(other).Info; got != "why "+gone {
		t.Errorf("%q", got)
	}
	if other.Held = false; lockInfoOf(other).Info != "why" {
		t.Errorf("of a free one: %+v", lockInfoOf(other))
	}
	for body, want := range map[string]string{
		`{"ID":"` + long("i", 129) + `"}`: "the ID of the lock has more than 128 bytes",
		`[]`:                              "the body is not the JSON of a lock: it is no object, but: array",
		`{"ID":1}`:                        `the body is not the JSON of a lock: "ID" cannot be: number`,
		`{`:                               "the body is not the JSON of a lock: unexpected end of JSON input",
	} {
		if _, err := parseLockInfo([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%.20s: %v, want %s", body, err, want)
		}
	}
	if i, err := parseLockInfo(nil); err != nil || i != (LockInfo{}) {
		t.Errorf("of nothing: %+v, %v", i, err)
	}
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abc", "aü": "aü", "abü": "ab", "\xffab": "?ab", "üüü": "ü"} {
		if got := clip(text, 3); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}

// The states that are kept are the newest, and what falls out is told.
func TestStatesKept(t *testing.T) {
	t.Parallel()
	m := manifest{Format: 1}
	var dropped []Version
	for n := range int64(5) {
		m, dropped = m.with(Version{Number: n + 1, Deleted: n == 2 || n == 4}, 3)
		if out := n - 2; (len(dropped) == 1) != (out > 0) || out > 0 && dropped[0].Number != out || len(m.States) != min(int(n)+1, 3) || m.Format != 1 {
			t.Errorf("after %d: %+v, without %+v", n+1, m, dropped)
		}
		if now := m.newest(); (now == nil) != (n == 2 || n == 4) || now != nil && now.Number != n+1 {
			t.Errorf("after %d: the newest is %+v", n+1, now)
		}
	}
	for number, is := range map[int64]bool{0: false, 1: false, 2: false, 3: false, 4: true, 5: false, 6: false} {
		if v := m.find(number); (v != nil) != is || v != nil && v.Number != number {
			t.Errorf("%d is %+v", number, v)
		}
	}
	name := dataName(7, 42, "random-bits")
	if name != "0000000007-0000000000000000042-random-bits" {
		t.Errorf("a state lies at %s", name)
	}
	for text, want := range map[string]leasehold.Token{name: 42, "7-42-x": 42, "7-42": 0, "": 0, "7-x-y": 0, "7--y": 0, "7-99999999999999999999-y": 0} {
		if got := tokenIn(text); got != want {
			t.Errorf("the token in %q is %d, want %d", text, got, want)
		}
	}
}

// A turn is one caller's at a time, goes to whoever waits, and is forgotten when nobody does.
func TestTurns(t *testing.T) {
	t.Parallel()
	var all turns
	leave, err := all.enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if all.try("a") != nil {
		t.Error("two have it")
	}
	other := all.try("b")
	if other == nil {
		t.Fatal("the turn of another is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.enter(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("who has left: %v", err)
	}
	leave()
	again := all.try("a")
	if again == nil {
		t.Fatal("it is not free")
	}
	if len(all.of) != 2 {
		t.Errorf("%d are remembered", len(all.of))
	}
	again()
	if again = all.try("a"); again == nil {
		t.Fatal("it is not free after a try")
	}
	again()
	other()
	if len(all.of) != 0 {
		t.Errorf("%d are remembered", len(all.of))
	}
}

// Without options a handler has the defaults of the documentation, and what is just within the bounds is taken.
func TestDefaults(t *testing.T) {
	t.Parallel()
	if h, err := New(nil, nil); h != nil || err == nil || err.Error() != "the store of the states is nil" {
		t.Errorf("without a store: %v, %v", h, err)
	}
	quiet := slog.New(slog.DiscardHandler)
	want := Options{Path: "/", TTL: time.Minute, MaxState: 64 << 20, Logger: slog.Default(), Versions: 20, Requests: 64, Locks: 1000}
	least := Options{Path: "/p/", TTL: time.Second, MaxState: 1 << 10, Logger: quiet, Versions: 1, Requests: 1, Locks: 1, Prefix: "a/b"}
	most := Options{Path: "/", TTL: 24 * time.Hour, MaxState: 1 << 30, Logger: quiet, Versions: 500, Requests: 10_000, Locks: 1_000_000, Address: "here", Prefix: strings.Repeat("p/", 149) + "pp"}
	for _, tc := range []struct{ opts, want *Options }{{nil, &want}, {&Options{}, &want}, {&least, &least}, {&most, &most}, {&Options{Prefix: "a/b/", Path: "/p/", TTL: time.Second, MaxState: 1 << 10, Logger: quiet, Versions: 1, Requests: 1, Locks: 1}, &least}} {
		h, err := New(memstore.New(), tc.opts)
		if err != nil {
			t.Errorf("%+v: %v", tc.opts, err)
			continue
		}
		if !reflect.DeepEqual(h.opts, *tc.want) || cap(h.gate) != tc.want.Requests || cap(h.large) != 4 {
			t.Errorf("%+v, want %+v", h.opts, *tc.want)
		}
	}
	for text, o := range map[string]Options{
		"the option Versions 501 is not between 1 and 500":          {Versions: 501},
		"the option Versions -1 is not between 1 and 500":           {Versions: -1},
		"the option Requests 10001 is not between 1 and 10000":      {Requests: 10_001},
		"the option Locks 1000001 is not between 1 and 1000000":     {Locks: 1_000_001},
		"the option MaxState 1023 is not between 1 KiB and 1 GiB":   {MaxState: 1023},
		"the option MaxState 1073741825 is not between 1 KiB and 1": {MaxState: 1<<30 + 1},
		"the option Path \"x/\" does not begin and end with a":      {Path: "x/"},
		"the option Path \"/x\" does not begin and end with a":      {Path: "/x"},
		"the option Prefix has 301 bytes, more than 300":            {Prefix: strings.Repeat("p", 301)},
		"invalid argument: the key has a segment of 250 bytes":      {Prefix: strings.Repeat("p", 250)},
	} {
		if _, err := New(memstore.New(), &o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// plainStore has no large objects.
type plainStore struct{ store.Store }

// A state is written and read where a store has no large objects too, and never over another.
func TestDataInAPlainStore(t *testing.T) {
	t.Parallel()
	h, err := New(plainStore{memstore.New()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = h.putData(t.Context(), "k", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if err = h.putData(t.Context(), "k", []byte("other")); !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("a second one: %v", err)
	}
	body, err := h.openData(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(body); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := h.openData(t.Context(), "none"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

// Within a run serials grow, and a state that comes after a later one is late; without a lock a state must be the next one.
func TestLateAndFollowing(t *testing.T) {
	t.Parallel()
	serial := func(n int64) *int64 { return &n }
	now := &Version{Serial: serial(5), Lineage: "a", Token: 7, SHA256: "x"}
	of := func(n *int64, lineage string) *state {
		return &state{Version: Version{Serial: n, Lineage: lineage, SHA256: "y"}}
	}
	const late, old = "its serial is 4, and the same run has stored 5", "its serial is %d, and the stored one has 5 by now"
	for what, tc := range map[string]struct {
		s             *state
		now           *Version
		token         leasehold.Token
		late, follows string
	}{
		"the next":         {of(serial(6), "a"), now, 7, "", ""},
		"the same":         {of(serial(5), "a"), now, 7, "", fmt.Sprintf(old, 5)},
		"an earlier":       {of(serial(4), "a"), now, 7, late, fmt.Sprintf(old, 4)},
		"another run's":    {of(serial(4), "a"), now, 8, "", fmt.Sprintf(old, 4)},
		"another lineage":  {of(serial(4), "b"), now, 7, "", `its lineage is "b", and that of the stored one "a"`},
		"no serial":        {of(nil, "a"), now, 7, "", "it, or the stored one, has no serial"},
		"none before":      {of(serial(4), "a"), &Version{Lineage: "a", Token: 7}, 7, "", "it, or the stored one, has no serial"},
		"the first":        {of(serial(4), "a"), nil, 7, "", ""},
		"a deletion":       {&state{Version: Version{Deleted: true, Serial: serial(4), Lineage: "a"}}, now, 7, "", ""},
		"the stored again": {&state{Version: Version{Serial: serial(5), Lineage: "a", SHA256: "x"}}, now, 7, "", ""},
	} {
		if got := tc.s.late(tc.now, tc.token); got != tc.late {
			t.Errorf("%s is late: %q, want %q", what, got, tc.late)
		}
		if got := tc.s.follows(tc.now); got != tc.follows {
			t.Errorf("%s does not follow: %q, want %q", what, got, tc.follows)
		}
	}
	for text, want := range map[string]string{
		`{`:            "not a list of states that this version understands: unexpected end of JSON input",
		`{"format":2}`: "not a list of states that this version understands: it has format 2, and this version knows format 1",
		`{"format":1}`: "",
	} {
		if _, err := decodeManifest([]byte(text)); want == "" && err != nil || want != "" && (err == nil || err.Error() != want || !errors.Is(err, errForeign)) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Without a Logger, what no answer tells goes to the default one.
func TestLogsByDefault(t *testing.T) {
	h, err := New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if h.log != slog.Default() {
		t.Errorf("it logs to %v", h.log)
	}
}
