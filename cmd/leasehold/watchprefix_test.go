package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/watchview"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestPrefixLines: what watch says of a prefix: each change with the name, a failure at once and then once a minute, and
// once that there are more locks than it watches.
func TestPrefixLines(t *testing.T) {
	t.Parallel()
	var out, said bytes.Buffer
	w := &prefixWatch{
		app: &app{stdout: &out, console: console{w: &said, least: levelNotice}}, name: "jobs/", limit: 2,
		at: target{storeURL: "file:///locks"},
	}
	l := prefixLines{watch: w}
	now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.Local)
	free := leasehold.Info{Key: "jobs/a", Layout: leasehold.LayoutObject, Exists: true, Token: 5, Holder: "me", Age: -1}
	held := free
	held.Held, held.Token = true, 6
	freed := held
	freed.Held = false
	slots := watchview.Row{Info: leasehold.Info{
		Key: "jobs/s", Layout: layoutTable, Exists: true, Held: true, Token: 9, Age: -1,
		Size: 3, Holders: []leasehold.Entry{{ID: "1", Holder: "x", Weight: 2, Token: 9}},
	}}
	a, b, c := watchview.Row{Info: free}, watchview.Row{Info: held}, watchview.Row{Info: freed}
	foreign := watchview.Row{Info: leasehold.Info{Key: "jobs/c\x1b", Age: -1}, Foreign: "it is no\nlock"}
	for i, step := range []struct {
		after     time.Duration
		seen      watchview.Snapshot
		out, said string
	}{
		{0, watchview.Snapshot{Rows: []watchview.Row{a}}, "", ""},
		{5 * time.Second, watchview.Snapshot{Rows: []watchview.Row{b, slots}}, "elected     jobs/a  me  token 6\n" +
			"elected     jobs/s  2 of 3 taken by x  token 9\n", ""},
		{0, watchview.Snapshot{Rows: []watchview.Row{b, slots}, Cut: true}, "", "there are more than 2 locks under jobs/, and the others are not watched: give a longer prefix, or a larger --limit\n"},
		{0, watchview.Snapshot{Rows: []watchview.Row{b, slots}, Cut: true}, "", ""},
		{5 * time.Second, watchview.Snapshot{Trouble: "it is down"}, "unreadable  jobs/  it is down\n", ""},
		{59 * time.Second, watchview.Snapshot{Trouble: "it is down"}, "", ""},
		{time.Second, watchview.Snapshot{Trouble: "it is down"}, "unreadable  jobs/  it is down\n", ""},
		{time.Second, watchview.Snapshot{Trouble: "it denies"}, "unreadable  jobs/  it denies\n", ""},
		{time.Second, watchview.Snapshot{Rows: []watchview.Row{c, foreign}}, "resigned    jobs/a  last me, token 6\n" +
			"unreadable  \"jobs/c\\x1b\"  it is no; lock\nvanished    jobs/s  2 of 3 taken by x  token 9\n", "jobs/ can be read again\n"},
		{time.Second, watchview.Snapshot{Rows: []watchview.Row{c, foreign}, Cut: true}, "", "there are more than 2 locks under jobs/, and the others are not watched: give a longer prefix, or a larger --limit\n"},
		{0, watchview.Snapshot{Trouble: "it denies"}, "unreadable  jobs/  it denies\n", ""},
	} {
		now = now.Add(step.after)
		out.Reset()
		said.Reset()
		if err := l.show(step.seen, now); err != nil {
			t.Fatal(err)
		}
		got := strings.ReplaceAll(out.String(), now.Format(time.DateTime)+"  ", "")
		if got != step.out || strings.ReplaceAll(said.String(), "leasehold: ", "") != step.said {
			t.Errorf("step %d: it writes\n%swant\n%sand says %q, want %q", i, got, step.out, &said, step.said)
		}
	}
	out.Reset()
	w.app.output = "json"
	other := foreign
	other.Info.Key = "jobs/d"
	if err := l.show(watchview.Snapshot{Rows: []watchview.Row{c, foreign, other}}, now); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `{"time":"2026-`; !strings.HasPrefix(got, want) ||
		!strings.HasSuffix(got, `,"event":"unreadable","lock":"file:///locks/jobs/d","state":"not a lock","abandoned":false,"cause":"it is no; lock"}`+"\n") {
		t.Errorf("as JSON it writes %s", got)
	}
}

// TestPrefixRefresh: no more locks than the limit are read, and the requests are counted as the store's bill has them.
func TestPrefixRefresh(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	for i := range 3 {
		lock, err := leasehold.NewLock(st, fmt.Sprintf("jobs/%d", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err = lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range map[int]watchview.Snapshot{2: {Cut: true}, 3: {}, 4: {}} {
		n := new(atomic.Int64)
		w := &prefixWatch{app: &app{}, at: target{store: countingStore{st, n}, key: "jobs/"}, limit: limit, requests: n}
		for range 2 { // each is counted anew
			s, err := w.refresh(t.Context())
			if err != nil || len(s.Rows) != min(limit, 3) || s.Cut != want.Cut || s.Requests < 1+min(limit, 3) || s.Requests > 5 {
				t.Errorf("at most %d: %d rows, cut: %v, %d requests, %v", limit, len(s.Rows), s.Cut, s.Requests, err)
			}
		}
	}

	lock, err := semaphore.New(st, "slots/s", 2, &semaphore.Options{Holder: "a", Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := lock.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	w := &prefixWatch{app: &app{}, at: target{store: st, key: "slots/"}, limit: 1, requests: new(atomic.Int64)}
	if s, failed := w.refresh(t.Context()); failed != nil || len(s.Rows) != 1 || len(s.Rows[0].Info.Holders) != 1 {
		t.Errorf("of a semaphore it reads %+v, %v", s.Rows, failed)
	}
	if err = errors.Join(lease.Release(t.Context()), lock.Close(t.Context())); err != nil {
		t.Error(err)
	}

	for entries, pages := range map[int]int64{0: 1, 1: 1, 1000: 1, 1001: 2, 2000: 2, 2001: 3} {
		n := new(atomic.Int64)
		many := memstore.New()
		for i := range entries {
			if _, err := many.Put(t.Context(), fmt.Sprintf("k%05d", i), nil, store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		seen := 0
		for _, err := range (countingStore{many, n}).List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			seen++
		}
		if n.Load() != pages || seen != entries {
			t.Errorf("of %d entries it lists %d in %d requests, want %d", entries, seen, n.Load(), pages)
		}
	}
}

// TestPrefixAgain: a view is told when each look begins, and what it has seen.
func TestPrefixAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := new(atomic.Int64)
		w := &prefixWatch{app: &app{}, at: target{store: countingStore{memstore.New(), n}, key: "jobs/"}, every: time.Minute, limit: 1, requests: n}
		var told []string
		enough := errors.New("enough")
		err := w.again(t.Context(), func() { told = append(told, "begins") }, func(s watchview.Snapshot) error {
			if told = append(told, fmt.Sprintf("%d of %q", s.Requests, s.Trouble)); len(told) == 4 {
				return enough
			}
			return nil
		})
		if want := []string{"begins", `1 of ""`, "begins", `1 of ""`}; !slices.Equal(told, want) || !errors.Is(err, enough) {
			t.Errorf("it tells %q, %v, want %q", told, err, want)
		}
	})
}

// TestWatchFlags: a flag that has no meaning beside what is watched is refused, but not one whose variable is set: that may be
// meant for other commands.
func TestWatchFlags(t *testing.T) {
	for _, tt := range []struct {
		args      string
		variables string
		want      string // "": it is not refused
	}{
		{"l", "", ""},
		{"l", "EVERY=7s LIMIT=3", ""},
		{"--every 7s l", "", "--every is for a prefix, and l is one lock: a prefix ends in a slash"},
		{"--limit 3 l", "", "--limit is for a prefix, and l is one lock: a prefix ends in a slash"},
		{"--layout epochs l", "", ""},
		{"jobs/", "", ""},
		{"jobs/", "LAYOUT=epochs", ""},
		{"--limit 1 --every 1s jobs/", "", ""},
		{"--layout epochs jobs/", "", "--layout is for one lock, and jobs/ is a prefix: all layouts are shown"},
		{"--every 999ms jobs/", "", "--every 999ms is less than 1s"},
		{"jobs/", "EVERY=999ms", "--every 999ms is less than 1s"},
		{"--limit 0 jobs/", "", "--limit 0 is less than 1"},
	} {
		for _, name := range []string{"EVERY", "LIMIT", "LAYOUT"} {
			t.Setenv(variablePrefix+name, "")
		}
		for _, v := range strings.Fields(tt.variables) {
			name, value, _ := strings.Cut(v, "=")
			t.Setenv(variablePrefix+name, value)
		}
		var layout leasehold.Layout
		cmd := &cobra.Command{Use: "watch"}
		layoutFlag(cmd.Flags(), &layout)
		w := (&app{}).prefixFlags(cmd)
		args := strings.Fields(tt.args)
		err := cmd.ParseFlags(args)
		if err == nil {
			err = fromEnvironment(cmd.Flags())
		}
		if err != nil {
			t.Fatal(err)
		}
		err = w.refuse(cmd, args[len(args)-1])
		if (err != nil) != (tt.want != "") || err != nil && err.Error() != "exit code 64: "+tt.want {
			t.Errorf("watch %s with %q: %v, want %q", tt.args, tt.variables, err, tt.want)
		}
	}
	for name, want := range map[string]bool{
		"jobs/": true, "jobs": false, "s3://b/x/": true, "s3://b/x": false, "s3://b/x/?region=r": true, "s3://b/x?region=a/": false,
		"s3://b/x/#y": true, "s3://b/x#/": false, "://x/": false, "x?/": true, "s3://?/": false,
	} {
		if isPrefix(name) != want {
			t.Errorf("%q is a prefix: %v", name, !want)
		}
	}
}

// TestWatchUnwritten: watch ends at once if its first line cannot be written, not when it looks again. It finds out a layout
// once, and names what it does not watch as the user gave it.
func TestWatchUnwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"l", "m"} {
		body := `{"format":1,"token":3,"state":"held","holder":"web-1","address":"","ttl_ms":86400000,"write_id":"x.1","session":"","renewed_at":"2999-01-01T00:00:00Z"}`
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := "file://" + filepath.ToSlash(dir) + "/"
	for args, want := range map[string]string{
		"-v watch " + at + "l": "leasehold: " + at + "l has the layout object\nleasehold: cannot write to stdout: it is shut\n",
		"watch --every 24h --limit 1 " + at: "leasehold: watching " + at + ": a refresh each 24h0m0s, of 3 requests now\n" +
			"leasehold: there are more than 1 locks under " + at + ", and the others are not watched: give a longer prefix, or a larger --limit\n" +
			"leasehold: cannot write to stdout: it is shut\n",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // what goes on is a fault
		var said bytes.Buffer
		if code := exec(ctx, strings.Fields(args), shut{}, &said); code != exitInternal || !strings.HasPrefix(said.String(), want) {
			t.Errorf("leasehold %s: exit code %d, and it says\n%swant\n%s", args, code, said.String(), want)
		}
		cancel()
	}
}
