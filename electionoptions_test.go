package leasehold_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestElectionOptionsThatCannotBe: what makes no sense is refused, with the option named, and what
// lies at the border of it is taken.
func TestElectionOptionsThatCannotBe(t *testing.T) {
	const s = time.Second
	for says, all := range map[string][]leasehold.ElectionOptions{
		"": {
			{},
			{Frequent: s},
			{Infrequent: s},
			{Frequent: s, Infrequent: s},
			{Frequent: 1, Infrequent: 2},
			{Grace: 1},
			{Retries: []time.Duration{0, s}},
		},
		"Frequent -1ns":             {{Frequent: -1}, {Frequent: -1, Infrequent: s}},
		"Infrequent -1ns":           {{Infrequent: -1}, {Frequent: s, Infrequent: -1}},
		"longer than Infrequent":    {{Frequent: 2 * s, Infrequent: s}, {Frequent: 2, Infrequent: 1}},
		"grace -1ns":                {{Grace: -1}},
		"retry comes after -1ns":    {{Retries: []time.Duration{-1}}, {Retries: []time.Duration{s, -1}}},
		"TTL":                       {{LockOptions: leasehold.LockOptions{TTL: time.Millisecond}}},
		"PollInterval 1s is for":    {{LockOptions: leasehold.LockOptions{PollInterval: s}}},
		"the option Sweep is for":   {{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutObject, Sweep: true}}},
		"there is no layout \"pile": {{LockOptions: leasehold.LockOptions{Layout: "pile"}}},
	} {
		for _, opts := range all {
			st := newStore()
			e, err := leasehold.NewElection(st, "leaders/x", &opts)
			if (e == nil) != (says != "") || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: want %q, got %v", opts, says, err)
			}
			if c := st.Counts(); c != (faultstore.Counts{}) {
				t.Errorf("%+v: %+v requests were made", opts, c)
			}
		}
	}
}

// TestElectionSweeps: with Sweep a candidate deletes the marker of a leader that is gone, and leads.
func TestElectionSweeps(t *testing.T) {
	for _, sweep := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			gone := newStoreOver(inner)
			opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutMarker, Sweep: sweep}}
			a, b := newElection(t, gone, opts), newElection(t, inner, opts)
			lease, err := a.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			gone.Partition(true)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			if _, err = b.Campaign(ctx); (err == nil) != sweep {
				t.Errorf("sweep %v: %v", sweep, err)
			}
			_ = lease.Release(t.Context())
			_ = b.Resign(t.Context())
		})
	}
}

func newElection(t *testing.T, st store.Store, opts leasehold.ElectionOptions) *leasehold.Election {
	t.Helper()
	e, err := leasehold.NewElection(st, "leaders/scheduler", &opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestElectionNeverCreates: with Existing a candidate does not make the object, and says so.
func TestElectionNeverCreates(t *testing.T) {
	needs(t, here().Tokens(), "a marker cannot exist already")
	bubble(t, func(t *testing.T) {
		st := newStore()
		err := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Existing: true}}).Run(t.Context(), nil)
		if !errors.Is(err, store.ErrNotExist) || st.Counts().Put != 0 {
			t.Errorf("%d writes: %v", st.Counts().Put, err)
		}
	})
}

// TestElectionTells: the callbacks and the logger of the options are those that are told.
func TestElectionTells(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		var log leasetest.Log
		told := make(chan string, 100)
		e := newElection(t, st, leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{
				OnRenew:   func(l *leasehold.Lease) { told <- "renewed " + l.Key() },
				OnLost:    func(_ *leasehold.Lease, err error) { told <- "lost " + err.Error() },
				OnTrouble: func(err error) { told <- "trouble " + err.Error() },
				Logger:    slog.New(slog.NewTextHandler(&log, nil)),
			},
		})
		lease, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		st.Partition(true)
		<-lease.Done()
		synctest.Wait()
		close(told)
		said := slices.Collect(func(yield func(string) bool) {
			for text := range told {
				yield(text)
			}
		})
		for _, want := range []string{"renewed leaders/scheduler", "lost the lease was lost", "trouble "} {
			if !slices.ContainsFunc(said, func(text string) bool { return strings.HasPrefix(text, want) }) {
				t.Errorf("nobody is told %q, but %q", want, said)
			}
		}
		if !strings.Contains(log.String(), "lease lost") {
			t.Errorf("the log says %q", &log)
		}
		_ = lease.Release(t.Context())
	})
}

// times notes when requests arrive, each at another moment.
type times struct {
	mu sync.Mutex
	at []time.Time
}

// watch notes the requests of a store from now on.
func (r *times) watch(st *faultstore.Store) {
	st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, When: func(faultstore.Call) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.at); n == 0 || !r.at[n-1].Equal(time.Now()) {
			r.at = append(r.at, time.Now())
		}
		return false
	}})
}

// pauses are the times between them.
func (r *times) pauses() (all []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range len(r.at) - 1 {
		all = append(all, r.at[i+1].Sub(r.at[i]))
	}
	return all
}

// between reports that there are so many pauses at least, and that those are between low and high.
func between(pauses []time.Duration, n int, low, high time.Duration) bool {
	return len(pauses) >= n && !slices.ContainsFunc(pauses[:n], func(d time.Duration) bool { return d < low || d > high })
}

// TestIntervalsOfAFollower: it looks as often as its options say, or an Update, at a leader that is new
// and at one that is steady.
func TestIntervalsOfAFollower(t *testing.T) {
	needsRenewals(t)
	for _, updated := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			leader := campaign(t, inner, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}})
			if err := leader.WaitForLeadership(t.Context()); err != nil {
				t.Fatal(err)
			}
			opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}, Frequent: 6 * time.Second, Infrequent: 100 * time.Second}
			if updated {
				opts = leasehold.ElectionOptions{}
			}
			follower := newCampaigner(t, inner, opts)
			if updated {
				if err := follower.Update(leasehold.ElectionConfig{TTL: time.Minute, Frequent: 6 * time.Second, Infrequent: 100 * time.Second}); err != nil {
					t.Fatal(err)
				}
			}
			var fresh, steady times
			fresh.watch(follower.net)
			follower.start(t)
			time.Sleep(15 * time.Second)
			// A pause varies by a quarter, and the next one is longer.
			if got := fresh.pauses(); !between(got, 1, 4500*time.Millisecond, 7500*time.Millisecond) {
				t.Errorf("updated %v: Frequent is 6 s, and a new leader was looked at after %v", updated, got)
			}
			time.Sleep(5 * time.Minute)
			follower.net.Clear()
			steady.watch(follower.net)
			time.Sleep(10 * time.Minute)
			if got := steady.pauses(); !between(got, 4, 75*time.Second, 125*time.Second) {
				t.Errorf("updated %v: Infrequent is 100 s, and a steady leader was looked at after %v", updated, got)
			}
			leader.quit(t)
			follower.quit(t)
		})
	}
}

// TestUpdatesThatCannotBe: an Update is held to what the options are held to.
func TestUpdatesThatCannotBe(t *testing.T) {
	e := newElection(t, newStore(), leasehold.ElectionOptions{})
	for says, all := range map[string][]leasehold.ElectionConfig{
		"":                       {{}, {TTL: leasehold.MinTTL}, {TTL: leasehold.MaxTTL}, {Frequent: 1}},
		"not between 1s and 24h": {{TTL: leasehold.MinTTL - 1}, {TTL: leasehold.MaxTTL + 1}, {TTL: -1}},
		"negative":               {{Frequent: -1}, {Infrequent: -1}},
		"longer than Infrequent": {{Frequent: 2, Infrequent: 1}},
	} {
		for _, c := range all {
			if err := e.Update(c); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: want %q, got %v", c, says, err)
			}
		}
	}
}

// TestRetriesOfACandidate: after failures of the store it pauses as its options say.
func TestRetriesOfACandidate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		var tries times
		tries.watch(st)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable})
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		opts := leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{TTL: time.Minute}, Retries: []time.Duration{3 * time.Second, 500 * time.Millisecond, 2 * time.Second}}
		if _, err := newElection(t, st, opts).Campaign(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		got := tries.pauses()
		if len(got) < 4 {
			t.Fatalf("the pauses are %v", got)
		}
		for i, want := range append(opts.Retries, 4*time.Second) {
			if got[i] < want || got[i] > want*5/4 { // many do not come back at one moment
				t.Errorf("after failure %d in a row: %v, and %v is asked for", i+1, got[i], want)
			}
		}
	})
}

// TestCampaignThatWaits: what a lock's options ask for an election does: OnWait is told of the leader
// that a campaign waits for.
func TestCampaignThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		leader := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "first"}})
		lease, err := leader.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waits := make(chan string, 10)
		follower := newElection(t, st, leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{
			OnWait: func(i leasehold.Info) { waits <- i.Holder },
		}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := follower.Campaign(ctx)
			ended <- err
		}()
		if holder := <-waits; holder != "first" {
			t.Errorf("it waits for %q", holder)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		release(t, lease)
	})
}
