package leasehold_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

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
	if err = e.WaitForLeadership(t.Context()); err != nil {
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
