package register_test

import (
	"crypto/rand"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/register"
)

// These are the sequences that chance rarely finds. TestRandom of proof/register finds the others.

// members are three that answer at once, but for what a test has them do.
type members struct {
	*testing.T
	reg     *register.Register
	objects *[3]object
	markers [3]*register.Marker
	strange func(a register.Action) register.Event // in place of the honest answer; nil: none
	held    func(a register.Action) bool           // is answered later
	later   []register.Action
	puts    []register.Put
	answers []register.Answer
	now     time.Duration
	asked   [3]counts
	young   int // a bit for each member whose object is not old
}

// counts are the requests that one member got.
type counts struct{ gets, puts, checks, drops int }

type object struct {
	at  string
	acc register.Acceptor
}

// newMembers: the third one is new in configuration 1.
func newMembers(t *testing.T) *members {
	t.Helper()
	cfg := register.Configuration{Quorum: "q", Number: 1}
	m := &members{T: t, objects: new([3]object)}
	for i := range m.markers {
		name := strconv.Itoa(i)
		cfg.Members = append(cfg.Members, register.Member{Place: "mem://" + name, Marker: "marker" + name, Since: i / 2})
	}
	for i := range m.markers {
		m.markers[i] = &register.Marker{Name: cfg.Members[i].Marker, Number: 1, Whole: true, Known: cfg}
	}
	m.reg = register.New(cfg, "me", 0b111, func() uint64 { return 0 })
	return m
}

// call makes a call, and gives its answer once nothing is left to do but what is held.
func (m *members) call(c register.Call) register.Answer {
	m.Helper()
	m.step(c)
	m.wait()
	if len(m.answers) != 1 {
		m.Fatalf("%d answers: %+v", len(m.answers), m.answers)
	}
	a := m.answers[0]
	m.answers = nil
	if due, ok := m.reg.Due(); ok {
		m.Errorf("a Tick is wanted at %v, after the answer", due)
	}
	return a
}

func (m *members) step(ev register.Event) {
	for _, a := range m.reg.Step(ev, m.now) {
		m.count(a)
		if answer, ok := a.(register.Answer); ok {
			m.answers = append(m.answers, answer)
			continue
		}
		if m.held != nil && m.held(a) {
			m.later = append(m.later, a)
			continue
		}
		m.step(m.answer(a))
	}
}

func (m *members) count(a register.Action) {
	switch a := a.(type) {
	case register.Get:
		m.asked[a.Member].gets++
	case register.Put:
		m.asked[a.Member].puts++
	case register.Check:
		m.asked[a.Member].checks++
	case register.Drop:
		m.asked[a.Member].drops++
	}
}

// wait lets time pass until nothing is planned, or somebody is answered.
func (m *members) wait() {
	for due, ok := m.reg.Due(); ok && len(m.answers) == 0; due, ok = m.reg.Due() {
		m.now = max(m.now, due)
		m.step(register.Tick{})
	}
}

// release answers what was held.
func (m *members) release() {
	later := m.later
	m.held, m.later = nil, nil
	for _, a := range later {
		m.step(m.answer(a))
	}
}

func (m *members) answer(a register.Action) register.Event {
	if put, ok := a.(register.Put); ok {
		m.puts = append(m.puts, put)
	}
	if m.strange != nil {
		if ev := m.strange(a); ev != nil {
			return ev
		}
	}
	switch a := a.(type) {
	case register.Get:
		o := m.objects[a.Member]
		if a.Unless != "" && o.at == a.Unless { // as a store's answer, which has no more
			return register.Shown{Member: a.Member, Request: a.Request, Same: true}
		}
		return register.Shown{Member: a.Member, Request: a.Request, At: o.at, Acceptor: o.acc, Old: m.young>>a.Member&1 == 0}
	case register.Drop:
		if m.objects[a.Member].at != a.Over {
			return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Refused}
		}
		m.objects[a.Member] = object{}
		return register.Stored{Member: a.Member, Request: a.Request}
	case register.Put:
		if m.objects[a.Member].at != a.Over {
			return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Refused}
		}
		m.objects[a.Member] = object{rand.Text(), a.Acceptor}
		return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Landed, At: m.objects[a.Member].at}
	case register.Check:
		return register.Marked{Member: a.Member, Request: a.Request, Marker: m.markers[a.Member]}
	}
	m.Fatalf("no answer to %T", a)
	return nil
}

var write = register.Call{ID: 1, Kind: register.Set, Value: register.Value{Version: "mine"}}

// TestDenied: what is denied may be delivered once more, and be let through then (rule Q4).
func TestDenied(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	m.strange = func(a register.Action) register.Event {
		if put, ok := a.(register.Put); ok && !put.Acceptor.Accepted.IsZero() {
			return register.Stored{Member: put.Member, Request: put.Request, Fate: register.Unsent, Err: errors.New("403")}
		}
		return nil
	}
	if a := m.call(write); a.Outcome != register.Uncertain {
		t.Errorf("%+v, want one that says that it may have been written", a)
	}
}

// TestLaterMarker: where a marker has a later number, that configuration is in force (rule Q6).
func TestLaterMarker(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	m.markers[0].Number = 2
	if a := m.call(register.Call{ID: 1, Kind: register.Look}); a.Outcome != register.Failed || !errors.Is(a.Err, register.ErrMoved) {
		t.Errorf("%+v, want one that failed because the configuration has changed", a)
	}
	if !m.reg.Moved() {
		t.Error("it goes on under the former configuration")
	}
}

// TestOverNothing: over no object only a promise is written (rule Q5), as late as in the last phase.
func TestOverNothing(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	m.held = func(a register.Action) bool {
		get, ok := a.(register.Get)
		return ok && get.Member == 2
	}
	if a := m.call(write); a.Outcome != register.Done {
		t.Fatalf("%+v with two of three", a)
	}
	m.release()
	if acc := m.objects[2].acc; acc.Value.Version != "mine" {
		t.Errorf("the third member has %+v, and not what the others have", acc)
	}
	i := slices.IndexFunc(m.puts, func(p register.Put) bool { return p.Over == "" && !p.Acceptor.Accepted.IsZero() })
	if i >= 0 {
		t.Errorf("a value was written where there was no object: %+v", m.puts[i])
	}
}

// TestEmptiedAndBegun: a member that was whole and has a marker again that is not has been emptied: something on the way has
// delivered the creation of its marker once more. It does not vote (rule Q5).
func TestEmptiedAndBegun(t *testing.T) {
	t.Parallel()
	t.Run("it was seen whole", func(t *testing.T) {
		t.Parallel()
		m := newMembers(t)
		m.markers[1].Whole = false
		m.strange = func(a register.Action) register.Event {
			if get, ok := a.(register.Get); ok && get.Member == 0 {
				return register.Shown{Member: 0, Request: get.Request, Err: errors.New("it is down")}
			}
			return nil
		}
		a := m.call(register.Call{ID: 1, Kind: register.Look})
		if a.Outcome != register.Failed || !errors.Is(a.Err, register.ErrLost) {
			t.Errorf("%+v, want one that failed because member 1 has lost its objects", a)
		}
	})
	t.Run("it has promised", func(t *testing.T) {
		t.Parallel()
		m := newMembers(t)
		m.reg = register.New(m.markers[0].Known, "me", 0, func() uint64 { return 0 })
		b := register.Ballot{Counter: 1<<32 + 1, By: "other"}
		for i := range m.objects {
			m.objects[i] = object{"first", register.Acceptor{Quorum: "q", Number: 1, Promised: b, Accepted: b, Value: register.Value{Version: "old"}}}
		}
		emptied := false
		m.strange = func(a register.Action) register.Event {
			switch a := a.(type) {
			case register.Get:
				if a.Member == 2 {
					return register.Shown{Member: 2, Request: a.Request, Err: errors.New("it is down")}
				}
			case register.Put:
				if a.Acceptor.Value.Version == "mine" && !emptied {
					emptied = true
					m.objects[1] = object{}
					m.markers[1].Whole = false
				}
			}
			return nil
		}
		a := m.call(register.Call{ID: 1, Kind: register.Set, Over: "old", Value: register.Value{Version: "mine"}})
		if a.Outcome != register.Uncertain || !emptied {
			t.Errorf("%+v, want one that may surface", a)
		}
		if acc := m.objects[1].acc; !acc.Accepted.IsZero() {
			t.Errorf("the emptied member has accepted %+v by a promise that it has lost", acc)
		}
	})
}

// TestBeyond: what one member has accepted and no majority is told of, also beside a deletion, and no longer when all have the same.
func TestBeyond(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	b := register.Ballot{Counter: 1<<32 + 1, By: "other"}
	m.objects[0] = object{"one", register.Acceptor{Quorum: "q", Number: 1, Promised: b, Accepted: b, Value: register.Value{Version: "one"}}}
	if a := m.call(register.Call{ID: 1, Kind: register.Look}); a.Outcome != register.Done || a.Value.Exists() || !m.reg.Beyond(a.Value) {
		t.Errorf("%+v, and nothing beyond it", a)
	}
	if a := m.call(register.Call{ID: 2, Kind: register.Settle}); a.Outcome != register.Done || a.Value.Version != "one" || m.reg.Beyond(a.Value) {
		t.Errorf("settled: %+v, and something beyond it: %v", a, m.reg.Beyond(a.Value))
	}
	if a := m.call(register.Call{ID: 3, Kind: register.Remove, Value: register.Value{Version: "gone"}}); a.Outcome != register.Done || m.reg.Beyond(register.Value{}) {
		t.Errorf("deleted: %+v, and something beyond it", a)
	}
}

// TestBeforeItsTime: what lies in a new member from before its time counts as nothing (rule Q6).
func TestBeforeItsTime(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	acceptor := func(number int, counter uint64, version string) register.Acceptor {
		b := register.Ballot{Counter: counter, By: "other"}
		return register.Acceptor{Quorum: "q", Number: number, Promised: b, Accepted: b, Value: register.Value{Version: version}}
	}
	m.objects[0] = object{"a", acceptor(0, 5, "new")}
	m.objects[1] = object{"b", acceptor(0, 5, "new")}
	m.objects[2] = object{"c", acceptor(0, 9, "old")}
	m.markers[2].Whole = false
	m.strange = func(a register.Action) register.Event {
		if get, ok := a.(register.Get); ok && get.Member == 1 {
			return register.Shown{Member: 1, Request: get.Request, Err: errors.New("it is down")}
		}
		return nil
	}
	m.reg = register.New(m.markers[0].Known, "me", 0b011, func() uint64 { return 0 })
	if a := m.call(register.Call{ID: 1, Kind: register.Look}); a.Outcome != register.Failed || !errors.Is(a.Err, register.ErrNoMajority) {
		t.Errorf("%+v, want one that says that there is no majority", a)
	}
	m.strange = nil
	if a := m.call(register.Call{ID: 2, Kind: register.Settle}); a.Outcome != register.Done || a.Value.Version != "new" {
		t.Errorf("%+v, want the value that a majority had", a)
	}
	if acc := m.objects[2].acc; acc.Value.Version != "new" || acc.Number != 1 {
		t.Errorf("the new member was filled with %+v", acc)
	}
}

// TestCosts: what a call asks of all three members together.
func TestCosts(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	set := func(id int, over, version string) register.Call {
		return register.Call{ID: id, Kind: register.Set, Over: over, Value: register.Value{Version: version}}
	}
	other := newMembers(t)
	other.objects = m.objects
	other.reg = register.New(m.markers[0].Known, "other", 0b111, func() uint64 { return 0 })
	for _, c := range []struct {
		what    string
		by      *members
		call    register.Call
		outcome register.Outcome
		want    counts
	}{
		{"a look at nothing", m, register.Call{ID: 1, Kind: register.Look}, register.Done, counts{3, 0, 2, 0}},
		{"the first write", m, set(2, "", "a"), register.Done, counts{0, 6, 3, 0}},
		{"a renewal", m, set(3, "a", "b"), register.Done, counts{0, 3, 0, 0}},
		{"another renewal", m, set(4, "b", "c"), register.Done, counts{0, 3, 0, 0}},
		{"a look", m, register.Call{ID: 5, Kind: register.Look}, register.Done, counts{3, 0, 0, 0}},
		{"a renewal after it", m, set(6, "c", "d"), register.Done, counts{0, 3, 0, 0}},
		{"a write over what is not there", m, set(7, "a", "e"), register.Mismatch, counts{3, 0, 0, 0}},
		{"another's look", other, register.Call{ID: 8, Kind: register.Look}, register.Done, counts{3, 0, 0, 0}},
		{"another's write after it", other, set(9, "d", "f"), register.Done, counts{0, 6, 0, 0}},
		{"the former writer's, which is refused", m, set(10, "d", "g"), register.Mismatch, counts{4, 3, 0, 0}},
		{"its next look", m, register.Call{ID: 11, Kind: register.Look}, register.Done, counts{3, 0, 0, 0}},
		{"its write after it", m, set(12, "f", "h"), register.Done, counts{0, 6, 0, 0}},
		{"to delete", m, register.Call{ID: 13, Kind: register.Remove, Value: register.Value{Version: "i"}}, register.Done, counts{0, 3, 0, 0}},
		{"to delete once more", m, register.Call{ID: 14, Kind: register.Remove, Value: register.Value{Version: "j"}}, register.Done, counts{3, 0, 0, 0}},
		{"to settle what all have", m, register.Call{ID: 15, Kind: register.Settle}, register.Done, counts{0, 6, 0, 0}},
	} {
		c.by.asked = [3]counts{}
		a := c.by.call(c.call)
		if a.Outcome != c.outcome {
			t.Errorf("%s: %+v", c.what, a)
		}
		var got counts
		for _, n := range c.by.asked {
			got.gets, got.puts, got.checks = got.gets+n.gets, got.puts+n.puts, got.checks+n.checks
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// TestBounds: whatever a member does, and however long, a call ends after so many requests.
func TestBounds(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	stored := func(fate register.Fate, err error) func(register.Action) register.Event {
		return func(a register.Action) register.Event {
			if put, ok := a.(register.Put); ok {
				return register.Stored{Member: put.Member, Request: put.Request, Fate: fate, Err: err}
			}
			return nil
		}
	}
	counter := uint64(100)
	for name, c := range map[string]struct {
		strange func(register.Action) register.Event
		outcome register.Outcome
		err     error
		most    int // requests to one member
	}{
		"all writes are refused": {stored(register.Refused, nil), register.Failed, register.ErrContended, 24},
		"all writes are lost":    {stored(register.Unknown, down), register.Failed, register.ErrContended, 24},
		"all writes are denied":  {stored(register.Unsent, down), register.Failed, down, 3},
		"another's ballot is larger": {func(a register.Action) register.Event {
			get, ok := a.(register.Get)
			if !ok {
				return stored(register.Refused, nil)(a)
			}
			counter += 10
			return register.Shown{Member: get.Member, Request: get.Request, At: rand.Text(), Acceptor: register.Acceptor{
				Quorum: "q", Number: 1, Promised: register.Ballot{Counter: counter, By: "other"},
			}}
		}, register.Failed, register.ErrContended, 24},
		"nothing is read": {func(a register.Action) register.Event {
			if get, ok := a.(register.Get); ok {
				return register.Shown{Member: get.Member, Request: get.Request, Err: down}
			}
			return nil
		}, register.Failed, down, 1},
		"no marker is read": {func(a register.Action) register.Event {
			if check, ok := a.(register.Check); ok {
				return register.Marked{Member: check.Member, Request: check.Request, Err: down}
			}
			return nil
		}, register.Failed, down, 2},
		"no marker is there": {func(a register.Action) register.Event {
			if check, ok := a.(register.Check); ok {
				return register.Marked{Member: check.Member, Request: check.Request}
			}
			return nil
		}, register.Failed, register.ErrLost, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMembers(t)
			m.strange = c.strange
			a := m.call(write)
			if a.Outcome != c.outcome || !errors.Is(a.Err, c.err) {
				t.Errorf("%+v, want outcome %v and %v", a, c.outcome, c.err)
			}
			for i, n := range m.asked {
				if sum := n.gets + n.puts + n.checks; sum > c.most || sum == 0 {
					t.Errorf("%+v of member %d, want from 1 to %d", n, i, c.most)
				}
			}
			if !m.reg.Idle() {
				t.Error("it is not idle after that")
			}
			m.strange = nil
			if a := m.call(register.Call{ID: 2, Kind: register.Look}); a.Outcome != register.Done {
				t.Errorf("when all is well again: %+v", a)
			}
		})
	}
}

// TestFirstBallot: the ballots of each configuration are above those of the former ones, and the last one's can be written
// (rule Q7). Versions that share a quorum must agree on them.
func TestFirstBallot(t *testing.T) {
	t.Parallel()
	for number, want := range map[int]uint64{0: 1, 1: 1<<32 + 1, 3: 3<<32 + 1, 1<<30 - 1: (1<<30-1)<<32 + 1, 1 << 30: (1<<30-1)<<32 + 1, 1 << 40: (1<<30-1)<<32 + 1} {
		m := newMembers(t)
		cfg := m.markers[0].Known
		cfg.Number = number
		m.reg = register.New(cfg, "me", 0b111, func() uint64 { return 0 })
		for i := range m.markers {
			cfg.Members[i].Since = 0
			m.markers[i].Number, m.markers[i].Known = number, cfg
		}
		if a := m.call(write); a.Outcome != register.Done {
			t.Fatalf("%+v", a)
		}
		first := m.puts[0].Acceptor.Promised
		if first.Counter != want {
			t.Errorf("in configuration %d the first ballot is %d, want %d", number, first.Counter, want)
		}
		object, err := m.puts[len(m.puts)-1].Acceptor.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := register.Decode("q", object); err != nil {
			t.Errorf("in configuration %d: %v", number, err)
		}
	}
}

// TestPauses: one that waits for its turn after a larger ballot is not idle, and says until when it waits.
func TestPauses(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	m.reg = register.New(m.markers[0].Known, "me", 0b111, func() uint64 { return uint64(10*time.Millisecond) - 1 }) // the longest
	m.step(register.Call{ID: 9, Kind: register.Look})
	m.answers = nil
	larger := register.Ballot{Counter: 1 << 40, By: "other"}
	for i := range m.objects { // the others have promised since it has looked
		m.objects[i] = object{"other", register.Acceptor{Quorum: "q", Number: 1, Promised: larger}}
	}
	m.step(write)
	due, ok := m.reg.Due()
	if !ok || due != 10*time.Millisecond || len(m.answers) > 0 || m.reg.Idle() {
		t.Errorf("it waits until %v, %v, idle: %v, with the answers %+v", due, ok, m.reg.Idle(), m.answers)
	}
	m.wait()
	if len(m.answers) != 1 || m.answers[0].Outcome != register.Done || !m.reg.Idle() {
		t.Errorf("%+v", m.answers)
	}
}

// TestCancel: whoever gives up is answered at once, and nobody else is.
func TestCancel(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	m := newMembers(t)
	m.held = func(a register.Action) bool {
		put, ok := a.(register.Put)
		return ok && !put.Acceptor.Accepted.IsZero()
	}
	m.step(write)
	m.step(register.Call{ID: 2, Kind: register.Look})
	m.step(register.Call{ID: 3, Kind: register.Look})
	m.step(register.Cancel{ID: 2, Err: enough})
	m.step(register.Cancel{ID: 7, Err: enough}) // of nobody
	m.step(register.Cancel{ID: 1, Err: enough})
	want := []register.Answer{
		{ID: 2, Outcome: register.Failed, Err: enough},
		{ID: 1, Outcome: register.Uncertain, Err: enough}, // what is under way may be accepted
	}
	if !reflect.DeepEqual(m.answers, want) {
		t.Errorf("%+v, want %+v", m.answers, want)
	}
	m.answers = nil
	m.release()
	m.wait()
	if len(m.answers) != 1 || m.answers[0].ID != 3 || m.answers[0].Value.Version != "mine" {
		t.Errorf("%+v, want what was written after all", m.answers)
	}
	m.answers = nil
	m.step(register.Cancel{ID: 3, Err: enough})
	if len(m.answers) > 0 || !m.reg.Idle() {
		t.Errorf("%+v to a cancellation of what was answered", m.answers)
	}
}

// TestCancelledBeforeAnything: what was not sent has not been written.
func TestCancelledBeforeAnything(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	m.held = func(register.Action) bool { return true }
	m.step(write)
	m.step(register.Cancel{ID: 1, Err: errors.New("enough")})
	if len(m.answers) != 1 || m.answers[0].Outcome != register.Failed {
		t.Errorf("%+v, want one that says that nothing was written", m.answers)
	}
	if m.reg.Idle() {
		t.Error("it is idle while requests are under way")
	}
}

// TestRefusedByItsDouble: a request that is delivered twice is refused the second time, by its own first. It used to count as
// not carried out, and the caller was told that its value never would be there (rule Q4).
func TestRefusedByItsDouble(t *testing.T) {
	t.Parallel()
	larger := register.Ballot{Counter: 1 << 40, By: "other"}
	promised := register.Acceptor{Quorum: "q", Number: 1, Promised: larger}
	followed := register.Acceptor{Quorum: "q", Number: 1, Promised: larger, Accepted: larger, Value: register.Value{Version: "another"}}
	landed := func(put register.Put) register.Acceptor {
		if put.Member > 0 {
			return promised
		}
		return register.Acceptor{Quorum: "q", Number: 1, Promised: larger, Accepted: put.Acceptor.Accepted, Value: put.Acceptor.Value}
	}
	for name, tc := range map[string]struct {
		found func(put register.Put) register.Acceptor // by whoever looks after the refusal; nil: nobody can
		then  bool                                     // another has followed when it looks for the second time
		want  register.Outcome
	}{
		"nobody can look":                        {nil, false, register.Uncertain},
		"it had landed":                          {landed, false, register.Uncertain},
		"it had landed and another has followed": {landed, true, register.Uncertain},
		"another has promised":                   {func(register.Put) register.Acceptor { return promised }, false, register.Failed},
		"another has followed":                   {func(register.Put) register.Acceptor { return followed }, false, register.Mismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMembers(t)
			refused, looks := false, 0
			m.strange = func(a register.Action) register.Event {
				switch a := a.(type) {
				case register.Put:
					switch {
					case a.Acceptor.Value.Version == "mine" && a.Acceptor.Accepted.Counter < larger.Counter:
						if refused = true; tc.found != nil {
							m.objects[a.Member] = object{"now", tc.found(a)}
						}
						return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Refused}
					case refused: // what it tries after that
						return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Unsent, Err: errors.New("denied")}
					}
				case register.Get:
					if refused && tc.found == nil {
						return register.Shown{Member: a.Member, Request: a.Request, Err: errors.New("no answer")}
					}
					if refused {
						looks++
					}
					if tc.then && looks > len(m.objects) {
						m.objects[a.Member] = object{"then", followed}
					}
				}
				return nil
			}
			if a := m.call(write); a.Outcome != tc.want || !refused {
				t.Errorf("%+v, want %v", a, tc.want)
			}
		})
	}
}

// TestNotWrittenTwice: a member accepts the call's value and refuses the double of that request, and another process builds
// on the value before the member is asked what it has. The call used to conclude from what it found then that its value had
// never been accepted, and wrote it once more (rule Q4): a deletion removed what was created after it, and an object
// came back after it was deleted.
func TestNotWrittenTwice(t *testing.T) {
	t.Parallel()
	value := func(version string, deleted bool) register.Value {
		return register.Value{Version: version, Deleted: deleted}
	}
	for name, tc := range map[string]struct {
		call   register.Call
		before register.Value // there is, accepted under the ballot before that of the call
		shown  uint64         // the counter of the ballot under which the member that refuses has accepted what it shows
		after  register.Value // which is this
		want   register.Outcome
	}{
		"created after the deletion": {
			register.Call{ID: 1, Kind: register.Remove, Value: value("mine", false)},
			value("old", false),
			1 << 40, value("another", false), register.Uncertain,
		},
		"deleted after the creation": {
			register.Call{ID: 1, Kind: register.Set, Value: value("mine", false)},
			value("gone", true),
			1 << 40, value("another", true), register.Uncertain,
		},
		"written before the deletion": {
			register.Call{ID: 1, Kind: register.Remove, Value: value("mine", false)},
			value("old", false),
			1<<32 + 1, value("another", false), register.Done,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMembers(t)
			for i := range m.objects {
				b := register.Ballot{Counter: 1<<32 + 1, By: "before"}
				m.objects[i] = object{"first", register.Acceptor{Quorum: "q", Number: 1, Promised: b, Accepted: b, Value: tc.before}}
			}
			refused, twice := false, false
			m.strange = func(a register.Action) register.Event {
				put, ok := a.(register.Put)
				if !ok || put.Acceptor.Value.Version != "mine" {
					return nil
				}
				if refused {
					twice = twice || put.Acceptor.Accepted.Counter > 1<<40
					return nil
				}
				// All are one step further by then, and none has what it was asked to write over.
				refused = true
				larger, b := register.Ballot{Counter: 1 << 40, By: "other"}, register.Ballot{Counter: tc.shown, By: "other"}
				for i := range m.objects {
					m.objects[i] = object{"now", register.Acceptor{Quorum: "q", Number: 1, Promised: larger, Accepted: b, Value: tc.after}}
				}
				return register.Stored{Member: put.Member, Request: put.Request, Fate: register.Refused}
			}
			if a := m.call(tc.call); a.Outcome != tc.want || !refused {
				t.Errorf("%+v, want %v", a, tc.want)
			}
			if twice != (tc.want == register.Done) {
				t.Errorf("it is written once more: %v", twice)
			}
		})
	}
}

// TestCancelledBeforeItIsSent: a write that is given up when its ballot is prepared, and no member was sent the value yet, is
// none. It used to be sent when the members had answered, after its caller was told that it never would be.
func TestCancelledBeforeItIsSent(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	if a := m.call(register.Call{ID: 1, Kind: register.Set, Value: register.Value{Version: "a"}}); a.Outcome != register.Done {
		t.Fatalf("%+v", a)
	}
	m.strange = func(a register.Action) register.Event { // nothing is known of the members any more
		if a, ok := a.(register.Get); ok {
			return register.Shown{Member: a.Member, Request: a.Request, Err: errors.New("no answer")}
		}
		return nil
	}
	m.call(register.Call{ID: 2, Kind: register.Look})
	m.strange, m.puts = nil, nil
	m.held = func(a register.Action) bool { _, ok := a.(register.Get); return ok }
	m.step(register.Call{ID: 3, Kind: register.Set, Over: "a", Value: register.Value{Version: "b"}})
	if len(m.later) != 3 {
		t.Fatalf("%d members are asked what they have", len(m.later))
	}
	m.step(register.Cancel{ID: 3, Err: errors.New("given up")})
	if len(m.answers) != 1 || m.answers[0].Outcome != register.Failed {
		t.Fatalf("%+v", m.answers)
	}
	m.release()
	m.wait()
	if len(m.puts) > 0 {
		t.Errorf("after that %+v was sent", m.puts)
	}
}

// TestSlowMember: nobody waits for one that is not needed, it gets what the others have when it answers, and an answer
// that is overdue is waited for by nobody, and is no answer to what it was asked since.
func TestSlowMember(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	slow := func(a register.Action) bool {
		switch a := a.(type) {
		case register.Get:
			return a.Member == 1
		case register.Put:
			return a.Member == 1
		}
		return false
	}
	m.held = slow
	if a := m.call(write); a.Outcome != register.Done {
		t.Fatalf("%+v with two of three", a)
	}
	renewal := func(id int, over, version string) register.Answer {
		return m.call(register.Call{ID: id, Kind: register.Set, Over: over, Value: register.Value{Version: version}})
	}
	if a := renewal(2, "mine", "b"); a.Outcome != register.Done || len(m.later) != 1 {
		t.Errorf("%+v, and %d requests under way to the slow member, want 1", a, len(m.later))
	}
	m.now += 2 * time.Second
	if a := renewal(3, "b", "c"); a.Outcome != register.Done || len(m.later) != 2 {
		t.Errorf("%+v, and %d requests under way to the slow member, want one more", a, len(m.later))
	}
	first, ok := m.later[0].(register.Get)
	if !ok {
		t.Fatalf("%+v", m.later)
	}
	m.step(register.Shown{Member: 1, Request: first.Request, At: "x", Acceptor: register.Acceptor{Quorum: "q", Number: 9}})
	if m.reg.Moved() {
		t.Error("an answer that is overdue was heeded")
	}
	m.release()
	if v := m.objects[1].acc.Value.Version; v != "c" {
		t.Errorf("the slow member has %q, want what the others have", v)
	}
}

// TestLookWaits: a look that finds two values waits for a slow member, looks again twice, and then writes
// what it found to a majority.
func TestLookWaits(t *testing.T) {
	t.Parallel()
	m := newMembers(t)
	acceptor := func(counter uint64, version string) register.Acceptor {
		b := register.Ballot{Counter: counter, By: "other"}
		return register.Acceptor{Quorum: "q", Number: 1, Promised: b, Accepted: b, Value: register.Value{Version: version}}
	}
	*m.objects = [3]object{{"a", acceptor(5, "old")}, {"b", acceptor(6, "new")}, {"c", acceptor(5, "old")}}
	m.held = func(a register.Action) bool {
		get, ok := a.(register.Get)
		return ok && get.Member == 2
	}
	look := register.Call{ID: 1, Kind: register.Look}
	m.step(look)
	if due, ok := m.reg.Due(); !ok || due < 10*time.Millisecond || len(m.answers) > 0 {
		t.Errorf("it is due at %v, %v with the answers %+v: it should wait for the slow one", due, ok, m.answers)
	}
	m.release()
	if len(m.answers) != 1 || m.answers[0].Value.Version != "old" {
		t.Fatalf("%+v, want what two of three show", m.answers)
	}
	m.answers = nil
	if puts := m.asked[0].puts + m.asked[1].puts; puts > 0 {
		t.Errorf("%d writes by a look that needs none", puts)
	}
	m.asked = [3]counts{}
	m.held = func(a register.Action) bool {
		get, ok := a.(register.Get)
		return ok && get.Member == 2
	}
	look.ID = 2
	if a := m.call(look); a.Outcome != register.Done || a.Value.Version != "new" {
		t.Errorf("%+v, want the one of the larger ballot", a)
	}
	if m.asked[0].gets != 3 || m.asked[0].puts != 2 {
		t.Errorf("%+v, want three looks, a promise and an acceptance", m.asked[0])
	}
}
