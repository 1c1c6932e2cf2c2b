package main

import (
	"testing"
	"time"

	"github.com/leasehold/leasehold"
)

// TestWhomAWaitIsFor: how text and JSON name the holder that a wait is for. A lock in its cooldown has only a last holder.
func TestWhomAWaitIsFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for name, tt := range map[string]struct {
		info               leasehold.Info
		party              party
		known              bool
		waitingFor, inFull string
	}{
		"nobody": {leasehold.Info{}, party{}, false, "waiting for l", "waiting for l"},
		"a holder": {
			leasehold.Info{Held: true, Holder: "a\x1b", Address: "a:1", Token: 7},
			party{Holder: "a\x1b", Address: "a:1", Token: 7},
			true,
			`waiting for l, held by "a\x1b", second in the queue`, `waiting for l, held by "a\x1b", token 7, second in the queue`,
		},
		"one without a token": {leasehold.Info{Held: true, Holder: "a"}, party{Holder: "a"}, true, "waiting for l, held by a, second in the queue", "waiting for l, held by a, second in the queue"},
		"one that hands over": {leasehold.Info{Holder: "a", Token: 7}, party{Holder: "a", Token: 7}, true, "waiting for l, held by a, second in the queue", "waiting for l, held by a, token 7, second in the queue"},
		"a rest": {
			leasehold.Info{Holder: "a", Address: "a:1", Token: 7, Rest: time.Second},
			party{LastHolder: "a", LastAddress: "a:1", LastToken: 7},
			true,
			"waiting for l, which rests until 2026-01-02 03:04:06, as a has asked, second in the queue", "waiting for l, which rests until 2026-01-02 03:04:06, as a has asked, token 7, second in the queue",
		},
	} {
		b := blockerOf(tt.info, now)
		b.place = ", second in the queue"
		if b.party != tt.party || b.known() != tt.known || b.waitingFor("l") != tt.waitingFor || b.inFull("l") != tt.inFull {
			t.Errorf("%s: %+v, known %v, %q, %q", name, b.party, b.known(), b.waitingFor("l"), b.inFull("l"))
		}
	}
	var none *blocker
	if none.known() || none.waitingFor("l") != "waiting for l" || none.inFull("l") != "waiting for l" {
		t.Errorf("%v, %q, %q", none.known(), none.waitingFor("l"), none.inFull("l"))
	}
}
