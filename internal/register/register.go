package register

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// The errors of an Answer, in addition to those of the members.
var (
	// ErrLost means that the member has lost its objects, or that its store has another member's (rule Q5).
	ErrLost = errors.New("this member has lost its objects")
	// ErrNotFilled means that the member is new and has not been filled yet (rule Q6).
	ErrNotFilled = errors.New("this member is new and was not filled yet")
	// ErrContended means that other writers were faster in every round.
	ErrContended = errors.New("too many writers at a time")
	// ErrMoved means that a member knows a later configuration. The Register cannot be used any more.
	ErrMoved = errors.New("the configuration has changed")
	// ErrNoMajority means that too few members answer. It wraps the errors of the others.
	ErrNoMajority = errors.New("no majority of the members")
	// ErrNotAll means that a Collect needs every member, and one cannot take part. It wraps the reason.
	ErrNotAll = errors.New("every member is needed")
	// ErrNotTaken means that a member has not taken the number of this configuration (rule Q7).
	ErrNotTaken = errors.New("this member has not taken the number of the configuration")
)

// The limits of one call: requests to one member, and rounds.
const (
	maxSteps  = 24
	maxRounds = 8
)

// overdue is how long a request may be in flight before the next call sends another one to the member. A late write may
// still land; the version that the next write is conditional on settles that.
const overdue = time.Second

// onceMore is the time after which a call that waits for others asks a failed member again.
const onceMore = 500 * time.Millisecond

// The limits of the backoff after a rival's larger ballot, and of the wait for a slow member during a read.
const (
	minPause = 10 * time.Millisecond
	maxPause = 2 * time.Second
)

// A Register is one key, as seen by one proposer. Only one goroutine may use it at a time.
type Register struct {
	cfg     Configuration
	by      string // the name in its ballots
	counter uint64 // the largest used or seen
	random  func() uint64
	now     time.Duration
	out     []Action

	members []member
	queue   []Call
	call    *Call
	due     time.Duration // when to continue; 0: nothing waits
	number  int           // of calls so far
	took    time.Duration // by the last answered write
	moved   bool

	phase    phase
	gathered time.Duration // when this read began
	looks    int
	rounds   int
	ballot   Ballot
	next     Ballot // promised together with the acceptances
	proposal Value
	base     string // the version of the value that the call first tried to replace
	got      set    // members that have promised it
	votes    set    // members that have accepted under it
	prepared prepared
}

// phase is the state of a call.
type phase int

const (
	idle       phase = iota
	gathering        // reading the members
	preparing        // asking for promises
	accepting        // asking for acceptances
	pausing          // backing off, because a rival's ballot was larger
	following        // the call is answered, and the other members receive what a majority has accepted
	collecting       // reading all members, for a Collect or Survey
	dropping         // deleting a deletion
)

// prepared is a ballot that was promised together with the last acceptance.
type prepared struct {
	ballot Ballot
	by     set
	over   Value // the accepted value; nothing else can be accepted before the ballot is used
}

// A member is what the Register knows about one member.
type member struct {
	busy    bool // a request is in flight
	request int  // the number of the latest request
	asked   int  // the call in which it was sent
	sent    time.Duration
	put     Acceptor // what a Put writes
	own     bool     // the Put accepts the call's own value
	known   bool     // the next fields are its last answer
	at      string
	acc     Acceptor
	fresh   bool          // requested in this call
	old     bool          // unchanged for longer than any request is in flight
	checked bool          // the marker was read after that, in this call
	whole   bool          // the marker has said so; if it no longer does, the member was lost and replaced
	trusted bool          // and said so before the last answer was requested
	quiet   bool          // it cannot help in this phase
	exposed bool          // it may accept the call's own value
	doubt   Ballot        // of a refused acceptance, which may have landed before; zero: none
	fault   error         // why it cannot take part in this call
	again   time.Duration // when to ask it again; 0: never
	steps   int
}

// set has a bit for each member.
type set uint8

func (s set) has(m int) bool { return s>>m&1 != 0 }
func (s *set) add(m int)     { *s |= 1 << m }
func (s set) count() int     { return bits.OnesCount8(uint8(s)) }

// New returns the register of a key. No two Registers may ever have the same name; 96 random bits are enough. A
// Register must not be used in a copy of its process. Whole has a bit for each member whose marker was seen whole.
func New(cfg Configuration, name string, whole int, random func() uint64) *Register {
	r := &Register{cfg: cfg, by: name, random: random, members: make([]member, len(cfg.Members))}
	r.counter = firstCounter(cfg.Number)
	for i := range r.members {
		r.members[i].whole = set(whole).has(i)
	}
	return r
}

// firstCounter is below all ballots of the configuration with that number, and above those of earlier ones (rule
// Q7). There are 2^30 configurations with 2^32 ballots each.
func firstCounter(number int) uint64 { return uint64(min(number, 1<<30-1)) << 32 } //nolint:gosec // not negative

// Idle reports whether no call waits and no request is in flight.
func (r *Register) Idle() bool {
	for _, m := range r.members {
		if m.busy {
			return false
		}
	}
	return r.call == nil && len(r.queue) == 0
}

// Due returns when to send a Tick, or false if none is needed.
func (r *Register) Due() (time.Duration, bool) {
	due := time.Duration(0)
	if r.due > r.now {
		due = r.due
	}
	for _, m := range r.members {
		if m.again > 0 && (due == 0 || m.again < due) {
			due = m.again
		}
	}
	return due, due > 0
}

// forgive lets failed members take part again. Otherwise a call might wait for a silent member although another one,
// which failed only once, would complete the majority.
func (r *Register) forgive() {
	for i := range r.members {
		if m := &r.members[i]; m.again > 0 && r.now >= m.again {
			m.fault, m.again = nil, 0
		}
	}
}

// Moved reports whether a later configuration is in force. Then create another Register.
func (r *Register) Moved() bool { return r.moved }

// Beyond reports whether a member was last seen with an existing value other than v. If a majority shows v, fewer
// members have accepted the other value. It may surface, unless a Settle brings v to all.
func (r *Register) Beyond(v Value) bool {
	for i, m := range r.members {
		if m.known && r.sure(i) && m.acc.Value.Exists() && m.acc.Value.Version != v.Version {
			return true
		}
	}
	return false
}

// Step handles an event. The clock readings never decrease.
func (r *Register) Step(ev Event, now time.Duration) []Action {
	r.now, r.out = now, nil
	switch ev := ev.(type) {
	case Call:
		r.queue = append(r.queue, ev)
	case Cancel:
		r.cancel(ev)
	case Shown:
		r.shown(ev)
	case Stored:
		r.stored(ev)
	case Marked:
		r.marked(ev)
	case Tick:
	}
	r.run()
	return r.out
}

// run continues until nothing changes without an answer.
func (r *Register) run() {
	r.forgive()
	for {
		if r.call == nil && len(r.queue) > 0 {
			r.begin()
		}
		before, rounds, looks := r.phase, r.rounds, r.looks
		switch r.phase {
		case gathering:
			r.gather()
		case preparing:
			r.prepare()
		case accepting, following:
			r.accept()
		case pausing:
			if r.now >= r.due {
				r.look()
			}
		case collecting:
			r.collect()
		case dropping:
			r.dropped()
		case idle:
		}
		if r.phase == before && r.rounds == rounds && r.looks == looks && (r.call != nil || len(r.queue) == 0) {
			return
		}
	}
}

// begin starts the next call.
func (r *Register) begin() {
	c := r.queue[0]
	r.call, r.queue = &c, r.queue[1:]
	r.number, r.rounds, r.looks = r.number+1, 0, 0
	for i := range r.members {
		m := &r.members[i]
		if m.busy && r.now-m.sent > overdue {
			m.busy, m.known = false, false
		}
		m.fresh, m.checked, m.exposed, m.doubt, m.fault, m.again, m.steps = false, false, false, Ballot{}, nil, 0, 0
	}
	if c.Kind == Remove {
		r.call.Value.Deleted = true
	}
	p := r.prepared
	switch {
	case r.moved:
		r.answer(Answer{Outcome: Failed, Err: ErrMoved})
	case !p.ballot.IsZero() && (c.Kind == Set && c.over(p.over) || c.Kind == Remove && p.over.Exists()):
		r.rounds, r.prepared = 1, prepared{}
		r.ballot, r.got, r.base = p.ballot, p.by, p.over.Version
		r.propose(r.call.Value)
	case c.Kind == Collect, c.Kind == Survey:
		r.beginCollect()
	case c.Kind == Settle, c.Kind != Look && r.promising():
		r.round()
	default:
		r.look()
	}
}

// promising reports whether the members' last answers, which may be old, make another read pointless.
func (r *Register) promising() bool {
	known, found, best := 0, Value{}, Ballot{}
	for i, m := range r.members {
		if !m.known {
			continue
		}
		if known++; r.sure(i) && best.Below(m.acc.Accepted) {
			found, best = m.acc.Value, m.acc.Accepted
		}
	}
	return known >= r.cfg.Majority() && r.replaces(found)
}

// replaces reports whether the call's value may replace v. If the value may already have been written, another write
// could write it twice, unless v is still the value that it first tried to replace: versions never return.
func (r *Register) replaces(v Value) bool {
	c := r.call
	switch {
	case c.Kind != Set && c.Kind != Remove:
		return false
	case r.open():
		return v.Version == r.base
	case c.Kind == Set:
		return c.over(v)
	}
	return v.Exists()
}

// over reports whether the caller wants to replace v.
func (c *Call) over(v Value) bool {
	if c.Over == "" {
		return !v.Exists()
	}
	return v.Exists() && v.Version == c.Over
}

// answer ends the call.
func (r *Register) answer(a Answer) {
	a.ID = r.call.ID
	r.out = append(r.out, a)
	r.call, r.due = nil, 0
	for i := range r.members {
		r.members[i].again = 0
	}
	if r.phase != following {
		r.phase = idle
	}
}

// exposed reports whether a member has accepted, or may accept, the call's own value.
func (r *Register) exposed() bool {
	for _, m := range r.members {
		if m.exposed || m.busy && m.own && m.asked == r.number {
			return true
		}
	}
	return false
}

// open reports the same, or that a member has refused the value, perhaps because it had accepted it before.
func (r *Register) open() bool {
	return r.exposed() || slices.ContainsFunc(r.members, func(m member) bool { return !m.doubt.IsZero() })
}

// fails ends the call with an error.
func (r *Register) fails(err error) {
	outcome := Failed
	if r.open() {
		outcome = Uncertain
	}
	r.answer(Answer{Outcome: outcome, Err: err})
}

// noMajority fails with the errors of all members.
func (r *Register) noMajority() {
	errs := []error{ErrNoMajority}
	for i, m := range r.members {
		err := m.fault
		if err == nil && m.quiet {
			err = ErrNotFilled
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.cfg.Members[i].Place, err))
		}
	}
	r.fails(errors.Join(errs...))
}

func (r *Register) cancel(ev Cancel) {
	if r.call != nil && r.call.ID == ev.ID {
		open := r.phase == accepting && r.open()
		r.fails(ev.Err)
		if open { // a value that a member may have accepted goes to the others; otherwise nothing more may be written
			r.phase = following
		}
		return
	}
	for i, c := range r.queue {
		if c.ID == ev.ID {
			r.queue = append(r.queue[:i:i], r.queue[i+1:]...)
			r.out = append(r.out, Answer{ID: ev.ID, Outcome: Failed, Err: ev.Err})
			return
		}
	}
}

// Answers of the members.

// answered reports whether this is the answer to the member's latest request, and marks it as answered.
func (m *member) answered(request int) bool {
	if !m.busy || m.request != request {
		return false
	}
	m.busy = false
	return true
}

func (r *Register) shown(ev Shown) {
	m := &r.members[ev.Member]
	if !m.answered(ev.Request) {
		return
	}
	switch {
	case ev.Err != nil:
		m.known = false
		m.lost(r, ev.Err)
		return
	case !ev.Same:
		m.known, m.at, m.acc = true, ev.At, ev.Acceptor
	}
	m.fresh, m.checked, m.trusted, m.old = m.asked == r.number, false, m.whole, ev.Old
	if r.sure(ev.Member) && m.fresh && !m.doubt.IsZero() {
		m.exposed = m.exposed || r.call != nil && m.acc.Value.Version == r.call.Value.Version
		if m.acc.Accepted.Below(m.doubt) { // otherwise it may have been accepted, and overwritten since
			m.doubt = Ballot{}
		}
	}
	r.heeds(m)
}

// heeds learns other proposers' ballots and configurations from an acceptor.
func (r *Register) heeds(m *member) {
	if m.at == "" {
		return
	}
	r.counter = max(r.counter, m.acc.Promised.Counter)
	if m.acc.Number > r.cfg.Number {
		r.leave()
	}
}

// lost excludes the member from this call, for a while or for the rest of it.
func (m *member) lost(r *Register, err error) {
	if m.asked != r.number {
		return
	}
	m.fault = err
	if r.call != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrForeign) {
		m.again = r.now + onceMore
	}
}

// leave ends the Register, because a later configuration is in force.
func (r *Register) leave() {
	r.moved = true
	if r.call != nil {
		r.phase = idle
		r.fails(ErrMoved)
	}
	r.phase = idle
}

func (r *Register) stored(ev Stored) {
	m := &r.members[ev.Member]
	if !m.answered(ev.Request) {
		return
	}
	own := m.own && m.asked == r.number
	m.own = false
	switch ev.Fate {
	case Landed:
		m.known, m.at, m.acc, m.checked, m.trusted = true, ev.At, m.put, false, m.whole
		m.exposed = m.exposed || own
		r.took = r.now - m.sent
	case Refused: // the request may have been delivered twice, and the first one may have landed
		m.known = false
		if own && m.doubt.IsZero() {
			m.doubt = m.put.Accepted
		}
	case Unsent: // the request may be delivered again, and land then
		m.known = false
		m.exposed = m.exposed || own
		m.lost(r, ev.Err)
	case Unknown:
		m.known = false
		m.exposed = m.exposed || own
	}
	m.put = Acceptor{}
}

func (r *Register) marked(ev Marked) {
	m := &r.members[ev.Member]
	if !m.answered(ev.Request) {
		return
	}
	switch want := r.cfg.Members[ev.Member].Marker; {
	case ev.Err != nil:
		m.lost(r, ev.Err)
	case ev.Marker != nil && ev.Marker.Known.Quorum == r.cfg.Quorum && ev.Marker.Known.Number > r.cfg.Number:
		r.leave() // even if the store belongs to another member by now
	case ev.Marker == nil, ev.Marker.Name != want, m.whole && !ev.Marker.Whole:
		m.lost(r, ErrLost)
	case ev.Marker.Number > r.cfg.Number:
		r.leave()
	default:
		m.checked, m.whole = m.asked == r.number, ev.Marker.Whole
		if r.never(ev.Member) {
			m.doubt = Ballot{}
		}
	}
}

// Requests to the members.

// free reports whether a request can be sent to the member now.
func (r *Register) free(m *member) bool {
	if m.busy || m.fault != nil || m.quiet {
		return false
	}
	if m.steps >= maxSteps {
		m.fault = ErrContended
		return false
	}
	return true
}

// send sends a request, built from its number.
func (r *Register) send(i int, a func(request int) Action) {
	m := &r.members[i]
	m.request++
	m.busy, m.asked, m.sent, m.own = true, r.number, r.now, false
	m.steps++
	r.out = append(r.out, a(m.request))
}

func (r *Register) check(i int) {
	r.send(i, func(request int) Action { return Check{i, request} })
}

func (r *Register) get(i int) {
	m := &r.members[i]
	unless := ""
	if m.known {
		unless = m.at
	}
	r.send(i, func(request int) Action { return Get{i, request, unless} })
}

// write writes an acceptor over the last version read (rule Q1).
func (r *Register) write(i int, promised, accepted Ballot, v Value) {
	m := &r.members[i]
	m.put = Acceptor{r.cfg.Quorum, r.cfg.Number, promised, accepted, v}
	r.send(i, func(request int) Action { return Put{i, request, m.at, m.put} })
	m.own = r.call != nil && accepted == r.ballot && !accepted.IsZero() && r.call.Kind != Look && v.Version == r.call.Value.Version
}

// promise makes the member promise the ballot of this round. Objects from before its first configuration do not count.
func (r *Register) promise(i int) {
	m := &r.members[i]
	if r.sure(i) {
		r.write(i, r.ballot, m.acc.Accepted, m.acc.Value)
		return
	}
	r.write(i, r.ballot, Ballot{}, Value{})
}

// mine reports whether the member's object is no older than its membership (rule Q6).
func (r *Register) mine(i int) bool {
	m := &r.members[i]
	return m.at != "" && m.acc.Number >= r.cfg.Members[i].Since
}

// sure reports whether, in addition, the object has accepted something. Then the member has not lost it (rule Q5).
func (r *Register) sure(i int) bool { return r.mine(i) && !r.members[i].acc.Accepted.IsZero() }

// never reports whether the marker proves that the member has accepted nothing (rule Q5): the member was whole
// before the object was read, and the marker still existed after it.
func (r *Register) never(i int) bool { return r.members[i].checked && r.members[i].trusted }

// again reports whether the member has become whole since the object was read. Then the object must be read again.
func (r *Register) again(i int) bool {
	m := &r.members[i]
	return m.checked && m.whole && !m.trusted
}

// able returns the number of members that may still answer.
func (r *Register) able() (n int) {
	for _, m := range r.members {
		if m.fault == nil && !m.quiet {
			n++
		}
	}
	return n
}

// Reads.

// look begins to read all members.
func (r *Register) look() {
	r.phase, r.gathered, r.due = gathering, r.now, 0
	r.looks++
	for i := range r.members {
		r.members[i].fresh, r.members[i].quiet = false, false
	}
}

// gather continues a read. It ends once a majority shows the same value (rule Q4).
func (r *Register) gather() {
	answered, busy := 0, 0
	for i := range r.members {
		m := &r.members[i]
		switch {
		case m.fault != nil:
		case m.busy:
			busy++
		case !m.fresh, !r.sure(i) && r.again(i):
			if r.free(m) {
				r.get(i)
				busy++
			}
		case r.sure(i), m.checked:
			answered++
		case r.free(m):
			r.check(i)
			busy++
		}
	}
	all := set(1)<<len(r.members) - 1
	if v, ok := r.agreed(all, true); ok {
		r.concludes(v)
		return
	}
	switch {
	case r.able() < r.cfg.Majority(), busy == 0 && answered < r.cfg.Majority():
		r.noMajority()
	case answered < r.cfg.Majority():
	case r.call.Kind != Look:
		r.round()
	case busy > 0 && r.due == 0: // a slow member may complete the majority
		r.due = r.now + min(max(2*(r.now-r.gathered), minPause), maxPause)
	case busy > 0 && r.now < r.due:
	case r.looks < 3: // a write is in flight, and must not be disturbed
		r.look()
	default:
		r.round()
	}
}

// agreed returns the value that a majority of these members shows under one ballot, or the zero Value if a majority
// has never accepted anything.
func (r *Register) agreed(of set, fresh bool) (Value, bool) {
	never := 0
	for i := range r.members {
		m := &r.members[i]
		if !of.has(i) || fresh && !m.fresh || !m.known {
			continue
		}
		if !r.sure(i) {
			if r.never(i) {
				never++
			}
			continue
		}
		same := 0
		for j := range r.members {
			if o := &r.members[j]; of.has(j) && (o.fresh || !fresh) && o.known && r.sure(j) && o.acc.Accepted == m.acc.Accepted {
				same++
			}
		}
		if same >= r.cfg.Majority() {
			return m.acc.Value, true
		}
	}
	return Value{}, never >= r.cfg.Majority()
}

// concludes continues with a value that is certainly the current one.
func (r *Register) concludes(v Value) {
	c := r.call
	if v.Version != r.prepared.over.Version {
		r.prepared = prepared{} // it was overwritten
	}
	switch {
	case c.Kind == Look, c.Kind == Set && v.Version == c.Value.Version, c.Kind == Remove && !v.Exists():
		r.answer(Answer{Outcome: Done, Value: v})
	case c.Kind == Settle, r.replaces(v):
		r.round()
	default:
		r.mismatch(v)
	}
}

// mismatch answers that there is another value. If a member has accepted ours, it may have been written before that
// one. If that is only possible, a single store behaves the same way: a write that is delivered twice gets the second
// answer.
func (r *Register) mismatch(v Value) {
	if c := r.call; r.exposed() || c.Kind != Set || c.over(v) {
		r.fails(fmt.Errorf("%w: another value has followed", ErrContended))
		return
	}
	r.answer(Answer{Outcome: Mismatch, Value: v})
}

// Rounds.

// round begins a round with a new ballot.
func (r *Register) round() {
	if r.rounds++; r.rounds > maxRounds {
		r.fails(ErrContended)
		return
	}
	r.counter++
	r.prepared = prepared{}
	r.phase, r.due, r.got = preparing, 0, 0
	r.ballot, r.next = Ballot{r.counter, r.by}, Ballot{}
	for i := range r.members {
		r.members[i].quiet = false
	}
}

func (r *Register) prepare() {
	busy := 0
	for i := range r.members {
		m := &r.members[i]
		switch {
		case m.busy:
			busy++
			continue
		case r.got.has(i), !r.free(m):
			continue
		case !m.known, !r.sure(i) && r.again(i):
			r.get(i)
		case r.mine(i) && r.ballot.Below(m.acc.Promised):
			r.preempted()
			return
		case !r.mine(i), m.acc.Promised != r.ballot:
			r.promise(i)
		case r.sure(i), r.never(i):
			r.got.add(i)
			continue
		case !m.checked:
			r.check(i)
		default:
			m.quiet = true
			continue
		}
		busy++
	}
	switch {
	case r.got.count() >= r.cfg.Majority():
		r.promised()
	case r.able() < r.cfg.Majority(), busy == 0:
		r.noMajority()
	}
}

// preempted backs off, because a rival's ballot is larger. Without a pause, both could retry forever.
func (r *Register) preempted() {
	span := min(max(3*r.took, minPause)<<min(r.rounds-1, 16), maxPause)
	r.phase, r.due = pausing, r.now+1+time.Duration(r.random()%uint64(span))
}

// promised continues with the value accepted last (rule Q3).
func (r *Register) promised() {
	c, found, best := r.call, Value{}, Ballot{}
	for i := range r.members {
		if m := &r.members[i]; r.got.has(i) && r.sure(i) && best.Below(m.acc.Accepted) {
			found, best = m.acc.Value, m.acc.Accepted
		}
	}
	if r.replaces(found) {
		r.base = found.Version
		r.propose(c.Value)
		return
	}
	_, agreed := r.agreed(r.got, false)
	switch {
	case best.IsZero(), agreed && c.Kind != Settle:
		if c.Kind == Settle {
			r.answer(Answer{Outcome: Done, Votes: int(r.got)})
			return
		}
		r.concludes(found)
	default:
		r.propose(found)
	}
}

// propose asks the members to accept a value under the promised ballot.
func (r *Register) propose(v Value) {
	r.phase, r.proposal, r.votes, r.next = accepting, v, 0, Ballot{}
	if r.call.Kind == Set {
		r.counter = max(r.counter, r.ballot.Counter) + 1
		r.next = Ballot{r.counter, r.by}
	}
	for i := range r.members {
		r.members[i].quiet = false
	}
}

// accept continues that, also for late members after the call is answered.
func (r *Register) accept() {
	busy, waits := 0, r.phase == accepting
	for i := range r.members {
		m := &r.members[i]
		switch {
		case m.busy:
			busy++
			continue
		case r.votes.has(i), !r.free(m):
			continue
		case !m.known:
			r.get(i)
		case r.mine(i) && m.acc.Accepted == r.ballot:
			r.votes.add(i)
			continue
		case r.mine(i) && r.ballot.Below(m.acc.Promised):
			if waits {
				r.preempted()
				return
			}
			m.quiet = true
			continue
		case !r.mine(i):
			r.promise(i)
		case r.sure(i), r.never(i), m.checked && !r.got.has(i) && r.got.count() >= r.cfg.Majority():
			promised := r.ballot
			if !r.next.IsZero() {
				promised = r.next
			}
			r.write(i, promised, r.ballot, r.proposal)
		case !m.checked:
			r.check(i)
		default:
			m.quiet = true
			continue
		}
		busy++
	}
	if !r.next.IsZero() && r.votes.count() >= r.cfg.Majority() {
		r.prepared = prepared{r.next, r.votes, Value{Version: r.proposal.Version, Deleted: r.proposal.Deleted}}
	}
	switch {
	case !waits:
	case r.votes.count() >= r.cfg.Majority() && (r.call.Kind != Settle || busy == 0):
		r.accepted()
	case r.able() < r.cfg.Majority(), busy == 0:
		r.noMajority()
	}
}

// accepted answers the call: a majority has accepted the proposal.
func (r *Register) accepted() {
	c, v := r.call, r.proposal
	r.phase = following
	if c.Kind == Set && v.Version != c.Value.Version || c.Kind == Remove && v.Exists() {
		r.mismatch(v)
		return
	}
	r.answer(Answer{Outcome: Done, Value: v, Votes: int(r.votes)})
}
