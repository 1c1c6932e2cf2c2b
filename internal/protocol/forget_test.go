package protocol_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
)

// TestForgettable: a candidate is kept while something is under way, and as long as what it knows is worth something.
func TestForgettable(t *testing.T) {
	t.Parallel()
	const (
		ttl   = 15 * time.Second
		never = time.Duration(1<<63 - 1)
	)
	p := newPlayer(protocol.Config{TTL: ttl})
	check := func(now, want time.Duration, when string) {
		t.Helper()
		ok, at := p.c.Forgettable(now)
		if at != want || ok != (now >= want) {
			t.Errorf("%s: %v, at %v, want %v", when, ok, at, want)
		}
	}
	check(0, 0, "one that knows nothing")
	p.step(1, protocol.Acquire{})
	check(2, never, "while it looks")
	p.step(3, freed)
	check(4, never, "while it claims")
	p.step(5, protocol.WriteDone{Version: "v2"})
	check(6, never, "while it holds the lock")
	p.step(time.Second, protocol.Release{})
	check(time.Second, never, "while it releases")
	p.step(2*time.Second, protocol.WriteDone{Version: "v3"})
	check(3*time.Second, 2*time.Second+4*ttl, "when it has released, and knows the version")
	check(2*time.Second+4*ttl, 2*time.Second+4*ttl, "when that was long ago")

	// Another holds it, with a longer TTL: that one counts.
	p.step(time.Minute, protocol.Acquire{})
	p.step(time.Minute+1, protocol.WriteDone{Err: errors.New("refused"), Void: true})
	seen := time.Minute + 2
	p.step(seen, protocol.ReadDone{Shown: protocol.Found, Version: "v4", Record: record.Record{
		Held: true, Holder: "db-1", Token: 43, TTL: time.Hour, WriteID: "other.2",
	}})
	ok, at := p.c.Forgettable(seen + time.Hour)
	patience := protocol.Patience(time.Hour)
	if ok || at < seen+patience+4*time.Hour || at > seen+patience+4*time.Hour+time.Hour/10 {
		t.Errorf("a holder that was seen: %v, at %v after he was seen", ok, at-seen)
	}
	if ok, _ = p.c.Forgettable(at); !ok {
		t.Error("a holder that was seen is kept for ever")
	}
	p.step(seen+10*time.Hour, protocol.Acquire{}) // and with each look for longer
	check(seen+10*time.Hour, never, "while it looks again")
	p.step(seen+10*time.Hour+1, protocol.ReadDone{Shown: protocol.Same})
	check(seen+10*time.Hour+1, never, "while it takes over")
}

// TestForgettableUnderSessionsAndTrouble: a record that names a session is never claimable by time, and is not kept for
// ever; a candidate that is under a session is; and one that has told of trouble keeps that for its minute.
func TestForgettableUnderSessionsAndTrouble(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	p := newPlayer(protocol.Config{TTL: ttl})
	p.step(0, protocol.Acquire{})
	p.step(1, protocol.ReadDone{Shown: protocol.Found, Version: "v1", Record: record.Record{
		Held: true, Holder: "db-1", Token: 43, TTL: ttl, WriteID: "other.2", Session: "sessions/1",
	}})
	p.step(2, protocol.Checked{Session: "sessions/1", Held: true})
	if ok, at := p.c.Forgettable(3); ok || at != 1+4*ttl {
		t.Errorf("held under a session: %v, at %v", ok, at)
	}

	p = newPlayer(protocol.Config{TTL: ttl})
	p.step(0, protocol.Acquire{Session: "sessions/2"})
	p.step(1, freed)
	p.step(2, protocol.WriteDone{Version: "v2"})
	if ok, at := p.c.Forgettable(time.Hour); ok || at < 1<<62 {
		t.Errorf("under a session: %v, at %v", ok, at)
	}

	p = newPlayer(protocol.Config{TTL: ttl})
	p.step(0, protocol.Acquire{})
	for i := range 3 {
		p.step(time.Duration(i)*2*time.Second, protocol.Tick{})
		p.step(time.Duration(i)*2*time.Second, protocol.ReadDone{Err: errors.New("away")})
	}
	if ok, at := p.c.Forgettable(4 * time.Second); ok || at != 4*time.Second+time.Minute {
		t.Errorf("one that has told of a store that fails: %v, at %v", ok, at)
	}
}
