package candidate_test

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
)

// The exploration below plays every order in which two movers, a user of the old object and one of the new
// object can act, with answers that are lost or late, writes that land late or never, and movers that are killed and
// begin again without knowing anything. The movers are driven by candidate.Move itself. What is proven of
// leases elsewhere is taken for granted: nobody takes a lock over while a lease of it may be valid.

const (
	oldPlace = "s3://old/lock"
	newPlace = "gs://new/lock"
)

// object is one of the two objects. Version 0: it is not there.
type object struct{ version, kind, token, by int8 } // by: who holds it

const (
	isFree int8 = iota + 1
	isHeld
	isSealed
	isClosed
)

// request is a write under way. It lands at any time, or never.
type request struct {
	open, landed, live bool // live: its answer would still make a lease
	at, expect         int8
	wrote              object
}

// party is a user of one of the objects, or a mover.
type party struct {
	valid       bool // it may use the lock
	request     request
	seen        [2]object
	looked      [2]bool
	proof       object // the record of a mover's detached lease
	mayBeKilled bool
}

// state is all there is. It is comparable, so that none is visited twice.
type state struct {
	objects [2]object
	parties [3]party
	version int8 // the last one
	writes  int8 // so far
	most    int8 // the largest token that was claimed
}

// explorer visits every state.
type explorer struct {
	movers   int
	writes   int8
	seed     maphash.Seed
	visited  map[uint64]struct{} // the hashes of states, which take a quarter of the memory: that two of three million have one has a chance below 1e-6
	next     []state
	reached  map[candidate.MoveStep]int
	failures []string
	inNew    int // states in which the new object's user holds the lock
}

func (x *explorer) mover(p int) bool { return p >= len(state{}.parties)-x.movers }

// home is the object that a user uses.
func home(p int) int8 { return int8(p) } //nolint:gosec // there are two

// place is an object as a look shows it.
func place(o object) candidate.Place {
	if o.version == 0 {
		return candidate.Place{}
	}
	r := record.Record{Token: int64(o.token), Held: o.kind == isHeld, WriteID: writeID(o), TTL: time.Second}
	switch o.kind {
	case isSealed:
		r.Move.To = newPlace
	case isClosed:
		r.Move.From = oldPlace
	}
	return candidate.Place{Exists: true, Record: r}
}

func writeID(o object) string { return writeIDOf(o.version) }

func writeIDOf(version int8) string { return "w" + strconv.Itoa(int(version)) + ".1" }

// abstract is a record that a mover writes.
func abstract(r record.Record, version int8) object {
	o := object{version, isFree, int8(r.Token), -1} //nolint:gosec // tokens are small here
	switch {
	case r.Move.To != "":
		o.kind = isSealed
	case r.Move.From != "":
		o.kind = isClosed
	case r.Held:
		panic("a mover takes a lock by a claim")
	}
	return o
}

func (x *explorer) visit(s state) {
	holders := 0
	for _, p := range s.parties {
		if p.valid {
			holders++
		}
	}
	if s.parties[1].valid {
		x.inNew++
	}
	if holders > 1 {
		x.fail("two may use the lock", s)
	}
	x.prune(&s)
	hash := maphash.Comparable(x.seed, s)
	if x.movers == 2 { // either is as good as the other
		hash = min(hash, maphash.Comparable(x.seed, exchanged(s)))
	}
	if _, ok := x.visited[hash]; !ok {
		x.visited[hash] = struct{}{}
		x.next = append(x.next, s)
	}
}

// prune clears what decides nothing any more, so that fewer states differ.
func (x *explorer) prune(s *state) {
	for p := range s.parties {
		me := &s.parties[p]
		if s.writes == x.writes && !x.mover(p) { // it can write no more, whatever it sees
			me.looked, me.seen = [2]bool{}, [2]object{}
		}
		if me.request.landed && !me.request.live { // its answer says nothing to anybody
			me.request = request{}
		}
	}
}

// exchanged is the state with the two movers in each other's place.
func exchanged(s state) state {
	s.parties[1], s.parties[2] = s.parties[2], s.parties[1]
	other := func(o *object) {
		if o.by > 0 {
			o.by = 3 - o.by
		}
	}
	for at := range s.objects {
		other(&s.objects[at])
	}
	for p := range s.parties {
		me := &s.parties[p]
		other(&me.seen[0])
		other(&me.seen[1])
		other(&me.request.wrote)
		other(&me.proof)
	}
	return s
}

func (x *explorer) fail(what string, s state) {
	x.failures = append(x.failures, fmt.Sprintf("%s: %+v", what, s))
}

// send puts a write of a party under way.
func (x *explorer) send(s state, p int, at, expect int8, wrote object, live bool) {
	if s.writes == x.writes {
		return
	}
	s.writes++
	s.version = wrote.version
	s.parties[p].request = request{open: true, live: live, at: at, expect: expect, wrote: wrote}
	x.visit(s)
}

// takeable reports that what a party has seen may be claimed: its holder is known to be gone.
func takeable(s *state, seen object) bool {
	by := s.parties[max(seen.by, 0)]
	holds := by.valid || by.request.open && by.request.live
	return seen.version > 0 && (seen.kind == isFree || seen.kind == isHeld && !holds)
}

func (x *explorer) claim(s state, p int, at int8) {
	if seen := s.parties[p].seen[at]; s.parties[p].looked[at] && takeable(&s, seen) {
		x.send(s, p, at, seen.version, object{s.version + 1, isHeld, seen.token + 1, int8(p)}, true) //nolint:gosec // few
	}
}

// step visits all that can come after a state by one act of one party, or of the network.
func (x *explorer) step(s state, p int) {
	x.network(s, p)
	me := &s.parties[p]
	if me.valid { // it is released, or runs out
		after := s
		after.parties[p].valid, after.parties[p].looked, after.parties[p].seen = false, [2]bool{}, [2]object{}
		x.visit(after)
	}
	if me.request.live {
		after := s
		after.parties[p].request.live = false
		x.visit(after)
	}
	if x.mover(p) && me.mayBeKilled {
		after := s
		after.parties[p] = party{request: me.request} // which may yet land
		after.parties[p].request.live = false
		x.visit(after)
	}
	if me.request.open || me.valid {
		return
	}
	for at := range s.objects {
		if x.mover(p) || int8(at) == home(p) {
			after := s
			after.parties[p].seen[at], after.parties[p].looked[at] = s.objects[at], true
			x.visit(after)
		}
	}
	if x.mover(p) {
		x.move(s, p)
	} else {
		x.claim(s, p, home(p))
	}
}

// network lets the request of a party land, and its answer come or be lost.
func (x *explorer) network(s state, p int) {
	q := s.parties[p].request
	switch {
	case !q.open:
	case !q.landed:
		after := s
		if s.objects[q.at].version != q.expect {
			after.parties[p].request = request{} // it can land no more
			x.visit(after)
			return
		}
		if q.wrote.kind == isHeld {
			if q.wrote.token <= s.most {
				x.fail("a token that is not larger", s)
			}
			after.most = q.wrote.token
		}
		after.objects[q.at], after.parties[p].request.landed = q.wrote, true
		x.visit(after)
	default:
		after := s
		after.parties[p].request = request{} // no answer: it looks
		x.visit(after)
		if q.live && s.objects[q.at].version == q.wrote.version {
			if x.mover(p) { // it has detached the lease at once
				after.parties[p].proof = q.wrote
			} else {
				after.parties[p].valid = true
			}
			after.parties[p].looked, after.parties[p].seen = [2]bool{}, [2]object{}
			x.visit(after)
		}
	}
}

// move has a mover do what candidate.Move says.
func (x *explorer) move(s state, p int) {
	me := s.parties[p]
	if !me.looked[0] || !me.looked[1] {
		return
	}
	m := candidate.Move{From: oldPlace, To: newPlace}
	if me.proof.version > 0 {
		m.Lease = &candidate.Proof{Token: int64(me.proof.token), WriteID: writeID(me.proof)}
	}
	old, to := place(me.seen[0]), place(me.seen[1])
	do, err := m.Next(old, to)
	x.reached[do]++
	id := writeIDOf(s.version + 1)
	cfg := candidate.Config{TTL: time.Second, Register: candidate.Register{Numbered: true}}
	write := func(at int8, expect int8, r record.Record) {
		x.send(s, p, at, expect, abstract(r, s.version+1), false)
	}
	switch {
	case errors.Is(err, candidate.ErrOccupied): // its two looks do not go together: it looks again
	case err != nil:
		x.fail(err.Error(), s)
	case do == candidate.MoveClose:
		write(1, 0, m.Closed(cfg, id, time.Time{}, time.Time{}))
	case do == candidate.MoveTake:
		x.claim(s, p, 0)
	case do == candidate.MoveSeal:
		write(0, me.seen[0].version, m.Sealed(old, id, time.Time{}))
	case do == candidate.MoveOpen:
		write(1, me.seen[1].version, m.Opened(old, to, cfg, id, time.Time{}))
	}
}

func explore(movers int, writes int8) *explorer {
	x := &explorer{movers: movers, writes: writes, seed: maphash.MakeSeed(), visited: map[uint64]struct{}{}, reached: map[candidate.MoveStep]int{}}
	s := state{version: 1, most: 4}
	s.objects[0] = object{1, isFree, 4, -1}
	for p := range s.parties {
		s.parties[p].mayBeKilled = x.mover(p)
	}
	x.visit(s)
	for len(x.next) > 0 && len(x.failures) == 0 {
		s := x.next[len(x.next)-1]
		x.next = x.next[:len(x.next)-1]
		for p := range s.parties {
			x.step(s, p)
		}
	}
	return x
}

// TestMovesAreSafe: in no order of events are there two holders, or tokens that do not grow, whichever object
// they are of; and every step of a move is reached, as is a holder in the new place.
func TestMovesAreSafe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		movers int
		writes int8
	}{{1, 6}, {2, 4}} {
		t.Run(fmt.Sprintf("%d movers, %d writes", c.movers, c.writes), func(t *testing.T) {
			t.Parallel()
			x := explore(c.movers, c.writes)
			t.Logf("%d states, %d with a holder in the new place, steps: %v", len(x.visited), x.inNew, x.reached)
			for _, f := range x.failures {
				t.Error(f)
			}
			for _, do := range []candidate.MoveStep{candidate.MoveClose, candidate.MoveTake, candidate.MoveSeal, candidate.MoveOpen, candidate.MoveDone} {
				if x.reached[do] == 0 {
					t.Errorf("step %d was never reached", do)
				}
			}
			if c.movers == 1 && x.inNew == 0 {
				t.Error("nobody ever held the lock in the new place")
			}
		})
	}
}

// TestNextOfAMove is the table of docs/rfc/0018-moving.md.
func TestNextOfAMove(t *testing.T) {
	t.Parallel()
	none := candidate.Place{}
	lock := candidate.Place{Exists: true, Record: record.Record{Token: 7, Held: true, WriteID: "a.1", TTL: time.Second}}
	moved := func(to, from string) candidate.Place {
		return candidate.Place{Exists: true, Record: record.Record{Token: 7, WriteID: "m.1", Move: record.Move{To: to, From: from}}}
	}
	sealed, closed := moved(newPlace, ""), moved("", oldPlace)
	elsewhere, others := moved("s3://third/lock", ""), moved("", "s3://third/lock")
	const no = candidate.MoveStep(0)
	for what, c := range map[string]struct {
		old, to candidate.Place
		step    candidate.MoveStep
		kind    error
		says    string
	}{
		"a lock, nothing":                     {lock, none, candidate.MoveClose, nil, ""},
		"a lock, closed":                      {lock, closed, candidate.MoveTake, nil, ""},
		"sealed, closed":                      {sealed, closed, candidate.MoveOpen, nil, ""},
		"sealed, a lock":                      {sealed, lock, candidate.MoveDone, nil, ""},
		"sealed, and it has moved on":         {sealed, elsewhere, candidate.MoveDone, nil, ""},
		"sealed, nothing":                     {sealed, none, candidate.MoveClose, nil, ""},
		"nothing, nothing":                    {none, none, no, candidate.ErrNothingToMove, oldPlace},
		"nothing, closed":                     {none, closed, no, candidate.ErrNothingToMove, oldPlace},
		"a lock, a lock":                      {lock, lock, no, candidate.ErrOccupied, "a lock at " + newPlace + " already"},
		"a lock, sealed":                      {lock, elsewhere, no, candidate.ErrOccupied, "has moved to s3://third/lock"},
		"a lock, closed for another":          {lock, others, no, candidate.ErrOccupied, "from s3://third/lock"},
		"sealed, closed for another":          {sealed, others, no, candidate.ErrOccupied, "from s3://third/lock"},
		"sealed for another, nothing":         {elsewhere, none, no, candidate.ErrMovedElsewhere, "to s3://third/lock, and not to " + newPlace},
		"sealed for another, a lock":          {elsewhere, lock, no, candidate.ErrMovedElsewhere, "to s3://third/lock"},
		"closed for another move, nothing":    {others, none, no, candidate.ErrMovedElsewhere, "move from s3://third/lock"},
		"closed, and the new object is there": {others, lock, no, candidate.ErrMovedElsewhere, "run that one again first"},
	} {
		m := candidate.Move{From: oldPlace, To: newPlace}
		step, err := m.Next(c.old, c.to)
		if step != c.step || !errors.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: step %d, %v", what, step, err)
		}
	}
	m := candidate.Move{From: oldPlace, To: newPlace, Lease: &candidate.Proof{Token: 7, WriteID: "a.1"}}
	if step, err := m.Next(lock, closed); step != candidate.MoveSeal || err != nil {
		t.Errorf("with the lease: step %d, %v", step, err)
	}
	for _, lost := range []record.Record{{Token: 8, Held: true, WriteID: "a.1"}, {Token: 7, Held: true, WriteID: "b.1"}, {Token: 7, WriteID: "a.1"}} {
		if step, err := m.Next(candidate.Place{Exists: true, Record: lost}, closed); step != candidate.MoveTake || err != nil {
			t.Errorf("with the lease lost to %+v: step %d, %v", lost, step, err)
		}
	}
}

// TestRecordsOfAMove: what a lock is known by goes with it, and its token is never smaller.
func TestRecordsOfAMove(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	old := candidate.Place{Exists: true, Record: record.Record{
		Token: 70, Held: true, Holder: "mover", TTL: time.Minute, WriteID: "a.3", Successor: "next", Layout: epochs, Epoch: 70, Previous: 60,
		Rest: &record.Rest{Milliseconds: 5, WriteID: "a.3"}, AcquiredAt: at, Term: 9, TermToken: 70, History: []byte(`[1]`), Meta: map[string]string{"a": "b"},
	}}
	cfg := candidate.Config{TTL: 15 * time.Second, Holder: "mover"}
	m := candidate.Move{From: oldPlace, To: newPlace}

	closed := m.Closed(cfg, "b.1", at, at)
	if closed.Token != at.UnixMilli() || closed.Move != (record.Move{From: oldPlace}) || closed.Held || closed.WriteID != "b.1" || closed.TTL != cfg.TTL {
		t.Errorf("closed: %+v", closed)
	}
	sealed := m.Sealed(old, "b.2", at.Add(time.Second))
	if sealed.Token != 70 || sealed.Move != (record.Move{To: newPlace}) || sealed.Held || sealed.WriteID != "b.2" || sealed.Ended != "moved" ||
		!sealed.RenewedAt.Equal(at.Add(time.Second)) || string(sealed.History) != `[1]` || sealed.Layout != epochs {
		t.Errorf("sealed: %+v", sealed)
	}
	for token, want := range map[int64]int64{1: 70, 70: 70, 71: 71} {
		closed.Token = token
		r := m.Opened(candidate.Place{Record: sealed}, candidate.Place{Record: closed}, cfg, "b.3", at.Add(2*time.Second))
		if r.Token != want || r.Held || r.Move != (record.Move{}) || r.WriteID != "b.3" || r.Layout != (record.Layout{}) || r.TTL != cfg.TTL || r.CountedTerm() != 9 ||
			r.Epoch != 0 || r.Previous != 0 || r.Rest != nil || r.Successor != "" || r.Session != "" || string(r.History) != `[1]` || r.Meta["a"] != "b" ||
			!r.AcquiredAt.Equal(at) || !r.RenewedAt.Equal(at.Add(2*time.Second)) || r.Ended != "moved" {
			t.Errorf("opened over token %d: %+v", token, r)
		}
	}
	sealed.Session, sealed.ExpiresAt = "s", at.Add(time.Hour) // of a lock that somebody has sealed otherwise
	sealed.Term, sealed.TermToken, closed.Token = 1, 70, 71
	if r := m.Opened(candidate.Place{Record: sealed}, candidate.Place{Record: closed}, cfg, "b.3", at); r.CountedTerm() != 1 || r.Session != "" || !r.ExpiresAt.Equal(at) {
		t.Errorf("after the first lease: %+v", r)
	}
	sealed.Term, sealed.TermToken = 9, 0
	if r := m.Opened(candidate.Place{Record: sealed}, candidate.Place{}, cfg, "b.3", at); r.CountedTerm() != 0 || r.Term != 9 {
		t.Errorf("a lease that was not counted: %+v", r)
	}
	if !slices.IsSorted([]candidate.MoveStep{candidate.MoveClose, candidate.MoveTake, candidate.MoveSeal, candidate.MoveOpen, candidate.MoveDone}) {
		t.Error("the steps are out of order")
	}
}
