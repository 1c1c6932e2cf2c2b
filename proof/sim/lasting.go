package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/internal/protocol"
)

// A lasting is one kind of failure that goes on for a long time: all requests of some kind get
// one answer, or none. Meanwhile the requests of each candidate are counted (allowance.go), and
// when it has ended a free lock is to be taken within seconds (checkPrompt).
type lasting struct {
	*fleet
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

// draw draws the failure, before there are locks and processes.
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
	// Ten of a long TTL are many tries, so few histories have them.
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
	case kind > 0: // so late that many others have been sent since
		try := min(protocol.MaxRequest, l.ttl/2) + maxPause
		l.straggler, l.late = 1+l.choose(2), time.Duration(1+l.choose(24))*try
		l.lasts = max(l.lasts, l.late+time.Minute)
	}
}

// startAt lets the failure begin if this is its moment.
func (l *lasting) startAt(m moment) {
	if l.pending && l.from == m {
		l.start()
	}
}

// startWith lets the failure begin with this request.
func (l *lasting) startWith(r *request) {
	switch c := r.from; {
	case c.write == nil || c.from.on.session != nil:
	case c.write.Op == protocol.Claim:
		l.startAt(claims)
	case c.write.Op == protocol.Free:
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

// hits reports that the failure is about this request.
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

// A Failure is what a history tells of the failure that lasted.
type Failure struct {
	Answer, Ops, From string
	TTL               time.Duration
	Whole             bool // for ten TTLs at least
	Awaited           bool // a lock was free when it ended, and somebody waited whom it had kept from it
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

// maxPause is the longest pause before another try, whatever the TTL: the last of those that
// double, and a quarter more.
const maxPause = 5 * time.Second
