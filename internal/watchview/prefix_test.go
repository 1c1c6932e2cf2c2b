package watchview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/watchview"
)

// row is a lock: "a held 7 web", "a abandoned 7 web", "a free 7", "a foreign", with "epochs" or
// "marker" behind.
func row(t *testing.T, words string) watchview.Row {
	t.Helper()
	f := append(strings.Fields(words), "", "", "")
	r := watchview.Row{Info: leasehold.Info{Key: f[0], Layout: leasehold.LayoutObject, Exists: true, Age: -1, TTL: 15 * time.Second, RenewedAt: began}}
	if strings.Contains(words, " epochs") {
		r.Info.Layout = leasehold.LayoutEpochs
	}
	if strings.Contains(words, " marker") {
		r.Info.Layout = leasehold.LayoutMarker
	}
	switch f[1] {
	case "foreign":
		r.Foreign = "garbage"
		return r
	case "abandoned":
		r.Info.Abandoned = true
		r.Info.Held = true
	case "held":
		r.Info.Held = true
	case "free":
	default:
		t.Fatalf("%q is no state", f[1])
	}
	if _, err := fmt.Sscan(f[2], &r.Info.Token); err != nil && f[2] != "-" {
		t.Fatal(err)
	}
	r.Info.Holder = f[3]
	return r
}

func snapshot(t *testing.T, rows ...string) *watchview.Snapshot {
	t.Helper()
	s := &watchview.Snapshot{}
	for _, r := range rows {
		if r == "cut" {
			s.Cut = true
			continue
		}
		s.Rows = append(s.Rows, row(t, r))
	}
	return s
}

// The changes between two refreshes.
func TestDiff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		before, after []string // no before: it is the first
		want          []string
	}{
		{"at the beginning", nil, []string{"a held 7 x", "b free 3", "c foreign", "d abandoned 4 y"}, []string{"elected a", "unreadable c", "elected d"}},
		{"nothing", []string{"a held 7 x", "b free 3", "c foreign"}, []string{"a held 7 x", "b free 3", "c foreign"}, nil},
		{"elected", []string{"a free 6"}, []string{"a held 7 x"}, []string{"elected a"}},
		{"elected, new", []string{"b free 6"}, []string{"a held 7 x", "b free 6"}, []string{"elected a"}},
		{"resigned", []string{"a held 7 x"}, []string{"a free 7 x"}, []string{"resigned a"}},
		{"resigned, between two refreshes", []string{"a free 7 x"}, []string{"a free 8 x"}, []string{"resigned a"}},
		{"taken over", []string{"a held 7 x"}, []string{"a held 8 y"}, []string{"taken over a"}},
		{"taken over by the same holder", []string{"a held 7 x"}, []string{"a held 8 x"}, []string{"taken over a"}},
		{"taken over, without tokens", []string{"a held - x marker"}, []string{"a held - y marker"}, []string{"taken over a"}},
		{"expired", []string{"a held 7 x"}, []string{"a abandoned 7 x"}, []string{"expired a"}},
		{"once", []string{"a abandoned 7 x"}, []string{"a abandoned 7 x"}, nil},
		{"and it is back", []string{"a abandoned 7 x"}, []string{"a held 7 x"}, []string{"renewed a"}},
		{"appeared", []string{"b free 6"}, []string{"a free 7", "b free 6"}, []string{"appeared a"}},
		{"vanished", []string{"a held 7 x", "b free 6"}, []string{"b free 6"}, []string{"vanished a"}},
		{"all vanished", []string{"a free 7"}, []string{}, []string{"vanished a"}},
		{"a marker that is gone is free", []string{"a held - x marker"}, []string{}, []string{"resigned a"}},
		{"unreadable", []string{"a held 7 x"}, []string{"a foreign"}, []string{"unreadable a"}},
		{"put right", []string{"a foreign"}, []string{"a held 7 x"}, []string{"elected a"}},
		{"in order of the keys", []string{"b free 1", "c free 1"}, []string{"a free 2", "c held 2 x"}, []string{"appeared a", "vanished b", "elected c"}},
		{"what was not got to is not gone", []string{"a free 1", "b free 1", "c free 1"}, []string{"a free 1", "cut"}, nil},
		{"and not new", []string{"a free 1", "cut"}, []string{"a free 1", "b free 1"}, nil},
		{"but its holder is told", []string{"a free 1", "cut"}, []string{"a free 1", "b held 1 x"}, []string{"elected b"}},
		{"what was got to is gone", []string{"a free 1", "b free 1", "c free 1"}, []string{"b free 1", "cut"}, []string{"vanished a"}},
		{"epochs lie below the key", []string{"a-b free 1", "a free 1 epochs"}, []string{"a-b free 1", "cut"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var before *watchview.Snapshot
			if tc.before != nil {
				before = snapshot(t, tc.before...)
			}
			var got []string
			for _, c := range watchview.Diff(before, *snapshot(t, tc.after...), false) {
				got = append(got, c.Kind+" "+c.Row.Info.Key)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	t.Run("renewals, if they are asked for", func(t *testing.T) {
		t.Parallel()
		before, after := snapshot(t, "a held 7 x"), snapshot(t, "a held 7 x")
		after.Rows[0].Info.Version = "2"
		if got := watchview.Diff(before, *after, true); len(got) != 1 || got[0].Kind != "renewed" {
			t.Errorf("%v, want a renewal", got)
		}
	})
	t.Run("a refresh that failed says nothing", func(t *testing.T) {
		t.Parallel()
		if got := watchview.Diff(snapshot(t, "a held 7 x"), watchview.Snapshot{Trouble: "gone"}, true); len(got) > 0 {
			t.Errorf("%v", got)
		}
	})
}

func TestTable(t *testing.T) {
	t.Parallel()
	v := &watchview.Table{Name: "jobs/", Every: 5 * time.Second, Limit: 4}
	shows := func(now, width, height int, want ...string) {
		t.Helper()
		lines := v.Lines(at(now), width, height)
		got := text(lines)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("no %q in\n%s", w, got)
			}
		}
		if len(lines) > height {
			t.Errorf("%d lines on %d rows", len(lines), height)
		}
	}
	shows(0, 80, 10, "jobs/\nstore    has not answered yet\n")
	s := snapshot(t, "jobs/a held 1795418497819 web-1", "jobs/b abandoned 12 web-2", "jobs/c free 3 web-1", "jobs/d foreign", "cut")
	s.Requests = 5
	v.Take(watchview.Listed{Snapshot: *s}, at(1))
	shows(3, 80, 24, "store    answered 2s ago, 5 requests each 5s\n", "only the first 4 are shown", `
NAME    STATE       HOLDER  TOKEN          AGE
jobs/a  held        web-1   1795418497819  ~3s
jobs/b  abandoned   web-2   12             ~3s
jobs/c  free        -       3              ~3s
jobs/d  not a lock  -       -              -
`)
	// Trouble does not take away the last rows.
	v.Take(watchview.Listed{Snapshot: watchview.Snapshot{Trouble: "store unavailable"}}, at(6))
	v.Take(watchview.Said{Text: "slow"}, at(6))
	shows(8, 80, 24, "store    store unavailable\n         answered 7s ago, 5 requests each 5s\n", "slow\n", "jobs/a  held")
	v.Take(watchview.Asked{}, at(6))
	v.Take(watchview.Listed{Snapshot: *snapshot(t, "jobs/a held 1 x epochs", "jobs/b held 1 x")}, at(9))
	shows(9, 80, 24, "AGE  LAYOUT\n", "epochs\n", "answered 0s ago")
	v.Take(watchview.Asked{}, at(10))
	shows(15, 80, 24, "no answer for 5s, answered 6s ago")
	for height := range 12 {
		shows(15, 80, height)
	}
}

// Names of any width leave the other columns where they are, as far as there is room.
func TestTableIsCut(t *testing.T) {
	t.Parallel()
	v := &watchview.Table{Name: "jobs/", Every: 5 * time.Second, Limit: 100}
	s := snapshot(t, "a held 7 "+strings.Repeat("h", 60), "b free 7")
	s.Rows[0].Info.Key = "jobs/" + strings.Repeat("日", 60)
	s.Rows[1].Info.Key = "jobs/\x1b[31m\u0301"
	v.Take(watchview.Listed{Snapshot: *s}, at(0))
	for width := range 250 {
		var columns []int
		for _, l := range v.Lines(at(0), width, 20)[3:6] {
			if strings.ContainsRune(l.Text(), 0x1b) {
				t.Fatalf("%q has control characters", l.Text())
			}
			columns = append(columns, displaywidth.String(l[0].Text))
			if w := displaywidth.String(l.Text()); width >= 50 && w > width {
				t.Errorf("a row of %d columns on %d", w, width)
			}
			if got := displaywidth.String(l.Encode(width, false)); got > width {
				t.Errorf("%d columns are drawn on %d", got, width)
			}
		}
		if len(slices.Compact(columns)) != 1 {
			t.Errorf("at %d columns the states begin at %v", width, columns)
		}
	}
}

func TestTableScrolls(t *testing.T) {
	t.Parallel()
	v := &watchview.Table{Name: "jobs/", Every: time.Second, Limit: 1000}
	var s watchview.Snapshot
	for i := range 500 {
		s.Rows = append(s.Rows, row(t, fmt.Sprintf("jobs/%03d free 1", i)))
	}
	v.Take(watchview.Listed{Snapshot: s}, at(0))
	_ = v.Lines(at(0), 80, 15) // ten rows
	v.Take(watchview.Pressed{Key: watchview.PageDown}, at(0))
	got := text(v.Lines(at(0), 80, 15))
	if !strings.Contains(got, "AGE\njobs/009 ") || !strings.HasSuffix(got, "10 to 19 of 500\n") {
		t.Errorf("after a page:\n%s", got)
	}
	v.Take(watchview.Listed{Snapshot: watchview.Snapshot{Rows: s.Rows[:3]}}, at(1))
	if got := text(v.Lines(at(1), 80, 15)); !strings.Contains(got, "AGE\njobs/000 ") {
		t.Errorf("when few are left:\n%s", got)
	}
}
