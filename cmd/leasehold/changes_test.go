package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
)

// TestChangeLines: the lines of watch for people, and its events, with all that a record says of the lock.
func TestChangeLines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_789_000, time.Local) //nolint:gosmopolitan // lines have it
	const when = "2026-01-02 03:04:05  "
	p := target{name: "l", url: "file:///l"}
	held := leasehold.Info{Exists: true, Held: true, Holder: "w\x1b", Token: 7, Address: "a:1", TTL: 15 * time.Second, Age: 1600 * time.Millisecond, Layout: leasehold.LayoutEpochs}
	free := leasehold.Info{Exists: true, Holder: "w", Token: 7, Age: -1, Layout: leasehold.LayoutObject}
	gone := leasehold.Info{Age: -1}
	failed := errors.New("no\nanswer\x1b")
	for _, tt := range []struct {
		change leasehold.Change
		text   string
		event  string
	}{
		{
			leasehold.Change{Kind: leasehold.Elected, Info: held},
			`elected     "w\x1b"  token 7  a:1  age 2s  layout epochs`,
			`"event":"elected","lock":"file:///l","state":"held","holder":"w\u001b","address":"a:1","token":7,"layout":"epochs","ttl_ms":15000,"age_ms":1600,"abandoned":false`,
		},
		{
			leasehold.Change{Kind: leasehold.Resigned, Info: free},
			`resigned    last w, token 7`,
			`"event":"resigned","lock":"file:///l","state":"free","last_holder":"w","last_token":7,"abandoned":false`,
		},
		{
			leasehold.Change{Kind: leasehold.Vanished, Info: gone},
			`vanished  `,
			`"event":"vanished","lock":"file:///l","state":"absent","abandoned":false`,
		},
		{
			leasehold.Change{Kind: leasehold.Unreadable, Info: held, Err: failed},
			`unreadable  "no; answer\x1b"  "w\x1b"  token 7  a:1  age 2s  layout epochs`,
			`"event":"unreadable","lock":"file:///l","state":"unknown","holder":"w\u001b","address":"a:1","token":7,"layout":"epochs","ttl_ms":15000,"age_ms":1600,"abandoned":false,"cause":"no; answer\u001b"`,
		},
	} {
		for _, output := range []string{"text", "json"} {
			tt.change.Time = at
			p.layout = tt.change.Info.Layout
			var out bytes.Buffer
			a := &app{stdout: &out}
			a.output = output
			if err := a.change(p, tt.change); err != nil {
				t.Error(err)
			}
			want := when + tt.text + "\n"
			if output == "json" {
				want = `{"time":"` + at.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano) + `",` + tt.event + "}\n"
			}
			if out.String() != want {
				t.Errorf("it writes\n%swant\n%s", &out, want)
			}
			// A prefix names the lock in each line.
			out.Reset()
			if err := a.seenChange(at, tt.change.Kind.String(), "jobs/l", describe(p, tt.change.Info), tt.change.Info, tt.change.Err); err != nil {
				t.Error(err)
			}
			if output == "text" {
				kind, rest, _ := strings.Cut(tt.text, "  ")
				want = when + kind + strings.Repeat(" ", max(10-len(kind), 0)) + "  jobs/l"
				if rest = strings.TrimSpace(rest); rest != "" {
					want += "  " + rest
				}
				want += "\n"
			}
			if out.String() != want {
				t.Errorf("under a prefix it writes\n%swant\n%s", &out, want)
			}
		}
	}
	// What is no lock stays that, and nothing that has vanished is abandoned.
	for kind, want := range map[string]string{
		"unreadable": `"event":"unreadable","lock":"l","state":"not a lock","abandoned":true}`,
		"vanished":   `"event":"vanished","lock":"l","state":"absent","abandoned":false}`,
		"taken over": `"event":"taken_over","lock":"l","state":"not a lock","abandoned":true}`,
	} {
		var out bytes.Buffer
		a := &app{stdout: &out}
		a.output = "json"
		r := report{Lock: "l", State: notLock}
		r.Abandoned = true
		if err := a.seenChange(at, kind, "l", r, gone, nil); err != nil || !strings.HasSuffix(out.String(), want+"\n") {
			t.Errorf("it writes %s, %v; want %s", &out, err, want)
		}
	}
}
