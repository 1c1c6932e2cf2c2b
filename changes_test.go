package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A marker is deleted when it is released, and nothing is left that says by whom. The change says
// who it was all the same, and that he holds it no more.
func TestObserveMarkers(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it uses markers: the same in every layout")
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutMarkerIfMatch}})
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutMarkerIfMatch, Holder: "a", Address: "a:1"}))
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
	needs(t, here() == leasehold.LayoutObject, "it plants one object: the same in every layout")
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
	needs(t, here() == leasehold.LayoutObject, "it counts the requests for one object: the same in every layout")
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
				if n := st.Counts(); s.Requests != (leasehold.Requests{Reads: int64(n.Get), Writes: int64(n.Put)}) {
					t.Errorf("leads %t, cut off %t: %+v are counted of %+v", leads, cut, s.Requests, n)
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
			r.Token, r.TTL, r.Layout = int64(epoch), time.Minute, string(leasehold.LayoutEpochsIfMatch)
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
		e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutEpochsIfMatch}})
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
