package candidate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// TestTermsBounds: the first and the last of each range are in it.
func TestTermsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		terms candidate.Terms
		ok    bool
	}{
		{candidate.Terms{}, true},
		{candidate.Terms{HoldAtLeast: -1}, false},
		{candidate.Terms{HoldAtLeast: 1}, true},
		{candidate.Terms{HoldAtLeast: candidate.MaxRest}, true},
		{candidate.Terms{HoldAtLeast: candidate.MaxRest + 1}, false},
		{candidate.Terms{MaxHold: candidate.MinHold - 1}, false},
		{candidate.Terms{MaxHold: candidate.MinHold}, true},
		{candidate.Terms{MaxHold: time.Minute, HoldAtLeast: time.Minute}, true},
		{candidate.Terms{MaxHold: time.Minute, HoldAtLeast: time.Minute + 1}, false},
		{candidate.Terms{TTL: protocol.MinTTL - 1}, false},
		{candidate.Terms{TTL: protocol.MinTTL}, true},
		{candidate.Terms{NoRenewal: true}, true},
		{candidate.Terms{TTL: protocol.MaxTTL}, true},
		{candidate.Terms{TTL: protocol.MaxTTL + 1}, false},
	} {
		if err := c.terms.Check(false); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.terms, err)
		}
	}
}

// TestTermsUnderASession: a session has a TTL of its own, and renews itself.
func TestTermsUnderASession(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		terms candidate.Terms
		ok    bool
	}{
		{candidate.Terms{}, true},
		{candidate.Terms{Holder: "a", MaxHold: time.Minute, HoldAtLeast: time.Second}, true},
		{candidate.Terms{TTL: time.Minute}, false},
		{candidate.Terms{TTL: 1}, false},
		{candidate.Terms{NoRenewal: true}, false},
	} {
		if err := c.terms.Check(true); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.terms, err)
		}
	}
}

// TestNoTerms: each term is one.
func TestNoTerms(t *testing.T) {
	t.Parallel()
	for _, terms := range []candidate.Terms{
		{Holder: "a"}, {Meta: map[string]string{}}, {TTL: 1}, {NoRenewal: true}, {MaxHold: 1}, {HoldAtLeast: 1},
	} {
		if terms.None() {
			t.Errorf("%+v are none", terms)
		}
	}
	if none := (candidate.Terms{}); !none.None() {
		t.Error("no terms are some")
	}
}

// TestLongestHold: a lease may be held for longer than the clock can count.
func TestLongestHold(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	p.step(time.Hour, candidate.Acquire{Terms: candidate.Terms{MaxHold: protocol.Never - time.Minute}})
	p.step(time.Hour+1, freed)
	p.step(time.Hour+2, candidate.WriteDone{Version: "v2"})
	if _, end := p.c.Terms(); end != protocol.Never || !p.c.Valid(time.Hour+2) {
		t.Errorf("it ends at %v, valid %t", end, p.c.Valid(time.Hour+2))
	}
}

// TestExpiry: of two terms that end a lease the one that is first is the reason.
func TestExpiry(t *testing.T) {
	t.Parallel()
	terms := candidate.Terms{NoRenewal: true, MaxHold: time.Minute}
	for ttl, says := range map[time.Duration]string{15 * time.Second: "for one TTL of 15s", 2 * time.Minute: ""} {
		err := terms.Expiry(time.Second, 2*time.Second, ttl)
		if errors.Is(err, candidate.ErrTimeUp) != (says != "") || !strings.Contains(err.Error(), says) {
			t.Errorf("a TTL of %v: %v", ttl, err)
		}
	}
}

// TestRetune: the new TTL is that of the next write, and the new intervals those of the next
// pauses.
func TestRetune(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Role: candidate.Follower{Frequent: time.Hour, Infrequent: time.Hour}})
	look := func(at time.Duration, version protocol.Version, held bool) (pause time.Duration) {
		t.Helper()
		r := candidate.ReadDone{Shown: protocol.Found, Version: version, Record: freed.Record}
		r.Record.Held = held
		p.step(at, protocol.Tick{})
		p.step(at, r)
		wake, _ := p.c.Wake()
		return wake - at
	}
	p.step(0, candidate.Watch{On: true})
	p.step(0, candidate.Retune{TTL: time.Minute, Frequent: 1, Infrequent: 8 * time.Second})
	if pause := look(0, "v1", true); pause != 0 {
		t.Errorf("the next look at a new leader comes after %v, want nothing, by the new interval", pause)
	}
	if pause := look(time.Second, "v2", true); pause < 6*time.Second || pause > 10*time.Second {
		t.Errorf("the next look at a steady leader comes after %v, want about 8s, by the new interval", pause)
	}
	look(time.Minute, "v3", false)
	p.step(time.Minute, candidate.Acquire{})
	if r := p.wrote(t); r.TTL != time.Minute {
		t.Errorf("it writes the TTL %v, want the new one", r.TTL)
	}
}

// TestTermsAreForgotten: the terms of a lease end with it.
func TestTermsAreForgotten(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	p.step(0, candidate.Acquire{Terms: candidate.Terms{TTL: time.Hour}})
	p.step(1, freed)
	p.step(2, candidate.WriteDone{Version: "v2"})
	p.step(3, candidate.Release{})
	p.step(4, candidate.WriteDone{Version: "v3"})
	if terms, _ := p.c.Terms(); !terms.None() {
		t.Errorf("they are %+v", terms)
	}
}
