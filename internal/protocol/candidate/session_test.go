package candidate_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// TestRest: a candidate that has rested says and does what one does that has not.
func TestRest(t *testing.T) {
	other := record.Record{Held: true, Token: 45, Epoch: 45, TTL: 15 * time.Second, WriteID: "other.2"}
	for name, events := range map[string][]protocol.Event{
		"released": {
			protocol.Tick{},
			candidate.Release{},
			candidate.WriteDone{Version: "v14", Epoch: 44},
			candidate.Acquire{Wait: true},
			candidate.WriteDone{Err: protocol.ErrTaken},
			candidate.ReadDone{Shown: protocol.Found, Version: "v15", Record: other},
		},
		"not released": { // what the look shows is no progress, so the next release rests
			candidate.Release{},
			candidate.WriteDone{Err: protocol.ErrTaken},
			candidate.ReadDone{Shown: protocol.Found, Version: "v14", Record: record.Record{Held: true, Token: 29, Epoch: 44, TTL: 9 * time.Second, WriteID: "me.13", Session: "s/9"}},
		},
		"vanished": {
			candidate.Release{},
			candidate.WriteDone{Err: protocol.ErrTaken},
			candidate.ReadDone{Shown: protocol.Absent},
			candidate.Acquire{},
			candidate.ReadDone{Shown: protocol.Absent},
		},
		"over": {protocol.SessionOver{Session: "s/9", Err: protocol.ErrGivenUp}, candidate.Release{}},
	} {
		t.Run(name, func(t *testing.T) { testRest(t, events) })
	}
}

// testRest plays the same to two candidates that hold a lease under a session.
func testRest(t *testing.T, events []protocol.Event) {
	t.Helper()
	cfg := candidate.Config{
		Incarnation: "me", TTL: 9 * time.Second, Holder: "web-1", Address: "web-1:80",
		Meta: map[string]string{"zone": "a"}, Register: candidate.Register{Layout: epochs, Numbered: true},
	}
	awake := holding(t, cfg)
	rest, can := awake.Save()
	if !can {
		t.Fatal("a candidate that holds a lease under a session cannot rest")
	}
	awake.Step(candidate.Watch{On: true}, at(4*time.Second))
	if _, can := awake.Save(); can {
		t.Fatal("a candidate that watches can rest")
	}
	awake.Step(candidate.Watch{}, at(4*time.Second))
	cfg.Incarnation = ""
	rested := candidate.Restore(cfg, rest)
	compare(t, "at first", awake, rested)
	for i, ev := range events {
		now := at(time.Hour + time.Duration(i)*time.Millisecond)
		if a, b := awake.Step(ev, now), rested.Step(ev, now); !reflect.DeepEqual(a, b) {
			t.Errorf("to %T one that has not rested says\n%+v\nand one that has\n%+v", ev, a, b)
		}
		compare(t, fmt.Sprintf("after %T", ev), awake, rested)
	}
}

func at(d time.Duration) protocol.Now { return protocol.Now{Clock: d, Wall: scenario.Wall.Add(d)} }

// holding is a candidate with a past that holds a lease under a session.
func holding(t *testing.T, cfg candidate.Config) *candidate.Machine {
	t.Helper()
	c := candidate.New(cfg)
	seen := candidate.ReadDone{Shown: protocol.Found, Version: "v", Record: record.Record{
		Held: true, Token: 29, Epoch: 30, TTL: 15 * time.Second, WriteID: "other.1", Unknown: map[string]json.RawMessage{"colour": []byte(`"red"`)},
		Holder: "web-2", AcquiredAt: scenario.Wall.Add(-time.Hour), RenewedAt: scenario.Wall.Add(-time.Minute), Term: 7, TermToken: 29,
		History: json.RawMessage(`[{"token":28,"holder":"web-3","from":"2026-11-20T08:00:00.000Z","to":"2026-11-20T09:00:00.000Z","how":"released"}]`),
	}}
	c.Step(candidate.Acquire{}, at(0))
	c.Step(seen, at(0)) // refused, and random numbers were drawn
	seen.Record.Held = false
	c.Step(candidate.Acquire{Session: "s/9"}, at(0))
	for n := range 13 { // so that write IDs have two digits
		if _, can := c.Save(); can {
			t.Fatal("a candidate that acquires can rest")
		}
		seen.Version = protocol.Version(fmt.Sprint("v", n))
		seen.Record.Epoch++ // of a rival that was faster
		c.Step(seen, at(time.Second))
		if n < 12 {
			c.Step(candidate.WriteDone{Err: protocol.ErrTaken}, at(time.Second))
		}
	}
	c.Step(candidate.WriteDone{Version: "v13", Epoch: 44}, at(3*time.Second))
	return c
}

func compare(t *testing.T, when string, awake, rested *candidate.Machine) {
	t.Helper()
	text := func(c *candidate.Machine) string {
		lease, err := c.Lease().Encode()
		if err != nil {
			t.Fatal(err)
		}
		record, version, exists := c.Observed()
		seen, err := record.Encode()
		if err != nil {
			t.Fatal(err)
		}
		wake, _ := c.Wake()
		return fmt.Sprintf("%s%s%s %t %d %d, valid %t until %v, wakes at %v",
			lease, seen, version, exists, c.Lease().Epoch, record.Epoch, c.Valid(time.Hour), c.Deadline(), wake)
	}
	if a, b := text(awake), text(rested); a != b {
		t.Errorf("%s one that has not rested is\n%s\nand one that has\n%s", when, a, b)
	}
}

// TestCheckIsNotOutstanding: while the session of a holder is asked, nothing is on its way that
// somebody would have to free.
func TestCheckIsNotOutstanding(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	p.step(time.Second, candidate.Acquire{})
	r := record.Record{Held: true, Holder: "db-1", TTL: time.Minute, Token: 41, WriteID: "other.1", Session: "s/9"}
	p.step(2*time.Second, candidate.ReadDone{Shown: protocol.Found, Version: "v1", Record: r})
	if !p.c.Busy() || p.c.Outstanding() {
		t.Errorf("busy %t, outstanding %t, after %v", p.c.Busy(), p.c.Outstanding(), p.last)
	}
}

// TestSavedNumber: the first lease of a numbered lock has a number, and no previous one.
func TestSavedNumber(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Register: candidate.Register{Numbered: true, Layout: epochs}})
	p.step(0, candidate.Acquire{Session: "s"})
	p.step(1, candidate.ReadDone{Shown: protocol.Absent})
	p.step(2, candidate.WriteDone{Version: "v1", Epoch: 1})
	saved, ok := p.c.Save()
	if !ok {
		t.Fatal("it does not rest")
	}
	if n := candidate.Restore(candidate.Config{TTL: time.Minute, Register: candidate.Register{Numbered: true, Layout: epochs}}, saved).Lease().Epoch; n != 1 {
		t.Errorf("the number is %d", n)
	}
}

// TestSavedRest: each part of a lease that most do not have is kept, though none of the others is there.
func TestSavedRest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title string
		found record.Record
		meta  bool
	}{
		{"nothing", record.Record{}, false},
		{"the previous number", record.Record{Epoch: 1}, false},
		{"unknown fields", record.Record{Unknown: map[string]json.RawMessage{"colour": []byte(`"red"`)}}, false},
		{"changed meta data", record.Record{}, true},
	} {
		p := newPlayer(candidate.Config{})
		seen := freed
		seen.Record.Epoch, seen.Record.Unknown = c.found.Epoch, c.found.Unknown
		p.step(0, candidate.Acquire{Session: "s"})
		p.step(time.Second, seen)
		p.step(time.Second, candidate.WriteDone{Version: "v2"})
		if c.meta {
			p.step(time.Minute, candidate.SetMeta{Number: 1, Meta: map[string]string{"step": "2"}})
			p.step(time.Minute, candidate.WriteDone{Version: "v3"})
		}
		saved, ok := p.c.Save()
		if !ok {
			t.Fatalf("%s: it does not rest", c.title)
		}
		rested := candidate.Restore(candidate.Config{Holder: "web-1", TTL: 15 * time.Second}, saved)
		was, is := p.c.Lease(), rested.Lease()
		if is.Previous != was.Previous || !reflect.DeepEqual(is.Unknown, was.Unknown) || is.Meta["step"] != was.Meta["step"] ||
			!is.RenewedAt.Equal(was.RenewedAt) || !is.ExpiresAt.Equal(was.ExpiresAt) || rested.Promised() != p.c.Promised() {
			t.Errorf("%s: it was\n%+v\nand is\n%+v\npromised until %v, and now until %v", c.title, was, is, p.c.Promised(), rested.Promised())
		}
	}
}
