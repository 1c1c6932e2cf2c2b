package leasehold_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

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
			if _, leads := onlooker.Leader(); leads != (c.Kind == leasehold.Elected) {
				t.Errorf("%v, and there is a leader: %v", c.Kind, leads)
			}
		}
		if _, leads := onlooker.Leader(); !leads || !slices.Equal(kinds, []leasehold.ChangeKind{leasehold.Elected, leasehold.Expired}) {
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

// TestElectionOfOnlookers: a candidate that only looks does so as long as somebody observes or waits.
func TestElectionOfOnlookers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStoreOver(memstore.New())
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		for name, watch := range map[string]func(context.Context){
			"Observe": func(ctx context.Context) {
				for range e.Observe(ctx) {
					t.Error("nothing happens")
				}
			},
			"WaitForNextElection": func(ctx context.Context) { _, _ = e.WaitForNextElection(ctx, time.Time{}) },
		} {
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan bool)
			go func() { watch(ctx); close(done) }()
			looks := cost(st, func() { time.Sleep(time.Minute) })
			stop()
			<-done
			synctest.Wait()
			if after := cost(st, func() { time.Sleep(time.Hour) }); looks.get < 6 || after != (requests{}) {
				t.Errorf("%s: %v while it looks, and %v afterwards", name, looks, after)
			}
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
		led, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := e.WaitForLeadership(led); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before it leads: %v", err)
		}
		began := time.Now()
		lease, err := e.Campaign(t.Context())
		if err != nil || e.WaitForLeadership(t.Context()) != nil {
			t.Fatal(err)
		}
		leads := leasehold.Status{
			Key: "leaders/scheduler", Holder: "me", Leading: true, HasLeader: true,
			LastSeen: began, NextLook: began.Add(protocol.Renewal(leasehold.DefaultTTL)), Requests: leasehold.Requests{Reads: 1, Writes: 1},
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
		led, stop = context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := e.WaitForLeadership(led); !errors.Is(err, context.DeadlineExceeded) || e.Status().Leading {
			t.Errorf("when it has lost: %v, %+v", err, e.Status())
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
