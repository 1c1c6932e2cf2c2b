package register_test

import (
	"errors"
	"testing"

	"github.com/leasehold/leasehold/internal/register"
)

// collecting are members that all show one deletion, under the configuration before. All have taken the present one.
func collecting(t *testing.T) *members {
	t.Helper()
	m := newMembers(t)
	for i := range m.markers {
		m.markers[i].Number = 2
		m.objects[i] = object{"tombstone", tombstone(1, 7)}
	}
	m.collector(0b111)
	return m
}

// collector makes the register anew, under configuration 2. Whole has a bit for each marker that it has seen to say so.
func (m *members) collector(whole int) {
	cfg := m.markers[0].Known
	cfg.Number = 2
	m.reg = register.New(cfg, "me", whole, func() uint64 { return 0 })
}

// tombstone is what a deletion leaves, accepted under a ballot of that configuration.
func tombstone(number int, counter uint64) register.Acceptor {
	b := register.Ballot{Counter: uint64(number)<<32 + counter, By: "other"} //nolint:gosec // it is small
	return register.Acceptor{Quorum: "q", Number: number, Promised: b, Accepted: b, Value: register.Value{Version: "deletion", Deleted: true}}
}

// live is what was there before it.
func live(counter uint64) register.Acceptor {
	a := tombstone(1, counter)
	a.Value = register.Value{Version: "live", Body: []byte("body")}
	return a
}

// promise is that of a ballot, where nothing was ever accepted.
func promise(counter uint64) register.Acceptor {
	a := tombstone(1, counter)
	a.Accepted, a.Value = register.Ballot{}, register.Value{}
	return a
}

var collect = register.Call{ID: 1, Kind: register.Collect, Taken: 0b111}

// TestCollect: what a deletion has left is dropped where every member has it or never had anything, and nowhere else
// (rule Q7).
func TestCollect(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, c := range map[string]struct {
		given   func(m *members)
		call    register.Call
		outcome register.Outcome
		err     error
		value   string // its version
		left    string // what each member has then
		drops   int    // all of which were carried out
		tries   int    // or so many, and not all
		would   bool   // drop what it leaves, under the next configuration
	}{
		"all have it":            {outcome: register.Done, drops: 3},
		"one never had anything": {given: func(m *members) { m.objects[1] = object{} }, outcome: register.Done, drops: 2},
		"none has anything":      {given: func(m *members) { *m.objects = [3]object{} }, outcome: register.Done},
		"one has what was deleted": {
			given:   func(m *members) { m.objects[0] = object{"old", live(3)} },
			outcome: register.Done, value: "deletion", left: "deletion",
		},
		"one has promised, and may accept": {
			given:   func(m *members) { m.objects[2] = object{"promise", promise(3)} },
			outcome: register.Done, value: "deletion", left: "deletion",
		},
		"one has it under another ballot": {
			given:   func(m *members) { m.objects[2] = object{"later", tombstone(1, 8)} },
			outcome: register.Done, value: "deletion", left: "deletion",
		},
		"the first one has promised, and may accept": {
			given:   func(m *members) { m.objects[0] = object{"promise", promise(3)} },
			outcome: register.Done, value: "deletion", left: "deletion",
		},
		"one between has it under an earlier ballot": {
			given:   func(m *members) { m.objects[0].acc, m.objects[2].acc = tombstone(1, 8), tombstone(1, 8) },
			outcome: register.Done, value: "deletion", left: "deletion",
		},
		"one has become whole since it was asked": {
			given: func(m *members) {
				m.objects[2] = object{}
				m.collector(0b011)
			},
			outcome: register.Done, drops: 2,
		},
		"one has been given an object until it was whole": {
			given: func(m *members) {
				m.objects[2] = object{}
				m.collector(0b011)
				m.strange = func(a register.Action) register.Event {
					if check, ok := a.(register.Check); ok && check.Member == 2 && m.asked[2].checks == 1 {
						m.objects[2] = object{"filled", live(9)}
					}
					return nil
				}
			},
			outcome: register.Mismatch, value: "live",
		},
		"all have it, and were read before": {
			given:   func(m *members) { m.call(register.Call{ID: 9, Kind: register.Look}) },
			outcome: register.Done, drops: 3,
		},
		"one has been written since it was read": {
			given: func(m *members) {
				m.call(register.Call{ID: 9, Kind: register.Look})
				m.objects[1] = object{"new", live(9)}
			},
			outcome: register.Mismatch, value: "live",
		},
		"one does not let it be dropped": {
			given: func(m *members) {
				m.strange = func(a register.Action) register.Event {
					if drop, ok := a.(register.Drop); ok && drop.Member == 2 {
						return register.Stored{Member: 2, Request: drop.Request, Fate: register.Unsent, Err: down}
					}
					return nil
				}
			},
			outcome: register.Failed, err: down, tries: 3,
		},
		"one has an object": {
			given:   func(m *members) { m.objects[1] = object{"new", live(9)} },
			outcome: register.Mismatch, value: "live",
		},
		"one has only promised, and nobody has more": {
			given:   func(m *members) { *m.objects = [3]object{1: {"promise", promise(3)}} },
			outcome: register.Mismatch,
		},
		"one is young": {given: func(m *members) { m.young = 0b010 }, outcome: register.Mismatch, value: "deletion", left: "deletion"},
		"it was written under this number": {
			given: func(m *members) {
				for i := range m.objects {
					m.objects[i].acc = tombstone(2, 7)
				}
			},
			outcome: register.Mismatch, value: "deletion", left: "deletion", would: true,
		},
		"one has not taken the number": {
			call:    register.Call{ID: 1, Kind: register.Collect, Taken: 0b101},
			outcome: register.Failed, err: register.ErrNotTaken, left: "deletion",
		},
		"one has taken a later number": {
			given:   func(m *members) { m.objects[1], m.markers[1].Number = object{}, 3 },
			outcome: register.Failed, err: register.ErrMoved,
		},
		"one has lost its objects": {
			given:   func(m *members) { m.objects[1], m.markers[1] = object{}, nil },
			outcome: register.Failed, err: register.ErrLost,
		},
		"one is being filled": {
			given: func(m *members) {
				m.objects[2], m.markers[2].Whole = object{}, false
				m.collector(0b011)
			},
			outcome: register.Failed, err: register.ErrNotFilled,
		},
		"one is down": {
			given: func(m *members) {
				m.strange = func(a register.Action) register.Event {
					if get, ok := a.(register.Get); ok && get.Member == 1 {
						return register.Shown{Member: 1, Request: get.Request, Err: down}
					}
					return nil
				}
			},
			outcome: register.Failed, err: down, left: "deletion",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.call.ID == 0 {
				c.call = collect
			}
			t.Run("survey", func(t *testing.T) { surveys(t, c.given, c.call, c.outcome, c.value, c.err, c.tries > 0 || c.would) })
			m := collecting(t)
			if c.given != nil {
				c.given(m)
			}
			a := m.call(c.call)
			if a.Outcome != c.outcome || !errors.Is(a.Err, c.err) || a.Value.Version != c.value {
				t.Errorf("%+v", a)
			}
			if c.err != nil && c.err != register.ErrMoved && !errors.Is(a.Err, register.ErrNotAll) { //nolint:errorlint // it is the one above
				t.Errorf("%v does not say that every member is needed", a.Err)
			}
			drops := 0
			for i, o := range m.objects {
				drops += m.asked[i].drops
				if c.left != "" && o.acc.Value.Version != c.left {
					t.Errorf("member %d has %+v, want %q", i, o, c.left)
				}
				if c.drops > 0 && o.at != "" {
					t.Errorf("member %d still has %+v", i, o)
				}
			}
			if want := c.drops + c.tries; drops != want {
				t.Errorf("%d drops, want %d", drops, want)
			}
			if c.outcome == register.Done && c.value == "" && a.Votes != 0b111 {
				t.Errorf("only %b are said to have nothing left", a.Votes)
			}
		})
	}
}

// surveys checks that a Survey gives the answer of that Collect, and writes nothing. If the Collect would drop
// everything, but for a member that refuses or for its configuration, the Survey says so.
func surveys(t *testing.T, given func(*members), call register.Call, outcome register.Outcome, value string, err error, drops bool) {
	t.Helper()
	m := collecting(t)
	if given != nil {
		given(m)
	}
	if call.Kind = register.Survey; drops {
		outcome, value, err = register.Done, "", nil
	}
	if a := m.call(call); a.Outcome != outcome || !errors.Is(a.Err, err) || a.Value.Version != value {
		t.Errorf("%+v, want %v %q %v", a, outcome, value, err)
	}
	for i, asked := range m.asked {
		if asked.puts+asked.drops > 0 {
			t.Errorf("member %d was asked to write: %+v", i, asked)
		}
	}
}

// TestCollectMeetsWriter: a member that has changed since it was read keeps what it has, and the ballot of a later
// configuration is above what was dropped, though nobody remembers it (rule Q7).
func TestCollectMeetsWriter(t *testing.T) {
	t.Parallel()
	m := collecting(t)
	cfg := m.markers[0].Known
	cfg.Number = 2
	m.held = func(a register.Action) bool {
		drop, ok := a.(register.Drop)
		return ok && drop.Member == 2
	}
	m.step(collect)
	if len(m.later) != 1 || len(m.answers) != 0 {
		t.Fatalf("%+v held, and %+v", m.later, m.answers)
	}
	// Members 0 and 1 have nothing left. A writer does not ask member 2.
	late := m.later
	m.held, m.later = nil, nil
	writer := &members{T: t, objects: m.objects, markers: m.markers, reg: register.New(cfg, "writer", 0b111, func() uint64 { return 0 })}
	writer.held = func(a register.Action) bool {
		switch a := a.(type) {
		case register.Get:
			return a.Member == 2
		case register.Put:
			return a.Member == 2
		}
		return false
	}
	if a := writer.call(write); a.Outcome != register.Done {
		t.Fatalf("a write with two members: %+v", a)
	}
	reader := &members{T: t, objects: m.objects, markers: m.markers, reg: register.New(cfg, "reader", 0b111, func() uint64 { return 0 })}
	reader.strange = func(a register.Action) register.Event {
		if get, ok := a.(register.Get); ok && get.Member == 1 {
			return register.Shown{Member: 1, Request: get.Request, Err: errors.New("down")}
		}
		return nil
	}
	if a := reader.call(register.Call{ID: 1, Kind: register.Settle}); a.Outcome != register.Done || a.Value.Version != "mine" {
		t.Errorf("a read of members 0 and 2 after the write: %+v", a)
	}
	m.step(m.answer(late[0]))
	if len(m.answers) != 1 || m.answers[0].Outcome != register.Mismatch {
		t.Errorf("%+v, want one that says that somebody has written", m.answers)
	}
	if got := m.objects[2].acc.Value.Version; got != "mine" {
		t.Errorf("member 2 has %q: the late delete has hit what was written since", got)
	}
}

// TestCollectIsGivenUp: a caller that goes is answered at once, and the register goes on.
func TestCollectIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, held := range []func(register.Action) bool{
		func(a register.Action) bool { _, ok := a.(register.Get); return ok },
		func(a register.Action) bool { _, ok := a.(register.Drop); return ok },
	} {
		m := collecting(t)
		m.held = held
		enough := errors.New("enough")
		m.step(collect)
		m.step(register.Cancel{ID: 1, Err: enough})
		if len(m.answers) != 1 || m.answers[0].Outcome != register.Failed || !errors.Is(m.answers[0].Err, enough) {
			t.Errorf("%+v", m.answers)
		}
		m.answers = nil
		m.release()
		if a := m.call(register.Call{ID: 2, Kind: register.Look}); a.Outcome != register.Done || a.Value.Exists() {
			t.Errorf("a look after it: %+v", a)
		}
	}
}
