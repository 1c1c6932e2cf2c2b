package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// debugLog is a log of all there is to tell.
func debugLog(log *leasetest.Log) *slog.Logger {
	return slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Each write is in the log, if that is to say everything: what it was for, its token, and how
// it went.
func TestWritesAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Logger: debugLog(&log)})
		puts := cost(st, func() { release(t, acquire(t, lock)) })
		synctest.Wait()
		if n := strings.Count(log.String(), "level=DEBUG msg=write lock="); n != puts.put+puts.del {
			t.Errorf("%d of %v are in the log: %s", n, puts, &log)
		}
		for _, part := range []string{"op=claim token=", "op=free token=", "error=<nil>"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%q is missing in the log: %s", part, &log)
			}
		}
	})
}

// A caller that does not wait, while another of the same Lock does, is told of the holder as that
// one sees him by now, and not as he was when the wait began.
func TestTryBesideAWaiter(t *testing.T) {
	needs(t, renews(), withoutRenewals)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Holder: "a"}))
		net := newStoreOver(st)
		lock := newLock(t, net, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := lock.Acquire(ctx)
			done <- err
		}()
		time.Sleep(time.Minute)
		var held *leasehold.HeldError
		if _, err := lock.TryAcquire(t.Context()); !errors.As(err, &held) || held.Info.Holder != "a" || time.Since(held.Info.RenewedAt) > leasehold.DefaultTTL {
			t.Errorf("a minute later the holder is told to be %+v", held)
		}
		net.Partition(true)
		time.Sleep(8 * time.Second)
		if _, err := lock.TryAcquire(t.Context()); fmt.Sprintf("%T", err) != "*leasehold.HeldError" {
			t.Errorf("that somebody else waits, and the store fails: %v", err)
		}
		net.Partition(false)
		time.Sleep(8 * time.Second)
		cancel()
		if err := <-done; !errors.As(err, &held) || time.Since(held.Info.RenewedAt) > leasehold.DefaultTTL || strings.Contains(err.Error(), "the store fails") {
			t.Errorf("who has waited is told that the holder is %+v: %v", held, err)
		}
		release(t, lease)
	})
}

// A caller that gives up while its claim is under way, after the holder that it waited for released the lock,
// is told of that holder: that it is free by now is not why there was a wait.
func TestGivenUpAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		lease := acquire(t, newLock(t, inner, patient(leasehold.LockOptions{Holder: "a"})))
		time.AfterFunc(3*time.Second, func() { release(t, lease) })
		ctx, cancel := context.WithCancel(t.Context())
		lock := newLock(t, &gate{Store: inner, put: func(string, []byte) {
			cancel()
			time.Sleep(time.Second)
		}}, nil)
		_, err := lock.Acquire(ctx)
		var held *leasehold.HeldError
		if !errors.As(err, &held) || !held.Info.Held || held.Info.Holder != "a" {
			t.Errorf("%v, of %+v", err, held)
		}
		if err = lock.Settle(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A caller that does not wait, while another of the same Lock is about to learn who holds it, is told
// which lock it is, and that its own process is at it.
func TestTryBesideTheFirstLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Delay: time.Second})
		lock := newLock(t, st, &leasehold.LockOptions{Holder: "me"})
		got := make(chan *leasehold.Lease)
		go func() { got <- acquire(t, lock) }()
		synctest.Wait()
		var held *leasehold.HeldError
		if _, err := lock.TryAcquire(t.Context()); !errors.As(err, &held) || held.Info.Key != lock.Key() || held.Info.Holder != "me" {
			t.Errorf("%+v", held)
		}
		release(t, <-got)
	})
}

// The session of a waiter runs out while the machine is suspended, and the waiter gives up before
// a timer has run. The next in the queue is told at once, and neither waits nor claims the lock.
func TestSessionRanOutInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		lease := acquire(t, locksOf(t, inner, nil, "shards/1")[0])
		lock := a.lock("shards/1")
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := lock.Acquire(ctx)
			first <- err
		}()
		synctest.Wait()
		go func() {
			_, err := lock.Acquire(t.Context())
			second <- err
		}()
		time.Sleep(3500 * time.Millisecond) // no look is under way, nor due
		slept.Add(int64(time.Minute))
		a.st.Reset()
		cancel()
		synctest.Wait()
		if sent := a.st.Log(); len(sent) > 0 {
			t.Errorf("sent under a session that has run out: %v", sent)
		}
		if err := <-first; !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		select {
		case err := <-second:
			if !errors.Is(err, leasehold.ErrSessionOver) {
				t.Error(err)
			}
		default:
			t.Error("it waits for a lock under a session that has run out")
		}
		_ = lease.Release(t.Context()) // the machine was suspended for that, too
		a.end()
	})
}

// To begin to wait for a lock that is held under a session costs one look at the lock: it is looked
// at once more only when it may have been released since.
func TestWaitUnderASessionBeginsWithOneLook(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it counts the looks at one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		s, lease := holdUnderSession(t, inner)
		st := newStoreOver(inner)
		lock := newLock(t, st, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := lock.Acquire(ctx); !errors.Is(err, leasehold.ErrHeld) {
			t.Fatal(err)
		}
		if looks := requestsFor(st, lock.Key()); looks != 1 {
			t.Errorf("%d looks at a lock that does not change", looks)
		}
		release(t, lease)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// stuck is a store that answers no read of a key for as long as that has not been given up.
type stuck struct {
	store.Store
	key  string
	open atomic.Int64
}

func (s *stuck) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	if key != s.key {
		return s.Store.Get(ctx, key, unless)
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	<-ctx.Done()
	return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrUnavailable, Cause: ctx.Err()}
}

// A caller that has given up leaves no look behind, neither at the lock nor at the session of its holder.
func TestGivenUpLooksEnd(t *testing.T) {
	needs(t, here() == leasehold.LayoutObject, "it counts the looks at one object: the same in every layout")
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		s, lease := holdUnderSession(t, inner)
		for _, key := range []string{lease.Key(), s.Key()} {
			st := &stuck{Store: inner, key: key}
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error)
			go func() {
				_, err := newLock(t, st, nil).TryAcquire(ctx)
				failed <- err
			}()
			synctest.Wait()
			if n := st.open.Load(); n != 1 {
				t.Errorf("%d looks at %s are under way", n, key)
			}
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			synctest.Wait()
			if n := st.open.Load(); n != 0 {
				t.Errorf("%d looks at %s go on that nobody waits for", n, key)
			}
		}
		release(t, lease)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A waiter for a lock under another session than its own is not told that the holder's is its own.
func TestHolderOfAnotherSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a, b := startProcess(t, inner, "a"), startProcess(t, inner, "b")
		a.acquire("shards/1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.lock("shards/1").Acquire(ctx); !errors.Is(err, leasehold.ErrHeld) || strings.Contains(err.Error(), "the same session") {
			t.Error(err)
		}
		a.end()
		b.end()
	})
}

// The leases under a session are told in the order of their keys, whichever was acquired first.
func TestLeasesAreInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := startProcess(t, memstore.New(), "a")
		second := a.acquire("shards/2")
		first := a.acquire("shards/1")
		if got := a.session.Leases(); !slices.Equal(got, []*leasehold.Lease{first, second}) {
			t.Errorf("%v", got)
		}
		a.end()
	})
}
