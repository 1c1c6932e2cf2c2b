package candidate_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// TestObserved: there is an object as soon as an answer has shown one; without tokens
// there need be none.
func TestObserved(t *testing.T) {
	t.Parallel()
	exists := func(p *player, want bool, version protocol.Version) {
		t.Helper()
		if _, v, exists := p.c.Observed(); exists != want || v != version {
			t.Errorf("it exists: %t, as %q, want %t, %q", exists, v, want, version)
		}
	}
	p := newPlayer(candidate.Config{})
	exists(p, false, "")
	p.step(0, candidate.Watch{On: true})
	p.step(1, candidate.ReadDone{Shown: protocol.Absent})
	exists(p, false, "")
	p.step(time.Minute, protocol.Tick{})
	p.step(time.Minute+1, freed)
	exists(p, true, "v1")

	p = newPlayer(candidate.Config{Register: candidate.Register{Tokenless: true}})
	exists(p, false, "")
	p.step(0, candidate.Watch{On: true})
	p.step(1, candidate.ReadDone{Shown: protocol.Found, Record: record.Record{TTL: 15 * time.Second}})
	exists(p, true, "")
}

// TestClaimable: what is free or has been waited out, as far as the candidate knows, and not what it holds itself.
func TestClaimable(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	held := freed
	held.Record.Held = true
	absent := candidate.ReadDone{Shown: protocol.Absent}
	noMarker := candidate.ReadDone{Shown: protocol.Found, Record: record.Record{TTL: ttl}}
	waited := time.Second + protocol.Patience(ttl)
	for _, c := range []struct {
		title  string
		cfg    candidate.Config
		events []protocol.Event
		clock  time.Duration
		want   bool
	}{
		{"nothing is known", candidate.Config{}, nil, time.Hour, false},
		{"nothing is known of a marker", candidate.Config{Register: candidate.Register{Tokenless: true}}, nil, time.Hour, false},
		{"free", candidate.Config{}, []protocol.Event{freed}, time.Second, true},
		{"no object", candidate.Config{}, []protocol.Event{absent}, time.Hour, false},
		{"no marker", candidate.Config{Register: candidate.Register{Tokenless: true}}, []protocol.Event{noMarker}, time.Second, true},
		{"held", candidate.Config{}, []protocol.Event{held}, waited - 1, false},
		{"held for long", candidate.Config{}, []protocol.Event{held}, waited, true},
		{"not to be written over", candidate.Config{Register: candidate.Register{WriteOnce: true}}, []protocol.Event{held}, time.Hour, false},
		{"to be swept", candidate.Config{Register: candidate.Register{WriteOnce: true, Sweep: true}}, []protocol.Event{held}, waited, true},
		{"its own", candidate.Config{}, []protocol.Event{candidate.Acquire{}, freed, candidate.WriteDone{Version: "v2"}}, time.Second, false},
	} {
		p := newPlayer(c.cfg)
		if len(c.events) == 1 {
			p.step(time.Second, candidate.Watch{On: true})
		}
		for _, ev := range c.events {
			p.step(time.Second, ev)
		}
		if got := p.c.Claimable(c.clock); got != c.want {
			t.Errorf("%s: claimable %t", c.title, got)
		}
	}
}

// TestRecheckIsForOneAcquisition: a recheck while a look is under way asks for another one, but
// not in the acquisition that comes after.
func TestRecheckIsForOneAcquisition(t *testing.T) {
	t.Parallel()
	held := freed
	held.Version, held.Record.Held, held.Record.Token = "v4", true, 43
	for _, again := range []bool{true, false} {
		p := newPlayer(candidate.Config{})
		p.step(0, candidate.Acquire{Wait: true})
		p.step(1, protocol.Recheck{})
		if !again {
			p.step(2, freed)
			p.step(3, candidate.WriteDone{Version: "v2"})
			p.step(4, candidate.Release{})
			p.step(5, candidate.WriteDone{Version: "v3"})
			p.step(6, candidate.Acquire{Wait: true})
			p.step(7, candidate.WriteDone{Err: protocol.ErrTaken})
		}
		p.step(8, held)
		if p.step(9, protocol.Tick{}); did[candidate.Read](p) != again {
			t.Errorf("nudged in this acquisition %t, and then %v", again, p.last)
		}
	}
}

// TestSightedNothing: only a record that somebody else's look has shown begins a wait.
func TestSightedNothing(t *testing.T) {
	t.Parallel()
	for _, shown := range []protocol.Shown{protocol.Unread, protocol.Same, protocol.Absent, protocol.Foreign} {
		p := newPlayer(candidate.Config{})
		answer := candidate.ReadDone{Shown: shown, Version: "v1", Err: errors.New("no record")}
		if p.step(2, candidate.Sighted{Answer: answer, Sent: 1}); len(p.last) > 0 {
			t.Errorf("shown %d: %v", shown, p.last)
		}
		if _, v, exists := p.c.Observed(); v != "" || exists {
			t.Errorf("shown %d: it exists: %t, as %q", shown, exists, v)
		}
	}
}

// TestSightOfNoMarker: a candidate that knows nothing learns by another's look that there is no marker.
func TestSightOfNoMarker(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Register: candidate.Register{Tokenless: true}})
	p.step(2, candidate.Sighted{Sent: 1, Answer: candidate.ReadDone{Shown: protocol.Found, Record: record.Record{TTL: time.Minute}}})
	if _, _, exists := p.c.Observed(); !exists {
		t.Error("it knows nothing")
	}
}

// TestVanishedWhileFree: an object that was free and is gone is not claimed at once: somebody may have
// acquired it before it was deleted.
func TestVanishedWhileFree(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	p.step(0, candidate.Acquire{})
	p.step(1, freed)
	p.step(2, candidate.WriteDone{Err: errors.New("412"), Void: true})
	p.step(3, candidate.ReadDone{Shown: protocol.Absent})
	for _, a := range p.last {
		if f, ok := a.(candidate.Failed); ok && errors.Is(f.Err, protocol.ErrVanished) {
			return
		}
	}
	t.Errorf("it does %+v", p.last)
}

// FuzzToken: whatever token a record has that can be read, it is either refused, or followed by
// one that can be read and is larger. One that was followed by a foreign record made its lock
// unusable.
func FuzzToken(f *testing.F) {
	for _, token := range []int64{1, 2, 1 << 41, record.LastToken - 2, record.LastToken - 1, record.LastToken, record.LastToken + 1, math.MaxInt64 - 1, math.MaxInt64} {
		for _, held := range []bool{false, true} {
			f.Add(token, held, uint8(0))
			f.Add(token, held, uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, token int64, held bool, layout uint8) {
		r := record.Record{Token: token, Held: held, Holder: "x", TTL: time.Second, WriteID: "x"}
		cfg := candidate.Config{Incarnation: "me", TTL: 15 * time.Second, Holder: "me"}
		if layout%2 == 1 {
			cfg.Numbered, cfg.Layout, r.Epoch = true, epochs, 7
		}
		r.Layout = cfg.Layout
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		read, err := record.DecodeIn(cfg.Layout, body)
		if (err == nil) != (token > 0) {
			t.Fatalf("token %d: %v", token, err)
		}
		if err != nil {
			return
		}
		read.Epoch = r.Epoch
		c, refused := candidate.New(cfg), false
		c.Step(candidate.Acquire{Wait: true}, protocol.Now{Clock: time.Hour})
		out := c.Step(candidate.ReadDone{Shown: protocol.Found, Version: "v1", Record: read}, protocol.Now{Clock: time.Hour})
		if held {
			out = append(out, c.Step(protocol.Tick{}, protocol.Now{Clock: 2 * time.Hour})...) // it looks once more before it takes over, or not
		}
		for _, a := range out {
			switch a := a.(type) {
			case candidate.Failed:
				refused = errors.Is(a.Err, protocol.ErrTooLarge)
			case candidate.Write:
				body, err := a.Record.Encode()
				if err != nil {
					t.Fatal(err)
				}
				next, err := record.DecodeIn(cfg.Layout, body)
				if err != nil || next.Token <= token || next.Token > record.LastToken {
					t.Errorf("token %d is followed by %d: %v", token, next.Token, err)
				}
			}
		}
		if refused != (token >= record.LastToken) {
			t.Errorf("token %d: refused %t", token, refused)
		}
	})
}
