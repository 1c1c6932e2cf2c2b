package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
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
	opts.Sweep = here() == leasehold.LayoutMarker
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
			if s := c.Status(); s.Leading || !s.HasLeader || s.Failures != 0 || s.NextLook.IsZero() || s.Requests.Reads < 233 {
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
		if err := a.WaitForLeadership(t.Context()); err != nil {
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
			if err := next.WaitForLeadership(t.Context()); err != nil {
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
	info, _ := c.Leader()
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
		if err := b.WaitForLeadership(t.Context()); err != nil {
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
			LockOptions: leasehold.LockOptions{Holder: "a"},
			OnElected: func(ctx context.Context, lease *leasehold.Lease) error {
				if !lease.Valid() || ctx.Err() != nil {
					t.Error("elected without a lease")
				}
				if refusals.Add(1) <= 2 {
					return errors.New("not ready")
				}
				return nil
			},
			OnLeader: func(i leasehold.Info) { seen = append(seen, i.Holder) },
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
		if leader, ok := onlooker.Leader(); !ok || leader.Holder != "a" || onlooker.IsLeader() {
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
		if s := onlooker.Status(); s.Requests.Writes != 0 || s.Leader.Holder != "c" {
			t.Errorf("the onlooker: %+v", s)
		}
		b.net.Partition(false)
		b.quit(t)
		c.quit(t)
	})
}

func TestWaitForNextElection(t *testing.T) {
	needsSuccessors(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a"}})
		onlooker, err := leasehold.NewElection(st, "leaders/scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		first, err := onlooker.WaitForNextElection(t.Context(), time.Time{})
		if err != nil || first.Leader.Holder != "a" {
			t.Fatalf("%+v, %v", first, err)
		}
		b := campaign(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "b"}})
		go func() {
			time.Sleep(time.Minute)
			_ = a.ResignTo(context.Background(), "b")
		}()
		next, err := onlooker.WaitForNextElection(t.Context(), first.Elected)
		if err != nil || next.Leader.Holder != "b" || !next.Elected.After(first.Elected) {
			t.Fatalf("%+v, %v", next, err)
		}
		short, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := onlooker.WaitForNextElection(short, next.Elected); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		a.quit(t)
		b.quit(t)
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
		for _, bad := range []leasehold.ElectionConfig{{TTL: time.Millisecond}, {Frequent: -1}, {Frequent: 2, Infrequent: 1}} {
			if err := a.Update(bad); err == nil {
				t.Errorf("accepted %+v", bad)
			}
		}
		b := campaign(t, st, leasehold.ElectionOptions{})
		time.Sleep(time.Minute)
		if err := b.Update(leasehold.ElectionConfig{Frequent: time.Second, Infrequent: 30 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b.net.Reset()
		time.Sleep(time.Hour)
		look := budgets[here()].news
		if here() == leasehold.LayoutEpochs {
			look = budgets[here()].jump
		}
		if got := since(b.net, faultstore.Counts{}); !got.within(look.times(110), look.times(140)) {
			t.Errorf("a follower that looks every 30 s made %v in an hour", got)
		}
		if err := a.Update(leasehold.ElectionConfig{TTL: time.Minute}); err != nil {
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
		if err := e.Update(leasehold.ElectionConfig{TTL: 3 * time.Second}); err != nil {
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
