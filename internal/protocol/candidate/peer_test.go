package candidate_test

import (
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// TestWordOf: a word is of the leader that the record tells of if all of it is.
func TestWordOf(t *testing.T) {
	t.Parallel()
	r := record.Record{Token: 41, Holder: "db-1", WriteID: "other.7"}
	for _, c := range []struct {
		word candidate.PeerStatus
		of   bool
	}{
		{candidate.PeerStatus{Incarnation: "other", Holder: "db-1", Token: 41}, true},
		{candidate.PeerStatus{Incarnation: "another", Holder: "db-1", Token: 41}, false},
		{candidate.PeerStatus{Incarnation: "other", Holder: "db-2", Token: 41}, false},
		{candidate.PeerStatus{Incarnation: "other", Holder: "db-1", Token: 40}, false},
	} {
		if got := c.word.Of(r); got != c.of {
			t.Errorf("%+v is of %+v: %t, want %t", c.word, r, got, c.of)
		}
	}
}

// TestLateAnswer: a question that does not matter any more was answered all the same, when there
// is another: it is not taken for the answer to that.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Role: candidate.Follower{Peers: true}})
	held := func(version string, token int64) candidate.ReadDone {
		r := record.Record{Held: true, Holder: "db-1", Address: "db-1", TTL: time.Minute, Token: token, WriteID: "other." + version}
		return candidate.ReadDone{Shown: protocol.Found, Version: protocol.Version(version), Record: r}
	}
	var asked []int
	step := func(at time.Duration, ev protocol.Event) {
		p.step(at, ev)
		for _, a := range p.last {
			if a, is := a.(candidate.PollPeer); is {
				asked = append(asked, a.Number)
			}
		}
	}
	step(time.Second, candidate.Acquire{Wait: true})
	step(2*time.Second, held("v1", 41))
	step(3*time.Second, protocol.Cancel{})
	step(4*time.Second, candidate.Acquire{Wait: true})
	step(5*time.Second, held("v2", 42)) // of another lease, which is asked anew
	if len(asked) != 3 || asked[0] == asked[2] || asked[1] == asked[2] || p.c.Asks(asked[1]) || !p.c.Asks(asked[2]) {
		t.Fatalf("questions %v, the second is open: %t", asked, p.c.Asks(asked[1]))
	}
	wake, _ := p.c.Wake()
	word := candidate.PeerStatus{Leading: true, Holder: "db-1", Token: 42, Incarnation: "other", Valid: time.Minute, Version: "x"}
	step(6*time.Second, candidate.PeerAnswer{Number: asked[1], Status: word})
	if now, _ := p.c.Wake(); now != wake || len(p.last) > 0 {
		t.Errorf("a late answer: %v, wake at %v, before at %v", p.last, now, wake)
	}
	step(7*time.Second, candidate.PeerAnswer{Number: asked[2], Status: word})
	if now, _ := p.c.Wake(); now == wake {
		t.Error("the answer is not heard")
	}
	step(8*time.Second, candidate.PeerAnswer{Number: asked[3], Status: candidate.PeerStatus{Holder: "a stranger"}})
	wake, _ = p.c.Wake()
	step(9*time.Second, candidate.PeerAnswer{Number: asked[3], Status: word})
	if now, _ := p.c.Wake(); now != wake || p.c.Asks(asked[3]) {
		t.Errorf("a second answer is heard: wake at %v, before at %v", now, wake)
	}
}
