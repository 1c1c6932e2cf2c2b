package candidate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/protocol/scenario"
	"github.com/leasehold/leasehold/internal/record"
)

// TestAlmostOurs: a record is ours if its write ID is our incarnation and a number, and of
// no other is it known that nobody relies on it.
func TestAlmostOurs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"me2.1", "me", ".1", "other.1", "1", "me.x", "me.-1"} {
		held := freed
		held.Record.Held, held.Record.WriteID = true, id
		claims := newPlayer(candidate.Config{})
		claims.step(0, candidate.Acquire{})
		claims.step(1, freed)
		claims.step(2, candidate.WriteDone{Err: protocol.ErrTaken})
		held.Version = "v2"
		if claims.step(3, held); !did[candidate.Refused](claims) || did[candidate.Granted](claims) {
			t.Errorf("after a claim, a lock held by the write %q: %v", id, claims.last)
		}
		p := newPlayer(candidate.Config{})
		p.step(0, candidate.Acquire{})
		if p.step(1, held); !did[candidate.Refused](p) || did[candidate.Write](p) {
			t.Errorf("a lock held by the write %q: %v", id, p.last)
		}
	}
}

// epochs is a layout with all that there is to say of one.
var epochs = record.Layout{Name: record.LayoutEpochs, IfMatch: true}

// TestFirst: the tokens of a lock that is made begin at the store's time, or at ours where
// it tells none, and numbers with 1.
func TestFirst(t *testing.T) {
	t.Parallel()
	cfg := candidate.Config{Holder: "web-1", TTL: time.Minute, Register: candidate.Register{Layout: epochs}}
	date, now := scenario.Wall.Add(-time.Hour), scenario.Wall
	want := record.Record{
		Token: date.UnixMilli(), Layout: epochs, Holder: "web-1", TTL: time.Minute, WriteID: "x", RenewedAt: now, ExpiresAt: now,
	}
	check := func(cfg candidate.Config, date time.Time, token int64) {
		t.Helper()
		want.Token = token
		if got := candidate.First(cfg, "x", date, now); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	check(cfg, date, date.UnixMilli())
	check(cfg, time.Time{}, now.UnixMilli())
	check(cfg, time.Unix(0, 0), 1)
	cfg.Numbered = true
	check(cfg, date, 1)
}

// TestNoAttemptIsForgotten: whichever of many attempts lands is known for one's own, and the
// lease counts from its sending, or from an earlier one. It used to be forgotten when eight
// others had been sent, and under a session nobody freed it then.
func TestNoAttemptIsForgotten(t *testing.T) {
	t.Parallel()
	const attempts = 30
	for lands := range attempts {
		p := newPlayer(candidate.Config{TTL: time.Hour})
		p.step(0, candidate.Acquire{Wait: true})
		p.step(1, freed)
		wrote, sent := []record.Record{p.wrote(t)}, []time.Duration{1}
		at := time.Second
		for len(wrote) < attempts {
			p.step(at, candidate.WriteDone{Err: errors.New("time-out")})
			p.step(at, candidate.ReadDone{Shown: protocol.Same})
			at, _ = p.c.Wake()
			p.step(at, protocol.Tick{})
			wrote, sent = append(wrote, p.wrote(t)), append(sent, at)
		}
		p.step(at, candidate.WriteDone{Err: errors.New("time-out")})
		p.step(at, candidate.ReadDone{Shown: protocol.Found, Version: "v2", Record: wrote[lands]})
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

// TestWhatIsWritten: a claim, a renewal and a release, each with all that people read.
func TestWhatIsWritten(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Address: "10.0.1.42:8443", Meta: map[string]string{"k": "v"}, Register: candidate.Register{Layout: epochs, Numbered: true}})
	check := func(want record.Record) {
		t.Helper()
		if got := p.wrote(t); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	over := func(want record.Record) {
		t.Helper()
		for _, a := range p.last {
			if w, ok := a.(candidate.Write); ok && !reflect.DeepEqual(w.Over, want) {
				t.Errorf("it writes over %+v, want %+v", w.Over, want)
			}
		}
	}
	found := freed
	found.Record.Holder, found.Record.Ended = "db-2", record.EndedByHand
	found.Record.AcquiredAt, found.Record.RenewedAt = scenario.Wall.Add(-time.Minute), scenario.Wall.Add(-30*time.Second)
	found.Record.Term, found.Record.TermToken, found.Record.History = 6, 41, json.RawMessage(`[{"kept":"as it is"}]`)
	found.Record.Epoch, found.Record.Unknown = 41, map[string]json.RawMessage{"zone": json.RawMessage(`"a"`)}
	p.step(0, candidate.Acquire{})
	p.step(time.Second, found)
	want := record.Record{
		Token: 42, Held: true, Holder: "web-1", Address: "10.0.1.42:8443", Meta: map[string]string{"k": "v"}, Layout: epochs,
		TTL: 15 * time.Second, WriteID: "me.1", Previous: 41, Term: 7, TermToken: 42, Unknown: found.Record.Unknown,
		History:    json.RawMessage(`[{"token":41,"term":6,"holder":"db-2","from":"2026-11-20T10:29:00.000Z","to":"2026-11-20T10:29:30.000Z","how":"broken"},{"kept":"as it is"}]`),
		AcquiredAt: scenario.Wall.Add(time.Second), RenewedAt: scenario.Wall.Add(time.Second), ExpiresAt: scenario.Wall.Add(16 * time.Second),
	}
	check(want)
	over(found.Record)
	p.step(2*time.Second, candidate.WriteDone{Version: "v2", Epoch: 42})
	p.step(7*time.Second, protocol.Tick{})
	want.WriteID, want.RenewedAt, want.ExpiresAt = "me.2", scenario.Wall.Add(7*time.Second), scenario.Wall.Add(22*time.Second)
	check(want)
	p.step(8*time.Second, candidate.WriteDone{Version: "v3", Epoch: 42})
	p.step(9*time.Second, candidate.Release{Successor: "db-3"})
	want.WriteID, want.RenewedAt, want.ExpiresAt = "me.3", scenario.Wall.Add(9*time.Second), scenario.Wall.Add(9*time.Second)
	want.Held, want.Successor, want.Epoch = false, "db-3", 42
	check(want)
}

// TestRowEndsAtADeletion: a candidate whose released lease's object was deleted makes an entry of its own
// of that lease, even if its wall clock says that no time has passed: another may have had the lock
// meanwhile, and it would say that all tokens in between were its own.
func TestRowEndsAtADeletion(t *testing.T) {
	t.Parallel()
	c := candidate.New(candidate.Config{Incarnation: "me", TTL: 15 * time.Second, Holder: "web-1"})
	var last candidate.Write
	step := func(at time.Duration, ev protocol.Event) {
		for _, a := range c.Step(ev, protocol.Now{Clock: at, Wall: scenario.Wall}) {
			if w, ok := a.(candidate.Write); ok {
				last = w
			}
		}
	}
	step(0, candidate.Acquire{})
	step(0, freed)
	step(0, candidate.WriteDone{Version: "v2"})
	step(0, candidate.Release{})
	step(0, candidate.WriteDone{Version: "v3"})
	step(time.Second, candidate.Acquire{Wait: true})
	step(time.Second, candidate.WriteDone{Err: protocol.ErrTaken})
	for at := time.Second; last.Expect != ""; at += time.Second {
		if at > time.Minute {
			t.Fatal("it does not claim")
		}
		step(at, protocol.Tick{})
		if c.Busy() {
			step(at, candidate.ReadDone{Shown: protocol.Absent})
		}
	}
	if past := last.Record.Past(); len(past) == 0 || past[0].Token != freed.Record.Token+1 || past[0].How != record.EndedByRelease {
		t.Errorf("it remembers %+v", past)
	}
}

// TestHistoryOfARecordMadeByHand: a claim over a record that nobody has acquired keeps the history in it.
func TestHistoryOfARecordMadeByHand(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{})
	p.step(0, candidate.Acquire{})
	made := freed
	made.Record.History = json.RawMessage(`[{"token":1}]`)
	p.step(1, made)
	if r := p.wrote(t); string(r.History) != string(made.Record.History) {
		t.Errorf("the history is %s", r.History)
	}
}

// TestAdoptedNumber: a claim without an answer whose object is found has its number.
func TestAdoptedNumber(t *testing.T) {
	t.Parallel()
	p := newPlayer(candidate.Config{Register: candidate.Register{Numbered: true}})
	p.step(0, candidate.Acquire{})
	p.step(1, freed)
	r := p.wrote(t)
	p.step(2, candidate.WriteDone{Err: errors.New("time-out")})
	r.Epoch = 7
	p.step(3, candidate.ReadDone{Shown: protocol.Found, Version: "v2", Record: r})
	if got := p.c.Lease().Epoch; got != 7 {
		t.Errorf("the lease lies in the object number %d, want 7", got)
	}
}

// TestManyClaimsMetAnother: claims that were to create the object and were refused end no session, however many there
// were before the candidate sees what it has met; one among them without an answer does.
func TestManyClaimsMetAnother(t *testing.T) {
	t.Parallel()
	for _, unknown := range []int{-1, 0, 1, 5, 11} {
		p := newPlayer(candidate.Config{TTL: time.Hour})
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
		step(candidate.Acquire{Wait: true, Session: "s/1"})
		step(candidate.ReadDone{Shown: protocol.Absent})
		for i := range 12 {
			step(candidate.WriteDone{Err: errors.New("no"), Refused: i != unknown})
			if i < 11 {
				step(candidate.ReadDone{Shown: protocol.Absent})
				step(protocol.Tick{})
			}
		}
		step(candidate.ReadDone{Shown: protocol.Foreign, Err: errors.New("garbage")})
		if orphaned != (unknown >= 0) {
			t.Errorf("the %d-th without an answer: the session ends: %v", unknown, orphaned)
		}
	}
}

// TestClaimsOfManySessions: claims of nine sessions that may all land are one too many to be
// remembered. The oldest one's session is to end, and then the next one's; the others' are known.
func TestClaimsOfManySessions(t *testing.T) {
	t.Parallel()
	down := errors.New("time-out")
	p := newPlayer(candidate.Config{TTL: time.Hour})
	p.step(0, candidate.Watch{On: true})
	p.step(0, freed)
	var wrote []record.Record
	for i := range 11 {
		at := time.Duration(i+1) * time.Second
		p.step(at, candidate.Acquire{Wait: true, Session: fmt.Sprint("s/", i+1)})
		wrote = append(wrote, p.wrote(t))
		var ended []string
		for _, a := range p.last {
			if a, is := a.(protocol.SessionOrphan); is {
				ended = append(ended, a.Session)
			}
		}
		want := []string(nil)
		if i >= 8 {
			want = []string{fmt.Sprint("s/", i-7)}
		}
		if fmt.Sprint(ended) != fmt.Sprint(want) {
			t.Errorf("claim %d: the sessions %v are to end, want %v", i+1, ended, want)
		}
		p.step(at, candidate.WriteDone{Err: down})
		p.step(at, candidate.ReadDone{Shown: protocol.Same})
		if i < 10 {
			p.step(at, protocol.Cancel{})
		}
	}
	p.step(20*time.Second, protocol.Recheck{})
	p.step(20*time.Second, candidate.ReadDone{Shown: protocol.Found, Version: "v2", Record: wrote[10]})
	if !did[candidate.Granted](p) {
		t.Errorf("the claim that is wanted has landed: %v", p.last)
	}
}

// TestClaimsOverTwoVersions: a claim whose first write has landed and whose second may yet is not
// remembered together with those that came after, over what the first one left: what lands of
// these would count from too early a time.
func TestClaimsOverTwoVersions(t *testing.T) {
	t.Parallel()
	down := errors.New("time-out")
	for lands := 1; lands <= 2; lands++ {
		p := newPlayer(candidate.Config{TTL: time.Hour, Register: candidate.Register{Numbered: true}})
		p.step(0, candidate.Acquire{Wait: true})
		p.step(0, freed)
		half := freed.Record
		half.WriteID = p.wrote(t).WriteID
		var wrote []record.Record
		var sent []time.Duration
		at := time.Second
		p.step(at, candidate.WriteDone{Err: down})
		p.step(at, candidate.ReadDone{Shown: protocol.Found, Version: "v2", Record: half})
		for len(wrote) < 8 {
			if len(wrote) > 0 { // what the first one left is progress, and the next one follows at once
				at, _ = p.c.Wake()
				p.step(at, protocol.Tick{})
			}
			wrote, sent = append(wrote, p.wrote(t)), append(sent, at)
			p.step(at, candidate.WriteDone{Err: down})
			if len(wrote) < 8 {
				p.step(at, candidate.ReadDone{Shown: protocol.Same})
			}
		}
		p.step(at, candidate.ReadDone{Shown: protocol.Found, Version: "v3", Record: wrote[lands-1]})
		if want := sent[0] + protocol.Validity(time.Hour); p.c.Deadline() != want {
			t.Errorf("claim %d of the second version: valid until %v, want %v", lands, p.c.Deadline(), want)
		}
	}
}

// TestTroubleEnds: the last failure is told until a look succeeds, if looks failed, or a write,
// if writes did.
func TestTroubleEnds(t *testing.T) {
	t.Parallel()
	down := errors.New("503")
	p := newPlayer(candidate.Config{})
	trouble := func(at time.Duration, ev protocol.Event, want error) {
		t.Helper()
		if p.step(at, ev); !errors.Is(p.c.Trouble(), want) || (want == nil) != (p.c.Trouble() == nil) {
			t.Errorf("after %T at %v: %v, want %v", ev, at, p.c.Trouble(), want)
		}
	}
	trouble(0, candidate.Watch{On: true}, nil)
	trouble(1, candidate.ReadDone{Err: down}, down)
	trouble(time.Second, protocol.Tick{}, down)
	trouble(time.Second, candidate.ReadDone{Shown: protocol.Absent}, nil)

	p = newPlayer(candidate.Config{})
	trouble(0, candidate.Acquire{Wait: true}, nil)
	trouble(1, candidate.ReadDone{Err: down}, down)
	trouble(time.Second, protocol.Tick{}, down)
	trouble(time.Second, freed, nil) // and it claims
	trouble(time.Second, candidate.WriteDone{Err: down}, down)
	trouble(time.Second, candidate.ReadDone{Shown: protocol.Same}, down)
	trouble(2*time.Second, protocol.Tick{}, down)
	trouble(2*time.Second, candidate.WriteDone{Version: "v2"}, nil)
	trouble(3*time.Second, candidate.Release{}, nil)
	trouble(3*time.Second, candidate.WriteDone{Err: down}, down)
	trouble(3*time.Second, candidate.ReadDone{Shown: protocol.Same}, down)
	trouble(4*time.Second, protocol.Tick{}, down)
	trouble(4*time.Second, candidate.WriteDone{Version: "v3"}, nil)
}
