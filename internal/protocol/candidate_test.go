package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// A player steps a candidate.
type player struct {
	c    *protocol.Candidate
	last []protocol.Action
}

func (p *player) step(at time.Duration, ev protocol.Event) {
	p.last = p.c.Step(ev, protocol.Now{Clock: at, Wall: scenario.Wall.Add(at)})
}

// wrote is the record of the write that was asked for last.
func (p *player) wrote(t *testing.T) record.Record {
	t.Helper()
	for _, a := range p.last {
		if w, ok := a.(protocol.Write); ok {
			return w.Record
		}
	}
	t.Fatalf("there is no write in %v", p.last)
	return record.Record{}
}

func newPlayer(cfg protocol.Config) *player {
	cfg.Incarnation, cfg.Holder = "me", "web-1"
	if cfg.TTL == 0 {
		cfg.TTL = 15 * time.Second
	}
	return &player{c: protocol.New(cfg)}
}

var freed = protocol.ReadDone{Shown: protocol.Found, Version: "v1", Record: record.Record{Token: 41, TTL: 15 * time.Second, WriteID: "other.1"}}

// TestSettled: a candidate is not settled as long as a claim of its own may land.
func TestSettled(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{})
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
	p.step(0, protocol.Watch{On: true})
	settled(true, "while it looks, and wants nothing")
	p.step(1, protocol.Acquire{Wait: true})
	settled(false, "while it looks for somebody")
	p.step(2, freed)
	settled(false, "while a claim is under way")
	p.step(3, protocol.Cancel{})
	settled(false, "while a claim is under way that nobody waits for")
	p.step(4, protocol.WriteDone{Err: errors.New("time-out")})
	settled(false, "while it looks what became of the claim")
	p.step(5, protocol.ReadDone{Shown: protocol.Absent})
	settled(true, "when the version is gone that the claim was to replace")
	p.step(time.Hour, protocol.Acquire{})
	p.step(time.Hour+1, freed)
	p.step(time.Hour+2, protocol.WriteDone{Version: "v2"})
	settled(false, "while it holds the lock")
	p.step(time.Hour+6*time.Second, protocol.Tick{})
	settled(false, "while it renews")
	p.step(time.Hour+14*time.Second, protocol.Tick{})
	settled(false, "when the renewal was too late")
	p.step(time.Hour+15*time.Second, protocol.Release{})
	p.step(time.Hour+15*time.Second, protocol.WriteDone{Err: errors.New("time-out")})
	settled(false, "while it looks whether there is anything to release")
	p.step(time.Hour+15*time.Second, protocol.ReadDone{Shown: protocol.Same})
	p.step(time.Hour+16*time.Second, protocol.Tick{})
	settled(false, "while a release is under way")
	p.step(time.Hour+17*time.Second, protocol.WriteDone{Version: "v3"})
	settled(true, "after the release")

	p = newPlayer(protocol.Config{Reaper: true})
	held := freed
	held.Record.Held = true
	p.step(0, protocol.Acquire{Wait: true})
	p.step(0, held)
	p.step(time.Minute, protocol.Tick{})
	settled(false, "while it looks for somebody")
	p.step(time.Minute, protocol.ReadDone{Shown: protocol.Same})
	settled(false, "while a reaper's write is under way")
}

// did reports whether the last step asked for an action like this one.
func did[A protocol.Action](p *player) bool {
	return slices.ContainsFunc(p.last, func(a protocol.Action) bool { _, is := a.(A); return is })
}

// TestBusy: from the request to its answer.
func TestBusy(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{})
	for i, step := range []struct {
		ev   protocol.Event
		busy bool
	}{
		{protocol.Tick{}, false},
		{protocol.Acquire{}, true},
		{freed, true},
		{protocol.WriteDone{Version: "v2"}, false},
		{protocol.Release{}, true},
		{protocol.WriteDone{Version: "v3"}, false},
	} {
		if p.step(time.Duration(i), step.ev); p.c.Busy() != step.busy {
			t.Errorf("after %T: busy %t, want %t", step.ev, p.c.Busy(), step.busy)
		}
	}
}

// TestAlmostOurs: a record is ours if its write ID is our incarnation and a number, and of
// no other is it known that nobody relies on it.
func TestAlmostOurs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"me2.1", "me", ".1", "other.1", "1", "me.x", "me.-1"} {
		held := freed
		held.Record.Held, held.Record.WriteID = true, id
		claims := newPlayer(protocol.Config{})
		claims.step(0, protocol.Acquire{})
		claims.step(1, freed)
		claims.step(2, protocol.WriteDone{Err: protocol.ErrTaken})
		held.Version = "v2"
		if claims.step(3, held); !did[protocol.Refused](claims) || did[protocol.Granted](claims) {
			t.Errorf("after a claim, a lock held by the write %q: %v", id, claims.last)
		}
		p := newPlayer(protocol.Config{})
		p.step(0, protocol.Acquire{})
		if p.step(1, held); !did[protocol.Refused](p) || did[protocol.Write](p) {
			t.Errorf("a lock held by the write %q: %v", id, p.last)
		}
	}
}

// TestRecheckIsForOneAcquisition: a recheck while a look is under way asks for another one, but
// not in the acquisition that comes after.
func TestRecheckIsForOneAcquisition(t *testing.T) {
	t.Parallel()
	held := freed
	held.Version, held.Record.Held, held.Record.Token = "v4", true, 43
	for _, again := range []bool{true, false} {
		p := newPlayer(protocol.Config{})
		p.step(0, protocol.Acquire{Wait: true})
		p.step(1, protocol.Recheck{})
		if !again {
			p.step(2, freed)
			p.step(3, protocol.WriteDone{Version: "v2"})
			p.step(4, protocol.Release{})
			p.step(5, protocol.WriteDone{Version: "v3"})
			p.step(6, protocol.Acquire{Wait: true})
			p.step(7, protocol.WriteDone{Err: protocol.ErrTaken})
		}
		p.step(8, held)
		if p.step(9, protocol.Tick{}); did[protocol.Read](p) != again {
			t.Errorf("nudged in this acquisition %t, and then %v", again, p.last)
		}
	}
}

// TestObserved: there is an object as soon as an answer has shown one; without tokens
// there need be none.
func TestObserved(t *testing.T) {
	t.Parallel()
	exists := func(p *player, want bool, version protocol.Version) {
		t.Helper()
		if _, v, exists := p.c.Observed(); exists != want || v != version {
			t.Errorf("it exists: %t, as %q, want %t, %q", exists, v, want, version)
		}
	}
	p := newPlayer(protocol.Config{})
	exists(p, false, "")
	p.step(0, protocol.Watch{On: true})
	p.step(1, protocol.ReadDone{Shown: protocol.Absent})
	exists(p, false, "")
	p.step(time.Minute, protocol.Tick{})
	p.step(time.Minute+1, freed)
	exists(p, true, "v1")

	p = newPlayer(protocol.Config{Tokenless: true})
	exists(p, false, "")
	p.step(0, protocol.Watch{On: true})
	p.step(1, protocol.ReadDone{Shown: protocol.Found, Record: record.Record{TTL: 15 * time.Second}})
	exists(p, true, "")
}

// TestLeaseEnds: it is valid before its deadline, and not at it.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{})
	p.step(0, protocol.Acquire{})
	p.step(1, freed)
	p.step(2, protocol.WriteDone{Version: "v2"})
	end := p.c.Deadline()
	if want := 1 + protocol.Validity(15*time.Second); end != want || !p.c.Valid(end-1) || p.c.Valid(end) {
		t.Errorf("it ends at %v, want %v, and is valid just before that: %t, and at it: %t", end, want, p.c.Valid(end-1), p.c.Valid(end))
	}
}

// TestFirst: the tokens of a lock that is made begin at the store's time, or at ours where
// it tells none, and numbers with 1.
func TestFirst(t *testing.T) {
	t.Parallel()
	cfg := protocol.Config{Holder: "web-1", TTL: time.Minute, Layout: "epochs"}
	date, now := scenario.Wall.Add(-time.Hour), scenario.Wall
	want := record.Record{
		Token: date.UnixMilli(), Layout: "epochs", Holder: "web-1", TTL: time.Minute, WriteID: "x", RenewedAt: now, ExpiresAt: now,
	}
	check := func(cfg protocol.Config, date time.Time, token int64) {
		t.Helper()
		want.Token = token
		if got := protocol.First(cfg, "x", date, now); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	check(cfg, date, date.UnixMilli())
	check(cfg, time.Time{}, now.UnixMilli())
	check(cfg, time.Unix(0, 0), 1)
	cfg.Numbered = true
	check(cfg, date, 1)
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

// TestSmallestInterval: where there is nothing to draw, nothing is drawn.
func TestSmallestInterval(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{Follow: true, Frequent: 1})
	p.step(0, protocol.Watch{On: true})
	p.step(time.Second, freed)
	if wake, ok := p.c.Wake(); !ok || wake != time.Second {
		t.Errorf("it wakes at %v, %t, want 1s", wake, ok)
	}
}

// TestNoAttemptIsForgotten: whichever of many attempts lands is known for one's own, and the
// lease counts from its sending, or from an earlier one. It used to be forgotten when eight
// others had been sent, and under a session nobody freed it then.
func TestNoAttemptIsForgotten(t *testing.T) {
	t.Parallel()
	const attempts = 30
	for lands := range attempts {
		p := newPlayer(protocol.Config{TTL: time.Hour})
		p.step(0, protocol.Acquire{Wait: true})
		p.step(1, freed)
		wrote, sent := []record.Record{p.wrote(t)}, []time.Duration{1}
		at := time.Second
		for len(wrote) < attempts {
			p.step(at, protocol.WriteDone{Err: errors.New("time-out")})
			p.step(at, protocol.ReadDone{Shown: protocol.Same})
			at, _ = p.c.Wake()
			p.step(at, protocol.Tick{})
			wrote, sent = append(wrote, p.wrote(t)), append(sent, at)
		}
		p.step(at, protocol.WriteDone{Err: errors.New("time-out")})
		p.step(at, protocol.ReadDone{Shown: protocol.Found, Version: "v2", Record: wrote[lands]})
		counts := sent[lands]
		if lands < attempts-7 { // the others are remembered together
			counts = sent[0]
		}
		if limit := counts + protocol.Validity(time.Hour); !p.c.Valid(at) || p.c.Deadline() != limit {
			t.Errorf("attempt %d has landed: valid %t, until %v, want until %v: %v", lands+1, p.c.Valid(at), p.c.Deadline(), limit, p.last)
		}
		if got := p.c.Lease().WriteID; got != wrote[lands].WriteID {
			t.Errorf("attempt %d has landed, and the lease is that of the write %s", lands+1, got)
		}
	}
}

// TestImpossibleEvents: a driver that breaks its duties is stopped.
func TestImpossibleEvents(t *testing.T) {
	t.Parallel()
	held := []protocol.Event{protocol.Acquire{}, freed, protocol.WriteDone{Version: "v2"}}
	for _, c := range []struct {
		title  string
		before []protocol.Event
		ev     protocol.Event
	}{
		{"a look that was not asked for", nil, protocol.ReadDone{Shown: protocol.Absent}},
		{"a write that was not asked for", nil, protocol.WriteDone{}},
		{"a look in place of a write", held[:2], freed},
		{"a heartbeat that was not asked for", nil, protocol.Checked{}},
		{"two acquisitions", held[:1], protocol.Acquire{}},
		{"an acquisition of what it holds", held, protocol.Acquire{}},
		{"an acquisition of what it has lost", append(held[:3:3], protocol.GiveUp{}), protocol.Acquire{}},
		{"a release of nothing", nil, protocol.Release{}},
		{"a second release", append(held[:3:3], protocol.Release{}), protocol.Release{}},
	} {
		t.Run(c.title, func(t *testing.T) {
			p := newPlayer(protocol.Config{Peers: true, Follow: true})
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

// TestWhatIsWritten: a claim, a renewal and a release, each with all that people read.
func TestWhatIsWritten(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{Address: "10.0.1.42:8443", Meta: map[string]string{"k": "v"}, Layout: "epochs", Numbered: true})
	check := func(want record.Record) {
		t.Helper()
		if got := p.wrote(t); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	over := func(want record.Record) {
		t.Helper()
		for _, a := range p.last {
			if w, ok := a.(protocol.Write); ok && !reflect.DeepEqual(w.Over, want) {
				t.Errorf("it writes over %+v, want %+v", w.Over, want)
			}
		}
	}
	found := freed
	found.Record.Holder, found.Record.Ended = "db-2", record.EndedByHand
	found.Record.AcquiredAt, found.Record.RenewedAt = scenario.Wall.Add(-time.Minute), scenario.Wall.Add(-30*time.Second)
	found.Record.Term, found.Record.TermToken, found.Record.History = 6, 41, json.RawMessage(`[{"kept":"as it is"}]`)
	found.Record.Epoch, found.Record.Unknown = 41, map[string]json.RawMessage{"zone": json.RawMessage(`"a"`)}
	p.step(0, protocol.Acquire{})
	p.step(time.Second, found)
	want := record.Record{
		Token: 42, Held: true, Holder: "web-1", Address: "10.0.1.42:8443", Meta: map[string]string{"k": "v"}, Layout: "epochs",
		TTL: 15 * time.Second, WriteID: "me.1", Previous: 41, Term: 7, TermToken: 42, Unknown: found.Record.Unknown,
		History:    json.RawMessage(`[{"token":41,"term":6,"holder":"db-2","from":"2026-11-20T10:29:00.000Z","to":"2026-11-20T10:29:30.000Z","how":"broken"},{"kept":"as it is"}]`),
		AcquiredAt: scenario.Wall.Add(time.Second), RenewedAt: scenario.Wall.Add(time.Second), ExpiresAt: scenario.Wall.Add(16 * time.Second),
	}
	check(want)
	over(found.Record)
	p.step(2*time.Second, protocol.WriteDone{Version: "v2", Epoch: 42})
	p.step(7*time.Second, protocol.Tick{})
	want.WriteID, want.RenewedAt, want.ExpiresAt = "me.2", scenario.Wall.Add(7*time.Second), scenario.Wall.Add(22*time.Second)
	check(want)
	p.step(8*time.Second, protocol.WriteDone{Version: "v3", Epoch: 42})
	p.step(9*time.Second, protocol.Release{Successor: "db-3"})
	want.WriteID, want.RenewedAt, want.ExpiresAt = "me.3", scenario.Wall.Add(9*time.Second), scenario.Wall.Add(9*time.Second)
	want.Held, want.Successor, want.Epoch = false, "db-3", 42
	check(want)
}

// TestRowEndsAtADeletion: a candidate whose released lease's object was deleted makes an entry of its own
// of that lease, even if its wall clock says that no time has passed: another may have had the lock
// meanwhile, and it would say that all tokens in between were its own.
func TestRowEndsAtADeletion(t *testing.T) {
	t.Parallel()
	c := protocol.New(protocol.Config{Incarnation: "me", TTL: 15 * time.Second, Holder: "web-1"})
	var last protocol.Write
	step := func(at time.Duration, ev protocol.Event) {
		for _, a := range c.Step(ev, protocol.Now{Clock: at, Wall: scenario.Wall}) {
			if w, ok := a.(protocol.Write); ok {
				last = w
			}
		}
	}
	step(0, protocol.Acquire{})
	step(0, freed)
	step(0, protocol.WriteDone{Version: "v2"})
	step(0, protocol.Release{})
	step(0, protocol.WriteDone{Version: "v3"})
	step(time.Second, protocol.Acquire{Wait: true})
	step(time.Second, protocol.WriteDone{Err: protocol.ErrTaken})
	for at := time.Second; last.Expect != ""; at += time.Second {
		if at > time.Minute {
			t.Fatal("it does not claim")
		}
		step(at, protocol.Tick{})
		if c.Busy() {
			step(at, protocol.ReadDone{Shown: protocol.Absent})
		}
	}
	if past := last.Record.Past(); len(past) == 0 || past[0].Token != freed.Record.Token+1 || past[0].How != record.EndedByRelease {
		t.Errorf("it remembers %+v", past)
	}
}

// TestRetune: the new TTL is that of the next write, and the new intervals those of the next
// pauses.
func TestRetune(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{Follow: true, Frequent: time.Hour, Infrequent: time.Hour})
	look := func(at time.Duration, version protocol.Version, held bool) (pause time.Duration) {
		t.Helper()
		r := protocol.ReadDone{Shown: protocol.Found, Version: version, Record: freed.Record}
		r.Record.Held = held
		p.step(at, protocol.Tick{})
		p.step(at, r)
		wake, _ := p.c.Wake()
		return wake - at
	}
	p.step(0, protocol.Watch{On: true})
	p.step(0, protocol.Retune{TTL: time.Minute, Frequent: 1, Infrequent: 8 * time.Second})
	if pause := look(0, "v1", true); pause != 0 {
		t.Errorf("the next look at a new leader comes after %v, want nothing, by the new interval", pause)
	}
	if pause := look(time.Second, "v2", true); pause < 6*time.Second || pause > 10*time.Second {
		t.Errorf("the next look at a steady leader comes after %v, want about 8s, by the new interval", pause)
	}
	look(time.Minute, "v3", false)
	p.step(time.Minute, protocol.Acquire{})
	if r := p.wrote(t); r.TTL != time.Minute {
		t.Errorf("it writes the TTL %v, want the new one", r.TTL)
	}
}

// TestAdoptedNumber: a claim without an answer whose object is found has its number.
func TestAdoptedNumber(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{Numbered: true})
	p.step(0, protocol.Acquire{})
	p.step(1, freed)
	r := p.wrote(t)
	p.step(2, protocol.WriteDone{Err: errors.New("time-out")})
	r.Epoch = 7
	p.step(3, protocol.ReadDone{Shown: protocol.Found, Version: "v2", Record: r})
	if got := p.c.Lease().Epoch; got != 7 {
		t.Errorf("the lease lies in the object number %d, want 7", got)
	}
}

// TestStreaks: who passes a lock on rests after 32 times as long as a rest takes; for each
// rest in a row that nobody has used, after twice as long, up to 128 times.
func TestStreaks(t *testing.T) {
	t.Parallel()
	const lease = 20 * time.Millisecond
	const rest = (lease + lease/2) * 5 / 4 // see Candidate.rest
	p := newPlayer(protocol.Config{})
	at := time.Duration(0)
	p.step(at, protocol.Acquire{Wait: true})
	p.step(at, freed)
	for i, times := range []time.Duration{32, 64, 128, 128} {
		began, frees := at, false
		for n := 0; !frees; n++ {
			p.step(at, protocol.WriteDone{Version: protocol.Version(fmt.Sprint("v", i, ".", n))})
			at += lease
			p.step(at, protocol.Release{Pass: true})
			for _, a := range p.last {
				w, writes := a.(protocol.Write)
				frees = writes && w.Op == protocol.Free
			}
			if !frees {
				p.step(at, protocol.Acquire{Wait: true})
			}
		}
		if on := at - began; on < times*rest || on > times*rest+lease {
			t.Errorf("streak %d lasted %v, want %v", i+1, on, times*rest)
		}
		p.step(at, protocol.WriteDone{Version: protocol.Version(fmt.Sprint("free", i))})
		p.step(at, protocol.Acquire{Wait: true})
		if wake, _ := p.c.Wake(); wake != at+rest {
			t.Errorf("rest %d is of %v, want %v", i+1, wake-at, rest)
		}
		if i == 3 {
			p.step(at, protocol.Cancel{})
			break
		}
		at += rest
		p.step(at, protocol.Tick{})
		p.step(at, protocol.ReadDone{Shown: protocol.Same})
	}
}

// TestLateAnswer: a question that does not matter any more was answered all the same, when there
// is another: it is not taken for the answer to that.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	p := newPlayer(protocol.Config{Peers: true, Follow: true})
	held := func(version string, token int64) protocol.ReadDone {
		r := record.Record{Held: true, Holder: "db-1", Address: "db-1", TTL: time.Minute, Token: token, WriteID: "other." + version}
		return protocol.ReadDone{Shown: protocol.Found, Version: protocol.Version(version), Record: r}
	}
	var asked []int
	step := func(at time.Duration, ev protocol.Event) {
		p.step(at, ev)
		for _, a := range p.last {
			if a, is := a.(protocol.PollPeer); is {
				asked = append(asked, a.Number)
			}
		}
	}
	step(time.Second, protocol.Acquire{Wait: true})
	step(2*time.Second, held("v1", 41))
	step(3*time.Second, protocol.Cancel{})
	step(4*time.Second, protocol.Acquire{Wait: true})
	step(5*time.Second, held("v2", 42)) // of another lease, which is asked anew
	if len(asked) != 3 || asked[0] == asked[2] || asked[1] == asked[2] || p.c.Asks(asked[1]) || !p.c.Asks(asked[2]) {
		t.Fatalf("questions %v, the second is open: %t", asked, p.c.Asks(asked[1]))
	}
	wake, _ := p.c.Wake()
	word := protocol.PeerStatus{Leading: true, Holder: "db-1", Token: 42, Incarnation: "other", Valid: time.Minute, Version: "x"}
	step(6*time.Second, protocol.PeerAnswer{Number: asked[1], Status: word})
	if now, _ := p.c.Wake(); now != wake || len(p.last) > 0 {
		t.Errorf("a late answer: %v, wake at %v, before at %v", p.last, now, wake)
	}
	step(7*time.Second, protocol.PeerAnswer{Number: asked[2], Status: word})
	if now, _ := p.c.Wake(); now == wake {
		t.Error("the answer is not heard")
	}
	step(8*time.Second, protocol.PeerAnswer{Number: asked[3], Status: protocol.PeerStatus{Holder: "a stranger"}})
	wake, _ = p.c.Wake()
	step(9*time.Second, protocol.PeerAnswer{Number: asked[3], Status: word})
	if now, _ := p.c.Wake(); now != wake || p.c.Asks(asked[3]) {
		t.Errorf("a second answer is heard: wake at %v, before at %v", now, wake)
	}
}

// TestManyClaimsMetAnother: claims that were to create the object and were refused end no session, however many there
// were before the candidate sees what it has met; one among them without an answer does.
func TestManyClaimsMetAnother(t *testing.T) {
	t.Parallel()
	for _, unknown := range []int{-1, 0, 1, 5, 11} {
		p := newPlayer(protocol.Config{TTL: time.Hour})
		orphaned := false
		now := time.Duration(0)
		step := func(ev protocol.Event) {
			now += 10 * time.Second // longer than any pause
			p.step(now, ev)
			for _, a := range p.last {
				_, orphan := a.(protocol.SessionOrphan)
				orphaned = orphaned || orphan
			}
		}
		step(protocol.Acquire{Wait: true, Session: "s/1"})
		step(protocol.ReadDone{Shown: protocol.Absent})
		for i := range 12 {
			step(protocol.WriteDone{Err: errors.New("no"), Refused: i != unknown})
			if i < 11 {
				step(protocol.ReadDone{Shown: protocol.Absent})
				step(protocol.Tick{})
			}
		}
		step(protocol.ReadDone{Shown: protocol.Foreign, Err: errors.New("garbage")})
		if orphaned != (unknown >= 0) {
			t.Errorf("the %d-th without an answer: the session ends: %v", unknown, orphaned)
		}
	}
}
