package cost

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
)

// An Alternative is the same plan in another mode or protocol.
type Alternative struct {
	Name    string `json:"name"`
	Assumed string `json:"assumed,omitempty"`
	Requests
	USD float64 `json:"usd"`
}

// Alternatives returns the plan's monthly cost in each mode of leasehold and with other protocols,
// for the same candidates, locks, changes and TTL. A protocol's intervals are the documented ones or
// those in its code, in proportion to its timeout; if there are none, they are ours. DynamoDB is
// left out if its prices are unknown.
func (p Plan) Alternatives(at *Price, dynamo *DynamoDB) []Alternative {
	var all []Alternative
	for _, mode := range Modes {
		other := p
		if other.Mode = mode; mode != p.Mode {
			other.Infrequent = 0
		}
		if other.Check() != nil {
			continue // a marker cannot be under a session
		}
		a := Alternative{Name: fmt.Sprintf("leasehold --mode %s", mode), Requests: Total(other.Parts())}
		switch mode {
		case p.Mode:
			a.Assumed = "this plan"
		case Fair:
			a.Assumed = "a session for each candidate"
		}
		a.USD = at.Of(a.Requests)
		all = append(all, a)
	}
	for _, r := range p.rivals() {
		if p.Members > 0 && !r.dynamo {
			continue // they do not support quorums
		}
		a := Alternative{Name: r.name, Assumed: r.assumed, Requests: p.all(r)}
		switch {
		case !r.dynamo:
			a.USD = at.Of(a.Requests)
		case dynamo == nil:
			continue
		default:
			a.USD = dynamo.of(a.Requests)
		}
		all = append(all, a)
	}
	return all
}

// A rival is another protocol: the monthly requests of a holder and of each other candidate, and the
// requests of all of a lock's candidates for one change of holder.
type rival struct {
	name, assumed           string
	holder, other, exchange Requests
	dynamo                  bool
}

func (p Plan) rivals() []rival {
	often := func(every time.Duration) float64 { return float64(Month) / float64(every) }
	ours := often(protocol.Renewal(p.TTL))
	return []rival{
		{
			name: "lock by If-Match, published 2025", assumed: "names no interval: TTL/3",
			holder: put.Times(ours), other: get.Times(ours), exchange: put.Times(2),
		},
		{
			name: "election by epochs, published 2024", assumed: "names no interval: TTL/3",
			holder: put.Times(ours), other: getList.Times(ours), exchange: put.Times(2),
		},
		{
			name: "create-and-delete, published 2024", assumed: "tries every 0.75 s; no time-out",
			other: put.Times(often(750 * time.Millisecond)), exchange: remove,
		},
		{
			name: "s3lect v1.0.2", assumed: "all look, every TTL/3",
			holder: getPut.Times(ours), other: get.Times(ours), exchange: getPut.Plus(put),
		},
		{
			name: "s3lect v1.0.2 with peers", assumed: "the leader looks, every TTL/3",
			holder: getPut.Times(ours), exchange: getPut.Plus(put).Plus(get.Times(float64(p.Candidates - 1))),
		},
		{
			name: "DynamoDB lock client", assumed: "renews TTL/4, looks every 1 s",
			holder: put.Times(often(p.TTL / 4)), other: get.Times(often(time.Second)), exchange: put.Times(2), dynamo: true,
		},
	}
}

// all returns a rival's monthly requests for all locks.
func (p Plan) all(r rival) Requests {
	lock := r.holder.Plus(r.other.Times(float64(p.Candidates - 1))).Plus(r.exchange.Times(p.Changes * Month.Hours() / 24))
	return lock.Times(float64(p.Locks))
}

// A Saving is a change that makes a plan cheaper.
type Saving struct {
	Flag string  `json:"flag"` // of leasehold cost
	But  string  `json:"but"`  // the disadvantage
	USD  float64 `json:"usd"`  // saved in a month
}

// Savings returns the at most two changes that save most, of those that save 1 % or more.
func (p Plan) Savings(at *Price) []Saving {
	now := at.Of(Total(p.Parts()))
	var all []Saving
	try := func(other Plan, flag, but string) {
		if saved := now - at.Of(Total(other.Parts())); other.CheckAt(at) == nil && saved >= now/100 && saved > 0 {
			all = append(all, Saving{flag, but, saved})
		}
	}
	longer := p
	longer.TTL *= 4
	longer.Infrequent *= 4
	longer.Changes = min(longer.Changes, longer.most())
	try(longer, "--ttl "+short(longer.TTL), longer.slower(p))
	if p.Mode == Store {
		peer := p
		peer.Mode, peer.Infrequent = Peer, 0
		try(peer, "--mode peer", "followers must reach the leader over HTTPS")
	}
	if p.Mode != Session && p.Locks > 1 {
		session := p
		session.Mode, session.Infrequent = Session, 0
		try(session, "--mode session", "a process loses all its locks together")
	}
	if p.Mode == Store && p.Infrequent == 0 {
		seldom := p
		seldom.Infrequent = 2 * p.TTL
		seldom.Changes = min(seldom.Changes, seldom.most())
		try(seldom, "--infrequent "+short(seldom.Infrequent), seldom.slower(p))
	}
	if p.Layout != leasehold.LayoutObject && p.Members == 0 {
		object := p
		object.Layout, object.NoIfMatch = leasehold.LayoutObject, false
		try(object, "--layout object", "it needs If-Match, and keeps no history")
	}
	slices.SortStableFunc(all, func(a, b Saving) int { return cmp.Compare(b.USD, a.USD) })
	return all[:min(len(all), 2)]
}

// slower says how much longer p takes to fail over than another plan.
func (p Plan) slower(than Plan) string {
	return fmt.Sprintf("a crash is overcome within %s, not %s", short(p.failover()), short(than.failover()))
}

// short formats a duration without trailing zero units.
func short(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// failover returns the longest time from a crashed holder's last renewal until another candidate takes
// over, in whole seconds.
func (p Plan) failover() time.Duration {
	wait, look := protocol.Patience(p.TTL)+p.TTL/10, p.TTL/24
	switch {
	case p.Mode == Peer:
		look = p.TTL // a follower that has not read the record counts from its first read
	case p.Mode == Session:
		look = protocol.Renewal(p.TTL) * 5 / 4
	case p.Mode == Wait:
		look = min(p.interval()*5/4, wait)
	case p.Infrequent > 0: // both the last renewal and its age may be noticed late
		look = p.Infrequent * 5 / 4
		wait = max(wait, look)
	}
	return (look + wait + time.Second - 1).Truncate(time.Second)
}
