package candidate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// TestRenewedForItsOwner: a detached lease that is renewed keeps what its owner has had written, and a
// write that has certainly not landed leaves nothing open.
func TestRenewedForItsOwner(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Address: "here:80"})
	p.step(0, candidate.Attach{Use: candidate.ToRenew, Proof: candidate.Proof{Token: 7, WriteID: "other.1", Expires: scenario.Wall.Add(time.Hour)}})
	p.step(1, candidate.ReadDone{Shown: protocol.Found, Version: "v1", Record: record.Record{
		Held: true, Token: 7, TTL: time.Minute, WriteID: "other.1", Holder: "owner", Address: "owner:80", Meta: map[string]string{"step": "1"},
	}})
	if r := p.wrote(t); r.Meta["step"] != "1" || r.Holder != "owner" || r.Address != "owner:80" {
		t.Errorf("it writes %+v", r)
	}
	p.step(2, candidate.WriteDone{Err: errors.New("refused"), Void: true})
	p.step(3, protocol.Cancel{})
	for _, a := range p.last {
		if f, ok := a.(candidate.Failed); ok && f.Open == "" {
			return
		}
	}
	t.Errorf("it ends with %+v", p.last)
}

// attach is an Attach of the lease in detached.
func attach(use candidate.Use) candidate.Attach {
	return candidate.Attach{Use: use, Proof: candidate.Proof{Token: 7, WriteID: "other.1", Expires: scenario.Wall.Add(time.Hour)}}
}

var detached = candidate.ReadDone{Shown: protocol.Found, Version: "v7", Record: record.Record{
	Held: true, Token: 7, TTL: time.Minute, WriteID: "other.1", Holder: "owner",
}}

// TestNextIncarnation: it is known before the Attach, so that a proof can name it.
func TestNextIncarnation(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	for range 2 {
		next := p.c.NextIncarnation()
		if p.step(0, attach(candidate.ToHold)); p.c.Incarnation() != next {
			t.Errorf("it is %q, and was to be %q", p.c.Incarnation(), next)
		}
		p.step(1, candidate.ReadDone{Shown: protocol.Absent})
	}
}

// TestWhatCannotBeDetached: only a plain lease can, and only a candidate of such leases that is settled attaches one.
func TestWhatCannotBeDetached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title   string
		cfg     candidate.Config
		session string
		can     bool
	}{
		{"a plain lease", candidate.Config{}, "", true},
		{"one under a session", candidate.Config{}, "s", false},
		{"one without a token", candidate.Config{Register: candidate.Register{Tokenless: true}}, "", false},
		{"one whose record cannot be written over", candidate.Config{Register: candidate.Register{WriteOnce: true}}, "", false},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			p := newPlayer(c.cfg)
			never := c.cfg.Tokenless || c.cfg.WriteOnce
			if panics(newPlayer(c.cfg), attach(candidate.ToHold)) != never {
				t.Errorf("it is attached: %t", never)
			}
			p.step(0, candidate.Acquire{Session: c.session})
			p.step(1, candidate.ReadDone{Shown: protocol.Absent})
			if !panics(p, attach(candidate.ToHold)) {
				t.Error("it is attached while another is acquired")
			}
			p.step(time.Second, candidate.WriteDone{Version: "v1"})
			if panics(p, candidate.Detach{}) == c.can {
				t.Errorf("it is detached: %t", !c.can)
			}
		})
	}
}

// TestNoLeaseBefore: nothing of the lease before is left in an attachment, and a lease that is only freed was never
// this candidate's.
func TestNoLeaseBefore(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Meta: map[string]string{"usual": "1"}})
	p.step(0, candidate.Acquire{})
	p.step(1, freed)
	p.step(2, candidate.WriteDone{Version: "v2"})
	p.step(3, candidate.SetMeta{Number: 1})
	p.step(4*time.Second, protocol.Tick{})
	p.step(4*time.Second, candidate.WriteDone{Version: "v3"})
	p.step(5*time.Second, candidate.Release{})
	p.step(5*time.Second, candidate.WriteDone{Version: "v4"})
	none := func(when string) {
		t.Helper()
		if r := p.c.Lease(); r.Token != 0 {
			t.Errorf("%s: %+v", when, r)
		}
	}
	p.step(6*time.Second, attach(candidate.ToRelease))
	none("when it begins")
	p.step(6*time.Second, detached)
	p.step(6*time.Second, candidate.WriteDone{Err: errors.New("time-out")})
	p.step(6*time.Second, detached)
	p.step(7*time.Second, protocol.Tick{})
	p.step(7*time.Second, candidate.WriteDone{Version: "v8", Epoch: 44})
	none("when it is over")
	if r, _, _ := p.c.Observed(); r.Epoch != 44 {
		t.Errorf("it has seen the number %d", r.Epoch)
	}
	if err := p.c.Trouble(); err != nil {
		t.Errorf("it still has trouble: %v", err)
	}
	p.step(8*time.Second, attach(candidate.ToHold))
	p.step(8*time.Second, detached)
	if meta := p.wrote(t).Meta; meta["usual"] != "1" {
		t.Errorf("it has the meta data %v", meta)
	}
}

// TestDetachedLease: the lease of a candidate that has detached it is the one that the proof names.
func TestDetachedLease(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	p.step(0, candidate.Acquire{})
	p.step(1, freed)
	p.step(2, candidate.WriteDone{Version: "v2"})
	p.step(6*time.Second, protocol.Tick{})
	p.step(6*time.Second, candidate.Detach{})
	p.step(7*time.Second, candidate.WriteDone{Version: "v3"})
	if !did[candidate.Detached](p) || p.c.Lease().WriteID != "me.2" || p.c.Promised() != 6*time.Second+protocol.Validity(15*time.Second) {
		t.Errorf("%+v, of %q, promised until %v", p.last, p.c.Lease().WriteID, p.c.Promised())
	}
}
