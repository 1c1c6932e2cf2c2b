package session_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol/session"
	"github.com/leasehold/leasehold/internal/record"
)

var errOver = errors.New("it is over")

// TestMembership: a session is unused, once, when it is over and the last of its members has
// left, in whatever order that comes.
func TestMembership(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c"}, {"a", "c", "b"}} {
		var s session.Membership[string]
		if s.Unused() {
			t.Error("it is unused before its end")
		}
		for _, m := range []string{"a", "b", "c", "b"} {
			if err := s.Enter(m); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Members(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("members %q", got)
		}
		s.Leave("nobody")
		s.Leave("c")
		if err := s.Enter("c"); err != nil || len(s.Members()) != 3 {
			t.Errorf("one comes again: %v, %q", err, s.Members())
		}
		s.Leave(order[0])
		if s.Unused() || s.Over() != nil {
			t.Error("it is over before its end")
		}
		left := slices.DeleteFunc([]string{"a", "b", "c"}, func(m string) bool { return m == order[0] })
		told, first := s.End(errOver)
		if slices.Sort(told); !first || !slices.Equal(told, left) || !errors.Is(s.Over(), errOver) {
			t.Errorf("told at the end: %q, %t, %v", told, first, s.Over())
		}
		if told, first = s.End(errors.New("once more")); first || told != nil || !errors.Is(s.Over(), errOver) {
			t.Errorf("told at a second end: %q, %t, %v", told, first, s.Over())
		}
		if err := s.Enter("late"); !errors.Is(err, errOver) || len(s.Members()) != 2 {
			t.Errorf("one comes when it is over: %v, %q", err, s.Members())
		}
		s.Leave(order[1])
		if s.Unused() {
			t.Error("it is unused while one is left")
		}
		s.Leave(order[2])
		if !s.Unused() || s.Unused() {
			t.Error("it is not unused once")
		}
	}
}

// TestReleasesAreAnnounced: a heartbeat tells of the locks that were released last, and one that
// was released while it was under way is told of soon.
func TestReleasesAreAnnounced(t *testing.T) {
	t.Parallel()
	s := session.Membership[string]{Last: 2}
	if f := s.Announce(); f != nil || s.Renewed() {
		t.Errorf("nothing was released: %+v", f)
	}
	for n := range 3 {
		if !s.Released(fmt.Sprint("k", n)) {
			t.Error("a release while the session goes on does not bring the heartbeat forward")
		}
	}
	if !s.Renewed() {
		t.Error("what was released since the heartbeat is to be told soon")
	}
	f := s.Announce()
	if f == nil || f.Count != 3 || !slices.Equal(f.Last, []string{session.KeyHash("k1"), session.KeyHash("k2")}) {
		t.Errorf("announced: %+v", f)
	}
	if s.Renewed() {
		t.Error("all was told")
	}
	s.End(errOver)
	if s.Released("k3") {
		t.Error("no heartbeat comes any more")
	}
	if again := s.Announce(); again.Count != 4 || f.Count != 3 || f.Last[0] != session.KeyHash("k1") {
		t.Errorf("%+v, and then %+v", f, again)
	}
	var usual session.Membership[string]
	for n := range 100 {
		usual.Released(fmt.Sprint(n))
	}
	if f := usual.Announce(); f.Count != 100 || len(f.Last) != 64 || f.Last[63] != session.KeyHash("99") {
		t.Errorf("of 100 releases %d and the last %d are told", f.Count, len(f.Last))
	}
}

// TestWatch: a heartbeat sends to their locks those who wait for what it tells the release
// of, or may have told in one that was missed, and nobody else.
func TestWatch(t *testing.T) {
	t.Parallel()
	key := func(m string) string { return m[:1] } // "a1" and "a2" wait for the lock "a"
	at := 10 * time.Second
	beat := func(count int64, last ...string) record.Record {
		f := &record.Freed{Count: count}
		for _, k := range last {
			f.Last = append(f.Last, session.KeyHash(k))
		}
		return record.Record{Freed: f}
	}
	var w session.Watch[string]
	for _, m := range []string{"a1", "a2", "b1", "c1"} {
		if w.Join(m, at) {
			t.Errorf("%s is sent to its lock though nothing was told", m)
		}
	}
	for _, c := range []struct {
		title  string
		record record.Record
		nudged []string
	}{
		{"one that tells nothing", record.Record{}, nil},
		{"the first release", beat(1, "a"), []string{"a1", "a2"}},
		{"the same heartbeat", beat(1, "a"), nil},
		{"two more, of which one is nobody's", beat(3, "a", "x", "b"), []string{"b1"}},
		{"as many as it names", beat(5, "c", "b"), []string{"b1", "c1"}},
		{"more than it names", beat(8, "x", "y"), []string{"a1", "a2", "b1", "c1"}},
		{"an old one", beat(7, "a"), nil},
	} {
		at += time.Second
		if got := w.Beat(c.record, at, key); !slices.Equal(got, c.nudged) {
			t.Errorf("%s: %q are sent to their locks, want %q", c.title, got, c.nudged)
		}
	}
	at -= time.Second // of the last news
	w.Beat(beat(8, "a"), at+time.Minute, key)
	if !w.Join("d1", at-1) || !w.Join("d2", at) || w.Join("d3", at+1) {
		t.Error("those who come look if they have not looked since the last news")
	}
	w.Troubled(errOver)
	if !errors.Is(w.Trouble(), errOver) {
		t.Error(w.Trouble())
	}
	if w.Beat(record.Record{}, at, key); w.Trouble() != nil {
		t.Errorf("a heartbeat was seen: %v", w.Trouble())
	}
	all := w.Waiters()
	for i, m := range all {
		if last := w.Leave(m); last != (i == len(all)-1) {
			t.Errorf("%s leaves, of %d the %d.: last %t", m, len(all), i+1, last)
		}
	}
}
