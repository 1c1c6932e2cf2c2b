package leasehold_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestOwnLostLease: a lease that was lost and is not released keeps its own Lock busy. The next
// acquisition waited for that without a word, and was told that it is held by itself.
func TestOwnLostLease(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		st := newStore()
		var log leasetest.Log
		lock := newLock(t, st, &leasehold.LockOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		lease := acquire(t, lock)
		said := func() int { return strings.Count(log.String(), "call Release when its work has stopped") }
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := lock.Acquire(soon); !errors.Is(err, leasehold.ErrHeld) || said() > 0 {
			t.Errorf("beside a lease that is valid: %v, and logged %s", err, &log)
		}
		st.Partition(true)
		<-lease.Done()
		atOnce, stopAtOnce := context.WithTimeout(t.Context(), time.Second)
		defer stopAtOnce()
		_, err := lock.Acquire(atOnce)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "the lock jobs/backup is held") || strings.Contains(err.Error(), "store") || strings.Contains(err.Error(), "take it over") {
			t.Errorf("Acquire blames something else: %v", err)
		}
		st.Partition(false)
		if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) || !strings.Contains(err.Error(), "call Release") {
			t.Errorf("TryAcquire does not say what to do: %v", err)
		}
		if !strings.Contains(log.String(), "level=INFO msg=\"lease lost\"") {
			t.Errorf("that it was lost is not logged: %s", &log)
		}
		if n := said(); n != 1 { // by the acquisition
			t.Errorf("it is logged %d times before a TTL has passed: %s", n, &log)
		}
		time.Sleep(leasehold.DefaultTTL)
		synctest.Wait()
		if n := said(); n != 2 {
			t.Errorf("it is logged %d times after a TTL: %s", n, &log)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := lock.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "call Release") || strings.Contains(err.Error(), "take it over") {
			t.Errorf("Acquire does not say what to do: %v", err)
		}
		if n := said(); n != 3 {
			t.Errorf("it is logged %d times when somebody waits for it: %s", n, &log)
		}
		_ = lease.Release(t.Context())
		release(t, acquire(t, lock))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := said(); n != 3 {
			t.Errorf("it is logged %d times, and it was released: %s", n, &log)
		}
	})
}

// A lost lease that is not released is reported a TTL after it was lost, though an earlier one, which was
// released, was lost before it.
func TestOwnLostLeaseAfterAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		lock := newLock(t, memstore.New(), &leasehold.LockOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		first := acquire(t, lock)
		first.Abandon(context.Canceled)
		_ = first.Release(t.Context()) // it is lost
		second := acquire(t, lock)
		time.Sleep(10 * time.Second)
		second.Abandon(context.Canceled)
		for _, want := range []int{0, 1} {
			time.Sleep(10 * time.Second)
			if n := strings.Count(log.String(), "a lost lease has not been released"); n != want {
				t.Errorf("it is logged %d times, want %d: %s", n, want, &log)
			}
		}
		_ = second.Release(t.Context())
	})
}

// TestOwnSession: another Lock of the same key under the same session is waited for like any
// other, and that is logged, because it may be the caller's own. It was waited for without a word.
func TestOwnSession(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		s, lease := holdUnderSession(t, st)
		var log leasetest.Log
		other := newLock(t, st, &leasehold.LockOptions{Session: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		const advice = "under the same session"
		var held *leasehold.HeldError
		if _, err := other.TryAcquire(t.Context()); !errors.As(err, &held) || held.Info.Token != lease.Token() || !strings.Contains(err.Error(), advice) {
			t.Errorf("TryAcquire does not say what to do: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := other.Acquire(ctx); !errors.As(err, &held) || held.Info.Token != lease.Token() || !strings.Contains(err.Error(), advice) {
			t.Errorf("Acquire does not say what to do: %v", err)
		}
		if n := strings.Count(log.String(), advice); n != 1 {
			t.Errorf("it is logged %d times: %s", n, &log)
		}
		time.AfterFunc(time.Minute, func() { _ = lease.Release(t.Context()) })
		got, err := other.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release(t, got)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestNewLocksTakeOver: whoever makes a Lock for each try takes over from a holder that is gone by
// the store's clock. Without FastStart it never did.
func TestNewLocksTakeOver(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		gone := newStoreOver(inner)
		lease := acquire(t, newLock(t, gone, nil))
		gone.Partition(true)
		<-lease.Done()
		try := func(fast bool) error {
			got, err := newLock(t, inner, &leasehold.LockOptions{FastStart: fast}).TryAcquire(t.Context())
			if err != nil {
				return err
			}
			return got.Release(t.Context())
		}
		if err := try(true); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("before the time is over: %v", err)
		}
		time.Sleep(leasehold.DefaultTTL)
		if err := try(false); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("by a clock that it was not to trust: %v", err)
		}
		if err := try(true); err != nil {
			t.Error(err)
		}
		_ = lease.Release(t.Context())
	})
}

// TestInspectIsALook: the wait for a holder that is gone begins with an Inspect too.
func TestInspectIsALook(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		gone := newStoreOver(inner)
		lease := acquire(t, newLock(t, gone, nil))
		lock := newLock(t, inner, nil)
		gone.Partition(true)
		if _, err := lock.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leasehold.DefaultTTL * 13 / 12)
		if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("before the TTL and the margin have passed: %v", err)
		}
		time.Sleep(leasehold.DefaultTTL / 6)
		if _, err := lock.Inspect(t.Context()); err != nil { // which does not begin it anew
			t.Fatal(err)
		}
		got, err := lock.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Token() <= lease.Token() && here().Tokens() {
			t.Errorf("token %v after %v", got.Token(), lease.Token())
		}
		release(t, got)
		_ = lease.Release(t.Context())
	})
}

// losing loses writes of a lock: the first one lands when it is let go, and the others never.
type losing struct {
	store.Store
	key   string
	puts  atomic.Int64
	most  int64 // that are lost
	lands chan struct{}
	done  chan error
}

func (s *losing) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if key != s.key {
		return s.Store.Put(ctx, key, body, only)
	}
	switch n := s.puts.Add(1); {
	case n == 1:
		go func() {
			<-s.lands
			_, err := s.Store.Put(context.WithoutCancel(ctx), key, body, only)
			s.done <- err
		}()
	case n > s.most:
		return s.Store.Put(ctx, key, body, only)
	}
	return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome}
}

// TestManyLostClaimsUnderASession: a claim that is slow, and more after it than are remembered one by
// one; the caller gives up, and the slow one lands. It was forgotten, Settle said that nothing was
// under way, and the lock was held for as long as the session lived.
func TestManyLostClaimsUnderASession(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it loses writes of one object: the same in every layout")
	for _, most := range []int64{9, 20, 1000} {
		bubble(t, func(t *testing.T) {
			inner := memstore.New()
			release(t, acquire(t, newLock(t, inner, nil)))
			st := &losing{Store: inner, key: "jobs/backup", most: most, lands: make(chan struct{}), done: make(chan error)}
			s, err := leasehold.NewSession(t.Context(), st, nil)
			if err != nil {
				t.Fatal(err)
			}
			var log leasetest.Log
			lock := newLock(t, st, &leasehold.LockOptions{Session: s, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for st.puts.Load() < min(most, 20) {
					time.Sleep(time.Second)
				}
				cancel()
			}()
			if lease, refused := lock.Acquire(ctx); refused == nil {
				t.Fatalf("it was acquired: %v", lease.Token())
			}
			close(st.lands)
			landed := <-st.done
			if err = lock.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the session may be about to end
			info, err := lock.Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if info.Held && s.Err() == nil {
				t.Errorf("of %d claims the first one landed (%v), and the lock is held for as long as the session lives: %+v", most, landed, info)
			}
			if ended := s.Err() != nil; ended != strings.Contains(log.String(), "so the session ends") {
				t.Errorf("of %d claims the first one landed; the session has ended: %v, and the log says %s", most, ended, &log)
			}
			_ = s.Close(t.Context())
		})
	}
}

// The session was closed while an acquisition under it waited for its turn in the process.
func TestSessionEndsInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := startProcess(t, memstore.New(), "a")
		lock := a.lock("shards/1")
		lease := acquire(t, lock)
		acquired, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := lock.Acquire(t.Context())
			acquired <- err
		}()
		synctest.Wait()
		go func() { closed <- a.session.Close(context.Background()) }()
		<-lease.Done()
		if err := lease.Release(t.Context()); !errors.Is(err, leasehold.ErrSessionOver) {
			t.Errorf("the lease of a session that was closed: %v", err)
		}
		if err := <-acquired; !errors.Is(err, leasehold.ErrSessionOver) {
			t.Errorf("acquired under a session that is over: %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		began := time.Now()
		release(t, acquire(t, locksOf(t, a.st, nil, "shards/1")[0]))
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("the next holder has waited for %v", waited)
		}
	})
}

// An acquisition that has seen nothing told of the holder that another one had waited for before.
func TestHolderOfThePast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := newStore()
		st := newStoreOver(inner)
		lock := newLock(t, st, nil)
		lease := acquire(t, newLock(t, inner, nil))
		wait := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := lock.Acquire(ctx)
			return err
		}
		if err := wait(); !errors.Is(err, leasehold.ErrHeld) {
			t.Fatal(err)
		}
		release(t, lease)
		st.Partition(true)
		if err := wait(); err == nil || errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("a store that does not answer: %v", err)
		}
	})
}

// The trouble with a session that was waited for once is no reason for what comes later.
func TestTroubleOfThePast(t *testing.T) {
	needsSuccessors(t)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		s, lease := holdUnderSession(t, inner)
		st := &refusing{Store: inner, ops: "get"}
		lock := newLock(t, st, nil)
		wait := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err := lock.Acquire(ctx)
			return err
		}
		time.AfterFunc(time.Minute, func() { st.set(store.ErrUnavailable) })
		if err := wait(); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("this shows nothing: %v", err)
		}
		st.mend()
		release(t, lease)
		lease = acquire(t, newLock(t, inner, nil))
		if err := wait(); errors.Is(err, store.ErrUnavailable) || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("the store works, and the lock is held: %v", err)
		}
		time.Sleep(time.Second) // the last look may be under way
		release(t, lease)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A lock that is tried for, and taken from a session that is over, is under the new session as any other.
func TestTriedLockIsUnderTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a, b := startProcess(t, inner, "a"), startProcess(t, inner, "b")
		a.acquire("shards/1")
		a.close()
		lease, err := b.lock("shards/1").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := b.session.Leases(); len(got) != 1 || got[0] != lease {
			t.Errorf("the leases under the session are %v", got)
		}
		b.close()
		if lease.Valid() || !errors.Is(lease.Err(), leasehold.ErrSessionOver) {
			t.Errorf("its session is closed: %v", lease.Err())
		}
	})
}
