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
	p := newPlayer(candidate.Config{})
	p.step(0, candidate.Attach{Use: candidate.ToRenew, Proof: candidate.Proof{Token: 7, WriteID: "other.1", Expires: scenario.Wall.Add(time.Hour)}})
	p.step(1, candidate.ReadDone{Shown: protocol.Found, Version: "v1", Record: record.Record{
		Held: true, Token: 7, TTL: time.Minute, WriteID: "other.1", Holder: "owner", Meta: map[string]string{"step": "1"},
	}})
	if r := p.wrote(t); r.Meta["step"] != "1" || r.Holder != "owner" {
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
