// Package cost computes the monthly requests of a plan of locks and their price, and compares them with
// those of other protocols. It can also run a plan and count its requests. docs/cost-formulas.md explains
// the formulas, and tests compare their results with counted requests.
package cost

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
)

// Month is the period of all monthly figures: 730 hours, 1/12 of a year.
const Month = 730 * time.Hour

// Requests is a number of requests for each method.
type Requests struct {
	Get    float64 `json:"get"`
	Put    float64 `json:"put"`
	List   float64 `json:"list"`
	Delete float64 `json:"delete"`
}

// Times returns n times r.
func (r Requests) Times(n float64) Requests {
	return Requests{r.Get * n, r.Put * n, r.List * n, r.Delete * n}
}

// Plus returns the sum of r and o.
func (r Requests) Plus(o Requests) Requests {
	return Requests{r.Get + o.Get, r.Put + o.Put, r.List + o.List, r.Delete + o.Delete}
}

// A Mode is what candidates do while another one holds the lock.
type Mode string

// The modes.
const (
	Store   Mode = "store"   // followers in an election poll the store
	Peer    Mode = "peer"    // followers in an election ask the leader
	Wait    Mode = "wait"    // candidates for a lock wait in Acquire
	Session Mode = "session" // as Wait, under sessions: each candidate is a process that wants all locks
	Fair    Mode = "fair"    // candidates for a fair lock wait in its queue, each a process with a session
)

// Modes lists all modes.
var Modes = []Mode{Store, Peer, Wait, Session, Fair}

// A Plan is a number of locks that are always held, and their candidates.
type Plan struct {
	TTL        time.Duration
	Candidates int // for each lock, the holder included
	Locks      int
	Mode       Mode
	Layout     leasehold.Layout
	NoIfMatch  bool

	// Infrequent is ElectionOptions.Infrequent in the mode Store, and LockOptions.PollInterval in
	// the mode Wait. Default: 0, the default of that option.
	Infrequent time.Duration

	// Members is the number of a quorum's stores, which all get each request. 0 means a single store.
	Members int

	// Changes is how often a day each lock changes hands: the holder releases it, and another
	// candidate acquires it.
	Changes float64
}

// Check returns why the plan is invalid.
func (p Plan) Check() error {
	switch {
	case p.TTL < leasehold.MinTTL || p.TTL > leasehold.MaxTTL:
		return fmt.Errorf("the TTL %v is not between %v and %v", p.TTL, leasehold.MinTTL, leasehold.MaxTTL)
	case p.Candidates < 1:
		return fmt.Errorf("%d candidates: each lock needs one that holds it", p.Candidates)
	case p.Locks < 1:
		return fmt.Errorf("%d locks: there must be one", p.Locks)
	case !slices.Contains(Modes, p.Mode):
		return fmt.Errorf("there is no mode %q: use store, peer, wait, session or fair", p.Mode)
	case p.Mode == Session && !p.Layout.Tokens():
		return fmt.Errorf("the layout %s with the mode %s: a marker cannot be under a session", p.Layout, p.Mode)
	case p.Mode == Fair && p.Layout != leasehold.LayoutObject:
		return fmt.Errorf("the layout %s with the mode %s: a fair lock is one object of its own kind", p.Layout, p.Mode)
	case p.Layout == leasehold.LayoutObject && p.NoIfMatch:
		return fmt.Errorf("the layout %s needs If-Match: without it, use the layout %s", p.Layout, leasehold.LayoutEpochs)
	case p.Layout == leasehold.LayoutMarker && p.NoIfMatch:
		return fmt.Errorf("the layout %s does not renew leases, so nothing is held for a month: each acquisition costs a PUT and its release a DELETE", p.way())
	case p.budget().renew == Requests{}:
		return fmt.Errorf("there is no layout %q", p.way())
	case p.Infrequent < 0 || p.Infrequent > 0 && p.Mode != Store && p.Mode != Wait:
		return fmt.Errorf("an infrequent interval of %v with the mode %s: it is for followers that look at the store, and for waiters", p.Infrequent, p.Mode)
	case p.Changes < 0 || p.Changes > p.most() || math.IsNaN(p.Changes):
		return fmt.Errorf("%v changes of holder a day: with a TTL of %v a lock can be followed through 0 to %v", p.Changes, p.TTL, p.most())
	}
	return nil
}

// CheckAt is Check. It also returns why the plan's cost in that store cannot be computed.
func (p Plan) CheckAt(at *Price) error {
	if p.Members > 0 && p.Layout != leasehold.LayoutObject {
		return fmt.Errorf("the layout %s on a quorum is not computed: use the layout %s", p.Layout, leasehold.LayoutObject)
	}
	if at.Unordered && p.budget().renewals > 0 {
		return fmt.Errorf("the layout %s on %s: listings there are in no order, so each reads a day of epochs, which is not computed: use another layout", p.way(), at.Title)
	}
	return p.Check()
}

// most returns the largest number of changes a day for which the formulas hold. With more, followers have
// not yet noticed one change when the next one comes.
func (p Plan) most() float64 {
	least := 4 * max(p.TTL, p.Infrequent)
	if p.Mode == Fair {
		least = max(least, 2*queue.LineLook) // with shorter turns, waiters in the middle of the queue poll more often
	}
	return max(1, float64(24*time.Hour/least))
}

// A Part is the monthly requests of one group of candidates.
type Part struct {
	Who    string `json:"who"`
	Number int    `json:"number"` // size of the group, or number of its actions
	Requests
}

// Parts returns the monthly requests by group.
func (p Plan) Parts() []Part {
	locks, b := float64(p.Locks), p.budget()
	changes := p.Changes * Month.Hours() / 24 * locks
	holders := Part{"holders", p.Locks, b.renew.Times(p.renewals() * locks)}
	others := Part{"followers", p.Locks * (p.Candidates - 1), Requests{}}
	renewals := p.renewals()
	switch p.Mode {
	case Wait:
		others.Who = "waiters"
	case Session:
		holders = Part{"sessions", p.Candidates, put.Times(p.renewals() * float64(p.Candidates))}
		others = Part{"watches of sessions", min(p.Locks, p.Candidates) * (p.Candidates - 1), Requests{}}
		renewals = 0
	case Fair:
		holders = Part{"sessions", p.Locks * p.Candidates, put.Times(p.renewals() * locks * float64(p.Candidates))}
		others.Who, renewals = "waiters", 0
	}
	others.Requests = p.follows().Times(float64(others.Number))
	if p.Mode == Fair && p.Candidates > 1 { // one waiter of each queue is the first, and three read every heartbeat
		first := float64(Month)/float64(queue.LateLook) - float64(Month)/float64(queue.LineLook)
		near := float64(min(p.Candidates-1, 3)) * (p.renewals() - p.seldom())
		others.Requests = others.Plus(get.Times((first + near) * locks))
	}
	changing := p.change()
	if p.Members > 0 {
		// A writer that follows another one needs a promise first. Holders follow themselves, and others only read.
		changing.Put *= 2
		n := float64(p.Members)
		holders.Requests, others.Requests, changing = holders.Times(n), others.Times(n), changing.Times(n)
	}
	parts := []Part{holders, others, {"changes of holder", int(changes + 0.5), changing.Times(changes)}}
	if epochs := b.epochs(renewals, changes/locks) * locks; epochs > 0 {
		collections := epochs / collectEvery
		parts = append(parts, Part{"collections of epochs", int(collections + 0.5), p.collection(changes / locks).Times(collections)})
	}
	return parts
}

// Total returns the sum of the parts.
func Total(parts []Part) (all Requests) {
	for _, p := range parts {
		all = all.Plus(p.Requests)
	}
	return all
}

// renewals returns how often a lease is renewed in a month.
func (p Plan) renewals() float64 { return float64(Month) / float64(protocol.Renewal(p.TTL)) }
