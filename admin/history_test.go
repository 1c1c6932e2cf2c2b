package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
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
		if !here().Tokens() {
			for _, err := range admin.History(t.Context(), lock("a")) {
				if !errors.Is(err, admin.ErrNoHistory) {
					t.Errorf("got %v", err)
				}
			}
			return
		}
		for term, err := range admin.History(t.Context(), lock("a")) {
			t.Errorf("of a lock that there is not: %+v, %v", term, err)
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
			if term.Term != int64(i)+1 || term.Leases != 1 || term.First != term.Token || i == 1 && term.Token != gone.Token() {
				t.Errorf("%s: term %d, token %d, %d leases from %d on", term.Holder, term.Term, term.Token, term.Leases, term.First)
			}
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
		all := func(l leasetest.Way) (terms int, errs []error) {
			for _, err := range admin.History(t.Context(), newLock(t, st, l.Options())) {
				if err != nil {
					errs = append(errs, err)
				} else {
					terms++
				}
			}
			return terms, errs
		}
		epochs := newLock(t, st, leasetest.EpochsNoIfMatch.Options())
		for range 3 {
			release(t, acquire(t, epochs))
		}
		if terms, errs := all(leasetest.EpochsNoIfMatch); terms != 3 || errs != nil {
			t.Errorf("%d terms, %v", terms, errs)
		}
		for term, err := range admin.History(t.Context(), epochs) {
			if err != nil || term.Why != "released" {
				t.Errorf("%+v, %v", term, err)
			}
			break
		}
		if terms, errs := all(leasetest.MarkerNoIfMatch); terms != 0 || len(errs) != 1 || !errors.Is(errs[0], admin.ErrNoHistory) || !strings.Contains(errs[0].Error(), "jobs/backup") {
			t.Errorf("of a marker: %d terms, %v", terms, errs)
		}
		in := leasehold.LockOptions{Layout: leasehold.LayoutObject}
		release(t, acquire(t, newLock(t, st, &in)))
		release(t, acquire(t, newLock(t, st, &in)))
		for term, err := range admin.History(t.Context(), newLock(t, st, &in)) {
			if err != nil || term.Why != "released" {
				t.Errorf("%+v, %v", term, err)
			}
			break
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 1})
		if terms, errs := all(leasetest.Object); terms != 0 || len(errs) != 1 || !errors.Is(errs[0], store.ErrDenied) || !strings.HasPrefix(errs[0].Error(), "the lock ") {
			t.Errorf("denied in one object: %d terms, %v", terms, errs)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Nth: 2})
		if terms, errs := all(leasetest.EpochsNoIfMatch); terms != 1 || len(errs) != 1 || !errors.Is(errs[0], store.ErrDenied) || !strings.HasPrefix(errs[0].Error(), "the lock ") {
			t.Errorf("denied: %d terms, %v", terms, errs)
		}
	})
}

// remembered is what the history tells of a lock, and what it costs to ask.
func remembered(t *testing.T, st *faultstore.Store, lock *leasehold.Lock) (all []admin.Term, costs requests) {
	t.Helper()
	costs = cost(st, func() {
		for term, err := range admin.History(t.Context(), lock) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, term)
		}
	})
	return all, costs
}

// TestLongHistory: the present lease and sixteen more are told by the record, and with epochs all
// whose objects are kept before these. Each is told once, in order.
func TestLongHistory(t *testing.T) {
	needs(t, here().Tokens(), "a marker keeps no history")
	bubble(t, func(t *testing.T) {
		st := newStore()
		locks := []*leasehold.Lock{newLock(t, st, &leasehold.LockOptions{Holder: "a"}), newLock(t, st, &leasehold.LockOptions{Holder: "b"})}
		tokens := map[int64]leasehold.Token{}
		lease := func(n int64) {
			l := acquire(t, locks[n%2])
			tokens[n] = l.Token()
			time.Sleep(time.Second)
			release(t, l)
			time.Sleep(time.Minute)
		}
		check := func(newest int64, least, most int) requests {
			t.Helper()
			all, costs := remembered(t, st, locks[0])
			if len(all) < least || len(all) > most {
				t.Errorf("%d leases are told, want %d to %d", len(all), least, most)
			}
			for i, term := range all {
				n := newest - int64(i)
				if term.Term != n || term.Token != tokens[n] || term.First != tokens[n] || term.Holder != string("ab"[n%2]) || term.Leases != 1 ||
					term.Why != "released" || term.Ended.Sub(term.AcquiredAt).Round(time.Second) != time.Second || term.Key != "jobs/backup" || (leasetest.Way{Layout: term.Layout, NoIfMatch: term.NoIfMatch}) != here() {
					t.Errorf("the lease %d is told as %+v", n, term)
				}
			}
			return costs
		}
		for n := range int64(40) {
			lease(n + 1)
		}
		if !hasEpochs() {
			if costs := check(40, 17, 17); costs != (requests{get: 1}) {
				t.Errorf("it costs %v", costs)
			}
			return
		}
		check(40, 40, 40)
		time.Sleep(25 * time.Hour)
		lease(41)
		for _, err := range admin.Collect(t.Context(), st, "jobs/", &admin.CollectOptions{Keep: 3}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		check(41, 4+16, 4+16)
	})
}

// TestHistoryOfOneProcess: what users of one lock pass on among themselves leaves the leases of
// others in the record.
func TestHistoryOfOneProcess(t *testing.T) {
	needs(t, here().Tokens() && !hasEpochs(), "it shows what one object remembers: the same in every layout that keeps one")
	bubble(t, func(t *testing.T) {
		st := newStore()
		other, busy := newLock(t, st, &leasehold.LockOptions{Holder: "other"}), newLock(t, st, &leasehold.LockOptions{Holder: "busy"})
		first := acquire(t, other)
		release(t, first)
		began := time.Now()
		const users = 300
		done := make(chan leasehold.Token, users)
		for range users {
			go func() {
				_ = busy.Do(t.Context(), func(_ context.Context, lease *leasehold.Lease) error {
					time.Sleep(10 * time.Millisecond)
					done <- lease.Token()
					return nil
				})
			}()
		}
		last := leasehold.Token(0)
		for range users {
			last = max(last, <-done)
		}
		ended := time.Now()
		_ = busy.Settle(t.Context())
		final := acquire(t, other)
		all, _ := remembered(t, st, busy)
		if len(all) != 3 {
			t.Fatalf("it tells of %+v", all)
		}
		if run := all[1]; run.Holder != "busy" || run.Why != "released" || run.Leases != users || run.First != first.Token()+1 || run.Token != last ||
			run.AcquiredAt.Sub(began) > time.Second || run.Ended.Sub(ended).Abs() > time.Second || run.Term != users+1 {
			t.Errorf("of the process: %+v", run)
		}
		if all[0].Token != final.Token() || all[0].Term != users+2 || all[2].Token != first.Token() || all[2].Holder != "other" {
			t.Errorf("of the other: %+v, %+v", all[0], all[2])
		}
		release(t, final)
	})
}

// TestHistoryUnderASession: a lease under a session remembers as any other, and is remembered, also
// when its session was ended by hand.
func TestHistoryUnderASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
		release(t, a.acquire("jobs/backup"))
		lease := b.acquire("jobs/backup")
		time.Sleep(time.Hour)
		breakLock(t, newLock(t, st, nil))
		last := a.acquire("jobs/backup")
		all, _ := remembered(t, st, newLock(t, st, nil))
		var got []string
		for _, term := range all {
			got = append(got, fmt.Sprintf("%d %s", term.Term, term.Why))
		}
		if want := []string{"3 ", "2 broken", "1 released"}; !slices.Equal(got, want) {
			t.Errorf("the history is %q, want %q", got, want)
		}
		release(t, last)
		_ = lease.Release(t.Context())
		a.close()
		b.end()
	})
}
