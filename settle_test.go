package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// setUp returns a store and the options of a lock in it, under a session or not.
func setUp(t *testing.T, inner store.Store, session bool) (st *faultstore.Store, opts *leasehold.LockOptions, end func()) {
	t.Helper()
	if !session {
		return faultstore.Wrap(inner, nil), nil, func() {}
	}
	p := startProcess(t, inner, "a")
	return p.st, &leasehold.LockOptions{Session: p.session}, p.end
}

// ofJobs are the requests about locks, and not about sessions.
func ofJobs(c faultstore.Call) bool { return strings.HasPrefix(c.Key, "jobs/") }

// jobs counts them.
func jobs(st *faultstore.Store) (n int) {
	for _, e := range st.Log() {
		if !e.Late && ofJobs(faultstore.Call{Key: e.Key}) {
			n++
		}
	}
	return n
}

// Settle that was begun before a lease under a session was granted never returned; without
// a session it waited until that lease was released. Any later grant settles an acquisition that
// was given up; one that another goroutine waits for was not given up.
func TestSettleBesideAnAcquisition(t *testing.T) {
	for _, c := range []struct {
		what    string
		session bool
		waits   bool // the acquisition, for a holder, for as long as the test lasts
	}{
		{"a lease", false, false},
		{"a lease under a session", true, false},
		{"a wait", false, true},
		{"a wait under a session", true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) { settleBeside(t, c.session, c.waits) })
		})
	}
}

func settleBeside(t *testing.T, session, waits bool) {
	t.Helper()
	inner := memstore.New()
	st, opts, end := setUp(t, inner, session)
	defer end()
	holder, err := leasehold.NewLock(inner, "jobs/backup", nil)
	if err != nil {
		t.Fatal(err)
	}
	var held *leasehold.Lease
	if waits {
		held = acquire(t, holder)
	}
	st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, When: ofJobs, Delay: time.Second})
	lock := newLock(t, st, opts)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	acquired := make(chan *leasehold.Lease)
	go func() {
		lease, err := lock.Acquire(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		acquired <- lease
	}()
	for range 5 { // before the first request is sent, while each is under way, and after
		settling, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := lock.Settle(settling); err != nil {
			t.Errorf("nothing was given up: %v", err)
		}
		cancel()
		time.Sleep(300 * time.Millisecond)
	}
	stop()
	if lease := <-acquired; lease != nil {
		_ = lease.Release(t.Context())
	}
	st.Clear()
	if held != nil {
		release(t, held)
	}
	if err := lock.Settle(t.Context()); err != nil {
		t.Error(err)
	}
}

// A lease that came as the caller gave up was released in the background, and Settle returned
// before that had landed.
func TestSettleWaitsForALeaseThatIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			slow := newStore()
			slow.Inject(
				faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Nth: 2, Delay: time.Second},
				faultstore.Fault{Kind: faultstore.DelayBefore, Op: "delete", Delay: time.Second},
			)
			st := &told{Store: slow, after: cancel}
			lock := newLock(t, st, nil)
			if _, err := lock.Acquire(ctx); err == nil {
				t.Fatal("acquired")
			}
			if err := lock.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Fatalf("settled, and the lock is %+v, %v", info, err)
			}
		}
	})
}

// Whatever is given up when, and whatever becomes of its requests: Settle returns, and then
// nothing of it is under way and no record of it stands.
func TestSettleAlwaysReturns(t *testing.T) {
	needs(t, here().Tokens(), "the delete of a marker is not sent again when it was lost")
	for _, session := range []bool{false, true} {
		for kind := faultstore.Unavailable; kind <= faultstore.LateDuplicate; kind++ {
			if kind == faultstore.Denied {
				continue // nothing can be settled, and the release says so
			}
			t.Run(fmt.Sprintf("%v, session %v", kind, session), func(t *testing.T) {
				for after := time.Duration(0); after < 2*time.Second; after += 150 * time.Millisecond {
					bubble(t, func(t *testing.T) { settleAfter(t, kind, session, after) })
				}
			})
		}
	}
}

func settleAfter(t *testing.T, kind faultstore.Kind, session bool, after time.Duration) {
	t.Helper()
	inner := newStore()
	st, opts, end := setUp(t, inner, session)
	defer end()
	st.Inject(
		faultstore.Fault{Kind: kind, When: ofJobs, Nth: 2, Delay: 700 * time.Millisecond},
		faultstore.Fault{Kind: kind, When: ofJobs, Nth: 4, Delay: 700 * time.Millisecond},
		faultstore.Fault{Kind: faultstore.DelayAfter, When: ofJobs, Delay: 100 * time.Millisecond},
	)
	lock := newLock(t, st, opts)
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	if err == nil {
		err = lease.Release(t.Context())
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	settling, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	if err = lock.Settle(settling); err != nil {
		t.Fatalf("given up after %v: %v\n%v", after, err, st.Log())
	}
	before := jobs(st)
	info, err := newLock(t, inner, nil).Inspect(t.Context())
	if err != nil || info.Held {
		t.Errorf("given up after %v: %+v, %v\n%v", after, info, err, st.Log())
	}
	time.Sleep(time.Minute)
	if now := jobs(st); now != before {
		t.Errorf("given up after %v, and %d requests became %d after Settle\n%v", after, before, now, st.Log())
	}
	st.Close()
}
