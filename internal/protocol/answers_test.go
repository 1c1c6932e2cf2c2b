package protocol_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// TestWordOf: a word is of the leader that the record tells of if all of it is.
func TestWordOf(t *testing.T) {
	t.Parallel()
	r := record.Record{Token: 41, Holder: "db-1", WriteID: "other.7"}
	for _, c := range []struct {
		word protocol.PeerStatus
		of   bool
	}{
		{protocol.PeerStatus{Incarnation: "other", Holder: "db-1", Token: 41}, true},
		{protocol.PeerStatus{Incarnation: "another", Holder: "db-1", Token: 41}, false},
		{protocol.PeerStatus{Incarnation: "other", Holder: "db-2", Token: 41}, false},
		{protocol.PeerStatus{Incarnation: "other", Holder: "db-1", Token: 40}, false},
	} {
		if got := c.word.Of(r); got != c.of {
			t.Errorf("%+v is of %+v: %t, want %t", c.word, r, got, c.of)
		}
	}
}

// TestLostTo: the record in the place of a lease says what became of that: one that is held tells
// of a rival whatever else it says, and one that is free of what was done to this very lease, if
// it has its token.
func TestLostTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		found     record.Record
		tokenless bool
		want      error
	}{
		{record.Record{Held: true, Token: 43}, false, protocol.ErrTaken},
		{record.Record{Held: true, Token: 42}, false, protocol.ErrTaken},
		{record.Record{Held: true, Token: 42, Ended: record.EndedByHand}, false, protocol.ErrTaken},
		{record.Record{Token: 42}, false, protocol.ErrFreed},
		{record.Record{Token: 42, Ended: "waited out"}, false, protocol.ErrFreed},
		{record.Record{Token: 42, Ended: record.EndedByHand}, false, protocol.ErrBroken},
		{record.Record{Token: 42, Ended: record.EndedByTakeover}, false, protocol.ErrTaken},
		{record.Record{Token: 43, Ended: record.EndedByHand}, false, protocol.ErrTaken},
		{record.Record{Token: 43, Ended: record.EndedByTakeover, Holder: "db-1"}, false, protocol.ErrTaken},
		{record.Record{Token: 43, Ended: "waited out"}, false, protocol.ErrTaken},
		{record.Record{Held: true}, true, protocol.ErrTaken},
		{record.Record{}, true, protocol.ErrVanished},
	} {
		p := newPlayer(protocol.Config{Tokenless: c.tokenless})
		p.step(0, protocol.Acquire{})
		p.step(1, freed)
		p.step(2, protocol.WriteDone{Version: "v2"})
		p.step(6*time.Second, protocol.Tick{})
		p.step(6*time.Second, protocol.WriteDone{Err: errors.New("time-out")})
		c.found.TTL, c.found.WriteID = 15*time.Second, "other.2"
		p.step(6*time.Second, protocol.ReadDone{Shown: protocol.Found, Version: "v3", Record: c.found})
		var lost error
		for _, a := range p.last {
			if a, is := a.(protocol.Lost); is {
				lost = a.Err
			}
		}
		if !errors.Is(lost, c.want) {
			t.Errorf("%+v in its place: %v, want %v", c.found, lost, c.want)
		}
		// Whose record it is that is not this lease's stands in the error, and of this one's nothing.
		if names := lost != nil && strings.Contains(lost.Error(), "holder"); names != (c.found.Held || c.found.Token != 42 && !c.tokenless) {
			t.Errorf("%+v in its place: %v", c.found, lost)
		}
	}
}

// TestSightedNothing: only a record that somebody else's look has shown begins a wait.
func TestSightedNothing(t *testing.T) {
	t.Parallel()
	for _, shown := range []protocol.Shown{protocol.Unread, protocol.Same, protocol.Absent, protocol.Foreign} {
		p := newPlayer(protocol.Config{})
		answer := protocol.ReadDone{Shown: shown, Version: "v1", Err: errors.New("no record")}
		if p.step(2, protocol.Sighted{Answer: answer, Sent: 1}); len(p.last) > 0 {
			t.Errorf("shown %d: %v", shown, p.last)
		}
		if _, v, exists := p.c.Observed(); v != "" || exists {
			t.Errorf("shown %d: it exists: %t, as %q", shown, exists, v)
		}
	}
}

// TestTroubleEnds: the last failure is told until a look succeeds, if looks failed, or a write,
// if writes did.
func TestTroubleEnds(t *testing.T) {
	t.Parallel()
	down := errors.New("503")
	p := newPlayer(protocol.Config{})
	trouble := func(at time.Duration, ev protocol.Event, want error) {
		t.Helper()
		if p.step(at, ev); !errors.Is(p.c.Trouble(), want) || (want == nil) != (p.c.Trouble() == nil) {
			t.Errorf("after %T at %v: %v, want %v", ev, at, p.c.Trouble(), want)
		}
	}
	trouble(0, protocol.Watch{On: true}, nil)
	trouble(1, protocol.ReadDone{Err: down}, down)
	trouble(time.Second, protocol.Tick{}, down)
	trouble(time.Second, protocol.ReadDone{Shown: protocol.Absent}, nil)

	p = newPlayer(protocol.Config{})
	trouble(0, protocol.Acquire{Wait: true}, nil)
	trouble(1, protocol.ReadDone{Err: down}, down)
	trouble(time.Second, protocol.Tick{}, down)
	trouble(time.Second, freed, nil) // and it claims
	trouble(time.Second, protocol.WriteDone{Err: down}, down)
	trouble(time.Second, protocol.ReadDone{Shown: protocol.Same}, down)
	trouble(2*time.Second, protocol.Tick{}, down)
	trouble(2*time.Second, protocol.WriteDone{Version: "v2"}, nil)
	trouble(3*time.Second, protocol.Release{}, nil)
	trouble(3*time.Second, protocol.WriteDone{Err: down}, down)
	trouble(3*time.Second, protocol.ReadDone{Shown: protocol.Same}, down)
	trouble(4*time.Second, protocol.Tick{}, down)
	trouble(4*time.Second, protocol.WriteDone{Version: "v3"}, nil)
}

// TestClaimsOfManySessions: claims of nine sessions that may all land are one too many to be
// remembered. The oldest one's session is to end, and then the next one's; the others' are known.
func TestClaimsOfManySessions(t *testing.T) {
	t.Parallel()
	down := errors.New("time-out")
	p := newPlayer(protocol.Config{TTL: time.Hour})
	p.step(0, protocol.Watch{On: true})
	p.step(0, freed)
	var wrote []record.Record
	for i := range 11 {
		at := time.Duration(i+1) * time.Second
		p.step(at, protocol.Acquire{Wait: true, Session: fmt.Sprint("s/", i+1)})
		wrote = append(wrote, p.wrote(t))
		var ended []string
		for _, a := range p.last {
			if a, is := a.(protocol.SessionOrphan); is {
				ended = append(ended, a.Session)
			}
		}
		want := []string(nil)
		if i >= 8 {
			want = []string{fmt.Sprint("s/", i-7)}
		}
		if fmt.Sprint(ended) != fmt.Sprint(want) {
			t.Errorf("claim %d: the sessions %v are to end, want %v", i+1, ended, want)
		}
		p.step(at, protocol.WriteDone{Err: down})
		p.step(at, protocol.ReadDone{Shown: protocol.Same})
		if i < 10 {
			p.step(at, protocol.Cancel{})
		}
	}
	p.step(20*time.Second, protocol.Recheck{})
	p.step(20*time.Second, protocol.ReadDone{Shown: protocol.Found, Version: "v2", Record: wrote[10]})
	if !did[protocol.Granted](p) {
		t.Errorf("the claim that is wanted has landed: %v", p.last)
	}
}

// TestClaimsOverTwoVersions: a claim whose first write has landed and whose second may yet is not
// remembered together with those that came after, over what the first one left: what lands of
// these would count from too early a time.
func TestClaimsOverTwoVersions(t *testing.T) {
	t.Parallel()
	down := errors.New("time-out")
	for lands := 1; lands <= 2; lands++ {
		p := newPlayer(protocol.Config{TTL: time.Hour, Numbered: true})
		p.step(0, protocol.Acquire{Wait: true})
		p.step(0, freed)
		half := freed.Record
		half.WriteID = p.wrote(t).WriteID
		var wrote []record.Record
		var sent []time.Duration
		at := time.Second
		p.step(at, protocol.WriteDone{Err: down})
		p.step(at, protocol.ReadDone{Shown: protocol.Found, Version: "v2", Record: half})
		for len(wrote) < 8 {
			if len(wrote) > 0 { // what the first one left is progress, and the next one follows at once
				at, _ = p.c.Wake()
				p.step(at, protocol.Tick{})
			}
			wrote, sent = append(wrote, p.wrote(t)), append(sent, at)
			p.step(at, protocol.WriteDone{Err: down})
			if len(wrote) < 8 {
				p.step(at, protocol.ReadDone{Shown: protocol.Same})
			}
		}
		p.step(at, protocol.ReadDone{Shown: protocol.Found, Version: "v3", Record: wrote[lands-1]})
		if want := sent[0] + protocol.Validity(time.Hour); p.c.Deadline() != want {
			t.Errorf("claim %d of the second version: valid until %v, want %v", lands, p.c.Deadline(), want)
		}
	}
}
