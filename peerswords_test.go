package leasehold_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/filestore"
	"github.com/leasehold/leasehold/store/memstore"
)

// asker is peers that note what they are asked, and answer as a function says.
type asker struct {
	mu     sync.Mutex
	asked  []leasehold.Question
	of     []string
	answer func(context.Context, leasehold.Question) (leasehold.Leadership, error)
}

func (a *asker) Ask(ctx context.Context, address string, q leasehold.Question) (leasehold.Leadership, error) {
	a.mu.Lock()
	a.asked, a.of = append(a.asked, q), append(a.of, address)
	a.mu.Unlock()
	return a.answer(ctx, q)
}

// TestQuestions: a follower asks the leader at its address, and says which lock it is about, who asks, for
// how long it has waited if it wants to lead, and what it knows.
func TestQuestions(t *testing.T) {
	for _, wants := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			st := memstore.New()
			leader := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Address: "a:1", Layout: leasehold.LayoutObject}})
			if _, err := leader.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			peers := &asker{answer: leader.Attend}
			var log leasetest.Log
			follower := newElection(t, st, leasehold.ElectionOptions{
				LockOptions: leasehold.LockOptions{Holder: "me", Layout: leasehold.LayoutObject, Logger: slog.New(slog.NewTextHandler(&log, nil))},
				Peers:       peers,
			})
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			began := time.Now()
			if wants {
				_, _ = follower.Campaign(ctx)
			} else {
				for range follower.Observe(ctx) {
					continue
				}
			}
			synctest.Wait()
			if log.String() != "" {
				t.Errorf("a question that was given up is no silence: %s", &log)
			}
			if len(peers.asked) < 3 {
				t.Fatalf("only asked %+v", peers.asked)
			}
			last := 0 * time.Second
			for i, q := range peers.asked {
				if q.Lock != "leaders/scheduler" || q.Holder != "me" || q.Wait <= 0 || q.Wait > 15*time.Second || (q.Known == "") != (i == 0) || peers.of[i] != "a:1" {
					t.Errorf("question %d at %q: %+v", i, peers.of[i], q)
				}
				if q.Waited < last || q.Waited > time.Since(began) {
					t.Errorf("question %d: %+v", i, q)
				}
				last = q.Waited
			}
			if (last > 45*time.Second) != wants || !wants && last > 0 {
				t.Errorf("at the end of a minute it has waited for %v, wants to lead: %v", last, wants)
			}
			if err := leader.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestComplaints: that a leader cannot be asked is logged, once for each leader, and why; nothing is logged
// of one that answers.
func TestComplaints(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(*leasehold.Leadership) error
		says string
	}{
		"well":         {func(*leasehold.Leadership) error { return nil }, ""},
		"silence":      {func(*leasehold.Leadership) error { return errSilence }, errSilence.Error()},
		"another lock": {func(l *leasehold.Leadership) error { l.Lock = "other"; return nil }, `it answers for the lock \"other\"`},
		"another one":  {func(l *leasehold.Leadership) error { l.Incarnation = "other"; return nil }, "answers there, with token"},
	} {
		bubble(t, func(t *testing.T) {
			st := memstore.New()
			var log leasetest.Log
			peers := &asker{}
			follower := newElection(t, st, leasehold.ElectionOptions{
				LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject, Logger: slog.New(slog.NewTextHandler(&log, nil))},
				Peers:       peers,
			})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range follower.Observe(ctx) {
					continue
				}
			}()
			for n := 1; n <= 2; n++ {
				leader := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: fmt.Sprint("leader ", n), Address: fmt.Sprint("a:", n), Layout: leasehold.LayoutObject}})
				peers.mu.Lock()
				peers.answer = func(context.Context, leasehold.Question) (leasehold.Leadership, error) {
					return leasehold.Leadership{}, c.bend(&leasehold.Leadership{})
				}
				if c.bend(&leasehold.Leadership{}) == nil {
					peers.answer = func(ctx context.Context, q leasehold.Question) (leasehold.Leadership, error) {
						said, err := leader.Attend(ctx, q)
						_ = c.bend(&said)
						return said, err
					}
				}
				peers.mu.Unlock()
				if _, err := leader.Campaign(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				text, want := log.String(), n
				if c.says == "" {
					want = 0
				}
				if got := strings.Count(text, "the leader does not answer"); got != want || strings.Count(text, fmt.Sprintf("leader=%q address=a:%d", fmt.Sprint("leader ", n), n)) != want/n || !strings.Contains(text, c.says) {
					t.Errorf("%s, %d leaders: it is logged %d times: %s", name, n, got, text)
				}
				if heard := !follower.Status().LastHeard.IsZero(); heard != (c.says == "") {
					t.Errorf("%s: heard %v", name, heard)
				}
				if err := leader.Resign(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // or it asks the next leader about this one
			}
			stop()
			<-done
		})
	}
}

// TestWordOfALeader: what a leader says under a session ends with that; when it has resigned it proves it,
// where its store can show what it wrote; and who does not wait is answered at once.
func TestWordOfALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := startProcess(t, memstore.New(), "a")
		e := newElection(t, a.st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Session: a.session, Layout: leasehold.LayoutObject}})
		time.Sleep(2 * time.Second)
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if said := attend(t, e, ""); !said.Leading || said.Remaining != protocol.Validity(leasehold.DefaultTTL)-2*time.Second {
			t.Errorf("under a session: %+v", said)
		}
		if err := e.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		a.end()
	})
	files, err := filestore.New(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for l, st := range map[leasehold.Layout]store.Store{leasehold.LayoutObject: files, leasehold.LayoutMarkerIfMatch: memstore.New()} {
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: l}})
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		leads, err := e.Attend(t.Context(), leasehold.Question{Lock: "leaders/scheduler"})
		if err != nil || !leads.Leading || len(leads.Record) > 0 || leads.Object != "" {
			t.Errorf("%s: it leads: %+v, %v", l, leads, err)
		}
		for _, wait := range []time.Duration{0, -1} { // which waits for nothing
			if again, failed := e.Attend(t.Context(), leasehold.Question{Lock: "leaders/scheduler", Known: leads.Version, Wait: wait}); failed != nil || again.Version != leads.Version {
				t.Errorf("%s: at once: %+v, %v", l, again, failed)
			}
		}
		if err = e.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		said, err := e.Attend(t.Context(), leasehold.Question{Lock: "leaders/scheduler"})
		if err != nil || !said.Free || (l == leasehold.LayoutObject) != (len(said.Record) > 0) || (len(said.Record) > 0) != (said.Object != "") {
			t.Errorf("%s: it has resigned: %+v, %v", l, said, err)
		}
		if l != leasehold.LayoutObject {
			continue
		}
		if o, err := st.Get(t.Context(), "leaders/scheduler", ""); err != nil || string(o.Body) != string(said.Record) || o.Version != said.Object {
			t.Errorf("its proof is %q, %s, and in the store there is %+v", said.Record, said.Object, o)
		}
	}
}

// TestLateToTheMoment: a follower is told that a leader's renewal is late at that moment, also where it
// has asked since the leader last looked at its clock.
func TestLateToTheMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		e := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject}})
		began := time.Now()
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Hang})
		time.Sleep(7200 * time.Millisecond)
		leads := attend(t, e, "")
		late := attend(t, e, leads.Version)
		if after := time.Since(began); !leads.Leading || late.Leading || after != leasehold.DefaultTTL/2 {
			t.Errorf("after %v: %+v, and then %+v", after, leads, late)
		}
		st.Clear()
		release(t, lease)
	})
}

// TestProofSparesALook: where the version of a record is its hash, the word of a leader that has resigned is
// as good as a look, and the next one leads by one write.
func TestProofSparesALook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files, err := filestore.New(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		leader := newElection(t, files, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "a", Address: "a", Layout: leasehold.LayoutObject}})
		if _, err = leader.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := newStoreOver(files)
		follower := newElection(t, st, leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{Holder: "b", Layout: leasehold.LayoutObject},
			Peers:       &asker{answer: leader.Attend},
		})
		done := make(chan error)
		go func() {
			_, err := follower.Campaign(t.Context())
			done <- err
		}()
		time.Sleep(61 * time.Second)
		got := cost(st, func() {
			if err := leader.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		if want := (requests{put: 1}); got != want {
			t.Errorf("it made %v, want %v", got, want)
		}
		if err := follower.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSilenceIsForgiven: a leader that was silent twice in a row is asked on, and the store is not asked instead.
func TestSilenceIsForgiven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		leader := newElection(t, inner, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Address: "a", Layout: leasehold.LayoutObject}})
		if _, err := leader.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := newStoreOver(inner)
		questions, silent := 0, 0
		var before, after requests
		follower := newElection(t, st, leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject},
			Peers: &asker{
				answer: func(ctx context.Context, q leasehold.Question) (leasehold.Leadership, error) {
					if questions++; questions > 10 && silent < 2 {
						if silent++; silent == 1 {
							before = since(st, faultstore.Counts{})
						}
						return leasehold.Leadership{}, errSilence
					}
					if silent == 2 && after == (requests{}) {
						after = since(st, faultstore.Counts{})
					}
					return leader.Attend(ctx, q)
				},
			},
		})
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		for range follower.Observe(ctx) {
			continue
		}
		if silent != 2 || before != after {
			t.Errorf("it was silent %d times, and the requests to the store went from %v to %v", silent, before, after)
		}
		if err := leader.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestOthersLetTheSuccessorGoFirst: a follower that hears that another is to lead next does not look at once.
func TestOthersLetTheSuccessorGoFirst(t *testing.T) {
	for successor, looks := range map[string]int{"heir": 0, "me": 1} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			leader := newElection(t, inner, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Address: "a", Layout: leasehold.LayoutObject}})
			if _, err := leader.Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			st := newStoreOver(inner)
			follower := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "me", Layout: leasehold.LayoutObject}, Peers: &asker{answer: leader.Attend}})
			done := make(chan error)
			go func() {
				_, err := follower.Campaign(t.Context())
				done <- err
			}()
			time.Sleep(61 * time.Second)
			got := cost(st, func() {
				if err := leader.ResignTo(t.Context(), successor); err != nil {
					t.Error(err)
				}
				time.Sleep(35 * time.Millisecond) // it hears of it 20 ms later, and looks 20 ms after that at the soonest
			})
			if got.get != looks {
				t.Errorf("%s was named, and it made %v in a moment", successor, got)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := follower.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
