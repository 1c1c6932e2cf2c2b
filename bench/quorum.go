package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// distances are how far away the members of the quorums are that are measured: those of one city, of one continent, of
// several, and one of each.
var distances = []struct {
	name    string
	members [3]time.Duration
}{
	{"three near by", [3]time.Duration{}},
	{"three at 30 ms", [3]time.Duration{30 * time.Millisecond, 30 * time.Millisecond, 30 * time.Millisecond}},
	{"three at 150 ms", [3]time.Duration{150 * time.Millisecond, 150 * time.Millisecond, 150 * time.Millisecond}},
	{"at 0, 30 and 150 ms", [3]time.Duration{0, 30 * time.Millisecond, 150 * time.Millisecond}},
}

// What is compared with the quorum is the same on one of its members, and a PUT by the bare SDK to each.
const (
	onQuorum    = "the quorum"
	onOne       = "its second-fastest member alone"
	renewal     = "renewal"
	whole       = "acquire and release"
	secondPut   = "PUT If-Match to the second-fastest member, bare SDK"
	atOnce      = "PUT If-Match to all three at once, bare SDK, until two have answered"
	overRenewal = 1.15
)

// A vantage is where one process reaches the buckets of a quorum from, by networks of its own.
type vantage struct {
	members  []*place
	networks []*network
}

// buckets are new ones for the members of a quorum, on three servers.
func (b *bench) buckets() (members []*place) {
	for _, p := range b.near()[:3] {
		member := *p
		member.bucket = p.server.Bucket(b.host)
		members = append(members, &member)
	}
	return members
}

// openVantage gives new ways to the buckets.
func (b *bench) openVantage(buckets []*place, far [3]time.Duration) *vantage {
	s := &vantage{}
	for i, p := range buckets {
		way := startNetwork(b.host, p.server.Endpoint, far[i], 0)
		member := *p
		member.endpoint = way.endpoint
		s.members, s.networks = append(s.members, &member), append(s.networks, way)
	}
	return s
}

// A member has one name, by whatever way it is reached.
type member struct {
	store.Store
	name string
}

func (m member) String() string { return m.name }

func (s *vantage) cut() {
	for _, n := range s.networks {
		n.cut()
	}
}

// quorum is the store over the members.
func (s *vantage) quorum(ctx context.Context) (store.Store, error) {
	var members []store.Store
	for _, p := range s.members {
		st, err := p.store()
		if err != nil {
			return nil, err
		}
		members = append(members, member{st, p.name})
	}
	q, err := quorumstore.New(members, nil)
	if err != nil {
		return nil, err
	}
	return q, q.Init(ctx)
}

// quorums compares a store over three buckets with one of the three.
func quorums(ctx context.Context, b *bench) error {
	if len(b.near()) < 3 {
		b.note("a quorum of stores: it needs three servers, and this run has %d", len(b.near()))
		return nil
	}
	s := b.section("A quorum of three stores")
	s.say("A lock on [a quorum](quorum.md) of three buckets, each on a server of another kind and behind a network of its own, beside the same lock on its second-fastest member. A renewal is one write by whoever wrote last. A fail-over is measured from the moment at which the holder is cut off from all members until another holds the lock, at a TTL of %v.", crashTTL)
	rows := [][]string{{"members", secondPut + ", ms", atOnce + ", ms", "renewal, ms", "over the one PUT", "over the PUTs at once", "acquire and release, ms", "over one member's", "fail-over, s", "one member's, s"}}
	for _, d := range distances {
		row, err := b.quorumAt(ctx, d.name, d.members)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		rows = append(rows, row)
	}
	s.table(rows)
	s.say("All servers, all proxies and the client share this machine's processors, so near by three requests at once take turns, a quorum's and bare ones alike. Over a network they do not.")
	return nil
}

func (b *bench) quorumAt(ctx context.Context, where string, far [3]time.Duration) ([]string, error) {
	buckets := b.buckets()
	here := b.openVantage(buckets, far)
	defer here.cut()
	q, err := here.quorum(ctx)
	if err != nil {
		return nil, err
	}
	operations, rounds := b.operations(b.near()[0]), b.rounds
	if slices.Max(far[:]) > 0 {
		operations, rounds = b.operations(b.far()[0]), min(b.rounds, 3)
	}
	// The order of the members by their PUTs is that of this run.
	floors := make([]*floorer, len(here.members))
	for i, p := range here.members {
		if floors[i], err = openFloor(ctx, p, "floor"); err != nil {
			return nil, err
		}
	}
	var puts []float64
	for _, f := range floors {
		t, err := measure(operations, f.ifMatch)
		if err != nil {
			return nil, err
		}
		puts = append(puts, t.p50)
	}
	second := bySpeed(puts)[1]
	together, err := openTogether(ctx, here.members)
	if err != nil {
		return nil, err
	}
	defer together.running.Wait()
	alone, err := here.members[second].store()
	if err != nil {
		return nil, err
	}
	renews := func(st store.Store, key string) func() error {
		n, only := 0, store.IfAbsent()
		return func() error {
			n++
			o, err := st.Put(ctx, key, fmt.Appendf(nil, "%020d%s", n, body[20:]), only)
			if err == nil {
				only = store.IfMatch(o.Version)
			}
			return err
		}
	}
	locks := func(st store.Store, key string) func() error {
		return func() error {
			l, err := leasehold.NewLock(st, key, &leasehold.LockOptions{TTL: defaultTTL})
			if err != nil {
				return err
			}
			lease, err := l.Acquire(ctx)
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
	}
	type operation struct {
		subject, metric string
		f               func() error
	}
	all := []operation{
		{secondPut, renewal, floors[second].ifMatch},
		{atOnce, renewal, together.ifMatch},
		{onQuorum, renewal, renews(q, "renewed")},
		{onOne, renewal, renews(alone, "renewed-alone")},
		{onQuorum, whole, locks(q, "whole")},
		{onOne, whole, locks(alone, "whole-alone")},
	}
	for _, o := range all {
		if _, err := measure(2, o.f); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		if err := turns(all, func(o operation) error {
			t, err := measure(operations, o.f)
			b.add("quorum", where, o.subject, o.metric+", p50 µs", round, t.p50)
			return err
		}); err != nil {
			return nil, err
		}
	}
	if err := b.quorumCrash(ctx, where, buckets, far, second); err != nil {
		return nil, err
	}
	ms := func(subject, metric string) string {
		s := b.of("quorum", where, subject, metric+", p50 µs")
		return spread{s.median / 1000, s.least / 1000, s.most / 1000, s.n}.String()
	}
	return []string{
		where, ms(secondPut, renewal), ms(atOnce, renewal), ms(onQuorum, renewal), b.over(where, secondPut).String(), b.over(where, atOnce).String(),
		ms(onQuorum, whole), b.ratio("quorum", where, whole+", p50 µs", onQuorum, onOne).String(),
		b.of("quorum", where, onQuorum, "fail-over, s").String(), b.of("quorum", where, onOne, "fail-over, s").String(),
	}, nil
}

// over is a renewal on the quorum over what the bare SDK takes, in the same round.
func (b *bench) over(where, bare string) spread {
	return b.ratio("quorum", where, renewal+", p50 µs", onQuorum, bare)
}

// A together sends a PUT to several members at once, by the bare SDK. As in a quorum two answers are enough, and a member
// that is still at an earlier one is not waited for.
type together struct {
	members []*floorer
	busy    []sync.Mutex
	running sync.WaitGroup
}

func openTogether(ctx context.Context, members []*place) (*together, error) {
	t := &together{busy: make([]sync.Mutex, len(members))}
	for _, p := range members {
		f, err := openFloor(ctx, p, "floor-at-once")
		if err != nil {
			return nil, err
		}
		t.members = append(t.members, f)
	}
	return t, nil
}

func (t *together) ifMatch() error {
	answers := make(chan error, len(t.members))
	for i, f := range t.members {
		if !t.busy[i].TryLock() {
			continue
		}
		t.running.Go(func() {
			err := f.ifMatch()
			t.busy[i].Unlock()
			answers <- err
		})
	}
	for range 2 {
		if err := <-answers; err != nil {
			return err
		}
	}
	return nil
}

// bySpeed are the numbers of the members, the fastest first.
func bySpeed(took []float64) []int {
	order := []int{0, 1, 2}
	slices.SortFunc(order, func(i, j int) int {
		if took[i] < took[j] {
			return -1
		}
		return 1
	})
	return order
}

// quorumCrash cuts holders off, on the quorum and on one of its members at once.
func (b *bench) quorumCrash(ctx context.Context, where string, buckets []*place, far [3]time.Duration, second int) error {
	pairs := 12
	if b.short {
		pairs = 1
	}
	stores := map[string]func(s *vantage) (store.Store, error){
		onQuorum: func(s *vantage) (store.Store, error) { return s.quorum(ctx) },
		onOne:    func(s *vantage) (store.Store, error) { return s.members[second].store() },
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for subject, open := range stores {
		late := draw(b.chance("quorum", where, subject), pairs, crashTTL/3)
		for i := range pairs {
			running.Go(func() {
				from := func() *vantage { return b.openVantage(buckets, far) }
				took, err := b.cutOff(ctx, from, open, fmt.Sprintf("crash/%s/%d", strings.ReplaceAll(subject, " ", "-"), i), late[i])
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = fmt.Errorf("%s: %w", subject, err)
					return
				}
				b.add("quorum", where, subject, "fail-over, s", i, took.Seconds())
			})
		}
	}
	running.Wait()
	return failed
}

// cutOff is how long it takes until another has a lock whose holder was cut off, so much later than two TTLs after it
// has acquired it.
func (b *bench) cutOff(ctx context.Context, from func() *vantage, open func(*vantage) (store.Store, error), key string, late time.Duration) (time.Duration, error) {
	holder, waiter := from(), from()
	defer holder.cut()
	defer waiter.cut()
	var locks []*leasehold.Lock
	for _, s := range []*vantage{holder, waiter} {
		st, err := open(s)
		if err != nil {
			return 0, err
		}
		l, err := leasehold.NewLock(st, key, &leasehold.LockOptions{TTL: crashTTL})
		if err != nil {
			return 0, err
		}
		locks = append(locks, l)
	}
	if _, err := locks[0].Acquire(ctx); err != nil {
		return 0, err
	}
	type next struct {
		lease *leasehold.Lease
		err   error
		at    time.Time
	}
	waits := make(chan next, 1)
	go func() {
		lease, err := locks[1].Acquire(ctx)
		waits <- next{lease, err, time.Now()}
	}()
	time.Sleep(2*crashTTL + late)
	cut := time.Now()
	holder.cut()
	n := <-waits
	if n.err != nil {
		return 0, n.err
	}
	return n.at.Sub(cut), n.lease.Release(ctx)
}
