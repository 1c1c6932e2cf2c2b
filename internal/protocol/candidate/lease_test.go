package candidate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// TestLeaseEnds: it is valid before its deadline, and not at it.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	p.step(0, candidate.Acquire{})
	p.step(1, freed)
	p.step(2, candidate.WriteDone{Version: "v2"})
	end := p.c.Deadline()
	if want := 1 + protocol.Validity(15*time.Second); end != want || !p.c.Valid(end-1) || p.c.Valid(end) {
		t.Errorf("it ends at %v, want %v, and is valid just before that: %t, and at it: %t", end, want, p.c.Valid(end-1), p.c.Valid(end))
	}
}

// TestSameLease: tokens tell leases apart, and where there are none, the times at which
// they began.
func TestSameLease(t *testing.T) {
	t.Parallel()
	at := func(token int64, id string, d time.Duration) record.Record {
		return record.Record{Token: token, WriteID: id, AcquiredAt: scenario.Wall.Add(d)}
	}
	for _, c := range []struct {
		a, b record.Record
		same bool
	}{
		{at(5, "x.1", 0), at(5, "x.2", 0), true},
		{at(5, "x.1", 0), at(5, "x.2", time.Second), true},
		{at(1, "x.1", 0), at(1, "x.2", time.Second), true},
		{at(5, "x.1", 0), at(6, "x.2", 0), false},
		{at(5, "x.1", 0), at(5, "y.1", 0), false},
		{at(0, "x.1", 0), at(0, "x.2", time.Microsecond), true},
		{at(0, "x.1", 0), at(0, "x.2", time.Second), false},
		{at(0, "x.1", 0), at(0, "y.1", 0), false},
	} {
		if got := c.a.SameLease(c.b); got != c.same {
			t.Errorf("%+v and %+v are of one lease: %t, want %t", c.a, c.b, got, c.same)
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
		p := newPlayer(candidate.Config{Register: candidate.Register{Tokenless: c.tokenless}})
		p.step(0, candidate.Acquire{})
		p.step(1, freed)
		p.step(2, candidate.WriteDone{Version: "v2"})
		p.step(6*time.Second, protocol.Tick{})
		p.step(6*time.Second, candidate.WriteDone{Err: errors.New("time-out")})
		c.found.TTL, c.found.WriteID = 15*time.Second, "other.2"
		p.step(6*time.Second, candidate.ReadDone{Shown: protocol.Found, Version: "v3", Record: c.found})
		var lost error
		for _, a := range p.last {
			if a, is := a.(candidate.Lost); is {
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
