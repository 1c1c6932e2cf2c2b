//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/shard"
)

// withSessions is everywhere, for what needs sessions, whatever layout the locks have.
func withSessions(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	if !underTest.Tokens() {
		t.Skip(withoutSessions)
	}
	everywhere(t, func(t *testing.T, p place) {
		if p.name == servers.CreateOnly {
			t.Skip("a heartbeat is written over, which this server does on no condition")
		}
		test(t, p)
	})
}

// TestSessionsEverywhere: over each kind of store, the locks of a session that is silent are taken over by another
// one, with later tokens, and those of one that is closed at once.
func TestSessionsEverywhere(t *testing.T) {
	t.Parallel()
	withSessions(t, func(t *testing.T, p place) {
		// So long that a busy machine loses none of them.
		const ttl = 10 * time.Second
		opts := &leasehold.SessionOptions{TTL: ttl}
		first, err := leasehold.NewSession(t.Context(), p.open(t), opts)
		if err != nil {
			t.Fatal(err)
		}
		second, err := leasehold.NewSession(t.Context(), p.open(t), opts)
		if err != nil {
			t.Fatal(err)
		}
		st := p.open(t)
		lockOf := func(s *leasehold.Session, n int) *leasehold.Lock {
			t.Helper()
			lock, err := leasehold.NewLock(st, fmt.Sprintf("many/%d", n), &leasehold.LockOptions{TTL: ttl, Session: s, Layout: underTest.Layout, NoIfMatch: underTest.NoIfMatch})
			if err != nil {
				t.Fatal(err)
			}
			return lock
		}
		tokens := map[int]leasehold.Token{}
		for n := range 5 {
			lease, err := lockOf(first, n).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tokens[n] = lease.Token()
			if _, err = lockOf(second, n).TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("lock %d is not held: %v", n, err)
			}
		}
		var all sync.WaitGroup
		for n := range 5 {
			all.Go(func() {
				lease, err := lockOf(second, n).Acquire(t.Context())
				if err != nil || lease.Token() <= tokens[n] {
					t.Errorf("lock %d: %v, after token %v", n, err, tokens[n])
					return
				}
				if err = lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		// Its leases go on for as long as it is not closed.
		began := first.Leases()[0].Deadline()
		until(t, "a heartbeat renews them", func() bool { return first.Leases()[0].Deadline().After(began) })
		for _, lease := range first.Leases() {
			if !lease.Valid() {
				t.Errorf("a lease ended with its session alive: %v", lease.Err())
			}
		}
		leases := first.Leases()
		closed := make(chan error, 1)
		go func() { closed <- first.Close(t.Context()) }()
		<-first.Done()
		for _, lease := range leases {
			_ = lease.Release(t.Context()) // it is lost
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		all.Wait()
		if err := second.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestShardsEverywhere: over each kind of store, workers share the shards, no shard is worked on twice at a
// time, and those of a worker that stops go to the others.
func TestShardsEverywhere(t *testing.T) {
	t.Parallel()
	withSessions(t, func(t *testing.T, p place) {
		names := []string{"0", "1", "2", "3", "4", "5", "6", "7"}
		var mu sync.Mutex
		owners := map[string]string{}
		last := map[string]leasehold.Token{}
		worker := func(ctx context.Context, name string) <-chan error {
			t.Helper()
			w, err := shard.NewWorker(p.open(t), "work", names, &shard.Options{Holder: name, TTL: 6 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				done <- w.Run(ctx, func(ctx context.Context, s shard.Shard) error {
					mu.Lock()
					if other := owners[s.Name]; other != "" || s.Token <= last[s.Name] {
						t.Errorf("%s begins shard %s with token %v, which %q has; the last token was %v", name, s.Name, s.Token, other, last[s.Name])
					}
					owners[s.Name], last[s.Name] = name, s.Token
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					delete(owners, s.Name)
					mu.Unlock()
					return nil
				})
			}()
			return done
		}
		shares := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			n := map[string]int{}
			for _, who := range owners {
				n[who]++
			}
			return n
		}
		a, stopA := context.WithCancel(t.Context())
		b, stopB := context.WithCancel(t.Context())
		defer stopA()
		defer stopB()
		doneA, doneB := worker(a, "a"), worker(b, "b")
		until(t, "both have half of the shards", func() bool { n := shares(); return n["a"] == len(names)/2 && n["b"] == len(names)/2 })
		stopA()
		if err := <-doneA; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		until(t, "b has all shards", func() bool { return shares()["b"] == len(names) })
		stopB()
		if err := <-doneB; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
