package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/guardian"
	"github.com/leasehold/leasehold/store"
)

// heldLease is a lease of which only some is asked.
type heldLease struct {
	held
	valid bool
}

func (heldLease) Holder() string         { return "me" }
func (heldLease) Token() leasehold.Token { return 7 }
func (l heldLease) Valid() bool          { return l.valid }

// TestEndIsTold: how a command and the lease under it have ended, as one line for people and as an event with all its fields.
func TestEndIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().In(time.FixedZone("", 3600)).Add(-3*time.Second + 4_567_890)
		const party = `"lock":"file:///l","holder":"me","address":"a:1","token":7`
		line := func(at time.Time, name, level, message, more string) string {
			return fmt.Sprintf(`{"time":%q,"event":%q,"level":%q,"message":%q,%s%s}`+"\n", at.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano), name, level, message, party, more)
		}
		failure := &store.Error{Op: "put", Key: "l", Kind: store.ErrUnavailable}
		for name, tt := range map[string]struct {
			layout leasehold.Layout
			do     func(j *job)
			text   string
			events string
		}{
			"it ended": {
				"", func(j *job) { j.ended(heldLease{}, run{Status: guardian.Status{Code: 3}}, at) },
				"the command of l ended with code 3",
				line(at, "ended", "info", "the command of l ended with code 3", `,"exit_code":3`),
			},
			"it was killed": {
				"", func(j *job) { j.ended(heldLease{}, run{Status: guardian.Status{Code: 137, Signal: 9}}, at) },
				"the command of l ended with code 137",
				line(at, "ended", "info", "the command of l ended with code 137", `,"exit_code":137,"signal":9`),
			},
			"it was lost": {
				"", func(j *job) {
					j.ended(heldLease{}, run{Status: guardian.Status{Code: 143, Signal: 15}, lost: errors.New("no answer")}, at)
				},
				"the command of l ended with code 143\nthe lease on l was lost: no answer",
				line(at, "ended", "info", "the command of l ended with code 143", `,"exit_code":143,"signal":15`) +
					line(at, "lost", "info", "the lease on l was lost: no answer", `,"cause":"no answer"`),
			},
			"it was not started": {"", func(j *job) { j.ended(heldLease{}, run{err: errors.New("no")}, at) }, "", ""},
			"released": {
				"", func(j *job) { j.released(heldLease{}, time.Now().Add(time.Minute), nil) },
				"released l", line(time.Now(), "released", "info", "released l", ""),
			},
			"lost before": {"", func(j *job) {
				j.released(heldLease{}, time.Now().Add(time.Minute), fmt.Errorf("%w: late", leasehold.ErrLost))
			}, "", ""},
			"not released": {
				"", func(j *job) { j.released(heldLease{}, time.Now().Add(9500*time.Millisecond), failure) },
				`could not release l: store unavailable (put "l"): others may have to wait up to 10s longer`,
				line(time.Now(), "unreleased", "warn", `could not release l: store unavailable (put "l"): others may have to wait up to 10s longer`, `,"cause":"store unavailable (put \"l\")"`),
			},
			"not released in time": {
				"", func(j *job) { j.released(heldLease{}, at, failure) },
				`could not release l: store unavailable (put "l"): others may have to wait up to 0s longer`, "",
			},
			"a marker is left": {
				leasehold.LayoutMarker, func(j *job) { j.released(heldLease{}, time.Now().Add(time.Minute), failure) },
				`could not release l: store unavailable (put "l"): others may have to wait until its marker is deleted: see --sweep and leasehold gc`, "",
			},
			"it campaigns again": {
				"", func(j *job) {
					(&electCmd{job: *j}).again(slog.LevelWarn, 1500*time.Millisecond, "denied", "not leading %s", "l")
				},
				"not leading l",
				fmt.Sprintf(`{"time":%q,"event":"campaign","level":"warn","message":"not leading l","lock":"file:///l","pause_ms":1500,"cause":"denied"}`+"\n", time.Now().UTC().Format(time.RFC3339)),
			},
		} {
			for _, output := range []string{"text", "json"} {
				var said bytes.Buffer
				a := &app{console: console{w: &said}}
				a.output, a.verbose = output, true
				if err := a.console.begin(&a.flags); err != nil {
					t.Fatal(err)
				}
				a.console.about("file:///l")
				tt.do(&job{app: a, target: target{name: "l"}, opts: leasehold.LockOptions{Address: "a:1", Layout: tt.layout, NoIfMatch: tt.layout == leasehold.LayoutMarker}})
				switch got := said.String(); {
				case output == "text" && strings.TrimSpace(strings.ReplaceAll(got, "leasehold: ", "")) != tt.text:
					t.Errorf("%s: it says\n%s\nwant\n%s", name, got, tt.text)
				case output == "json" && tt.events != "" && !sameLines(got, tt.events):
					t.Errorf("%s: the events are\n%s\nwant\n%s", name, got, tt.events)
				}
			}
		}
	})
}

// sameLines reports that two texts are the same lines of JSON.
func sameLines(a, b string) bool {
	one, other := strings.Split(a, "\n"), strings.Split(b, "\n")
	if len(one) != len(other) {
		return false
	}
	for i := range one {
		var x, y any
		errX, errY := json.Unmarshal([]byte(one[i]), &x), json.Unmarshal([]byte(other[i]), &y)
		if (errX == nil) != (errY == nil) || fmt.Sprint(x) != fmt.Sprint(y) {
			return false
		}
	}
	return true
}

// TestHoldingIsFit: a run is alive for the service manager's watchdog while its lease is valid, and for a TTL after that, in
// which its command is ended.
func TestHoldingIsFit(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	now := time.Now()
	var h holding
	fit := func(after time.Duration, want bool) {
		t.Helper()
		if got := h.fit(ttl, now.Add(after)); got != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
	var valid, over held = heldLease{valid: true}, heldLease{}
	h.lease.Store(&over)
	fit(0, true) // nobody has seen it valid
	h.lease.Store(nil)
	fit(time.Minute, true) // it waits
	h.lease.Store(&valid)
	fit(2*time.Minute, true)
	fit(time.Hour, true)
	h.lease.Store(&over)
	fit(time.Hour+ttl, true)
	fit(time.Hour+ttl+1, false)
	if text := h.standing("l"); text != "holding l as me, token 7" {
		t.Errorf("it stands %q", text)
	}
}

// TestFailureAsEvent: the event of an error that ends the program has its code, the page that explains it, and who holds the
// lock.
func TestFailureAsEvent(t *testing.T) {
	t.Parallel()
	busy := &leasehold.HeldError{Info: leasehold.Info{Held: true, Holder: "a", Token: 5}}
	slots := &leasehold.HeldError{Info: leasehold.Info{Size: 2, Holders: []leasehold.Entry{{Holder: "b", Token: 6}, {Holder: "c", Token: 7}}}}
	for _, tt := range []struct {
		end  exit
		docs bool
		want party
	}{
		{exit{exitDenied, store.ErrDenied}, true, party{}},
		{exit{exitHeld, busy}, false, party{Holder: "a", Token: 5}},
		{exit{exitHeld, slots}, false, party{Holder: "b", Token: 6}},
		{exit{exitHeld, &leasehold.HeldError{Info: leasehold.Info{Size: 2, Holders: slots.Info.Holders[1:]}}}, false, party{Holder: "c", Token: 7}},
		{exit{exitHeld, &leasehold.HeldError{Info: leasehold.Info{Size: 2, Token: 7}}}, false, party{}},
	} {
		e := failure(&tt.end, "it failed")
		if e.Event != eventFailed || e.Message != "it failed" || e.ExitCode == nil || *e.ExitCode != tt.end.code || (e.Docs != "") != tt.docs || e.party != tt.want {
			t.Errorf("%v: %+v", &tt.end, e)
		}
	}
}
