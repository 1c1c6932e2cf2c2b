package candidate_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// A player steps a candidate.
type player struct {
	c    *candidate.Machine
	last []protocol.Action
}

func (p *player) step(at time.Duration, ev protocol.Event) {
	p.last = p.c.Step(ev, protocol.Now{Clock: at, Wall: scenario.Wall.Add(at)})
}

// wrote is the record of the write that was asked for last.
func (p *player) wrote(t *testing.T) record.Record {
	t.Helper()
	for _, a := range p.last {
		if w, ok := a.(candidate.Write); ok {
			return w.Record
		}
	}
	t.Fatalf("there is no write in %v", p.last)
	return record.Record{}
}

func newPlayer(cfg candidate.Config) *player {
	cfg.Incarnation, cfg.Holder = "me", "web-1"
	if cfg.TTL == 0 {
		cfg.TTL = 15 * time.Second
	}
	return &player{c: candidate.New(cfg)}
}

var freed = candidate.ReadDone{Shown: protocol.Found, Version: "v1", Record: record.Record{Token: 41, TTL: 15 * time.Second, WriteID: "other.1"}}

// TestSettled: a candidate is not settled as long as a claim of its own may land.
func TestSettled(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	settled := func(want bool, when string) {
		t.Helper()
		if got := p.c.Settled(); got != want {
			t.Errorf("%s: settled %t, want %t", when, got, want)
		}
		users := when == "while it looks for somebody" || when == "while it holds the lock" || when == "while it renews" || when == "when the renewal was too late"
		if got := p.c.Outstanding(); got != (!want && !users) {
			t.Errorf("%s: outstanding %t", when, got)
		}
	}
	settled(true, "at the beginning")
	p.step(0, candidate.Watch{On: true})
	settled(true, "while it looks, and wants nothing")
	p.step(1, candidate.Acquire{Wait: true})
	settled(false, "while it looks for somebody")
	p.step(2, freed)
	settled(false, "while a claim is under way")
	p.step(3, protocol.Cancel{})
	settled(false, "while a claim is under way that nobody waits for")
	p.step(4, candidate.WriteDone{Err: errors.New("time-out")})
	settled(false, "while it looks what became of the claim")
	p.step(5, candidate.ReadDone{Shown: protocol.Absent})
	settled(true, "when the version is gone that the claim was to replace")
	p.step(time.Hour, candidate.Acquire{})
	p.step(time.Hour+1, freed)
	p.step(time.Hour+2, candidate.WriteDone{Version: "v2"})
	settled(false, "while it holds the lock")
	p.step(time.Hour+6*time.Second, protocol.Tick{})
	settled(false, "while it renews")
	p.step(time.Hour+14*time.Second, protocol.Tick{})
	settled(false, "when the renewal was too late")
	p.step(time.Hour+15*time.Second, candidate.Release{})
	p.step(time.Hour+15*time.Second, candidate.WriteDone{Err: errors.New("time-out")})
	settled(false, "while it looks whether there is anything to release")
	p.step(time.Hour+15*time.Second, candidate.ReadDone{Shown: protocol.Same})
	p.step(time.Hour+16*time.Second, protocol.Tick{})
	settled(false, "while a release is under way")
	p.step(time.Hour+17*time.Second, candidate.WriteDone{Version: "v3"})
	settled(true, "after the release")

	p = newPlayer(candidate.Config{Role: candidate.Reaper{}})
	held := freed
	held.Record.Held = true
	p.step(0, candidate.Acquire{Wait: true})
	p.step(0, held)
	p.step(time.Minute, protocol.Tick{})
	settled(false, "while it looks for somebody")
	p.step(time.Minute, candidate.ReadDone{Shown: protocol.Same})
	settled(false, "while a reaper's write is under way")
}

// did reports whether the last step asked for an action like this one.
func did[A protocol.Action](p *player) bool {
	return slices.ContainsFunc(p.last, func(a protocol.Action) bool { _, is := a.(A); return is })
}

// TestBusy: from the request to its answer.
func TestBusy(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	for i, step := range []struct {
		ev   protocol.Event
		busy bool
	}{
		{protocol.Tick{}, false},
		{candidate.Acquire{}, true},
		{freed, true},
		{candidate.WriteDone{Version: "v2"}, false},
		{candidate.Release{}, true},
		{candidate.WriteDone{Version: "v3"}, false},
	} {
		if p.step(time.Duration(i), step.ev); p.c.Busy() != step.busy {
			t.Errorf("after %T: busy %t, want %t", step.ev, p.c.Busy(), step.busy)
		}
	}
}

// TestSmallestInterval: where there is nothing to draw, nothing is drawn.
func TestSmallestInterval(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Role: candidate.Follower{Frequent: 1}})
	p.step(0, candidate.Watch{On: true})
	p.step(time.Second, freed)
	if wake, ok := p.c.Wake(); !ok || wake != time.Second {
		t.Errorf("it wakes at %v, %t, want 1s", wake, ok)
	}
}

// TestImpossibleEvents: a driver that breaks its duties is stopped.
func TestImpossibleEvents(t *testing.T) {
	t.Parallel()
	held := []protocol.Event{candidate.Acquire{}, freed, candidate.WriteDone{Version: "v2"}}
	for _, c := range []struct {
		title  string
		before []protocol.Event
		ev     protocol.Event
	}{
		{"a look that was not asked for", nil, candidate.ReadDone{Shown: protocol.Absent}},
		{"a write that was not asked for", nil, candidate.WriteDone{}},
		{"a look in place of a write", held[:2], freed},
		{"a heartbeat that was not asked for", nil, candidate.Checked{}},
		{"two acquisitions", held[:1], candidate.Acquire{}},
		{"an acquisition of what it holds", held, candidate.Acquire{}},
		{"an acquisition of what it has lost", append(held[:3:3], candidate.GiveUp{}), candidate.Acquire{}},
		{"a release of nothing", nil, candidate.Release{}},
		{"a second release", append(held[:3:3], candidate.Release{}), candidate.Release{}},
	} {
		t.Run(c.title, func(t *testing.T) {
			p := newPlayer(candidate.Config{Role: candidate.Follower{Peers: true}})
			for _, ev := range c.before {
				p.step(time.Second, ev)
			}
			defer func() {
				if recover() == nil {
					t.Errorf("it goes on: %v", p.last)
				}
			}()
			p.step(time.Second, c.ev)
		})
	}
}

// TestFaultsOfTheDriver: to go on would be worse than to stop.
func TestFaultsOfTheDriver(t *testing.T) {
	t.Parallel()
	if !panics(newPlayer(candidate.Config{}), candidate.Detach{}) {
		t.Error("a lease is detached that is not held")
	}
	p := newPlayer(candidate.Config{Register: candidate.Register{WriteOnce: true, Tokenless: true}})
	p.step(0, candidate.Acquire{})
	p.step(1, candidate.ReadDone{Shown: protocol.Absent})
	p.step(2, candidate.WriteDone{Version: "v1"})
	if !panics(p, candidate.SetMeta{Number: 1, Meta: map[string]string{}}) {
		t.Error("a record changes that cannot be written over")
	}
}

// panics reports that a candidate refuses an event that its driver must not send.
func panics(p *player, ev protocol.Event) (yes bool) {
	defer func() { yes = recover() != nil }()
	p.step(time.Second, ev)
	return false
}

// TestForgettable: a candidate is kept while something is under way, and as long as what it knows is worth something.
func TestForgettable(t *testing.T) {
	t.Parallel()
	const (
		ttl   = 15 * time.Second
		never = time.Duration(1<<63 - 1)
	)
	p := newPlayer(candidate.Config{TTL: ttl})
	check := func(now, want time.Duration, when string) {
		t.Helper()
		ok, at := p.c.Forgettable(now)
		if at != want || ok != (now >= want) {
			t.Errorf("%s: %v, at %v, want %v", when, ok, at, want)
		}
	}
	check(0, 0, "one that knows nothing")
	p.step(1, candidate.Acquire{})
	check(2, never, "while it looks")
	p.step(3, freed)
	check(4, never, "while it claims")
	p.step(5, candidate.WriteDone{Version: "v2"})
	check(6, never, "while it holds the lock")
	p.step(time.Second, candidate.Release{})
	check(time.Second, never, "while it releases")
	p.step(2*time.Second, candidate.WriteDone{Version: "v3"})
	check(3*time.Second, 2*time.Second+4*ttl, "when it has released, and knows the version")
	check(2*time.Second+4*ttl, 2*time.Second+4*ttl, "when that was long ago")

	// Another holds it, with a longer TTL: that one counts.
	p.step(time.Minute, candidate.Acquire{})
	p.step(time.Minute+1, candidate.WriteDone{Err: errors.New("refused"), Void: true})
	seen := time.Minute + 2
	p.step(seen, candidate.ReadDone{Shown: protocol.Found, Version: "v4", Record: record.Record{
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
	p.step(seen+10*time.Hour, candidate.Acquire{}) // and with each look for longer
	check(seen+10*time.Hour, never, "while it looks again")
	p.step(seen+10*time.Hour+1, candidate.ReadDone{Shown: protocol.Same})
	check(seen+10*time.Hour+1, never, "while it takes over")
}

// TestForgettableUnderSessionsAndTrouble: a record that names a session is never claimable by time, and is not kept for
// ever; a candidate that is under a session is; and one that has told of trouble keeps that for its minute.
func TestForgettableUnderSessionsAndTrouble(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	p := newPlayer(candidate.Config{TTL: ttl})
	p.step(0, candidate.Acquire{})
	p.step(1, candidate.ReadDone{Shown: protocol.Found, Version: "v1", Record: record.Record{
		Held: true, Holder: "db-1", Token: 43, TTL: ttl, WriteID: "other.2", Session: "sessions/1",
	}})
	p.step(2, candidate.Checked{Session: "sessions/1", Held: true})
	if ok, at := p.c.Forgettable(3); ok || at != 1+4*ttl {
		t.Errorf("held under a session: %v, at %v", ok, at)
	}

	p = newPlayer(candidate.Config{TTL: ttl})
	p.step(0, candidate.Acquire{Session: "sessions/2"})
	p.step(1, freed)
	p.step(2, candidate.WriteDone{Version: "v2"})
	if ok, at := p.c.Forgettable(time.Hour); ok || at < 1<<62 {
		t.Errorf("under a session: %v, at %v", ok, at)
	}

	p.step(time.Hour, candidate.Release{}) // which does not come through, so the session has to end
	p.step(time.Hour, candidate.WriteDone{Err: errors.New("away")})
	p.step(time.Hour+ttl, candidate.ReadDone{Err: errors.New("away")})
	if ok, at := p.c.Forgettable(2 * time.Hour); !p.c.Idle() || ok || at < 1<<62 {
		t.Errorf("while the lock names a session: idle %t, %v, at %v", p.c.Idle(), ok, at)
	}

	p = newPlayer(candidate.Config{TTL: ttl})
	p.step(0, candidate.Acquire{})
	p.step(1, freed)
	p.step(2, candidate.WriteDone{Version: "v2"})
	p.step(3, candidate.Release{Pass: true})
	if ok, at := p.c.Forgettable(time.Hour); !p.c.Idle() || ok || at < 1<<62 {
		t.Errorf("passed on: idle %t, %v, at %v", p.c.Idle(), ok, at)
	}

	p = newPlayer(candidate.Config{TTL: ttl})
	p.step(0, candidate.Acquire{})
	for i := range 3 {
		p.step(time.Duration(i)*2*time.Second, protocol.Tick{})
		p.step(time.Duration(i)*2*time.Second, candidate.ReadDone{Err: errors.New("away")})
	}
	if ok, at := p.c.Forgettable(4 * time.Second); ok || at != 4*time.Second+time.Minute {
		t.Errorf("one that has told of a store that fails: %v, at %v", ok, at)
	}
}
