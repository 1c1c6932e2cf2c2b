package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
)

// A lasting is a failure of all requests of some kind: they get the same answer, or none. Each
// candidate's requests are counted meanwhile (allowance.go). Afterwards a free lock must be taken
// within seconds (checkPrompt).
type lasting struct {
	*fleet
	answer  Answer
	ops     string   // put, get, list or all
	keys    string   // all, locks or sessions
	of      *process // nil: all processes
	lands   bool     // a write without a clear answer has landed
	forges  bool     // a forger answers peers in the leader's name
	from    moment
	ttl     time.Duration // of most
	lasts   time.Duration
	whole   bool // for at least ten TTLs
	pending bool // it has not begun yet
	awaited bool // a lock was free at its end, and a candidate waited
	on      bool

	straggler int           // the claim that lands late, counted from now; the others never land
	late      time.Duration // its delay
}

type moment int

const (
	first     moment = iota // before the store's first answer
	granted                 // a lease is granted
	waits                   // a candidate waits for a holder
	claims                  // a claim is sent
	releases                // a release is sent
	givesUp                 // an acquisition is cancelled
	begins                  // a session has begun
	pastFirst               // the number of moments
)

var momentNames = [pastFirst]string{
	"at first contact", "when a lease is granted", "while one waits",
	"while one claims", "while one releases", "when one gives up", "when a session begins",
}

func (m moment) String() string { return momentNames[m] }

var lastingTTLs = [...]time.Duration{
	3 * time.Second, protocol.MinTTL, 15 * time.Second, time.Minute, 10 * time.Minute, time.Hour, protocol.MaxTTL,
}

// draw draws the failure. There are no locks or processes yet.
func (l *lasting) draw(brief bool) {
	l.pending = true
	l.answer = answers[max(l.choose(len(answers)+4)-4, 0)] // often none
	l.ops = [...]string{"put", "put", "put", "get", "get", "all", "all", "list"}[l.choose(8)]
	if l.answer.Unsettled() && l.choose(2) == 0 {
		l.ops = "put"
	}
	l.keys = [...]string{"all", "all", "all", "locks", "locks", "sessions"}[l.choose(6)]
	l.forges = l.choose(16) == 15
	l.from = moment(l.choose(int(pastFirst)))
	l.ttl = lastingTTLs[l.choose(len(lastingTTLs))]
	l.ttls = [...]time.Duration{l.ttl, min(l.ttl*3/2, protocol.MaxTTL), min(l.ttl*3, protocol.MaxTTL)}
	// Ten long TTLs are many tries, so few histories have them.
	l.lasts, l.whole = l.pick(20*time.Second, 2*time.Minute, 5*time.Minute), true
	switch often := map[time.Duration]int{10 * time.Minute: 8, time.Hour: 64, protocol.MaxTTL: 256}[l.ttl]; {
	case often > 0 && (l.choose(often) != often-1 || brief):
		l.whole = l.lasts >= 30*l.ttl
	default:
		l.lasts = max(l.lasts, 30*l.ttl) // the longest TTL is three of these
	}
	switch kind := l.choose(4); {
	case !l.answer.Unsettled() || l.ops != "put":
	case kind == 3:
		l.lands = true
	case kind > 0: // so late that many later claims were sent
		try := min(protocol.MaxRequest, l.ttl/2) + maxPause
		l.straggler, l.late = 1+l.choose(2), time.Duration(1+l.choose(24))*try
		l.lasts = max(l.lasts, l.late+time.Minute)
	}
}

func (l *lasting) startAt(m moment) {
	if l.pending && l.from == m {
		l.start()
	}
}

func (l *lasting) startWith(r *request) {
	switch c := r.from; {
	case c.write == nil || c.from.on.session != nil:
	case c.write.Op == candidate.Claim:
		l.startAt(claims)
	case c.write.Op == candidate.Free:
		l.startAt(releases)
	}
}

func (l *lasting) start() {
	if !l.pending {
		return
	}
	l.pending, l.on = false, true
	if l.choose(4) == 3 {
		l.of = l.processes[l.choose(len(l.processes))]
	}
	whom := "everybody"
	if l.of != nil {
		whom = l.of.String()
	}
	l.logf("from now on, for %v, for %s: %v to %s of %s, lands %t, forges %t", l.lasts, whom, l.answer, l.ops, l.keys, l.lands, l.forges)
	l.after(l.lasts, nil, func() { l.on = false })
}

func (l *lasting) hits(r *request) bool {
	if !l.on || l.forges || r.from.by == nil || l.of != nil && l.of != r.from.by {
		return false
	}
	session := strings.HasPrefix(r.key, "s")
	if l.keys == "locks" && session || l.keys == "sessions" && !session {
		return false
	}
	return l.ops == "all" || l.ops == r.op || l.ops == "put" && r.op == "delete"
}

// count charges a request to its sender.
func (l *lasting) count(r *request) {
	m := r.from.from
	if l.arm != Lasting {
		return
	}
	if r.hit = l.hits(r); m == nil || !l.on || r.page > 1 {
		return
	}
	one := time.Second / l.perTry()
	renewal := protocol.Renewal(l.ttl)
	a, cost, what := &m.may.failing, time.Second, "requests that fail"
	switch {
	case r.hit:
		l.met(Persists)
		if l.ops == "all" {
			cost /= 2 // a try's write and its read
		}
	case r.writes():
		// A lease costs three renewals per TTL.
		a, cost, what = &m.may.writes, per(one, renewal, 3), "writes"
	default:
		// Until it knows when the leader renews, a follower reads eight times per renewal
		// interval, and with jitter up to a third more often.
		a, cost, what = &m.may.looks, per(one, renewal, 12), "looks"
	}
	if !a.spend(l.now, cost, m.most()) {
		l.violated(Pace, "%v, TTL %v, sends more %s than its pauses allow while %v to %s of %s lasts: the last is a %s of %q",
			m, m.ttl, what, l.answer, l.ops, l.keys, r.op, r.key)
	}
}

func (l *lasting) countPoll(m *member) {
	if !l.on {
		return
	}
	if !m.may.questions.spend(l.now, per(time.Second, protocol.Renewal(l.ttl), 12), burst*time.Second) {
		l.violated(Pace, "%v, TTL %v, asks the leader more often than its pauses allow", m, m.ttl)
	}
}

// perTry returns how many requests a try may take: two writes and a listing, a get and a listing.
func (l *lasting) perTry() time.Duration {
	if l.cfg.Numbered || l.cfg.WriteOnce {
		return 6
	}
	return 2
}

// changed credits the lock's candidates, which may read and try once more after a landed write:
// earlier attempts cannot land any more.
func (l *lasting) changed(r *request) {
	from := r.from.from
	if c := r.from; c.write != nil && c.write.Op == candidate.Claim && from.claims-c.number >= manyOpen-1 {
		l.met(OldestLands, r.key)
	}
	for _, m := range from.on.all() {
		m.attempts, m.silent = 0, 0
		if l.arm != Lasting || l.now-m.may.credited < min(protocol.Renewal(l.ttl)/4, time.Second) {
			continue // otherwise writes that land without an answer could go on forever
		}
		m.may.credited = l.now
		m.may.credit(2 * time.Second)
	}
}

func (l *lasting) tell() Failure {
	if l.arm != Lasting {
		return Failure{}
	}
	answer := l.answer.String()
	if l.forges {
		answer = forged
	}
	return Failure{answer, l.ops, l.from.String(), l.ttl, l.whole, l.awaited}
}

// A Failure describes a history's lasting failure.
type Failure struct {
	Answer, Ops, From string
	TTL               time.Duration
	Whole             bool // for at least ten TTLs
	Awaited           bool // a lock was free at its end, and it had kept a waiter from it
}

const forged = "forged words of peers"

// Kinds returns this failure's kinds.
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

// Kinds returns all kinds of failures, except those in only a few histories.
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

// maxPause is the longest backoff, whatever the TTL: the longest doubled one, and a quarter more.
const maxPause = 5 * time.Second
