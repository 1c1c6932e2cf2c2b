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
		{candidate.Terms{HoldAtLeast: -1}, false},
		{candidate.Terms{HoldAtLeast: 1}, true},
		{candidate.Terms{HoldAtLeast: candidate.MaxRest}, true},
		{candidate.Terms{HoldAtLeast: candidate.MaxRest + 1}, false},
		{candidate.Terms{MaxHold: candidate.MinHold - 1}, false},
		{candidate.Terms{MaxHold: candidate.MinHold}, true},
		{candidate.Terms{MaxHold: time.Minute, HoldAtLeast: time.Minute}, true},
		{candidate.Terms{MaxHold: time.Minute, HoldAtLeast: time.Minute + 1}, false},
		{candidate.Terms{TTL: protocol.MinTTL - 1}, false},
		{candidate.Terms{TTL: protocol.MaxTTL}, true},
		{candidate.Terms{TTL: protocol.MaxTTL + 1}, false},
	} {
		if err := c.terms.Check(false); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.terms, err)
		}
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
	p := newPlayer(candidate.Config{Follow: true, Frequent: time.Hour, Infrequent: time.Hour})
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
