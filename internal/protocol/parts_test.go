package protocol_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// panics reports that a candidate refuses an event that its driver must not send.
func panics(p *player, ev protocol.Event) (yes bool) {
	defer func() { yes = recover() != nil }()
	p.step(time.Second, ev)
	return false
}

// TestFaultsOfTheDriver: to go on would be worse than to stop.
func TestFaultsOfTheDriver(t *testing.T) {
	t.Parallel()
	if !panics(newPlayer(protocol.Config{}), protocol.Detach{}) {
		t.Error("a lease is detached that is not held")
	}
	p := newPlayer(protocol.Config{WriteOnce: true, Tokenless: true})
	p.step(0, protocol.Acquire{})
	p.step(1, protocol.ReadDone{Shown: protocol.Absent})
	p.step(2, protocol.WriteDone{Version: "v1"})
	if !panics(p, protocol.SetMeta{Number: 1, Meta: map[string]string{}}) {
		t.Error("a record changes that cannot be written over")
	}
}

// TestRenewedForItsOwner: a detached lease that is renewed keeps what its owner has had written, and a
// write that has certainly not landed leaves nothing open.
func TestRenewedForItsOwner(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{})
	p.step(0, protocol.Attach{Use: protocol.ToRenew, Proof: protocol.Proof{Token: 7, WriteID: "other.1", Expires: scenario.Wall.Add(time.Hour)}})
	p.step(1, protocol.ReadDone{Shown: protocol.Found, Version: "v1", Record: record.Record{
		Held: true, Token: 7, TTL: time.Minute, WriteID: "other.1", Holder: "owner", Meta: map[string]string{"step": "1"},
	}})
	if r := p.wrote(t); r.Meta["step"] != "1" || r.Holder != "owner" {
		t.Errorf("it writes %+v", r)
	}
	p.step(2, protocol.WriteDone{Err: errors.New("refused"), Void: true})
	p.step(3, protocol.Cancel{})
	for _, a := range p.last {
		if f, ok := a.(protocol.Failed); ok && f.Open == "" {
			return
		}
	}
	t.Errorf("it ends with %+v", p.last)
}

// TestTermsAreForgotten: the terms of a lease end with it.
func TestTermsAreForgotten(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{})
	p.step(0, protocol.Acquire{Terms: protocol.Terms{TTL: time.Hour}})
	p.step(1, freed)
	p.step(2, protocol.WriteDone{Version: "v2"})
	p.step(3, protocol.Release{})
	p.step(4, protocol.WriteDone{Version: "v3"})
	if terms, _ := p.c.Terms(); !terms.None() {
		t.Errorf("they are %+v", terms)
	}
}

// TestHistoryOfARecordMadeByHand: a claim over a record that nobody has acquired keeps the history in it.
func TestHistoryOfARecordMadeByHand(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{})
	p.step(0, protocol.Acquire{})
	made := freed
	made.Record.History = json.RawMessage(`[{"token":1}]`)
	p.step(1, made)
	if r := p.wrote(t); string(r.History) != string(made.Record.History) {
		t.Errorf("the history is %s", r.History)
	}
}

// TestSightOfNoMarker: a candidate that knows nothing learns by another's look that there is no marker.
func TestSightOfNoMarker(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{Tokenless: true})
	p.step(2, protocol.Sighted{Sent: 1, Answer: protocol.ReadDone{Shown: protocol.Found, Record: record.Record{TTL: time.Minute}}})
	if _, _, exists := p.c.Observed(); !exists {
		t.Error("it knows nothing")
	}
}

// TestVanishedWhileFree: an object that was free and is gone is not claimed at once: somebody may have
// acquired it before it was deleted.
func TestVanishedWhileFree(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{})
	p.step(0, protocol.Acquire{})
	p.step(1, freed)
	p.step(2, protocol.WriteDone{Err: errors.New("412"), Void: true})
	p.step(3, protocol.ReadDone{Shown: protocol.Absent})
	for _, a := range p.last {
		if f, ok := a.(protocol.Failed); ok && errors.Is(f.Err, protocol.ErrVanished) {
			return
		}
	}
	t.Errorf("it does %+v", p.last)
}

// TestSavedNumber: the first lease of a numbered lock has a number, and no previous one.
func TestSavedNumber(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{Numbered: true, Layout: "epochs"})
	p.step(0, protocol.Acquire{Session: "s"})
	p.step(1, protocol.ReadDone{Shown: protocol.Absent})
	p.step(2, protocol.WriteDone{Version: "v1", Epoch: 1})
	saved, ok := p.c.Save()
	if !ok {
		t.Fatal("it does not rest")
	}
	if n := protocol.Restore(protocol.Config{Numbered: true, Layout: "epochs", TTL: time.Minute}, saved).Lease().Epoch; n != 1 {
		t.Errorf("the number is %d", n)
	}
}
