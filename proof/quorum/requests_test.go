//go:build unix

package quorum_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// requests are those that have come to each place so far, by method. What creates an object is a POST on some.
func requests(places []*place) (all []map[string]int) {
	for _, p := range places {
		n := p.proxy.Counts()
		n[http.MethodPut] += n[http.MethodPost]
		delete(n, http.MethodPost)
		all = append(all, n)
	}
	return all
}

// A stopwatch measures how long writes take: those to a member, or those to a quorum.
type stopwatch struct {
	store.Store
	mu   sync.Mutex
	took []time.Duration
}

func (w *stopwatch) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	began := time.Now()
	o, err := w.Store.Put(ctx, key, body, only)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, time.Since(began))
	return o, err
}

// longest is the longest of those since that many.
func (w *stopwatch) longest(since int) (longest time.Duration, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, took := range w.took[since:] {
		longest = max(longest, took)
	}
	return longest, len(w.took)
}

// TestRequestsOfRenewals: a renewal is one write to each member, and no read. While a member hangs it takes as long as
// the others take, and the one that hangs is asked once for each renewal at most. It measures how long writes take, so
// it does not run beside the fights, and its TTL leaves a busy machine four seconds to renew.
func TestRequestsOfRenewals(t *testing.T) {
	const ttl = 6 * time.Second
	places := start(t)
	var watches []*stopwatch
	var members []store.Store
	for _, p := range places {
		w := &stopwatch{Store: p.open(t.Context())}
		watches, members = append(watches, w), append(members, w)
	}
	st, err := quorumstore.New(members, nil)
	if err == nil {
		err = st.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	whole := &stopwatch{Store: st}
	renewed := make(chan struct{}, 100)
	l, err := leasehold.NewLock(whole, "lock", &leasehold.LockOptions{
		TTL: ttl, Trace: leasetest.OnRenew(func() { renewed <- struct{}{} }),
	})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(t.Context()) }()
	renewals := func(n int) {
		t.Helper()
		for range n {
			select {
			case <-renewed:
			case <-lease.Done():
				t.Fatalf("the lease was lost: %v; requests: %v", lease.Err(), requests(places))
			}
		}
	}
	renewals(1)
	// Nobody waits for the last member: it has been asked all the same.
	settled := func(before []map[string]int, n int) func() bool {
		return func() bool {
			for i, now := range requests(places) {
				if now[http.MethodPut] < before[i][http.MethodPut]+n {
					return false
				}
			}
			return true
		}
	}
	before := requests(places)
	const usual = 3
	renewals(usual)
	until(t, "each member is asked for each renewal", settled(before, usual))
	for i, now := range requests(places) {
		for method, n := range before[i] {
			if now[method] -= n; now[method] == 0 {
				delete(now, method)
			}
		}
		if len(now) != 1 || now[http.MethodPut] != usual {
			t.Errorf("%d renewals are %v at %s, and want one write each", usual, now, places[i].server.Name)
		}
	}

	for hanging, p := range places {
		_, began := whole.longest(0)
		since := make([]int, len(watches))
		for i, w := range watches {
			_, since[i] = w.longest(0)
		}
		came := p.came.Load()
		p.proxy.Hang()
		n := 3
		if hanging == len(places)-1 {
			n = 10 * int(ttl/(ttl/3)) // ten TTLs
		}
		renewals(n)
		took, _ := whole.longest(began)
		asked := p.came.Load() - came
		var others time.Duration
		for i, w := range watches {
			if i != hanging {
				longest, _ := w.longest(since[i])
				others = max(others, longest)
			}
		}
		// It is asked anew by the next renewal after it has not answered for a second.
		t.Logf("figures: %d renewals while %s hangs: the longest took %v, the longest write to the others %v; asked %d times",
			n, p.server.Name, took.Round(time.Millisecond), others.Round(time.Millisecond), asked)
		if slack := ttl / 5; took > others+slack {
			t.Errorf("a renewal took %v while %s hung, and the others %v at most", took, p.server.Name, others)
		}
		if asked > int64(n) {
			t.Errorf("%d requests to %s for %d renewals, while it hung", asked, p.server.Name, n)
		}
		p.proxy.Restore(t)
		before := requests(places)
		renewals(1)
		until(t, p.server.Name+" takes part again", settled(before, 1))
	}
}
