package leasehold_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

var callsSeed = flag.Uint64("calls.seed", 0, "the one seed of TestRandomCalls; 0: many")

// TestRandomCalls calls whatever there is to be called, from several goroutines of two processes
// with a bad network, and believes what the calls return:
//
//   - no error comes with a lease that is valid, or that was lost in this moment and says so;
//   - "released" and "resigned" go with a record that is not held by that lease any more;
//   - lead is not called with a lease that is released;
//   - two leases of a lock are never valid at once, and a holder that looks abandoned has none;
//   - every callback and every error is about the lock that it belongs to;
//   - Settle returns, and so does all else, long before its context ends;
//   - when all has returned nothing is under way, and every lock can be acquired.
//
// A seed gives the same calls and the same faults; which goroutine is first at one instant it
// does not decide.
func TestRandomCalls(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	if *callsSeed > 0 {
		bubble(t, func(t *testing.T) { callAtRandom(t, *callsSeed) })
		return
	}
	for seed := uint64(1); seed <= leasetest.Seeds(25); seed++ {
		bubble(t, func(t *testing.T) { callAtRandom(t, seed) })
		if t.Failed() {
			t.Fatalf("go test -run TestRandomCalls -calls.seed %d .", seed)
		}
	}
}

var callKeys = []string{"jobs/a", "jobs/b", "jobs/c"}

const (
	callTTL    = 5 * time.Second
	longEnough = 10 * time.Minute // for all that does not wait for another holder
)

// callers are what calls at random, and what they know of each other.
type callers struct {
	t     *testing.T
	inner store.Store

	mu     sync.Mutex
	leases map[*leasehold.Lease]string // to their sessions
	broken map[string]bool             // locks with their tokens, and sessions, by hand: their holders learn of it later
	checks sync.WaitGroup              // of what is to become true later
}

// A caller is one process.
type caller struct {
	*callers
	net       *faultstore.Store
	locks     [2][]*leasehold.Lock
	elections [2]*leasehold.Election
	session   *leasehold.Session
}

// weather makes the network bad.
func weather(seed uint64) []faultstore.Fault {
	r := rand.New(rand.NewPCG(seed, 2))
	var faults []faultstore.Fault
	for _, f := range []faultstore.Fault{
		{Kind: faultstore.DelayBefore, Probability: 0.3, Jitter: 2 * time.Second},
		{Kind: faultstore.DelayAfter, Probability: 0.3, Jitter: 2 * time.Second},
		{Kind: faultstore.LostAnswer, Probability: 0.1},
		{Kind: faultstore.LostRequest, Probability: 0.1},
		{Kind: faultstore.Unavailable, Probability: 0.1},
		{Kind: faultstore.Conflict, Probability: 0.1},
		{Kind: faultstore.LateLanding, Probability: 0.05, Jitter: 4 * time.Second},
		{Kind: faultstore.LateDuplicate, Probability: 0.05, Jitter: 4 * time.Second},
	} {
		if f.Probability *= r.Float64(); r.IntN(2) == 0 {
			faults = append(faults, f)
		}
	}
	return faults
}

func callAtRandom(t *testing.T, seed uint64) {
	t.Helper()
	all := &callers{t: t, inner: memstore.New(), leases: map[*leasehold.Lease]string{}, broken: map[string]bool{}}
	var working sync.WaitGroup
	var processes []*caller
	for p := range uint64(2) {
		c := all.start(seed*10 + p)
		processes = append(processes, c)
		for w := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, p*10+w))
			working.Go(func() {
				for range 12 {
					c.call(r)
					time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
				}
			})
		}
	}
	working.Wait()
	all.checks.Wait()
	for _, c := range processes {
		c.stop()
	}
	before := 0
	for _, c := range processes {
		before += len(c.net.Log())
	}
	time.Sleep(10 * time.Minute)
	for _, c := range processes {
		before -= len(c.net.Log())
	}
	if before != 0 {
		t.Errorf("%d requests were sent when all had returned", -before)
	}
	for _, key := range append(callKeys, "leaders/x") {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		lease, err := locksOf(t, all.inner, nil, key)[0].Acquire(ctx)
		if err != nil {
			t.Errorf("%s cannot be acquired in the end: %v", key, err)
		} else {
			release(t, lease)
		}
		cancel()
	}
	if t.Failed() {
		for _, c := range processes {
			t.Logf("%v\n%v", c.net, c.net.Log())
		}
	}
}

func (all *callers) start(seed uint64) *caller {
	c := &caller{callers: all, net: faultstore.Wrap(all.inner, &faultstore.Options{Seed: seed})}
	var err error
	if c.session, err = leasehold.NewSession(all.t.Context(), c.net, &leasehold.SessionOptions{TTL: callTTL}); err != nil {
		all.t.Fatal(err)
	}
	for i, session := range []*leasehold.Session{nil, c.session} {
		for _, key := range callKeys {
			c.locks[i] = append(c.locks[i], locksOf(all.t, c.net, &leasehold.LockOptions{
				TTL:     callTTL,
				Session: session,
				OnWait:  func(i leasehold.Info) { all.about("OnWait", key, i.Key) },
				OnRenew: func(l *leasehold.Lease) { all.about("OnRenew", key, l.Key()) },
				OnLost:  func(l *leasehold.Lease, _ error) { all.about("OnLost", key, l.Key()) },
			}, key)...)
		}
		c.elections[i], err = leasehold.NewElection(c.net, "leaders/x", &leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{
				TTL:     callTTL,
				Session: session,
			},
			OnLeader: func(i leasehold.Info) { all.about("OnLeader", "leaders/x", i.Key) },
		})
		if err != nil {
			all.t.Fatal(err)
		}
	}
	c.net.Inject(weather(seed)...)
	return c
}

// stop ends the process in order, with a good network. A session that has ended by itself
// before may have been released in a bad one.
func (c *caller) stop() {
	over := c.session.Err() != nil
	c.net.Clear()
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	defer cancel()
	if err := c.session.Close(ctx); err != nil && !errors.Is(err, leasehold.ErrLost) && (!over || !errors.Is(err, protocol.ErrUnsettled)) {
		c.t.Errorf("Close: %v", err)
	}
	c.settle(ctx)
	c.net.Close()
}

func (c *caller) settle(ctx context.Context) {
	for i, election := range c.elections {
		for _, lock := range c.locks[i] {
			if err := lock.Settle(ctx); err != nil {
				c.t.Errorf("Settle of %s: %v", lock.Key(), err)
			}
		}
		if err := election.Settle(ctx); err != nil {
			c.t.Errorf("Settle of the election: %v", err)
		}
	}
}

// about fails unless something about one lock is about that one.
func (all *callers) about(what, key, got string) {
	if got != key {
		all.t.Errorf("%s of %s is about %s", what, key, got)
	}
}

// call makes one call, and does what has to follow.
func (c *caller) call(r *rand.Rand) {
	under := r.IntN(2) // none, or its session
	locks, election := c.locks[under], c.elections[under]
	lock := locks[r.IntN(len(locks))]
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(20*time.Second))))
	defer cancel()
	long, stop := context.WithTimeout(context.Background(), longEnough)
	defer stop()
	hold := time.Duration(r.Int64N(int64(8 * time.Second)))
	switch r.IntN(12) {
	case 0, 1:
		lease, err := lock.Acquire(ctx)
		c.acquired("Acquire", lock.Key(), lease, err)
		c.hold(hold, lease)
	case 2:
		lease, err := lock.TryAcquire(long)
		c.acquired("TryAcquire", lock.Key(), lease, err)
		c.hold(hold, lease)
	case 3, 4:
		leases, err := leasehold.AcquireAll(ctx, locks)
		if err != nil {
			c.acquired("AcquireAll", "", nil, err)
		}
		for i, lease := range leases {
			c.acquired("AcquireAll", locks[i].Key(), lease, nil)
		}
		c.hold(hold, leases...)
	case 5:
		lease, err := leasehold.AcquireAny(ctx, locks)
		if err == nil {
			c.acquired("AcquireAny", lease.Key(), lease, nil)
			c.hold(hold, lease)
		}
	case 6, 7:
		if lease := c.lead(ctx, election, r.IntN(2) == 0, hold); lease != nil {
			c.hold(hold, lease)
		}
	case 8:
		_ = c.resign(long, election)
	case 9:
		c.settle(long)
	case 10:
		c.inspect(long, lock, r.IntN(4) == 0)
	case 11:
		for _, err := range admin.Collect(long, c.net, "", nil) {
			c.honest("Collect", err)
		}
	}
}

// acquired checks what an acquisition has returned.
func (c *caller) acquired(what, key string, lease *leasehold.Lease, err error) {
	var held *leasehold.HeldError
	switch {
	case (err == nil) != (lease != nil):
		c.t.Errorf("%s: %v, %v", what, lease, err)
	case err == nil:
		c.about(what, key, lease.Key())
		// A call that has waited for others since has looked at the lease once more.
		end := lease.Err()
		resigned := what == "Campaign" && errors.Is(end, leasehold.ErrReleased) // by another goroutine, since
		if end != nil && !resigned && (!errors.Is(end, leasehold.ErrLost) || what == "AcquireAll") {
			c.t.Errorf("%s: no error, and the lease: %v", what, end)
		}
		under := ""
		if slices.Contains(c.session.Leases(), lease) {
			under = c.session.Key()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leases[lease] = under
		for other := range c.leases {
			if other != lease && other.Key() == lease.Key() && lease.Valid() && other.Valid() && !c.brokenLocked(lease) && !c.brokenLocked(other) {
				c.t.Errorf("two leases of %s are valid: tokens %v and %v", lease.Key(), lease.Token(), other.Token())
			}
		}
	case errors.As(err, &held) && key != "":
		c.about(what+"'s HeldError", key, held.Info.Key)
	case errors.Is(err, leasehold.ErrLost) && what != "AcquireAll" && !errors.Is(err, leasehold.ErrSessionOver):
		c.t.Errorf("%s: lost a lease that it never gave: %v", what, err)
	}
}

func (c *caller) brokenLocked(l *leasehold.Lease) bool {
	return c.broken[fmt.Sprint(l.Key(), l.Token())] || c.broken[c.leases[l]]
}

// hold works under leases for a while, and releases them.
func (c *caller) hold(d time.Duration, leases ...*leasehold.Lease) {
	time.Sleep(d)
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	defer cancel()
	for _, lease := range leases {
		if lease != nil {
			c.released("Release", lease, lease.Release(ctx))
		}
	}
}

// released checks what a release has returned.
func (c *caller) released(what string, lease *leasehold.Lease, err error) {
	c.mu.Lock()
	delete(c.leases, lease)
	c.mu.Unlock()
	if errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("%s does not return: %v", what, err)
	}
	if err != nil {
		return
	}
	look := locksOf(c.t, c.inner, nil, lease.Key())[0]
	c.checks.Go(func() {
		// It may have been passed on to another goroutine of this process, which replaces the
		// record or frees it.
		for began := time.Now(); ; time.Sleep(time.Second) {
			info, err := look.Inspect(context.Background())
			if err == nil && (!info.Held || info.Token != lease.Token()) {
				return
			}
			// The one it was passed on to may have given up, and the store may not have answered what was sent
			// for that: then it is left to expire.
			if lease.Key() != "leaders/x" && info.Abandoned && c.unanswered(lease.Key()) {
				return
			}
			if lease.Key() == "leaders/x" || time.Since(began) > time.Minute {
				c.t.Errorf("%s has said that %s is released, and %v later it is %+v, %v", what, lease.Key(), time.Since(began), info, err)
				return
			}
		}
	})
}

// unanswered reports that the last write of an object by this process had no answer that says that it landed.
func (c *caller) unanswered(key string) bool {
	outcome := ""
	for _, e := range c.net.Log() {
		if e.Op == "put" && e.Key == key && !e.Late {
			outcome = e.Outcome
		}
	}
	return outcome != "" && !strings.HasPrefix(outcome, "version")
}

// lead campaigns, and returns the lease that is to be held and released, if there is one.
func (c *caller) lead(ctx context.Context, election *leasehold.Election, run bool, d time.Duration) *leasehold.Lease {
	if run {
		err := election.Run(ctx, func(work context.Context, lease *leasehold.Lease) error {
			if errors.Is(lease.Err(), leasehold.ErrReleased) {
				c.t.Errorf("lead is called with a lease that is released; its context: %v", work.Err())
			}
			c.acquired("Run", "leaders/x", lease, nil)
			select {
			case <-work.Done():
			case <-time.After(d):
			}
			if errors.Is(lease.Err(), leasehold.ErrReleased) {
				c.t.Errorf("the lease was released while lead ran")
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.leases, lease)
			return nil
		})
		if err == nil {
			c.t.Errorf("Run returned %v", err)
		}
		return nil
	}
	lease, err := election.Campaign(ctx)
	if errors.Is(err, leasehold.ErrResigned) {
		return nil
	}
	if err == nil && errors.Is(lease.Err(), leasehold.ErrReleased) {
		err, lease = leasehold.ErrResigned, nil // another goroutine resigned as it came
	}
	c.acquired("Campaign", "leaders/x", lease, err)
	return lease
}

// resign resigns, and checks what that has returned.
func (c *caller) resign(ctx context.Context, election *leasehold.Election) error {
	before := election.Status()
	err := election.Resign(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("Resign does not return: %v", err)
	}
	if err != nil || !before.Leading {
		return err
	}
	info, look := locksOf(c.t, c.inner, nil, "leaders/x")[0].Inspect(ctx)
	if look != nil || info.Held && info.Token == before.Leader.Token {
		c.t.Errorf("resigned, and the lock is %+v, %v", info, look)
	}
	return nil
}

// inspect looks at a lock, and may break it.
func (c *caller) inspect(ctx context.Context, lock *leasehold.Lock, breaks bool) {
	info, err := lock.Inspect(ctx)
	c.honest("Inspect", err)
	if err != nil || !info.Exists {
		return
	}
	c.about("Inspect", lock.Key(), info.Key)
	c.mu.Lock()
	for lease := range c.leases {
		if lease.Key() == info.Key && lease.Token() == info.Token && info.Abandoned && lease.Valid() && !c.brokenLocked(lease) {
			c.t.Errorf("a lease is valid that looks abandoned: %+v", info)
		}
	}
	c.mu.Unlock()
	if !breaks {
		return
	}
	c.mu.Lock()
	c.broken[fmt.Sprint(info.Key, info.Token)], c.broken[info.Session] = true, info.Session != ""
	c.mu.Unlock()
	after, err := admin.Break(ctx, lock, info.Token)
	if err == nil && after.Held {
		c.t.Errorf("broken: %+v", after)
	}
	if !errors.Is(err, admin.ErrTokenChanged) {
		c.honest("Break", err)
	}
}

// honest fails for an error that a bad network does not explain.
func (c *caller) honest(what string, err error) {
	for _, kind := range []error{store.ErrUnavailable, store.ErrUnknownOutcome, store.ErrConflict, store.ErrPrecondition} {
		if errors.Is(err, kind) {
			return
		}
	}
	if err != nil && !strings.Contains(fmt.Sprint(err), "try again") {
		c.t.Errorf("%s: %v", what, err)
	}
}
