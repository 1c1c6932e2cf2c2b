package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// A lasting is one kind of failure that goes on for a long time: all requests of some kind get
// one answer, or none. Meanwhile the requests of each candidate are counted (allowance.go), and
// when it has ended a free lock is to be taken within seconds (prompt).
type lasting struct {
	answer  Answer
	ops     string   // put, get, list or all
	keys    string   // all, locks or sessions
	of      *process // nil: of everybody
	lands   bool     // a write that gets no clear answer has landed
	forges  bool     // somebody answers the peers' questions in the leader's name
	from    moment
	ttl     time.Duration // of most
	lasts   time.Duration
	whole   bool // that is ten TTLs at least
	pending bool // it has not begun yet
	awaited bool // a lock was free when it ended, and somebody waited
	on      bool

	straggler int           // this many claims from now one lands late, and the others never
	late      time.Duration // by so much
}

// A moment is when a failure begins.
type moment int

const (
	first     moment = iota // before the store has answered anybody
	granted                 // a lease is
	waits                   // somebody waits for a holder
	claims                  // somebody sends a claim
	releases                // somebody sends a release
	givesUp                 // somebody gives an acquisition up
	begins                  // a session has begun
	pastFirst               // how many there are
)

var momentNames = [pastFirst]string{
	"at first contact", "when a lease is granted", "while one waits",
	"while one claims", "while one releases", "when one gives up", "when a session begins",
}

func (m moment) String() string { return momentNames[m] }

// lastingTTLs are the TTLs of these histories, from the least that is allowed to the most.
var lastingTTLs = [...]time.Duration{
	3 * time.Second, protocol.MinTTL, 15 * time.Second, time.Minute, 10 * time.Minute, time.Hour, protocol.MaxTTL,
}

// A Failure is what a history tells of the failure that lasted.
type Failure struct {
	Answer, Ops, From string
	TTL               time.Duration
	Whole             bool // for ten TTLs at least
	Awaited           bool // a lock was free when it ended, and somebody waited whom it had kept from it
}

func (l *lasting) tell() Failure {
	if l == nil {
		return Failure{}
	}
	answer := l.answer.String()
	if l.forges {
		answer = forged
	}
	return Failure{answer, l.ops, l.from.String(), l.ttl, l.whole, l.awaited}
}

const forged = "forged words of peers"

// Kinds are the kinds of failure that this one is of.
func (f Failure) Kinds() []string {
	if f.Answer == "" {
		return nil
	}
	kinds := []string{f.Answer, f.Ops, f.From, fmt.Sprintf("TTL %v", f.TTL)}
	if f.Whole {
		kinds = append(kinds, kinds[3]+", for ten of them")
	}
	if f.Awaited {
		kinds = append(kinds, awaited)
	}
	return kinds
}

const awaited = "at its end a lock is free"

// Kinds are the kinds of failure that there are, but for those that few histories have.
func Kinds() []string {
	kinds := []string{forged, awaited, "put", "get", "list", "all"}
	for _, a := range answers {
		kinds = append(kinds, a.String())
	}
	kinds = append(kinds, momentNames[:]...)
	for _, ttl := range lastingTTLs {
		kinds = append(kinds, Failure{Answer: forged, TTL: ttl, Whole: ttl <= time.Minute}.Kinds()[3:]...)
	}
	return kinds
}

// lasts draws the failure, before there are locks and processes.
func (w *world) lasts(brief bool) {
	l := &lasting{pending: true}
	w.lasting = l
	l.answer = answers[max(w.choose(len(answers)+4)-4, 0)] // often none
	l.ops = [...]string{"put", "put", "put", "get", "get", "all", "all", "list"}[w.choose(8)]
	if l.answer.Unsettled() && w.choose(2) == 0 {
		l.ops = "put"
	}
	l.keys = [...]string{"all", "all", "all", "locks", "locks", "sessions"}[w.choose(6)]
	l.forges = w.choose(16) == 15
	l.from = moment(w.choose(int(pastFirst)))
	l.ttl = lastingTTLs[w.choose(len(lastingTTLs))]
	w.ttls = [...]time.Duration{l.ttl, min(l.ttl*3/2, protocol.MaxTTL), min(l.ttl*3, protocol.MaxTTL)}
	// Ten of a long TTL are many tries, so few histories have them.
	l.lasts, l.whole = w.pick(20*time.Second, 2*time.Minute, 5*time.Minute), true
	switch often := map[time.Duration]int{10 * time.Minute: 8, time.Hour: 64, protocol.MaxTTL: 256}[l.ttl]; {
	case often > 0 && (w.choose(often) != often-1 || brief):
		l.whole = l.lasts >= 30*l.ttl
	default:
		l.lasts = max(l.lasts, 30*l.ttl) // the longest TTL is three of these
	}
	switch kind := w.choose(4); {
	case !l.answer.Unsettled() || l.ops != "put":
	case kind == 3:
		l.lands = true
	case kind > 0: // so late that many others have been sent since
		try := min(protocol.MaxRequest, l.ttl/2) + maxPause
		l.straggler, l.late = 1+w.choose(2), time.Duration(1+w.choose(24))*try
		l.lasts = max(l.lasts, l.late+time.Minute)
	}
}

// momentOf lets the failure begin if this is its moment.
func (w *world) momentOf(m moment) {
	if l := w.lasting; l != nil && l.pending && l.from == m {
		w.strikes()
	}
}

// moments lets the failure begin with this request.
func (w *world) moments(r *request) {
	switch c := r.from; {
	case c.write == nil || c.from.on.session != nil:
	case c.write.Op == protocol.Claim:
		w.momentOf(claims)
	case c.write.Op == protocol.Free:
		w.momentOf(releases)
	}
}

func (w *world) strikes() {
	l := w.lasting
	if !l.pending {
		return
	}
	l.pending, l.on = false, true
	if w.choose(4) == 3 {
		l.of = w.processes[w.choose(len(w.processes))]
	}
	whom := "everybody"
	if l.of != nil {
		whom = l.of.String()
	}
	w.logf("from now on, for %v, for %s: %v to %s of %s, lands %t, forges %t", l.lasts, whom, l.answer, l.ops, l.keys, l.lands, l.forges)
	w.after(l.lasts, nil, func() { l.on = false })
}

// hits reports that the failure is about this request.
func (w *world) hits(r *request) bool {
	l := w.lasting
	if l == nil || !l.on || l.forges || r.from.by == nil || l.of != nil && l.of != r.from.by {
		return false
	}
	session := strings.HasPrefix(r.key, "s")
	if l.keys == "locks" && session || l.keys == "sessions" && !session {
		return false
	}
	return l.ops == "all" || l.ops == r.op || l.ops == "put" && r.op == "delete"
}

// struck is what the failure does to a request on its way: it reports that it is seen to.
func (w *world) struck(r *request) bool {
	l := w.lasting
	if !r.hit || l.answer.Status != 0 {
		return false
	}
	if l.lands && r.writes() {
		w.fly(r, 5*time.Millisecond)
	}
	w.straggles(r)
	return true
}

// straggles lets one of the first claims land late, whatever was answered.
func (w *world) straggles(r *request) {
	l := w.lasting
	claim := r.op == "put" && r.from.write != nil && r.from.write.Op == protocol.Claim && r.from.from.on.session == nil
	if !claim || l.straggler == 0 {
		return
	}
	if l.straggler--; l.straggler == 0 {
		w.logf("    this one is slow")
		late := *r
		late.hit = false
		w.fly(&late, l.late)
	}
}

// refuses is what the store answers to a request that is hit.
func (w *world) refuses(r *request) answer {
	l := w.lasting
	if l.lands && r.writes() {
		w.land(r)
	}
	w.straggles(r)
	return answer{err: l.answer.to(r)}
}

// last plays a history in which one kind of failure persists.
func (w *world) last() {
	l := w.lasting
	w.momentOf(first)
	w.after(20*time.Second, nil, w.strikes)
	w.after(time.Second, nil, w.tidy)
	for (l.pending || l.on) && w.broken == "" {
		w.next()
	}
	if w.broken != "" {
		return
	}
	w.prompt()
	if w.broken == "" {
		w.settle()
	}
}

// client is what the user of a member does next in such a history: little, so that ten TTLs of
// a day are not very much.
func (w *world) client(m *member) {
	if w.calm || w.resting || m.may.acts == 0 {
		return
	}
	m.may.acts--
	switch {
	case m.releasing:
	case m.leased:
		if w.choose(3) > 0 || !w.valid(m) {
			w.release(m)
		}
	case m.wants:
		if w.choose(3) == 2 {
			w.momentOf(givesUp)
			w.cancel(m)
		}
	case w.choose(8) == 7:
		w.renew(m)
		m.e.Watch(w.choose(2) == 1)
	default:
		if s := w.under(m); s != nil || !m.sessions || w.choose(4) == 3 {
			w.acquire(m, w.choose(4) > 0, s)
		}
	}
	ttl := w.lasting.ttl
	w.after(w.pick(4*time.Second, time.Second, 300*time.Millisecond, 20*time.Second, min(ttl/3, time.Minute), ttl, 3*ttl), m.process, func() { w.client(m) })
}

// maxPause is the longest pause before another try, whatever the TTL: the last of those that
// double, and a quarter more.
const maxPause = 5 * time.Second

// promptly is how soon a free lock is taken after the failure has ended: the request that is
// under way must be given up, if it gets no answer; a waiter for the end of a session has two
// pauses, its own and that of the look at the session; then come a few requests.
func (w *world) promptly() time.Duration {
	d := 2*maxPause + 500*time.Millisecond
	if w.lasting.answer.Status == 0 {
		d += protocol.MaxRequest
	}
	return d*protocol.Drift/(protocol.Drift-1) + 2*time.Second
}

// prompt checks, once the failure has ended, that a lock that is free is taken within seconds
// where somebody waits for it whom the failure has kept from it.
func (w *world) prompt() {
	w.resting = true
	end := w.now + w.promptly()
	var locks []*lock
	granted := map[*lock]int{}
	for _, l := range w.locks {
		if w.isFree(l) && w.stuckFor(l) != nil {
			w.lasting.awaited = true
			w.logf("%s is free, and %v waits for it", l.key, w.stuckFor(l))
			locks, granted[l] = append(locks, l), l.granted
		}
	}
	for w.broken == "" {
		locks = slices.DeleteFunc(locks, func(l *lock) bool { return l.granted > granted[l] || w.stuckFor(l) == nil })
		if len(locks) == 0 {
			return
		}
		if len(w.queue) == 0 || w.queue[0].at > end {
			w.fault(Prompt, "%v ago the failure (%v to %s) ended, %s is free, and %v, whose TTL is %v, still waits",
				w.promptly(), w.lasting.answer, w.lasting.ops, locks[0].key, w.stuckFor(locks[0]), w.stuckFor(locks[0]).ttl)
			return
		}
		w.next()
	}
}

// stuckFor is a candidate that waits for the lock, and whose last look or write has failed.
func (w *world) stuckFor(l *lock) *member {
	for _, m := range l.members {
		if m.wants && m.patient && (m.failed() || m.watcher() != nil && m.watcher().failed()) {
			return m
		}
	}
	return nil
}

// failed reports that the last look or the last write of a candidate has failed, or is about to.
func (m *member) failed() bool {
	return m.lookFailed || m.writeFailed || m.asked != nil && m.asked.waits != nil && m.asked.waits.hit
}

// isFree reports that nothing stands in the way of the next claim: no holder, no word of who is
// to go first, and no write that may come yet.
func (w *world) isFree(l *lock) bool {
	if len(l.air) > 0 {
		return false
	}
	r, there := w.current(l)
	switch {
	case !there:
		return !w.existing
	case !r.Held:
		return r.Successor == ""
	case r.Session == "":
		return false
	}
	s := w.find(r.Session)
	return s != nil && s.heartbeat.on.over && len(s.heartbeat.on.air) == 0
}

// forge answers a question in the leader's name: it leads, and will for a long time.
func (w *world) forge(q question) {
	seen, _, _ := q.from.c().Observed()
	word := protocol.PeerStatus{
		Leading: true, Holder: seen.Holder, Token: seen.Token, Incarnation: seen.Incarnation(),
		Valid: 10 * seen.TTL, Version: fmt.Sprint(seen.Token),
	}
	pause := 5 * time.Millisecond
	if q.known == word.Version {
		pause = seen.TTL / 2
	}
	w.after(pause, q.from.process, func() { w.hear(q, protocol.PeerAnswer{Status: word}) })
}
