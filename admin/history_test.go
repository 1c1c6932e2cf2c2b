package admin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// TestHistory: each way in which a lease can end. What `init` makes is no lease.
func TestHistory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := func(holder string) *leasehold.Lock {
			return newLock(t, st, patient(leasehold.LockOptions{Holder: holder}))
		}
		if !hasEpochs() {
			for _, err := range admin.History(t.Context(), lock("a")) {
				if !errors.Is(err, admin.ErrNoHistory) {
					t.Errorf("got %v", err)
				}
			}
			return
		}
		if _, made, err := admin.Init(t.Context(), lock("init")); err != nil || !made {
			t.Fatal(err)
		}
		var began, ended []time.Time
		begin := func(lock *leasehold.Lock) *leasehold.Lease {
			lease := acquire(t, lock)
			began = append(began, time.Now())
			return lease
		}
		end := func() { ended = append(ended, time.Now()) }

		released := begin(lock("a"))
		time.Sleep(time.Minute)
		release(t, released)
		end()
		time.Sleep(time.Minute)

		cut := faultstore.Wrap(st, nil)
		gone := begin(newLock(t, cut, &leasehold.LockOptions{Holder: "b"}))
		time.Sleep(time.Minute)
		cut.Partition(true)
		broken := begin(lock("c")) // it waits until b's time is over
		end()
		_ = gone.Release(t.Context())

		time.Sleep(time.Minute + time.Second) // not at the moment of a renewal
		if _, err := admin.Break(t.Context(), lock("hand"), broken.Token()); err != nil {
			t.Fatal(err)
		}
		end()
		<-broken.Done()
		_ = broken.Release(t.Context())
		held := begin(lock("d"))
		ended = append(ended, time.Time{})
		time.Sleep(time.Minute)

		var got []string
		for term, err := range admin.History(t.Context(), lock("e")) {
			if err != nil {
				t.Fatal(err)
			}
			i := 3 - len(got)
			got = append(got, term.Holder+" "+term.Why)
			if i < 0 || !near(term.AcquiredAt, began[i]) || !near(term.Ended, ended[i]) {
				t.Errorf("%s: from %v to %v", term.Holder, term.AcquiredAt, term.Ended)
			}
		}
		if want := []string{"d ", "c broken", "b taken over", "a released"}; !slices.Equal(got, want) {
			t.Errorf("the history is %q, want %q", got, want)
		}
		release(t, held)
	})
}

// near compares times that are kept to the millisecond.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < time.Millisecond }

// TestHistoryEnds: the history ends when the consumer has seen enough, and at an error, which says
// which lock it is about; a lock without a history says that once.
func TestHistoryEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		all := func(l leasehold.Layout) (terms int, errs []error) {
			for _, err := range admin.History(t.Context(), newLock(t, st, &leasehold.LockOptions{Layout: l})) {
				if err != nil {
					errs = append(errs, err)
				} else {
					terms++
				}
			}
			return terms, errs
		}
		epochs := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs})
		for range 3 {
			release(t, acquire(t, epochs))
		}
		if terms, errs := all(leasehold.LayoutEpochs); terms != 3 || errs != nil {
			t.Errorf("%d terms, %v", terms, errs)
		}
		for term, err := range admin.History(t.Context(), epochs) {
			if err != nil || term.Why != "released" {
				t.Errorf("%+v, %v", term, err)
			}
			break
		}
		if terms, errs := all(leasehold.LayoutObject); terms != 0 || len(errs) != 1 || !errors.Is(errs[0], admin.ErrNoHistory) || !strings.Contains(errs[0].Error(), "jobs/backup") {
			t.Errorf("without epochs: %d terms, %v", terms, errs)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 2})
		if terms, errs := all(leasehold.LayoutEpochs); terms != 1 || len(errs) != 1 || !errors.Is(errs[0], store.ErrDenied) || !strings.HasPrefix(errs[0].Error(), "the lock ") {
			t.Errorf("denied: %d terms, %v", terms, errs)
		}
	})
}
