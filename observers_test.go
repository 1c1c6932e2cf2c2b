package leasehold_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol"
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
