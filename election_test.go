package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A campaigner is one candidate under Run, behind a network of its own.
type campaigner struct {
	*leasehold.Election
	net  *faultstore.Store
	stop context.CancelFunc
	done chan error
	// terms are the times at which it led.
	mu    sync.Mutex
	terms []span
}

type span struct {
	token      leasehold.Token
	begin, end time.Time
}

// campaign runs a candidate whose work lasts until its context ends.
func campaign(t *testing.T, st store.Store, opts leasehold.ElectionOptions) *campaigner {
	t.Helper()
	c := newCampaigner(t, st, opts)
	c.start(t)
	return c
}

// newCampaigner makes one that does nothing before it is started.
func newCampaigner(t *testing.T, st store.Store, opts leasehold.ElectionOptions) *campaigner {
	t.Helper()
	c := &campaigner{net: faultstore.Wrap(st, nil), done: make(chan error, 1)}
	opts.Sweep = here() == leasetest.MarkerNoIfMatch
	e, err := leasehold.NewElection(c.net, "leaders/scheduler", &opts)
	if err != nil {
		t.Fatal(err)
	}
	c.Election = e
	return c
}

func (c *campaigner) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() { c.done <- c.Run(ctx, c.lead) }()
	t.Cleanup(stop)
}

func (c *campaigner) lead(ctx context.Context, lease *leasehold.Lease) error {
	begin := time.Now()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terms = append(c.terms, span{lease.Token(), begin, time.Now()})
	return nil
}

// quit ends the candidate and returns when nothing of it is left.
func (c *campaigner) quit(t *testing.T) {
	t.Helper()
	c.stop()
	if err := <-c.done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
}

func leaders(candidates []*campaigner) (n int, leader *campaigner) {
	for _, c := range candidates {
		if c.IsLeader() {
			n++
			leader = c
		}
	}
	return n, leader
}

// TestElectionBudget: twenty minutes of four candidates at the default TTL. The leader
// renews once every TTL/3 and does nothing else; each follower looks at most as
// docs/cost.md says and never writes.
func TestElectionBudget(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var all []*campaigner
		for range 4 {
			all = append(all, campaign(t, st, leasehold.ElectionOptions{}))
		}
		time.Sleep(time.Minute)
		n, leader := leaders(all)
		if n != 1 {
			t.Fatalf("%d leaders", n)
		}
		for _, c := range all {
			c.net.Reset()
		}
		time.Sleep(20 * time.Minute)
		for i, c := range all {
			got := since(c.net, faultstore.Counts{})
			if c == leader {
				if !leads(got, 240) {
					t.Errorf("the leader made %v", got)
				}
				continue
			}
			if !watches(got, 240) {
				t.Errorf("follower %d made %v", i, got)
			}
			if s := c.Status(); s.Leading || !s.HasLeader || s.Failures != 0 || s.NextLook.IsZero() || s.Reads < 233 {
				t.Errorf("follower %d: %+v", i, s)
			}
		}
		for _, c := range all {
			c.quit(t)
		}
	})
}

// leads reports that a leader made so many renewals, give or take one, and otherwise
// only what is done about the past.
func leads(got requests, renewals int) bool {
	b := budgets[here()]
	for n := renewals - 1; n <= renewals+1; n++ {
		more := got.plus(b.renew.times(-n))
		if more.within(requests{}, b.hour.times(2)) {
			return true
		}
	}
	return false
}

// watches reports that a follower made no more than one look for each renewal, and a
// twentieth more of those that show nothing new.
func watches(got requests, renewals int) bool {
	b := budgets[here()]
	return got.within(b.news.times(renewals-renewals/36-1), b.news.times(renewals+1).plus(b.look.times(renewals/20)))
}

func TestLeaderCrashes(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		st := memstore.New()
		a := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl}})
		time.Sleep(time.Second)
		b := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl}})
		if err := leasetest.Lead(t.Context(), a.Election); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			time.Sleep(20*time.Second + rand.N(5*time.Second))
			_, leader := leaders([]*campaigner{a, b})
			next := a
			if leader == a {
				next = b
			}
			renewed := lastWrite(leader)
			leader.net.Partition(true)
			if err := leasetest.Lead(t.Context(), next.Election); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(renewed); d > protocol.Patience(ttl)+time.Second {
				t.Errorf("the next leader began %v after the last renewal", d)
			}
			leader.net.Partition(false)
		}
		a.quit(t)
		b.quit(t)
		noOverlap(t, a, b)
	})
}

// lastWrite is when the candidate last renewed.
func lastWrite(c *campaigner) time.Time {
	info, _ := leaderOf(c.Election)
	return info.RenewedAt
}

// noOverlap: no two terms overlap, and their tokens grow.
func noOverlap(t *testing.T, candidates ...*campaigner) {
	t.Helper()
	var terms []span
	for _, c := range candidates {
		terms = append(terms, c.terms...)
	}
	slices.SortFunc(terms, func(a, b span) int { return a.begin.Compare(b.begin) })
	for i := range terms[1:] {
		if terms[i+1].begin.Before(terms[i].end) || here().Tokens() != (terms[i+1].token > terms[i].token) {
			t.Errorf("term %+v and then %+v", terms[i], terms[i+1])
		}
	}
	t.Logf("%d terms", len(terms))
}

// TestLeaderIsCutOff: the leader loses the store, which is gone or slow, and the
// others do not. It stops leading before another starts, each time.
func TestLeaderIsCutOff(t *testing.T) {
	needs(t, renews(), withoutSafety)
	bubble(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 0))
		st := memstore.New()
		var all []*campaigner
		for range 3 {
			all = append(all, campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: 6 * time.Second}}))
		}
		for range 40 {
			time.Sleep(time.Duration(random.Int64N(int64(30 * time.Second))))
			n, leader := leaders(all)
			if n > 1 {
				t.Fatalf("%d leaders at one instant", n)
			}
			if leader == nil {
				continue
			}
			outage := time.Duration(random.Int64N(int64(20 * time.Second)))
			if random.IntN(2) == 0 {
				leader.net.Partition(true)
			} else {
				leader.net.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Delay: outage / 4, Jitter: outage / 2})
			}
			for until := time.Now().Add(outage); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
				if n, _ := leaders(all); n > 1 {
					t.Fatalf("%d leaders at one instant", n)
				}
			}
			leader.net.Partition(false)
			leader.net.Clear()
		}
		for _, c := range all {
			c.quit(t)
		}
		noOverlap(t, all...)
	})
}

// TestResign: the next leader begins within one look, which is at most the
// infrequent interval.
func TestResign(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
		time.Sleep(time.Second)
		b := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "b"}})
		time.Sleep(time.Minute)
		if err := b.Resign(t.Context()); !errors.Is(err, leasehold.ErrNotLeading) {
			t.Errorf("a follower resigned: %v", err)
		}
		start := time.Now()
		if err := a.Resign(t.Context()); err != nil || a.IsLeader() {
			t.Fatalf("%v, leader: %v", err, a.IsLeader())
		}
		if err := leasetest.Lead(t.Context(), b.Election); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 15*time.Second/3+time.Second {
			t.Errorf("the next leader began after %v", d)
		}
		time.Sleep(time.Minute)
		if n, _ := leaders([]*campaigner{a, b}); n != 1 {
			t.Errorf("%d leaders", n)
		}
		a.quit(t)
		b.quit(t)
		noOverlap(t, a, b)
	})
}

func TestResignToASuccessor(t *testing.T) {
	needsSuccessors(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var all []*campaigner
		for i := range 6 {
			all = append(all, campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: fmt.Sprint("c", i)}}))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		for _, next := range []int{3, 5, 1, 4} {
			_, leader := leaders(all)
			if err := leader.ResignTo(t.Context(), fmt.Sprint("c", next)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			if _, leader := leaders(all); leader != all[next] {
				t.Errorf("c%d was named, and another leads", next)
			}
		}
		for _, c := range all {
			c.quit(t)
		}
	})
}

// TestRunEndsCleanly: the end of Run's context ends the work, and then frees the
// lock; the bubble fails if anything is left running.
func TestRunEndsCleanly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		e, err := leasehold.NewElection(st, "leaders/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		why := errors.New("shutting down")
		began := make(chan *leasehold.Lease, 1)
		ended := make(chan error, 1)
		var stopped bool
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
				began <- lease
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), why) {
					t.Errorf("the work was stopped because of %v", context.Cause(ctx))
				}
				if !lease.Valid() {
					t.Error("the lease ended before the work")
				}
				time.Sleep(4 * time.Second) // and it takes its time, within the grace
				stopped = lease.Valid()
				return nil
			})
		}()
		lease := <-began
		stop(why)
		if end := <-ended; !errors.Is(end, context.Canceled) {
			t.Errorf("Run returned %v", end)
		}
		if !stopped || !errors.Is(lease.Err(), leasehold.ErrReleased) {
			t.Errorf("valid until the work had stopped: %v; then %v", stopped, lease.Err())
		}
		lock, err := leasehold.NewLock(st, "leaders/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
			t.Errorf("left behind: %+v, %v", info, err)
		}
	})
}

// Work that does not stop in time keeps its leader from being called one, and the
// lock from being free, but not for ever.
func TestWorkThatDoesNotStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		e, err := leasehold.NewElection(st, "leaders/x", &leasehold.ElectionOptions{Grace: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		began := make(chan *leasehold.Lease, 1)
		go func() {
			ended <- e.Run(ctx, func(_ context.Context, l *leasehold.Lease) error {
				began <- l
				time.Sleep(20 * time.Second)
				return nil
			})
		}()
		lease := <-began
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(2*time.Second + time.Millisecond)
		if e.IsLeader() || !errors.Is(lease.Err(), leasehold.ErrLost) {
			t.Errorf("after the grace it still leads: %v", lease.Err())
		}
		lock, _ := leasehold.NewLock(st, "leaders/x", nil)
		if info, _ := lock.Inspect(t.Context()); !info.Held {
			t.Error("the lock was freed while the work went on")
		}
		if end := <-ended; !errors.Is(end, context.Canceled) {
			t.Errorf("Run returned %v", end)
		}
		// A marker may not be deleted so late.
		if info, _ := lock.Inspect(t.Context()); info.Held == here().Tokens() {
			t.Errorf("when the work had stopped: held %v", info.Held)
		}
	})
}

func TestIsLeaderLooksAtTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e, err := leasehold.NewElection(memstore.New(), "leaders/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := e.Campaign(t.Context())
		if err != nil || !e.IsLeader() {
			t.Fatalf("%v, leads: %v", err, e.IsLeader())
		}
		slept.Store(int64(time.Hour)) // and nothing has run since
		if e.IsLeader() || e.Status().Leading {
			t.Error("it leads after an hour of suspend")
		}
		if err := e.Resign(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("the resignation said %v", err)
		}
		if err := e.Resign(t.Context()); !errors.Is(err, leasehold.ErrNotLeading) || lease.Err() == nil {
			t.Errorf("resigned twice: %v", err)
		}
	})
}

func TestCallbacksOfAnElection(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var refusals, led atomic.Int32
		var seen []string
		e, err := leasehold.NewElection(st, "leaders/x", &leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{Holder: "a", Trace: leasetest.OnLeader(func(name string) { seen = append(seen, name) })},
			OnElected: func(ctx context.Context, lease *leasehold.Lease) error {
				if !lease.Valid() || ctx.Err() != nil {
					t.Error("elected without a lease")
				}
				if refusals.Add(1) <= 2 {
					return errors.New("not ready")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
				led.Add(1)
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Minute)
		if refusals.Load() != 3 || led.Load() != 1 || !e.IsLeader() {
			t.Errorf("elected %d times, led %d", refusals.Load(), led.Load())
		}
		stop()
		if end := <-ended; !errors.Is(end, context.Canceled) {
			t.Errorf("Run returned %v", end)
		}
		synctest.Wait()
		if !slices.Equal(seen, []string{"a", "a", "a"}) {
			t.Errorf("leaders seen: %v", seen)
		}
	})
}

func TestObserve(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
		time.Sleep(time.Second)
		onlooker, err := leasehold.NewElection(st, "leaders/scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var got []string
		over := make(chan struct{})
		go func() {
			defer close(over)
			for c := range onlooker.Observe(ctx) {
				got = append(got, c.Kind.String()+" "+c.Info.Holder)
			}
		}()
		time.Sleep(time.Minute)
		if leader, ok := leaderOf(onlooker); !ok || leader.Holder != "a" || onlooker.IsLeader() {
			t.Errorf("the onlooker sees %+v, %v", leader, ok)
		}
		a.quit(t)
		time.Sleep(time.Minute)
		b := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "b"}})
		time.Sleep(time.Minute)
		b.net.Partition(true)
		time.Sleep(time.Minute)
		c := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "c"}})
		time.Sleep(time.Minute)
		stop()
		<-over
		// c takes over from b, whose time is over.
		want := []string{"elected a", "resigned a", "elected b", "expired b", "taken over c"}
		if !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
		if s := onlooker.Status(); s.Writes != 0 || s.Leader.Holder != "c" {
			t.Errorf("the onlooker: %+v", s)
		}
		b.net.Partition(false)
		b.quit(t)
		c.quit(t)
	})
}

// TestManyCandidates: a hundred candidates, one leader, and no stampede when it
// crashes.
func TestManyCandidates(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		const size = 100
		st := memstore.New()
		all := []*campaigner{campaign(t, st, leasehold.ElectionOptions{})}
		time.Sleep(time.Second)
		for range size - 1 {
			all = append(all, campaign(t, st, leasehold.ElectionOptions{}))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, c := range all {
			c.net.Reset()
		}
		time.Sleep(5 * time.Minute)
		n, leader := leaders(all)
		if n != 1 {
			t.Fatalf("%d leaders", n)
		}
		reads := 0
		for _, c := range all {
			got := since(c.net, faultstore.Counts{})
			if c == leader {
				continue
			}
			if !watches(got, 60) {
				t.Errorf("a follower made %v in five minutes", got)
			}
			reads += got.get + got.list
		}
		leader.net.Partition(true)
		most, last := 0, 0
		for range 250 {
			time.Sleep(100 * time.Millisecond)
			if n, _ := leaders(all); n > 1 {
				t.Fatalf("%d leaders", n)
			}
			attempts := 0
			for _, c := range all {
				if c != leader {
					attempts += c.net.Counts().Put
				}
			}
			most, last = max(most, attempts-last), attempts
		}
		if n, next := leaders(all); n != 1 || next == leader {
			t.Fatalf("%d leaders after the crash", n)
		}
		t.Logf("%d reads by %d followers in five minutes; after the crash at most %d attempts within 100 ms, %d in all", reads, size-1, most, last)
		if most > 10 {
			t.Errorf("a stampede: %d attempts within 100 ms", most)
		}
		leader.net.Partition(false)
		for _, c := range all {
			c.quit(t)
		}
	})
}

func TestUpdateWhileRunning(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := campaign(t, st, leasehold.ElectionOptions{})
		time.Sleep(time.Minute)
		for _, bad := range []candidate.Retune{{TTL: time.Millisecond}, {Frequent: -1}, {Frequent: 2, Infrequent: 1}} {
			if err := leasehold.Internal.Update(a.Election, bad); err == nil {
				t.Errorf("accepted %+v", bad)
			}
		}
		b := campaign(t, st, leasehold.ElectionOptions{})
		time.Sleep(time.Minute)
		if err := leasehold.Internal.Update(b.Election, candidate.Retune{Frequent: time.Second, Infrequent: 30 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b.net.Reset()
		time.Sleep(time.Hour)
		look := budgets[here()].news
		if here() == leasetest.EpochsNoIfMatch {
			look = budgets[here()].jump
		}
		if got := since(b.net, faultstore.Counts{}); !got.within(look.times(110), look.times(140)) {
			t.Errorf("a follower that looks every 30 s made %v in an hour", got)
		}
		if err := leasehold.Internal.Update(a.Election, candidate.Retune{TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		a.net.Reset()
		time.Sleep(time.Hour)
		if got := since(a.net, faultstore.Counts{}); !leads(got, 180) {
			t.Errorf("a leader with a TTL of a minute made %v in an hour", got)
		}
		a.quit(t)
		b.quit(t)
	})
}

// Once a renewal for a shorter TTL is on its way, the lease must not promise more
// than it does: it did, until the answer came or a timer ran.
func TestShorterTTLShortensTheLeaseBeforeItIsSent(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		net := faultstore.Wrap(memstore.New(), nil)
		e, err := leasehold.NewElection(net, "leaders/x", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := leasehold.Internal.Update(e, candidate.Retune{TTL: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
		net.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: 500 * time.Millisecond})
		time.Sleep(20*time.Second + time.Millisecond) // the renewal is on its way
		if left := time.Until(lease.Deadline()); left > protocol.Validity(3*time.Second) {
			t.Errorf("the lease promises %v more, and the record 3 s", left)
		}
		net.Clear()
		if err := e.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A leader that is refused in each term, because the resource is claimed with tokens that the
// lock does not reach, must not campaign in a tight loop.
func TestFencedLeaderRests(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		terms := 0
		e, err := leasehold.NewElection(st, "e", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = e.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			terms++
			lease.Abandon(errors.New("refused"))
			return context.Cause(ctx)
		})
		if !errors.Is(err, context.DeadlineExceeded) || terms < 4 || terms > 9 {
			t.Errorf("%d terms in a minute, where each is followed by half a TTL or a little more; %v", terms, err)
		}
	})
}

// TestElectionOptionsThatCannotBe: what makes no sense is refused, with the option named, and what
// lies at the border of it is taken.
func TestElectionOptionsThatCannotBe(t *testing.T) {
	const s = time.Second
	for says, all := range map[string][]leasehold.ElectionOptions{
		"": {
			{},
			{Frequent: s},
			{Infrequent: s},
			{Frequent: s, Infrequent: s},
			{Frequent: 1, Infrequent: 2},
			{Grace: 1},
			{Retries: []time.Duration{0, s}},
		},
		"Frequent -1ns":             {{Frequent: -1}, {Frequent: -1, Infrequent: s}},
		"Infrequent -1ns":           {{Infrequent: -1}, {Frequent: s, Infrequent: -1}},
		"longer than Infrequent":    {{Frequent: 2 * s, Infrequent: s}, {Frequent: 2, Infrequent: 1}},
		"grace -1ns":                {{Grace: -1}},
		"retry comes after -1ns":    {{Retries: []time.Duration{-1}}, {Retries: []time.Duration{s, -1}}},
		"TTL":                       {{LockOptions: leasehold.LockOptions{TTL: time.Millisecond}}},
		"PollInterval 1s is for":    {{LockOptions: leasehold.LockOptions{PollInterval: s}}},
		"the option Sweep is for":   {{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject, Sweep: true}}},
		"there is no layout \"pile": {{LockOptions: leasehold.LockOptions{Layout: "pile"}}},
	} {
		for _, opts := range all {
			st := newStore()
			e, err := leasehold.NewElection(st, "leaders/x", &opts)
			if (e == nil) != (says != "") || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: want %q, got %v", opts, says, err)
			}
			if c := st.Counts(); c != (faultstore.Counts{}) {
				t.Errorf("%+v: %+v requests were made", opts, c)
			}
		}
	}
}

// TestElectionSweeps: with Sweep a candidate deletes the marker of a leader that is gone, and leads.
func TestElectionSweeps(t *testing.T) {
	for _, sweep := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			gone := newStoreOver(inner)
			opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutMarker, NoIfMatch: true, Sweep: sweep}}
			a, b := newElection(t, gone, opts), newElection(t, inner, opts)
			lease, err := a.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			gone.Partition(true)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			if _, err = b.Campaign(ctx); (err == nil) != sweep {
				t.Errorf("sweep %v: %v", sweep, err)
			}
			_ = lease.Release(t.Context())
			_ = b.Resign(t.Context())
		})
	}
}

func newElection(t *testing.T, st store.Store, opts leasehold.ElectionOptions) *leasehold.Election {
	t.Helper()
	e, err := leasehold.NewElection(st, "leaders/scheduler", &opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestElectionNeverCreates: with Existing a candidate does not make the object, and says so.
func TestElectionNeverCreates(t *testing.T) {
	needs(t, here().Tokens(), "a marker cannot exist already")
	bubble(t, func(t *testing.T) {
		st := newStore()
		err := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Existing: true}}).Run(t.Context(), nil)
		if !errors.Is(err, store.ErrNotExist) || st.Counts().Put != 0 {
			t.Errorf("%d writes: %v", st.Counts().Put, err)
		}
	})
}

// TestElectionTells: the Trace and the logger of the options are those that are told.
func TestElectionTells(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		var log leasetest.Log
		told := make(chan string, 100)
		e := newElection(t, st, leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{
				Trace: &locktrace.Trace{
					Renewed: func(_ context.Context, e locktrace.Renewed) { told <- "renewed " + e.Key },
					Lost:    func(_ context.Context, e locktrace.Lost) { told <- "lost " + e.Cause.Error() },
					Trouble: func(_ context.Context, e locktrace.Trouble) { told <- "trouble " + e.Err.Error() },
				},
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			},
		})
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		st.Partition(true)
		<-lease.Done()
		synctest.Wait()
		close(told)
		said := slices.Collect(func(yield func(string) bool) {
			for text := range told {
				yield(text)
			}
		})
		for _, want := range []string{"renewed leaders/scheduler", "lost the lease was lost", "trouble "} {
			if !slices.ContainsFunc(said, func(text string) bool { return strings.HasPrefix(text, want) }) {
				t.Errorf("nobody is told %q, but %q", want, said)
			}
		}
		if !strings.Contains(log.String(), "lease lost") {
			t.Errorf("the log says %q", &log)
		}
		_ = lease.Release(t.Context())
	})
}

// times notes when requests arrive, each at another moment.
type times struct {
	mu sync.Mutex
	at []time.Time
}

// watch notes the requests of a store from now on.
func (r *times) watch(st *faultstore.Store) {
	st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, When: func(faultstore.Call) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.at); n == 0 || !r.at[n-1].Equal(time.Now()) {
			r.at = append(r.at, time.Now())
		}
		return false
	}})
}

// pauses are the times between them.
func (r *times) pauses() (all []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range len(r.at) - 1 {
		all = append(all, r.at[i+1].Sub(r.at[i]))
	}
	return all
}

// between reports that there are so many pauses at least, and that those are between low and high.
func between(pauses []time.Duration, n int, low, high time.Duration) bool {
	return len(pauses) >= n && !slices.ContainsFunc(pauses[:n], func(d time.Duration) bool { return d < low || d > high })
}

// TestIntervalsOfAFollower: it looks as often as its options say, or an Update, at a leader that is new
// and at one that is steady.
func TestIntervalsOfAFollower(t *testing.T) {
	needsRenewals(t)
	for _, updated := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			leader := campaign(t, inner, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}})
			if err := leasetest.Lead(t.Context(), leader.Election); err != nil {
				t.Fatal(err)
			}
			opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}, Frequent: 6 * time.Second, Infrequent: 100 * time.Second}
			if updated {
				opts = leasehold.ElectionOptions{}
			}
			follower := newCampaigner(t, inner, opts)
			if updated {
				if err := leasehold.Internal.Update(follower.Election, candidate.Retune{TTL: time.Minute, Frequent: 6 * time.Second, Infrequent: 100 * time.Second}); err != nil {
					t.Fatal(err)
				}
			}
			var fresh, steady times
			fresh.watch(follower.net)
			follower.start(t)
			time.Sleep(15 * time.Second)
			// A pause varies by a quarter, and the next one is longer.
			if got := fresh.pauses(); !between(got, 1, 4500*time.Millisecond, 7500*time.Millisecond) {
				t.Errorf("updated %v: Frequent is 6 s, and a new leader was looked at after %v", updated, got)
			}
			time.Sleep(5 * time.Minute)
			follower.net.Clear()
			steady.watch(follower.net)
			time.Sleep(10 * time.Minute)
			if got := steady.pauses(); !between(got, 4, 75*time.Second, 125*time.Second) {
				t.Errorf("updated %v: Infrequent is 100 s, and a steady leader was looked at after %v", updated, got)
			}
			leader.quit(t)
			follower.quit(t)
		})
	}
}

// TestUpdatesThatCannotBe: an Update is held to what the options are held to.
func TestUpdatesThatCannotBe(t *testing.T) {
	e := newElection(t, newStore(), leasehold.ElectionOptions{})
	for says, all := range map[string][]candidate.Retune{
		"":                       {{}, {TTL: leasehold.MinTTL}, {TTL: leasehold.MaxTTL}, {Frequent: 1}},
		"not between 1s and 24h": {{TTL: leasehold.MinTTL - 1}, {TTL: leasehold.MaxTTL + 1}, {TTL: -1}},
		"negative":               {{Frequent: -1}, {Infrequent: -1}},
		"longer than Infrequent": {{Frequent: 2, Infrequent: 1}},
	} {
		for _, c := range all {
			if err := leasehold.Internal.Update(e, c); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: want %q, got %v", c, says, err)
			}
		}
	}
}

// TestRetriesOfACandidate: after failures of the store it pauses as its options say.
func TestRetriesOfACandidate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		var tries times
		tries.watch(st)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable})
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}, Retries: []time.Duration{3 * time.Second, 500 * time.Millisecond, 2 * time.Second}}
		if _, err := newElection(t, st, opts).Campaign(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		got := tries.pauses()
		if len(got) < 4 {
			t.Fatalf("the pauses are %v", got)
		}
		for i, want := range append(opts.Retries, 4*time.Second) {
			if got[i] < want || got[i] > want*5/4 { // many do not come back at one moment
				t.Errorf("after failure %d in a row: %v, and %v is asked for", i+1, got[i], want)
			}
		}
	})
}

// TestCampaignThatWaits: what a lock's options ask for an election does: OnWait is told of the leader
// that a campaign waits for.
func TestCampaignThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		leader := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "first"}})
		lease, err := leader.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waits := make(chan string, 10)
		follower := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{
			Trace: leasetest.OnWait(func(i leasehold.Info) { waits <- i.Holder }),
		}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := follower.Campaign(ctx)
			ended <- err
		}()
		if holder := <-waits; holder != "first" {
			t.Errorf("it waits for %q", holder)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		release(t, lease)
	})
}

// asked is a context that calls a function each time somebody asks whether it has ended: an
// acquisition does that once its lease is granted, before it returns the lease.
type asked struct {
	context.Context
	before func()
}

func (c asked) Err() error {
	c.before()
	return c.Context.Err()
}

// TestCampaignThatResigned: who resigns before Campaign has returned is not given a lease, and is
// told why.
func TestCampaignThatResigned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newElection(t, newStore(), leasehold.ElectionOptions{})
		ctx := asked{t.Context(), func() {
			if e.IsLeader() {
				if err := e.Resign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}}
		if lease, err := e.Campaign(ctx); lease != nil || !errors.Is(err, leasehold.ErrResigned) {
			t.Errorf("the campaign returned %v, %v", lease, err)
		}
	})
}

// TestRunThatResigned: who resigns before the term has begun is not told that it has, neither by
// OnElected nor by the work.
func TestRunThatResigned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var resigned atomic.Bool
		e := newElection(t, newStore(), leasehold.ElectionOptions{OnElected: func(ctx context.Context, _ *leasehold.Lease) error {
			t.Errorf("elected, resigned %v: %v", resigned.Load(), ctx.Err())
			return nil
		}})
		ctx, stop := context.WithCancel(t.Context())
		err := e.Run(asked{ctx, func() {
			if e.IsLeader() && resigned.CompareAndSwap(false, true) {
				go func() {
					if err := e.Resign(t.Context()); err != nil {
						t.Error(err)
					}
					stop()
				}()
				time.Sleep(time.Millisecond) // in which the resignation begins
			}
		}}, func(ctx context.Context, _ *leasehold.Lease) error {
			t.Errorf("led, resigned %v: %v", resigned.Load(), ctx.Err())
			return nil
		})
		if !errors.Is(err, context.Canceled) || !resigned.Load() {
			t.Errorf("resigned %v; %v", resigned.Load(), err)
		}
	})
}

// TestRunThatEnded: the end of Run's context that crosses the grant begins no term either.
func TestRunThatEnded(t *testing.T) {
	for range 20 { // what is to stop the term runs beside it
		bubble(t, func(t *testing.T) {
			e := newElection(t, newStore(), leasehold.ElectionOptions{OnElected: func(context.Context, *leasehold.Lease) error {
				t.Error("elected, and nobody campaigns any more")
				return nil
			}})
			ctx, stop := context.WithCancel(t.Context())
			err := e.Run(asked{ctx, func() {
				if e.IsLeader() {
					stop()
				}
			}}, func(context.Context, *leasehold.Lease) error {
				t.Error("led, and nobody campaigns any more")
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v", err)
			}
		})
	}
}

// TestResignBetweenTerms: when a term is over, there is nothing to resign from.
func TestResignBetweenTerms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newElection(t, newStore(), leasehold.ElectionOptions{})
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, func() {
			if err := e.Resign(t.Context()); !errors.Is(err, leasehold.ErrNotLeading) {
				t.Errorf("after a term: %v", err)
			}
			stop()
		})
		if err := e.Run(ctx, func(context.Context, *leasehold.Lease) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestWorkDoesNotBegin: what has happened while OnElected ran keeps the work from being called.
func TestWorkDoesNotBegin(t *testing.T) {
	for what, during := range map[string]func(*leasehold.Election, func()){
		"the context of Run has ended": func(_ *leasehold.Election, stop func()) { stop() },
		"it has resigned":              func(e *leasehold.Election, _ func()) { go e.Resign(context.Background()) }, //nolint:errcheck // the work tells
		"the machine was suspended":    func(*leasehold.Election, func()) { slept.Store(int64(time.Hour)) },
	} {
		bubble(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var e *leasehold.Election
			elected := 0
			e = newElection(t, newStore(), leasehold.ElectionOptions{OnElected: func(context.Context, *leasehold.Lease) error {
				if elected++; elected == 1 {
					time.AfterFunc(time.Second, stop)
					during(e, stop)
					if slept.Load() == 0 {
						synctest.Wait()
					}
				}
				return nil
			}})
			err := e.Run(ctx, func(_ context.Context, lease *leasehold.Lease) error {
				if elected == 1 {
					t.Errorf("%s, and the work begins: %v", what, lease.Err())
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Run returned %v", what, err)
			}
		})
	}
}

// TestContextOfWorkEnds: when the work has returned by itself its context has ended, and with it
// what the work has left behind.
func TestContextOfWorkEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var ended func() error
		e := newElection(t, newStore(), leasehold.ElectionOptions{})
		_ = e.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
			ended = ctx.Err
			time.AfterFunc(time.Second, stop)
			return nil
		})
		if ended() == nil {
			t.Error("the work has returned, and its context goes on")
		}
	})
}

// logged runs an election for some time, and returns what it has logged.
func logged(t *testing.T, opts leasehold.ElectionOptions, st *faultstore.Store, d time.Duration, lead func(context.Context, *leasehold.Lease) error) string {
	t.Helper()
	var log leasetest.Log
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	opts.Layout = leasehold.LayoutObject // markers have something to say of themselves
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	if err := newElection(t, st, opts).Run(ctx, lead); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run returned %v", err)
	}
	return log.String()
}

// TestLogOfAnElection: what nobody is told otherwise is in the log, once each time, and an election
// in which all goes well logs nothing.
func TestLogOfAnElection(t *testing.T) {
	refuse := errors.New("not ready")
	wait := func(ctx context.Context, _ *leasehold.Lease) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		elected, lead func(context.Context, *leasehold.Lease) error
		says          string // nothing, if it is empty
	}{
		"all is well":                {nil, wait, ""},
		"OnElected takes its time":   {func(context.Context, *leasehold.Lease) error { time.Sleep(14 * time.Second); return nil }, wait, ""},
		"OnElected hangs":            {func(context.Context, *leasehold.Lease) error { time.Sleep(16 * time.Second); return nil }, wait, "OnElected does not return"},
		"OnElected fails":            {func(context.Context, *leasehold.Lease) error { return refuse }, wait, "resigning, since OnElected failed"},
		"the work fails":             {nil, func(context.Context, *leasehold.Lease) error { return refuse }, "resigning, since the work failed"},
		"the work is done":           {nil, func(context.Context, *leasehold.Lease) error { return nil }, ""},
		"the work fails as it stops": {nil, func(ctx context.Context, _ *leasehold.Lease) error { <-ctx.Done(); return refuse }, ""},
	} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			log := logged(t, leasehold.ElectionOptions{OnElected: c.elected}, st, 50*time.Second, c.lead)
			if c.says == "" && log != "" || !strings.Contains(log, c.says) {
				t.Errorf("%s: the log says %q", name, log)
			}
		})
	}
	bubble(t, func(t *testing.T) { // one that waits for another leader
		inner := memstore.New()
		leader := newElection(t, inner, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		if _, err := leader.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if log := logged(t, leasehold.ElectionOptions{}, newStoreOver(inner), time.Minute, nil); log != "" {
			t.Errorf("a follower logged %q", log)
		}
		if err := leader.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(t *testing.T) { // one whose release is refused
		st := newStore()
		log := logged(t, leasehold.ElectionOptions{}, st, 8*time.Second, func(ctx context.Context, _ *leasehold.Lease) error {
			<-ctx.Done()
			st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put"})
			return nil
		})
		if strings.Count(log, "leadership not released") != 1 {
			t.Errorf("a release was refused, and the log says %q", log)
		}
	})
}

// TestCallbacksComeOneByOne: no two callbacks of a lock run at once, however long they take, and they come
// in the order of what they tell.
func TestCallbacksComeOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		var running atomic.Int32
		var told []string
		tell := func(what string) {
			if running.Add(1) > 1 {
				t.Errorf("%s is told while another function runs", what)
			}
			time.Sleep(12 * time.Second)
			told = append(told, what)
			running.Add(-1)
		}
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{
			Layout: leasehold.LayoutObject,
			Trace:  locktrace.Join(leasetest.OnRenew(func() { tell("renewed") }), leasetest.OnLost(func(error) { tell("lost") })),
		}))
		time.Sleep(11 * time.Second) // two renewals
		st.Partition(true)
		<-lease.Done()
		_ = lease.Release(t.Context())
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"renewed", "renewed", "lost"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// TestPausesAfterATerm: a candidate that has resigned lets the others go first for as long as Run
// says, and for up to a quarter longer, whether its options say so or an Update.
func TestPausesAfterATerm(t *testing.T) {
	for want, c := range map[time.Duration]candidate.Retune{
		7500 * time.Millisecond: {},
		1500 * time.Millisecond: {TTL: 3 * time.Second},
		30 * time.Second:        {TTL: 24 * time.Hour},
		60 * time.Second:        {Infrequent: 40 * time.Second},
	} {
		for _, updated := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: c.TTL}, Infrequent: c.Infrequent}
				if updated {
					opts = leasehold.ElectionOptions{}
				}
				e := newElection(t, memstore.New(), opts)
				if updated {
					if err := leasehold.Internal.Update(e, c); err != nil {
						t.Fatal(err)
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				var pauses []time.Duration
				var ended time.Time
				_ = e.Run(ctx, func(context.Context, *leasehold.Lease) error {
					if !ended.IsZero() {
						pauses = append(pauses, time.Since(ended))
					}
					if ended = time.Now(); len(pauses) == 300 {
						stop()
					}
					return nil
				})
				least, most := slices.Min(pauses), slices.Max(pauses)
				if least < want || least > want*21/20 || most < want*121/100 || most > want*5/4 {
					t.Errorf("%+v, updated %v: pauses from %v to %v, and not from %v", c, updated, least, most, want)
				}
			})
		}
	}
}

// TestLostLeaderComesBackAtOnce: who has lost the leadership, and not resigned, campaigns without a
// pause, since another leads by now or nobody does.
func TestLostLeaderComesBackAtOnce(t *testing.T) {
	needs(t, here() == leasetest.Object, "it breaks a lock by hand: the same in every layout")
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		e := newElection(t, st, leasehold.ElectionOptions{})
		ctx, stop := context.WithCancel(t.Context())
		var lost time.Time
		_ = e.Run(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			if !lost.IsZero() {
				if d := time.Since(lost); d > time.Second {
					t.Errorf("it leads again after %v", d)
				}
				stop()
				return nil
			}
			lock, err := leasehold.NewLock(st, lease.Key(), nil)
			if err != nil {
				t.Error(err)
			} else if _, err = admin.Break(ctx, lock, lease.Token()); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			lost = time.Now()
			return nil
		})
	})
}

// stamps is a log that notes when it is written with a text.
type stamps struct {
	text string
	at   []time.Time
}

func (s *stamps) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.at = append(s.at, time.Now())
	}
	return len(p), nil
}

// TestCampaignsThatFail: where the store is too slow for the TTL a campaign fails, which is logged, and the
// next one comes after the pauses that the options name, for failures in a row; a term ends the row.
func TestCampaignsThatFail(t *testing.T) {
	needs(t, here() == leasetest.Object, "it looks at the writes of one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		failed := stamps{text: "campaign failed, will try again"}
		var claimed, led time.Time
		var pauses []time.Duration
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		st := newStore()
		st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, When: func(c faultstore.Call) bool {
			if strings.Contains(string(c.Body), `"state":"held"`) {
				if claimed = time.Now(); len(pauses) < len(failed.at) {
					pauses = append(pauses, time.Since(failed.at[len(pauses)]))
				}
			}
			if len(pauses) == 4 {
				stop()
			}
			// The fourth campaign succeeds, and its release. Of the others each claim is known to have
			// landed only when too much of it is over.
			succeeds := len(pauses) == 3 && (led.IsZero() || time.Since(led) < 400*time.Millisecond)
			return !succeeds && time.Since(claimed) < 600*time.Millisecond
		}})
		e := newElection(t, st, leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{TTL: time.Second, Logger: slog.New(slog.NewTextHandler(&failed, nil))},
			Retries:     []time.Duration{time.Second, 3 * time.Second},
		})
		err := e.Run(ctx, func(context.Context, *leasehold.Lease) error {
			led = time.Now()
			return nil
		})
		if !errors.Is(err, context.Canceled) || len(pauses) != 4 {
			t.Fatalf("the pauses were %v; %v", pauses, err)
		}
		for i, want := range []time.Duration{time.Second, 3 * time.Second, 4 * time.Second, time.Second} {
			if pauses[i] < want || pauses[i] > want*5/4 {
				t.Errorf("after failure %d: %v, and not %v", i+1, pauses[i], want)
			}
		}
		st.Clear()
		time.Sleep(time.Minute) // what was given up is settled
	})
}

// delayed is a store whose writes take that long to arrive, or to be answered.
func delayed(kind faultstore.Kind, d time.Duration) *faultstore.Store {
	st := newStore()
	st.Inject(faultstore.Fault{Kind: kind, Op: "put", Delay: d})
	return st
}

// A resignation races a term that begins at about the same moment.
type resignation struct {
	t      *testing.T
	st     store.Store
	e      *leasehold.Election
	resign time.Duration // this long after the campaign began
	until  func(context.Context) error

	mu     sync.Mutex
	led    []*leasehold.Lease
	during bool
}

func (r *resignation) lead(ctx context.Context, lease *leasehold.Lease) error {
	// Before anything else: this is what the caller sees that was told to begin.
	if err := lease.Err(); errors.Is(err, leasehold.ErrReleased) {
		r.t.Errorf("the work begins, its context is %v, and its lease: %v", ctx.Err(), err)
	}
	r.mu.Lock()
	r.led, r.during = append(r.led, lease), true
	r.mu.Unlock()
	<-ctx.Done()
	if err := lease.Err(); errors.Is(err, leasehold.ErrReleased) {
		r.t.Errorf("the work goes on, and its lease: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.during = false
	return nil
}

// known fails unless the leader and the leadership are known together.
func (r *resignation) known() {
	if s := r.e.Status(); s.Leading && (!s.HasLeader || s.Leader.Holder != "me") {
		r.t.Errorf("it leads, and the leader is %+v, %v", s.Leader, s.HasLeader)
	}
}

// run campaigns, resigns as soon as that is possible, and ends.
func (r *resignation) run() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.until(ctx) }()
	time.Sleep(r.resign)
	for {
		r.known()
		err := r.e.Resign(ctx)
		if !errors.Is(err, leasehold.ErrNotLeading) {
			if err != nil {
				r.t.Errorf("resigned: %v", err)
			}
			break
		}
		time.Sleep(time.Microsecond)
	}
	r.mu.Lock()
	if r.during {
		r.t.Error("resigned, and the work goes on")
	}
	r.mu.Unlock()
	if r.e.IsLeader() {
		r.t.Error("resigned, and it leads")
	}
	if info, err := inspect(r.st, r.e.Status().Key); err != nil || info.Held {
		r.t.Errorf("resigned, and the lock is %+v, %v", info, err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, leasehold.ErrResigned) && err != nil {
		r.t.Errorf("the campaign ended with %v", err)
	}
}

func inspect(st store.Store, key string) (leasehold.Info, error) {
	lock, err := leasehold.NewLock(st, key, nil)
	if err != nil {
		return leasehold.Info{}, err
	}
	return lock.Inspect(context.Background())
}

// resignations are so many races, at delays that are drawn; most of them meet in a moment.
func resignations(t *testing.T, rounds int, unit, ttl time.Duration) {
	t.Helper()
	for range rounds {
		delay := rand.N(3 * unit)
		st := delayed([]faultstore.Kind{faultstore.DelayBefore, faultstore.DelayAfter}[rand.N(2)], delay)
		e, err := leasehold.NewElection(st, "leaders/x", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "me", TTL: ttl}})
		if err != nil {
			t.Fatal(err)
		}
		r := &resignation{t: t, st: st, e: e, resign: max(delay+rand.N(3*unit)-unit, 0)}
		r.until = func(ctx context.Context) error { return e.Run(ctx, r.lead) }
		if rand.N(4) == 0 {
			r.until = func(ctx context.Context) error { // the lease was won and released: it is not handed out as valid
				lease, err := e.Campaign(ctx)
				if err == nil && lease.Token() == 0 && here().Tokens() {
					t.Error("a lease without a token")
				}
				return err
			}
		}
		if r.run(); t.Failed() {
			return
		}
	}
}

// A resignation between the grant and the beginning of the term released the lease, and then
// the work was called with it and with a context that went on (21 of 3,000).
func TestResignRacesTheBeginning(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) { resignations(t, 1500, 2, leasehold.DefaultTTL) })
}

// The same on the clock of the machine, where goroutines run at the same time.
func TestResignRacesTheBeginningInRealTime(t *testing.T) {
	needsRenewals(t)
	resignations(t, 300, 20*time.Microsecond, time.Hour) // however long the machine is busy
}

// When the store refused the release, a resignation from under Run returned nil, and so did
// Run of it: both said that the lock was free, and its record was held for a TTL more.
func TestReleaseThatIsRefused(t *testing.T) {
	needsRenewals(t)
	refusals := map[string]faultstore.Kind{"denied": faultstore.Denied, "away": faultstore.Unavailable, "silent": faultstore.Hang}
	for name, kind := range refusals {
		for end, f := range map[string]func(ctx context.Context, e *leasehold.Election, stop func()) error{
			"resigned":                 func(ctx context.Context, e *leasehold.Election, _ func()) error { return e.Resign(ctx) },
			"resigned to a successor":  func(ctx context.Context, e *leasehold.Election, _ func()) error { return e.ResignTo(ctx, "b") },
			"the context of Run ended": func(_ context.Context, _ *leasehold.Election, stop func()) error { stop(); return nil },
			"two have resigned": func(ctx context.Context, e *leasehold.Election, _ func()) error {
				first := make(chan error)
				go func() { first <- e.Resign(ctx) }()
				second := e.Resign(ctx)
				if err := <-first; err == nil || second == nil {
					t.Errorf("%s: of two that resigned one was told %v, the other %v", name, err, second)
				}
				return second
			},
		} {
			t.Run(name+", "+end, func(t *testing.T) {
				bubble(t, func(t *testing.T) { refusedRelease(t, kind, f) })
			})
		}
	}
}

func refusedRelease(t *testing.T, kind faultstore.Kind, end func(context.Context, *leasehold.Election, func()) error) {
	t.Helper()
	inner := newStore()
	st := faultstore.Wrap(inner, nil)
	e, err := leasehold.NewElection(st, "leaders/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- e.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error { <-ctx.Done(); return nil })
	}()
	if err = leasetest.Lead(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	st.Inject(faultstore.Fault{Kind: kind, Op: "put"}, faultstore.Fault{Kind: kind, Op: "delete"})
	resigned := ctx.Err() == nil
	err = end(t.Context(), e, stop)
	resigned = resigned && ctx.Err() == nil
	if info, look := inspect(inner, "leaders/x"); look != nil || !info.Held {
		t.Fatalf("this shows nothing: the lock is %+v, %v", info, look)
	}
	if resigned && (err == nil || errors.Is(err, leasehold.ErrLost)) {
		t.Errorf("the lock is held, and the resignation said %v", err)
	}
	stop()
	// Whether its own context has ended or it pauses after the term: it says both.
	if err = <-ended; !errors.Is(err, context.Canceled) || err.Error() == context.Canceled.Error() || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the lock is held, and Run said %v", err)
	}
	st.Clear()
	time.Sleep(time.Minute) // what is under way gives up
}

// An election passes its lease on to nobody within its process: who resigns was promised that the lock is free
// then, for the successor that it names too.
func TestResignBesideAnotherCampaign(t *testing.T) {
	needsSuccessors(t)
	for _, successor := range []string{"", "b"} {
		bubble(t, func(t *testing.T) {
			freed := 0
			st := newStore()
			st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", When: func(c faultstore.Call) bool {
				if body := string(c.Body); strings.Contains(body, `"state":"free"`) && strings.Contains(body, `"successor":`) == (successor != "") {
					freed++
				}
				return false
			}})
			e, err := leasehold.NewElection(st, "leaders/scheduler", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = e.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := make(chan *leasehold.Lease, 1)
			go func() {
				lease, _ := e.Campaign(t.Context())
				next <- lease
			}()
			synctest.Wait()
			if err = e.ResignTo(t.Context(), successor); err != nil {
				t.Error(err)
			}
			lease := <-next
			if lease == nil || freed != 1 {
				t.Errorf("the lock was freed %d times for %q, and then it is %v", freed, successor, lease)
			}
			release(t, lease)
		})
	}
}

// tried is one attempt to lead, which takes no time.
func tried(t *testing.T, e *leasehold.Election) (*leasehold.Lease, error) {
	t.Helper()
	began := time.Now()
	lease, err := e.TryCampaign(t.Context())
	if after := time.Since(began); after != 0 || (lease == nil) != (err != nil) {
		t.Errorf("after %v: %v, %v", after, lease, err)
	}
	return lease, err
}

// refusedBy checks that an attempt was refused, and who leads.
func refusedBy(t *testing.T, err error, leader string) {
	t.Helper()
	held, ok := errors.AsType[*leasehold.HeldError](err)
	if !ok || !errors.Is(err, leasehold.ErrHeld) || held.Info.Holder != leader || !held.Info.Held {
		t.Errorf("%v, and %s leads", err, leader)
	}
}

// TestTryCampaign: one attempt, which wins or says who leads, and what it has seen the election knows.
func TestTryCampaign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		b := budgets[here()]
		one := newCampaigner(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
		two := newCampaigner(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "b"}})
		lease, err := tried(t, one.Election)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(lasting(61 * time.Second)) // it is renewed, and not at this moment
		if leader, ok := leaderOf(one.Election); !ok || leader.Holder != "a" || leader.Token != lease.Token() || !one.IsLeader() || !one.Status().Leading {
			t.Errorf("it leads: %v, %+v", one.IsLeader(), leader)
		}
		if got := cost(two.net, func() { _, err = tried(t, two.Election) }); got != b.inspect {
			t.Errorf("an attempt that is refused: %v, want %v", got, b.inspect)
		}
		refusedBy(t, err, "a")
		if s := two.Status(); !s.HasLeader || s.Leading || s.Leader.Holder != "a" || !s.NextLook.IsZero() {
			t.Errorf("it was refused, and its status is %+v", s)
		}
		if got := cost(one.net, func() { _, err = tried(t, one.Election) }); got != (requests{}) {
			t.Errorf("an attempt of the leader: %v", got)
		}
		refusedBy(t, err, "a")
		if err = one.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lease, err = tried(t, two.Election); err != nil {
			t.Fatal(err)
		}
		_, err = tried(t, one.Election)
		refusedBy(t, err, "b")
		release(t, lease)
		if _, leads := leaderOf(two.Election); leads || two.IsLeader() {
			t.Error("it has released its lease, and leads")
		}
	})
}

// TestTryCampaignBesideOthers: under Run another attempt finds the leadership taken; one that was given up is
// undone; and ctx that has ended is told before anything is sent.
func TestTryCampaignBesideOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		c := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
		time.Sleep(time.Second)
		_, err := tried(t, c.Election)
		refusedBy(t, err, "a")
		c.quit(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if got := cost(c.net, func() { _, err = c.TryCampaign(ended) }); got != (requests{}) || !errors.Is(err, context.Canceled) {
			t.Errorf("the context had ended: %v, %v", got, err)
		}
		lease, err := tried(t, c.Election) // and the attempt that failed keeps nobody out
		if err != nil {
			t.Fatal(err)
		}
		release(t, lease)
	})
}

// An attempt right after the leader resigned, by a candidate that observes, was told that the leader leads:
// followers that wait let each other go first, each for a moment by lot.
func TestTryCampaignOfAnObserver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			st := memstore.New()
			one := newCampaigner(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
			two := newCampaigner(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "b"}})
			if _, err := tried(t, one.Election); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			resigned := make(chan bool)
			go func() {
				for c := range two.Observe(ctx) {
					if c.Kind == leasehold.Resigned {
						resigned <- true
					}
				}
			}()
			time.Sleep(time.Second)
			if err := one.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-resigned
			lease, err := two.TryCampaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			stop()
			release(t, lease)
			synctest.Wait()
		}
	})
}

// A handing is what came of a resignation in favour of a follower.
type handing struct {
	notice time.Duration // from the call of ResignTo until the work was to stop
	idle   time.Duration // from when the work had stopped until that of the next leader began
	err    error         // of ResignTo
}

// A noticed is a leader, a, whose work takes a while to stop, and its follower, b.
type noticed struct {
	st        store.Store
	a, b      leasehold.ElectionOptions
	steady    time.Duration // that long before
	drain     time.Duration
	successor string                                           // empty: b
	within    time.Duration                                    // the context of ResignTo; 0: without end
	meanwhile func(ctx context.Context, a *leasehold.Election) // from when they are steady
}

// handOver has a resign in favour of its successor, when both have been steady for a while.
func (n noticed) handOver(t *testing.T) (h handing) {
	t.Helper()
	if n.st == nil {
		n.st = memstore.New()
	}
	if n.successor == "" {
		n.successor = "b"
	}
	n.a.Holder, n.b.Holder = "a", "b"
	a, b := newElection(t, newStoreOver(n.st), n.a), newElection(t, newStoreOver(n.st), n.b)
	ctx, stop := context.WithCancel(t.Context())
	done, leads, next := make(chan error, 2), make(chan bool), make(chan bool)
	var asked, stopped time.Time
	go func() {
		done <- a.Run(ctx, func(work context.Context, _ *leasehold.Lease) error {
			close(leads)
			<-work.Done()
			h.notice = time.Since(asked)
			time.Sleep(n.drain)
			stopped = time.Now()
			return nil
		})
	}()
	<-leads
	time.Sleep(time.Second)
	go func() {
		done <- b.Run(ctx, func(work context.Context, _ *leasehold.Lease) error {
			h.idle = time.Since(stopped)
			close(next)
			<-work.Done()
			return nil
		})
	}()
	if n.meanwhile != nil {
		go n.meanwhile(ctx, a)
	}
	time.Sleep(n.steady)
	asked = time.Now()
	limited, cancel := context.WithCancel(ctx)
	if n.within > 0 {
		limited, cancel = context.WithTimeout(ctx, n.within)
	}
	h.err = a.ResignTo(limited, n.successor)
	cancel()
	<-next
	stop()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	return h
}

// A follower without peers learned from the release that it was next, at its next look: nobody led for
// up to a third of the TTL. Now it knows before, and its looks are a 24th of the TTL or a second apart.
func TestSuccessorHasNotice(t *testing.T) {
	needsSuccessors(t)
	for _, ttl := range []time.Duration{3 * time.Second, leasehold.DefaultTTL, 30 * time.Second} {
		for _, drain := range []time.Duration{0, ttl / 20, ttl / 4, ttl/3 - 100*time.Millisecond} {
			for phase := time.Duration(0); phase < 10; phase += 2 {
				bubble(t, func(t *testing.T) {
					opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: ttl}}
					h := noticed{a: opts, b: opts, steady: 10*ttl + phase*ttl/30, drain: drain}.handOver(t)
					look := min(ttl/24, time.Second) * 5 / 4
					if h.err != nil || h.notice > ttl*11/24 || h.idle > look {
						// At 30 s notice would take more than 15 s in the first part of an interval.
						if ttl != 30*time.Second || h.notice > 0 || h.idle > ttl/3+ttl/8 {
							t.Errorf("TTL %v, %v after a renewal, the work takes %v to stop: notice of %v, idle for %v, %v", ttl, phase*ttl/30, drain, h.notice, h.idle, h.err)
						}
					}
				})
			}
		}
	}
}

// TestNoNotice: the work stops at once where notice is of no use, and when there is no time for it.
func TestNoNotice(t *testing.T) {
	needsSuccessors(t)
	const never, steady = time.Hour, time.Minute + 500*time.Millisecond
	minute := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}}
	for what, c := range map[string]struct {
		noticed
		notice, idle time.Duration
		err          error
	}{
		"the next renewal is too far away": {noticed: noticed{a: minute, b: minute, steady: 10 * time.Minute}, idle: 25 * time.Second},
		"ctx ends":                         {noticed: noticed{within: 2 * time.Second}, notice: 2 * time.Second, idle: 6 * time.Second, err: context.DeadlineExceeded},
		"it resigns meanwhile": {
			noticed: noticed{meanwhile: func(ctx context.Context, a *leasehold.Election) {
				time.Sleep(steady + time.Second)
				if err := a.Resign(ctx); err != nil {
					t.Error(err)
				}
			}},
			notice: time.Second, idle: 6 * time.Second,
		},
		"the successor asks it": {
			noticed: noticed{meanwhile: func(ctx context.Context, a *leasehold.Election) {
				said, _ := peer.Attend(ctx, a, peer.Question{Lock: "leaders/scheduler"})
				_, _ = peer.Attend(ctx, a, peer.Question{Lock: "leaders/scheduler", Holder: "b", Waited: 1, Known: said.Version, Wait: never})
			}},
			idle: 6 * time.Second,
		},
		"its name does not fit": {noticed: noticed{successor: string(make([]byte, 1<<20))}, idle: 6 * time.Second},
	} {
		bubble(t, func(t *testing.T) {
			if c.steady == 0 {
				c.steady = steady
			}
			h := c.handOver(t)
			if !errors.Is(h.err, c.err) || h.notice != c.notice || h.idle > c.idle {
				t.Errorf("%s: notice of %v, want %v; idle for %v; %v", what, h.notice, c.notice, h.idle, h.err)
			}
		})
	}
}

// TestObserveBeginsWithTheLeader: a new observer is told first of the leader that is known, and of
// renewals if the options ask for them; once it has gone, no change is kept for it.
func TestObserveBeginsWithTheLeader(t *testing.T) {
	for _, renewals := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			e := newElection(t, newStore(), leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "me", Layout: leasehold.LayoutObject}, Renewals: renewals})
			lease, err := e.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(61 * time.Second) // between two renewals
			began := time.Now()
			ctx, stop := context.WithTimeout(t.Context(), 16*time.Second)
			defer stop()
			var kinds []leasehold.ChangeKind
			for c := range e.Observe(ctx) {
				if len(kinds) == 0 && !c.Time.Equal(began) || c.Info.Holder != "me" || c.Info.Token != lease.Token() {
					t.Errorf("%+v", c)
				}
				kinds = append(kinds, c.Kind)
			}
			want := []leasehold.ChangeKind{leasehold.Elected}
			if renewals {
				want = append(want, leasehold.Renewed, leasehold.Renewed, leasehold.Renewed)
			}
			if !slices.Equal(kinds, want) {
				t.Errorf("with renewals %v: %v, want %v", renewals, kinds, want)
			}
			for range e.Observe(t.Context()) {
				if n := leasehold.Observers(e); n != 1 {
					t.Errorf("one observes, and %d are told", n)
				}
				break
			}
			if n := leasehold.Observers(e); n != 0 {
				t.Errorf("nobody observes, and %d are told", n)
			}
			release(t, lease)
		})
	}
}

// TestObserveEndsWithItsContext: what was seen before is not told any more then.
func TestObserveEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newElection(t, newStore(), leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		seen := 0
		time.AfterFunc(time.Second, func() {
			for range 3 {
				if _, err := e.Campaign(t.Context()); err != nil {
					t.Error(err)
				}
				if err := e.Resign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
		for range e.Observe(ctx) {
			seen++
			time.Sleep(time.Minute) // the others have come meanwhile
			stop()
		}
		if seen != 1 {
			t.Errorf("%d changes were told, and the context ended at the first", seen)
		}
	})
}

// TestLeaderThatComesBack: a leader whose time seemed to be over is one again when a renewal of it has
// arrived after all, before anybody took over.
func TestLeaderThatComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := newStore()
		st := newStoreOver(inner)
		opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}}
		leader, onlooker := newElection(t, st, opts), newElection(t, inner, opts)
		lease, err := leader.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.LateLanding, Op: "put", Nth: 1, Delay: 25 * time.Second}, faultstore.Fault{Kind: faultstore.LostRequest})
		ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
		defer stop()
		var kinds []leasehold.ChangeKind
		for c := range onlooker.Observe(ctx) {
			kinds = append(kinds, c.Kind)
			if _, leads := leaderOf(onlooker); leads != (c.Kind == leasehold.Elected) {
				t.Errorf("%v, and there is a leader: %v", c.Kind, leads)
			}
		}
		if _, leads := leaderOf(onlooker); !leads || !slices.Equal(kinds, []leasehold.ChangeKind{leasehold.Elected, leasehold.Expired}) {
			t.Errorf("it saw %v, and there is a leader: %v", kinds, leads)
		}
		st.Clear()
		st.Close()
		_ = lease.Release(t.Context())
	})
}

// successors notes whom each release names.
func successors(st *faultstore.Store) *[]string {
	named := new([]string)
	st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, When: func(c faultstore.Call) bool {
		if body := string(c.Body); strings.Contains(body, `"state":"free"`) {
			_, after, _ := strings.Cut(body, `"successor":"`)
			name, _, _ := strings.Cut(after, `"`)
			*named = append(*named, name)
		}
		return false
	}})
	return named
}

// TestSuccessorOfOneTerm: a successor is named though the lease is renewed before the work has stopped,
// and by the release of that term alone.
func TestSuccessorOfOneTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		named := successors(st)
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		ctx, stop := context.WithCancel(t.Context())
		terms := 0
		resign := func() {
			if err := e.ResignTo(t.Context(), "b"); err != nil {
				t.Error(err)
			}
		}
		err := e.Run(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
			switch terms++; terms {
			case 1:
				time.AfterFunc(protocol.Renewal(leasehold.DefaultTTL)-2*time.Second, resign)
				<-ctx.Done()
				time.Sleep(4 * time.Second)
			case 3:
				stop()
			}
			return nil
		})
		if want := []string{"b", "", ""}; err == nil || !slices.Equal(*named, want) {
			t.Errorf("the releases named %q, want %q; %v", *named, want, err)
		}
	})
}

// TestElectionOfOnlookers: a candidate that only observes polls for as long as somebody observes.
func TestElectionOfOnlookers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStoreOver(memstore.New())
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() {
			defer close(done)
			for range e.Observe(ctx) {
				t.Error("nothing happens")
			}
		}()
		looks := cost(st, func() { time.Sleep(time.Minute) })
		stop()
		<-done
		synctest.Wait()
		if after := cost(st, func() { time.Sleep(time.Hour) }); looks.get < 6 || after != (requests{}) {
			t.Errorf("%v while it looks, and %v afterwards", looks, after)
		}
	})
}

// A marker is deleted when it is released, and nothing is left that says by whom. The change says
// who it was all the same, and that he holds it no more.
func TestObserveMarkers(t *testing.T) {
	needs(t, here() == leasetest.Object, "it uses markers: the same in every layout")
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutMarker}})
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutMarker, Holder: "a", Address: "a:1"}))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		time.AfterFunc(time.Minute, func() { release(t, lease) })
		var got []string
		for c := range e.Observe(ctx) {
			got = append(got, c.Kind.String())
			if c.Info.Holder != "a" || c.Info.Address != "a:1" || c.Info.Held != (c.Kind == leasehold.Elected) || c.Info.Key != "jobs/backup" {
				t.Errorf("%v: %+v", c.Kind, c.Info)
			}
		}
		if want := []string{"elected", "resigned"}; !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
	})
}

// A leader whose renewal is late says so at once to those who ask it, half a TTL after the last one, and
// not when its own timer comes by; and to say so costs it nothing more.
func TestLateRenewalIsToldAtOnce(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		st := newStore()
		e, err := leasehold.NewElection(st, "leaders/scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Delay: 4 * time.Second})
		said := attend(t, e, "")
		for _, leads := range []bool{false, true} { // and when the renewal has been confirmed
			said = attend(t, e, said.Version)
			after := time.Since(began)
			if said.Leading != leads || !leads && after != leasehold.DefaultTTL/2 {
				t.Errorf("after %v: %+v", after, said)
			}
		}
		st.Clear()
		release(t, lease)
	})
}

// An onlooker hears of all that keeps it from knowing who leads, and of whom it has seen last: a store that
// does not answer, an object that is no lock, and one that was deleted, which is in the log too.
func TestObserveTrouble(t *testing.T) {
	needs(t, here() == leasetest.Object, "it plants one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		inner := memstore.New()
		lock := newLock(t, inner, &leasehold.LockOptions{Holder: "a"})
		lease := acquire(t, lock)
		st := newStoreOver(inner)
		e, err := leasehold.NewElection(st, lock.Key(), &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Logger: debugLog(&log)}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		over := make(chan struct{})
		go func() {
			defer close(over)
			for c := range e.Observe(ctx) {
				text := c.Kind.String()
				switch {
				case errors.Is(c.Err, store.ErrUnavailable):
					text += " unavailable"
				case errors.Is(c.Err, leasehold.ErrForeignObject):
					text += " foreign"
				}
				if c.Kind == leasehold.Elected && len(got) > 0 {
					text += " " + c.Info.Holder
				} else if c.Kind != leasehold.Vanished && c.Info.Holder != "a" {
					t.Errorf("%s: %+v", text, c)
				}
				if c.Info.Key != lock.Key() || time.Since(c.Time) > time.Second {
					t.Errorf("%s: %+v", text, c)
				}
				if len(got) == 0 || got[len(got)-1] != text {
					got = append(got, text)
				}
			}
		}()
		time.Sleep(time.Minute)
		st.Partition(true)
		time.Sleep(10 * time.Second)
		st.Partition(false)
		time.Sleep(11 * time.Second)
		obj, err := inner.Get(t.Context(), lock.Key(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = inner.Put(t.Context(), lock.Key(), []byte("not a lock"), store.IfMatch(obj.Version)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		erase(t, inner)
		time.Sleep(20 * time.Second)
		if _, err = inner.Put(t.Context(), lock.Key(), obj.Body, store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		erase(t, inner)
		time.Sleep(20 * time.Second)
		next := acquire(t, newLock(t, inner, &leasehold.LockOptions{Holder: "b"}))
		time.Sleep(20 * time.Second)
		cancel()
		<-over
		if want := []string{"elected", "unreadable unavailable", "unreadable foreign", "vanished", "elected a", "vanished", "elected b"}; !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
		if n := strings.Count(log.String(), "the lock's object was deleted"); n != 2 || !strings.Contains(log.String(), fmt.Sprintf("token=%d", lease.Token())) {
			t.Errorf("that it was deleted is logged %d times: %s", n, &log)
		}
		_ = lease.Release(t.Context()) // it is lost
		release(t, next)
	})
}

// Each renewal is told of once, to the leader as to a follower, with the version that it made; and of a
// lock that nobody holds there is nothing to tell.
func TestObserveRenewals(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		if _, _, err := admin.Init(t.Context(), newLock(t, st, nil)); err != nil {
			t.Fatal(err)
		}
		var all []*leasehold.Election
		for range 2 {
			e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{Renewals: true})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 18*time.Second)
		defer cancel()
		seen := make(chan []string)
		for _, e := range all {
			go func() {
				var got []string
				versions := map[store.Version]bool{"": true}
				for c := range e.Observe(ctx) {
					got = append(got, c.Kind.String())
					if versions[c.Info.Version] {
						t.Errorf("the version of %v is %q, again", c.Kind, c.Info.Version)
					}
					versions[c.Info.Version] = true
				}
				seen <- got
			}()
		}
		synctest.Wait()
		if _, err := all[0].Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range all {
			if got := <-seen; !slices.Equal(got, []string{"elected", "renewed", "renewed", "renewed"}) {
				t.Errorf("observed %v", got)
			}
		}
		if err := all[0].Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The status counts the questions that the leader was asked, each once.
func TestQuestionsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTown()
		all := w.settlers(t, 2, 0)
		time.Sleep(10 * time.Minute)
		counted := all[0].Status().Questions + all[1].Status().Questions
		if asked := w.asked.Load(); counted != asked || asked < 2 {
			t.Errorf("%d questions were asked, and %d are counted", asked, counted)
		}
		for _, c := range all {
			c.quit(t)
		}
	})
}

// The status says since when the store has not answered, and how many requests have failed since: that
// nothing has changed is an answer, and so is that of a write. It counts what was sent.
func TestStatusOfAStoreThatFails(t *testing.T) {
	needs(t, here() == leasetest.Object, "it counts the requests for one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		if _, _, err := admin.Init(t.Context(), newLock(t, inner, nil)); err != nil {
			t.Fatal(err)
		}
		for _, leads := range []bool{false, true} {
			st := newStoreOver(inner)
			e, err := leasehold.NewElection(st, "jobs/backup", nil)
			if err != nil {
				t.Fatal(err)
			}
			if leads {
				if _, err = e.Campaign(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				for range e.Observe(ctx) {
					continue
				}
			}()
			var heard time.Time
			for _, cut := range []bool{false, true, false} {
				st.Partition(cut)
				if !cut {
					time.Sleep(53 * time.Second)
					synctest.Wait()
				}
				time.Sleep(8 * time.Second)
				s := e.Status()
				// A lock that is free is looked at every third of the TTL, and up to a quarter of that later.
				switch silence := time.Since(s.LastSeen); {
				case cut && (s.Failures < 2 || s.LastSeen != heard), !cut && (s.Failures != 0 || silence > 6250*time.Millisecond):
					t.Errorf("leads %t, cut off %t: %d failures, and the store was last heard of %v ago", leads, cut, s.Failures, silence)
				}
				heard = s.LastSeen
				if n := st.Counts(); s.Reads != int64(n.Get) || s.Writes != int64(n.Put) {
					t.Errorf("leads %t, cut off %t: %+v are counted of %+v", leads, cut, s, n)
				}
			}
			cancel()
			<-over
			if leads {
				if err = e.Resign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// A takeover among epochs is two writes of one candidate with one write ID: that the old lease is over,
// and the next epoch. A look in between shows a lock that is free, and the new holder is told of all the same.
func TestObserveBetweenTwoWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		put := func(epoch int, r record.Record, only store.Condition) store.Version {
			r.Token, r.TTL, r.Layout = int64(epoch), time.Minute, record.Layout{Name: record.LayoutEpochs, IfMatch: true}
			body, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			obj, err := st.Put(t.Context(), layoutKey(epoch), body, only)
			if err != nil {
				t.Fatal(err)
			}
			return obj.Version
		}
		v := put(1, record.Record{Held: true, Holder: "a", WriteID: "a.1"}, store.IfAbsent())
		e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutEpochs}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		seen := make(chan []string)
		go func() {
			var got []string
			for c := range e.Observe(ctx) {
				got = append(got, c.Kind.String()+" "+c.Info.Holder)
			}
			seen <- got
		}()
		time.Sleep(20 * time.Second)
		put(1, record.Record{Holder: "a", WriteID: "b.1", Ended: record.EndedByTakeover}, store.IfMatch(v))
		time.Sleep(20 * time.Second)
		put(2, record.Record{Held: true, Holder: "b", WriteID: "b.1"}, store.IfAbsent())
		if got, want := <-seen, []string{"elected a", "resigned a", "elected b"}; !slices.Equal(got, want) {
			t.Errorf("observed %v, want %v", got, want)
		}
	})
}

// TestKindsOfChange: each has its number, which never changes, and its name.
func TestKindsOfChange(t *testing.T) {
	var names []string
	for k := leasehold.ChangeKind(-1); k <= 8; k++ {
		names = append(names, k.String())
	}
	want := []string{"change -1", "change 0", "elected", "renewed", "resigned", "expired", "taken over", "vanished", "unreadable", "change 8"}
	if !slices.Equal(names, want) || leasehold.Elected != 1 || leasehold.Unreadable != 7 {
		t.Errorf("%q, want %q", names, want)
	}
}

// TestStatus: what a candidate knows of itself, before it has done anything, while it leads, while it cannot
// reach the store, and when it has lost.
func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "me", Layout: leasehold.LayoutObject}})
		check := func(what string, want leasehold.Status) {
			t.Helper()
			got := e.Status()
			if got.HasLeader != (got.Leader.Holder == "me" && !got.Elected.IsZero()) && want.HasLeader {
				t.Errorf("%s: the leader is %+v since %v", what, got.Leader, got.Elected)
			}
			got.Leader, got.Elected = leasehold.Info{}, time.Time{}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s:\n%+v, want\n%+v", what, got, want)
			}
		}
		check("at first", leasehold.Status{Key: "leaders/scheduler", Holder: "me"})
		began := time.Now()
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leads := leasehold.Status{
			Key: "leaders/scheduler", Holder: "me", Leading: true, HasLeader: true,
			LastSeen: began, NextLook: began.Add(protocol.Renewal(leasehold.DefaultTTL)), Reads: 1, Writes: 1,
		}
		check("as it leads", leads)
		if s := e.Status(); !s.Elected.Equal(began) || s.Leader.Token != lease.Token() {
			t.Errorf("%+v", s)
		}
		st.Partition(true)
		time.Sleep(protocol.Renewal(leasehold.DefaultTTL))
		synctest.Wait()
		failing := time.Now()
		if s := e.Status(); s.Failures < 1 || !s.LastSeen.Equal(began) || !s.Leading || !s.FailingSince.Equal(failing) {
			t.Errorf("without its store: %+v", s)
		}
		<-lease.Done()
		if s := e.Status(); s.Failures < 2 || !s.FailingSince.Equal(failing) {
			t.Errorf("still without its store: %+v, want it to fail since %v", s, failing)
		}
		if s := e.Status(); s.Leading {
			t.Errorf("when it has lost: %+v", s)
		}
		st.Partition(false)
		_ = lease.Release(t.Context())
		if s := e.Status(); s.Failures != 0 || !s.FailingSince.IsZero() {
			t.Errorf("with its store again: %+v", s)
		}
	})
}

// TestFailingSince: a store that answers reads and fails to write is one that fails. The reads in
// between used to make it look well: no two failures came in a row.
func TestFailingSince(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &refusing{Store: memstore.New(), ops: "put"}
		st.set(store.ErrUnavailable)
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			lease, err := e.Campaign(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			_ = lease.Release(t.Context())
		})
		time.Sleep(time.Minute)
		if s := e.Status(); s.FailingSince.Sub(began) > time.Second || s.FailingSince.IsZero() || time.Since(s.LastSeen) > 10*time.Second {
			t.Errorf("after a minute since %v: %+v", began, s)
		}
		st.mend()
		all.Wait()
		if s := e.Status(); !s.FailingSince.IsZero() {
			t.Errorf("when it can write: %+v", s)
		}
	})
}

// reading counts the reads that are under way, each of which takes an hour unless it is ended.
type reading struct {
	store.Store
	busy, all atomic.Int64
}

func (r *reading) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	r.all.Add(1)
	r.busy.Add(1)
	defer r.busy.Add(-1)
	select {
	case <-time.After(time.Hour):
	case <-ctx.Done():
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
	}
	return r.Store.Get(ctx, key, unless)
}

// TestEndOfALook: when nobody observes any more, the look under way is ended; not that of a campaign.
func TestEndOfALook(t *testing.T) {
	for _, campaigns := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			st := &reading{Store: memstore.New()}
			e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
			ctx, stop := context.WithCancel(t.Context())
			campaign, end := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				for range e.Observe(ctx) {
					t.Error("nothing happens")
				}
			})
			synctest.Wait()
			all.Go(func() { // which goes on with the look that is under way
				for range e.Observe(ctx) {
					t.Error("nothing happens")
				}
			})
			if time.Sleep(time.Second); st.all.Load() != 1 || e.Status().Failures != 0 {
				t.Errorf("for two that observe %d looks were begun: %+v", st.all.Load(), e.Status())
			}
			if campaigns {
				all.Go(func() { _, _ = e.Campaign(campaign) })
				synctest.Wait()
			}
			before := st.all.Load()
			stop()
			synctest.Wait()
			if busy, more := st.busy.Load(), st.all.Load()-before; (busy > 0) != campaigns || more > 0 {
				t.Errorf("campaigns %v: %d looks are under way, and %d were begun", campaigns, busy, more)
			}
			end()
			all.Wait()
			synctest.Wait()
		})
	}
}

// TestQueueWithoutThoseWhoGaveUp: who gives up in the queue takes nobody's turn, wherever he stands.
func TestQueueWithoutThoseWhoGaveUp(t *testing.T) {
	for gone := range 4 {
		bubble(t, func(t *testing.T) {
			lock := newLock(t, newStore(), nil)
			lease := acquire(t, lock)
			ctx, leave := context.WithCancel(t.Context())
			var served []int
			var all sync.WaitGroup
			for i := range 4 {
				of := t.Context()
				if i == gone {
					of = ctx
				}
				all.Go(func() {
					l, err := lock.Acquire(of)
					if (i == gone) != errors.Is(err, context.Canceled) {
						t.Errorf("%d, where %d gives up: %v", i, gone, err)
					}
					if err == nil {
						served = append(served, i)
						release(t, l)
					}
				})
				synctest.Wait()
			}
			leave()
			synctest.Wait()
			if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) || len(served) > 0 {
				t.Errorf("%d gave up, and the turn is free: %v, %v", gone, err, served)
			}
			release(t, lease)
			all.Wait()
			if want := slices.Delete([]int{0, 1, 2, 3}, gone, gone+1); !slices.Equal(served, want) {
				t.Errorf("%d gave up, and %v were served", gone, served)
			}
			release(t, acquire(t, lock))
		})
	}
}

// leaderOf returns the leader that a candidate has seen, if there is one.
func leaderOf(e *leasehold.Election) (leasehold.Info, bool) {
	s := e.Status()
	return s.Leader, s.HasLeader
}
