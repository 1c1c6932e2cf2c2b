package sim

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold/leasehold/internal/register"
	"github.com/leasehold/leasehold/store"
)

// A quorum is the store of some histories: three or five members, failing one by one, and a
// [register.Register] per key and process life. The server has the result: an object is written
// there when a majority has accepted it. An answer must have been true at some moment since the
// question.
type quorum struct {
	*fleet
	server   *server
	places   []*place // of members, and a spare
	configs  []register.Configuration
	operator *client
	changing bool
	keys     map[string]*kept
	writes   map[string]*written // by version
}

type place struct {
	number  int
	objects map[string]*stored
	marker  *register.Marker
	down    time.Duration // until then
	written int
}

type stored struct {
	acceptor register.Acceptor
	version  string
}

// kept is a key's history.
type kept struct {
	past  []moments                   // the versions, in order
	votes map[register.Ballot]ballots // who ever accepted under each ballot
	gone  []string                    // versions of deletions that some member ever accepted
	last  register.Ballot             // the largest ballot with a majority
	is    string                      // its version
}

// moments says since when a version was there.
type moments struct {
	version string // empty: no object
	since   time.Duration
}

type ballots struct {
	number int // of the configuration
	slots  uint
}

type written struct {
	request *request
	key     string
	landed  bool
	since   time.Duration // when its call began
	denied  bool          // its caller was told that it will not land
}

// A client is the registers of one process life under one configuration.
type client struct {
	of    *process // nil: the operator
	life  int
	names int
	cfg   int
	regs  map[string]*keyed
}

type keyed struct {
	client  *client
	key     string
	reg     *register.Register
	pending map[int]func(register.Answer)
	calls   int
	due     time.Duration
}

const memberTimeout = 4 * time.Second

func (q *quorum) begin(n int) {
	cfg := register.Configuration{Quorum: "q"}
	for i := range n + 1 {
		p := &place{number: i, objects: map[string]*stored{}}
		q.places = append(q.places, p)
		if i < n {
			cfg.Members = append(cfg.Members, register.Member{Place: strconv.Itoa(i), Marker: fmt.Sprintf("m%d", i)})
			p.marker = &register.Marker{Name: cfg.Members[i].Marker, Whole: true, Known: cfg}
		}
	}
	q.configs = []register.Configuration{cfg}
	q.keys, q.writes = map[string]*kept{}, map[string]*written{}
	q.operator = &client{}
}

func (q *quorum) on() bool { return len(q.places) > 0 }

func (q *quorum) at(cfg, slot int) *place {
	i, _ := strconv.Atoi(q.configs[cfg].Members[slot].Place)
	return q.places[i]
}

func (q *quorum) client(p *process) *client {
	if p.quorum == nil || p.quorum.life != p.life {
		p.quorum = &client{of: p, life: p.life, cfg: len(q.configs) - 1}
	}
	return p.quorum
}

func (q *quorum) key(c *client, key string) *keyed {
	if c.regs[key] == nil {
		if c.regs == nil {
			c.regs = map[string]*keyed{}
		}
		c.names++
		name, whole := "operator", 0
		if c.of != nil {
			name = fmt.Sprintf("%v.%d", c.of, c.life)
		}
		for i, m := range q.configs[c.cfg].Members {
			if marker := q.at(c.cfg, i).marker; marker != nil && marker.Name == m.Marker && marker.Whole {
				whole |= 1 << i
			}
		}
		c.regs[key] = &keyed{client: c, key: key, pending: map[int]func(register.Answer){}, reg: register.New(
			q.configs[c.cfg], fmt.Sprintf("%s.%d.%d", name, c.cfg, c.names), whole, func() uint64 { return uint64(q.choose(256)) << q.choose(32) })}
	}
	return c.regs[key]
}

// call carries out a request.
func (q *quorum) call(r *request, deliver func(answer)) {
	c := register.Call{Kind: register.Look}
	w := &written{request: r, key: r.key, since: q.now}
	if r.writes() {
		version := fmt.Sprintf("v%d", len(q.writes))
		q.writes[version] = w
		r.version = store.Version(version)
		c = register.Call{Kind: register.Set, Over: string(r.only.Match()), Value: register.Value{Version: version, Body: r.body}}
		if r.op == "delete" {
			c = register.Call{Kind: register.Remove, Value: register.Value{Version: version}}
		}
	}
	q.do(q.client(r.from.by), r, r.key, c, q.now, func(a register.Answer, since time.Duration) {
		deliver(q.answer(r, w, a, since))
	})
}

// do makes a register carry out a call, under the present configuration.
func (q *quorum) do(c *client, r *request, key string, call register.Call, since time.Duration, then func(register.Answer, time.Duration)) {
	k := q.key(c, key)
	k.calls++
	call.ID = k.calls
	if r != nil {
		r.register, r.number = k, call.ID
	}
	k.pending[call.ID] = func(a register.Answer) {
		if a.Outcome == register.Failed && errors.Is(a.Err, register.ErrMoved) && c.cfg < len(q.configs)-1 {
			q.met(MemberReplaced, "heard of")
			c.cfg, c.regs = c.cfg+1, nil
			q.do(c, r, key, call, since, then)
			return
		}
		then(a, since)
	}
	q.step(k, call)
}

func (c *client) machine() *machine {
	if c.of == nil {
		return nil
	}
	return c.of.machine
}

func (q *quorum) clock(c *client) time.Duration {
	if c.of == nil {
		return q.now
	}
	return c.of.clock()
}

func (q *quorum) step(k *keyed, ev register.Event) {
	c := k.client
	now := q.clock(c)
	for _, a := range k.reg.Step(ev, now) {
		switch a := a.(type) {
		case register.Answer:
			then := k.pending[a.ID]
			delete(k.pending, a.ID)
			q.after(0, c.machine(), func() { then(a) })
		case register.Get:
			q.send(k, a.Member, nil, func(p *place) register.Event { return q.get(k, p, a) }, func(err error) register.Event {
				return register.Shown{Member: a.Member, Request: a.Request, Err: err}
			})
		case register.Put:
			q.send(k, a.Member, &a, func(p *place) register.Event { return q.put(k, p, a) }, func(err error) register.Event {
				return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Unknown, Err: err}
			})
		case register.Drop:
			q.send(k, a.Member, &register.Put{Member: a.Member, Request: a.Request}, func(p *place) register.Event { return q.drop(k, p, a) }, func(err error) register.Event {
				return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Unknown, Err: err}
			})
		case register.Check:
			q.send(k, a.Member, nil, func(p *place) register.Event {
				return register.Marked{Member: a.Member, Request: a.Request, Marker: p.marker}
			}, func(err error) register.Event {
				return register.Marked{Member: a.Member, Request: a.Request, Err: err}
			})
		}
	}
	due, ok := k.reg.Due()
	if !ok || due == k.due {
		return
	}
	k.due = due
	wait := due - now
	if c.of != nil {
		wait = c.of.real(wait)
	}
	q.after(wait, c.machine(), func() { q.back(k, register.Tick{}) })
}

func (q *quorum) back(k *keyed, ev register.Event) {
	c := k.client
	if c.regs[k.key] == k && (c.of == nil || c.life == c.of.life) {
		q.step(k, ev)
	}
}

var errGivenUp = errors.New("nobody waits for it any more")

func (q *quorum) giveUp(r *request) {
	if r != nil && r.register != nil && r.register.pending[r.number] != nil {
		q.back(r.register, register.Cancel{ID: r.number, Err: errGivenUp})
	}
}

var errMember = errors.New("no answer from this member")

// send carries a request to a member and its one answer back, with all faults of a network.
func (q *quorum) send(k *keyed, member int, put *register.Put, serve func(*place) register.Event, lost func(error) register.Event) {
	c := k.client
	to := q.at(c.cfg, member)
	answered := false
	answer := func(ev register.Event) {
		if !answered {
			answered = true
			q.back(k, ev)
		}
	}
	q.after(memberTimeout, c.machine(), func() { answer(lost(errMember)) })
	arrive := func() {
		ev := q.arrive(c, to, put, serve, lost)
		if q.hit(LostAnswer) || q.cut(c.of, CutAnswers) {
			return
		}
		q.after(q.delay(LateAnswer, false), c.machine(), func() { answer(ev) })
	}
	if q.cut(c.of, CutRequests) {
		return
	}
	once := arrive
	if put != nil && q.meets(Duplicate) {
		q.met(Duplicate, k.key)
		if later := q.pick(0, 10*time.Millisecond, time.Second, 8*time.Second, 30*time.Second); later > 0 {
			q.after(later, nil, arrive)
		} else { // both arrive at once, and only the second is answered
			once = func() { q.arrive(c, to, put, serve, lost); arrive() }
		}
	}
	if !q.hit(LostRequest) {
		q.after(q.delay(LateRequest, false), nil, once)
	}
}

func (q *quorum) arrive(c *client, to *place, put *register.Put, serve func(*place) register.Event, lost func(error) register.Event) register.Event {
	unsent := func(err error) register.Event {
		if put != nil {
			return register.Stored{Member: put.Member, Request: put.Request, Fate: register.Unsent, Err: err}
		}
		return lost(err)
	}
	switch {
	case q.now < to.down:
		q.met(MemberDown, to.number)
		return unsent(errMember)
	case q.now < q.server.throttled:
		q.met(Throttled)
		return unsent(store.ErrThrottled)
	case q.hit(Unavailable):
		return unsent(store.ErrUnavailable)
	case c.of != nil && q.now < c.of.denied:
		q.met(Denied)
		return unsent(store.ErrDenied)
	case put != nil && q.hit(Conflict):
		return register.Stored{Member: put.Member, Request: put.Request, Fate: register.Unknown, Err: store.ErrConflict}
	}
	ev := serve(to)
	if s, is := ev.(register.Stored); is && s.Fate == register.Landed && q.hit(Unknown) {
		return lost(errMember)
	}
	return ev
}

func (q *quorum) get(k *keyed, p *place, a register.Get) register.Event {
	o := p.objects[k.key]
	switch {
	case o == nil:
		return register.Shown{Member: a.Member, Request: a.Request}
	case o.version == a.Unless:
		return register.Shown{Member: a.Member, Request: a.Request, Same: true}
	}
	// It may be young, because versions never come back here.
	return register.Shown{Member: a.Member, Request: a.Request, At: o.version, Acceptor: o.acceptor, Old: true}
}

func (q *quorum) drop(k *keyed, p *place, a register.Drop) register.Event {
	o := p.objects[k.key]
	if o == nil || o.version != a.Over {
		return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Refused}
	}
	delete(p.objects, k.key)
	q.logf("      %v: place %d, %s: dropped, accepted %v %q", k.client.of, p.number, k.key, o.acceptor.Accepted, o.acceptor.Value.Version)
	return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Landed}
}

func (q *quorum) put(k *keyed, p *place, a register.Put) register.Event {
	o := p.objects[k.key]
	if (o == nil) != (a.Over == "") || o != nil && o.version != a.Over {
		return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Refused}
	}
	// A store keeps the text.
	text, err := a.Acceptor.Encode()
	if err == nil {
		a.Acceptor, err = register.Decode("q", text)
	}
	if err != nil {
		q.violated(Sense, "an acceptor that cannot be kept: %v", err)
		return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Unsent, Err: err}
	}
	p.written++
	o = &stored{a.Acceptor, strconv.Itoa(p.written)}
	p.objects[k.key] = o
	q.logf("      %v: place %d, %s: configuration %d, promised %v, accepted %v %q", k.client.of, p.number, k.key, a.Acceptor.Number, a.Acceptor.Promised, a.Acceptor.Accepted, a.Acceptor.Value.Version)
	q.accepted(k.key, p, a.Acceptor)
	return register.Stored{Member: a.Member, Request: a.Request, Fate: register.Landed, At: o.version}
}

// accepted notes an acceptance. A majority of the ballot's configuration chooses the value.
func (q *quorum) accepted(key string, p *place, a register.Acceptor) {
	if a.Accepted.IsZero() {
		return
	}
	k := q.keys[key]
	if k == nil {
		k = &kept{votes: map[register.Ballot]ballots{}}
		q.keys[key] = k
	}
	b, known := k.votes[a.Accepted]
	if !known {
		b.number = a.Number
		if a.Value.Deleted {
			k.gone = append(k.gone, a.Value.Version)
		}
	}
	cfg := q.configs[b.number]
	for i, m := range cfg.Members {
		if m.Place == strconv.Itoa(p.number) {
			b.slots |= 1 << i
		}
	}
	k.votes[a.Accepted] = b
	if bits.OnesCount(b.slots) < cfg.Majority() {
		return
	}
	if k.last.Below(a.Accepted) {
		if w := q.writes[a.Value.Version]; w != nil && w.landed && k.is != a.Value.Version {
			q.violated(Sense, "%s of %s is written once more, after %s", a.Value.Version, key, k.is)
		}
		k.last, k.is = a.Accepted, a.Value.Version
	}
	q.chosen(key, a.Value.Version)
}

func (q *quorum) chosen(key, version string) {
	w := q.writes[version]
	switch {
	case w == nil || w.landed:
		return
	case w.denied:
		q.violated(Sense, "%s of %s is written, and its caller was told that it never would be", version, key)
		return
	}
	r := w.request
	if _, exists := q.server.objects[key]; exists && r.op == "put" && r.only.Absent() {
		q.deletedBefore(key)
	}
	w.landed = true
	if q.overtaken(key, w) {
		q.logf("    landed before the deletion: %s %q %v", r.op, r.key, r.only)
		return
	}
	if a := q.server.land(r); a.err != nil {
		q.violated(Sense, "%s of %s is written over what it was not to replace: %v", version, key, a.err)
	}
	now := version
	if r.op == "delete" {
		now = ""
	}
	q.keys[key].past = append(q.keys[key].past, moments{now, q.now})
}

// deletedBefore makes a deletion land that only a minority had accepted: a value written over
// nothing must have followed it.
func (q *quorum) deletedBefore(key string) {
	for _, version := range q.keys[key].gone {
		if w := q.writes[version]; w != nil && !w.landed && !w.denied {
			q.chosen(key, version)
			return
		}
	}
}

// overtaken reports whether a write was there just before the present deletion. A minority had
// accepted it, and an unconditional delete supersedes what it finds in such a state. Later the
// write's own ballot gets a majority too.
func (q *quorum) overtaken(key string, w *written) bool {
	past := q.keys[key].past
	n := len(past)
	if w.request.op != "put" || n < 2 || past[n-1].version != "" || w.since > past[n-1].since {
		return false
	}
	over := w.request.only.Match()
	return over != "" && past[n-2].version == string(over)
}

// seen returns the last moment after since with this version of a key, if any.
func (q *quorum) seen(key, version string, since time.Duration) (time.Duration, bool) {
	past := []moments{{}}
	if k := q.keys[key]; k != nil {
		past = append(past, k.past...)
	}
	for i, end := len(past)-1, q.now; i >= 0; i-- {
		if past[i].version == version && end >= since {
			return end, true
		}
		end = past[i].since
	}
	return 0, false
}

// answer returns the answer to the caller, and checks it against the key's history.
func (q *quorum) answer(r *request, w *written, a register.Answer, since time.Duration) answer {
	version := ""
	if a.Value.Exists() {
		version = a.Value.Version
	}
	at, seen := q.seen(r.key, version, since)
	ans := answer{at: q.now}
	switch a.Outcome {
	case register.Failed:
		w.denied = true
		ans.err = r.fails(store.ErrUnavailable)
		switch {
		case errors.Is(a.Err, store.ErrDenied):
			ans.err = r.fails(store.ErrDenied)
		case errors.Is(a.Err, store.ErrThrottled):
			ans.err = r.fails(store.ErrThrottled)
		case errors.Is(a.Err, register.ErrContended) && r.op == "put":
			ans.err = r.fails(store.ErrConflict)
		}
		return ans
	case register.Uncertain:
		ans.err = r.fails(store.ErrUnknownOutcome)
		return ans
	case register.Mismatch:
		w.denied = true
		ans.err = r.fails(store.ErrPrecondition)
	case register.Done:
	}
	switch {
	case r.op == "put" && a.Outcome == register.Done:
		if !w.landed {
			q.violated(Sense, "%s is said to be written, and is not", r.version)
		}
		ans.object = &store.Object{Key: r.key, Version: r.version}
		return ans
	case r.op == "delete":
		if _, deleted := q.seen(r.key, "", since); !deleted && !w.landed {
			q.violated(Sense, "%s is said to be deleted, and is not", r.key)
		}
		return ans
	case !seen:
		q.violated(Sense, "%s has %q, says an answer to a %s of %v ago, and had not since", r.key, version, r.op, q.now-since)
	case r.op == "put":
		if exists := version != ""; exists == r.only.Absent() {
			break
		}
		if version == string(r.only.Match()) {
			q.violated(Sense, "a write of %s over what is there is refused", r.key)
		}
	case version == "":
		ans.err, ans.at = r.fails(store.ErrNotExist), at
	case version == string(r.unless):
		ans.err = r.fails(store.ErrNotModified)
	default:
		ans.object = &store.Object{Key: r.key, Body: slices.Clone(a.Value.Body), Version: store.Version(version)}
	}
	return ans
}

// trouble causes faults of members, and an operator repairs them.
func (q *quorum) trouble() {
	switch {
	case q.meets(MemberDown):
		q.places[q.choose(len(q.places))].down = q.now + q.pick(500*time.Millisecond, 2*time.Second, 5*time.Second, 15*time.Second, 40*time.Second)
	case !q.changing && q.meets(MemberEmptied):
		q.empty()
	case !q.changing && q.meets(MemberReplaced):
		q.replace(q.choose(len(q.configs[0].Members)))
	case !q.changing && q.meets(Tombstones):
		q.collect()
	}
}

// collect collects tombstones, under a new configuration of the same members.
func (q *quorum) collect() {
	old := len(q.configs) - 1
	if q.lost(old) >= 0 {
		return
	}
	q.changing = true
	cfg := q.configs[old]
	cfg.Number++
	q.configs = append(q.configs, cfg)
	q.met(Tombstones)
	q.numberAll()
}

func (q *quorum) numberAll() {
	cfg, keys := len(q.configs)-1, []string(nil)
	for i := range q.configs[cfg].Members {
		if q.now < q.at(cfg, i).down {
			q.soonOrLate(q.numberAll)
			return
		}
	}
	for i := range q.configs[cfg].Members {
		p := q.at(cfg, i)
		marker := *p.marker
		marker.Number, marker.Known, p.marker = cfg, q.configs[cfg], &marker
		for key := range p.objects {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	q.operator.cfg, q.operator.regs = cfg, nil
	slices.Sort(keys)
	slices.Reverse(keys) // scribbles first
	q.dropAll(keys)
}

// dropAll collects one key after the other. It may be interrupted.
func (q *quorum) dropAll(keys []string) {
	if len(keys) == 0 || q.choose(16) == 15 {
		q.changing = false
		return
	}
	all := 1<<len(q.configs[0].Members) - 1
	q.do(q.operator, nil, keys[0], register.Call{Kind: register.Collect, Taken: all}, q.now, func(a register.Answer, _ time.Duration) {
		switch {
		case a.Outcome == register.Done && a.Value.Version == "":
			q.met(TombstoneGone, keys[0])
		case a.Outcome == register.Done && a.Value.Deleted:
			q.met(TombstoneSettled, keys[0])
		case a.Outcome == register.Mismatch && !a.Value.Exists():
			q.met(TombstoneTouched, keys[0])
		}
		q.after(q.pick(time.Millisecond, 300*time.Millisecond), nil, func() { q.dropAll(keys[1:]) })
	})
}

// empty makes a member lose everything, unless another one has: the promises cover a minority.
func (q *quorum) empty() {
	cfg := len(q.configs) - 1
	if q.lost(cfg) >= 0 {
		return
	}
	i := q.choose(len(q.configs[cfg].Members))
	p := q.at(cfg, i)
	q.met(MemberEmptied, p.number)
	p.objects, p.marker = map[string]*stored{}, nil
	q.after(q.pick(2*time.Second, 10*time.Second, time.Minute), nil, func() { q.replace(i) })
}

// lost returns a member that does not vote on everything, or -1.
func (q *quorum) lost(cfg int) int {
	return slices.IndexFunc(q.configs[cfg].Members, func(m register.Member) bool {
		i, _ := strconv.Atoi(m.Place)
		marker := q.places[i].marker
		return marker == nil || marker.Name != m.Marker || !marker.Whole
	})
}

// replace makes the next configuration, with a new member.
func (q *quorum) replace(who int) {
	old := len(q.configs) - 1
	if lost := q.lost(old); q.changing || lost >= 0 && lost != who {
		return
	}
	q.changing = true
	cfg := register.Configuration{Quorum: "q", Number: old + 1, Members: slices.Clone(q.configs[old].Members)}
	to := q.at(old, who)
	if q.choose(2) == 1 { // to the spare place
		for _, p := range q.places {
			if !slices.ContainsFunc(cfg.Members, func(m register.Member) bool { return m.Place == strconv.Itoa(p.number) }) {
				to = p
			}
		}
	}
	cfg.Members[who] = register.Member{Place: strconv.Itoa(to.number), Marker: fmt.Sprintf("m%d-%d", to.number, cfg.Number), Since: cfg.Number}
	to.marker = &register.Marker{Name: cfg.Members[who].Marker, Number: cfg.Number, Known: q.configs[old]} // the new one is not chosen yet
	q.configs = append(q.configs, cfg)
	q.met(MemberReplaced, who, to.number)
	q.soonOrLate(func() { q.number(who) })
}

func (q *quorum) soonOrLate(do func()) {
	q.after(q.pick(10*time.Millisecond, 300*time.Millisecond, 3*time.Second), nil, do)
}

func (q *quorum) number(who int) {
	cfg, took := len(q.configs)-1, 0
	for i, m := range q.configs[cfg].Members {
		p := q.at(cfg, i)
		if i == who || q.now < p.down || p.marker == nil || p.marker.Name != m.Marker || !p.marker.Whole {
			continue
		}
		marker := *p.marker
		marker.Number, marker.Known, p.marker = cfg, q.configs[cfg], &marker
		took++
	}
	if took < q.configs[cfg].Majority() {
		q.soonOrLate(func() { q.number(who) })
		return
	}
	q.operator.cfg, q.operator.regs = cfg, nil
	var keys []string
	for i := range q.configs[cfg].Members {
		if i == who {
			continue
		}
		for key := range q.at(cfg, i).objects {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	q.settle(who, keys)
}

// settle makes the new member accept each object. Then it is whole.
func (q *quorum) settle(who int, keys []string) {
	cfg := len(q.configs) - 1
	if len(keys) > 0 {
		q.do(q.operator, nil, keys[0], register.Call{Kind: register.Settle}, q.now, func(a register.Answer, _ time.Duration) {
			if a.Outcome == register.Done && (a.Value.Version == "" || a.Votes>>who&1 != 0) {
				keys = keys[1:]
			}
			q.soonOrLate(func() { q.settle(who, keys) })
		})
		return
	}
	if p := q.at(cfg, who); p.marker != nil && p.marker.Name == q.configs[cfg].Members[who].Marker {
		marker := *p.marker
		marker.Whole, marker.Known, p.marker = true, q.configs[cfg], &marker
		q.met(MemberWhole, p.number)
	}
	q.changing = false
}

func (q *quorum) heal() {
	for _, p := range q.places {
		p.down = 0
	}
	if !q.on() || q.changing {
		return
	}
	if lost := q.lost(len(q.configs) - 1); lost >= 0 {
		q.replace(lost)
	}
}
