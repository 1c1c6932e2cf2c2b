package leasehold_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/store/faultstore"
)

// deletes counts what was sent.
func deletes(st *faultstore.Store) int { return st.Counts().Delete }

// collecting acquires a lock with epochs until its holder collects the past, which takes a
// second for each of about a hundred epochs.
func collecting(t *testing.T, l leasehold.Layout, session bool) (*faultstore.Store, *leasehold.Lock, *leasehold.Lease) {
	t.Helper()
	st := newStore()
	before := newLock(t, st, &leasehold.LockOptions{Layout: l})
	for range 150 {
		release(t, acquire(t, before))
	}
	time.Sleep(25 * time.Hour)
	opts := &leasehold.LockOptions{Layout: l}
	if session {
		s, err := leasehold.NewSession(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		opts.Session = s
		t.Cleanup(func() { _ = s.Close(context.Background()) })
	}
	st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "delete", Delay: time.Second})
	lock := newLock(t, st, opts)
	for range 200 {
		lease, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if deletes(st) > 0 {
			return st, lock, lease
		}
		release(t, lease)
	}
	t.Fatal("nobody has collected anything")
	return nil, nil, nil
}

// A holder's collection of the past went on for up to a minute after Release and Settle had
// returned, in a process that took itself for done.
func TestCollectionEndsWithTheLease(t *testing.T) {
	for _, l := range []leasehold.Layout{leasehold.LayoutEpochs, leasehold.LayoutEpochsIfMatch} {
		for end, f := range map[string]func(*testing.T, *leasehold.Lock, *leasehold.Lease){
			"released": func(t *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) { release(t, lease) },
			"given up": func(_ *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) { lease.Abandon(context.Canceled) },
			"settled": func(t *testing.T, lock *leasehold.Lock, lease *leasehold.Lease) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				go func() { _ = lease.Release(ctx) }()
				<-lease.Done()
				if err := lock.Settle(t.Context()); err != nil {
					t.Error(err)
				}
			},
		} {
			for _, session := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, session %t", l, end, session), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						st, lock, lease := collecting(t, l, session)
						before := deletes(st)
						time.Sleep(5 * time.Second)
						if now := deletes(st); now <= before {
							t.Fatalf("this shows nothing: %d deletes, then %d", before, now)
						}
						f(t, lock, lease)
						before = deletes(st)
						time.Sleep(2 * time.Minute)
						if now := deletes(st); now != before {
							t.Errorf("%d deletes, and two minutes later %d", before, now)
						}
						_ = lease.Release(t.Context())
					})
				})
			}
		}
	}
}
