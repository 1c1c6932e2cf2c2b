package leasehold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// The tests of other packages need these too.
var (
	slept       = &leasetest.Slept
	bubble      = leasetest.Bubble
	here        = leasetest.Here
	setHere     = leasetest.SetHere
	hasEpochs   = leasetest.HasEpochs
	needs       = leasetest.Needs
	patient     = leasetest.Patient
	acquire     = leasetest.Acquire
	release     = leasetest.Release
	recordIn    = leasetest.RecordIn
	objects     = leasetest.Objects
	requestsFor = leasetest.RequestsFor
)

// newStore is an empty store behind a network that can be made bad.
func newStore() *faultstore.Store { return newStoreOver(memstore.New()) }

func newStoreOver(st store.Store) *faultstore.Store { return faultstore.Wrap(st, nil) }

func newLock(t *testing.T, st store.Store, opts *leasehold.LockOptions) *leasehold.Lock {
	t.Helper()
	lock, err := leasehold.NewLock(st, "jobs/backup", opts)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// rivals are a holder that cannot reach the store any more, which is how a crash
// looks from outside, and a second candidate.
func rivals(t *testing.T, opts *leasehold.LockOptions) (lease *leasehold.Lease, other *leasehold.Lock) {
	t.Helper()
	st := newStore()
	cut := faultstore.Wrap(st, nil)
	lease = acquire(t, newLock(t, cut, opts))
	cut.Partition(true)
	return lease, newLock(t, st, patient(leasehold.LockOptions{Holder: "other"}))
}

func TestCostInRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		b := budgets[here()]
		var lease *leasehold.Lease
		try := func(lock *leasehold.Lock) func() {
			return func() {
				if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
					t.Fatal(err)
				}
			}
		}
		hold := lasting(time.Hour + time.Second)
		for _, c := range []struct {
			what string
			f    func()
			want requests
		}{
			{"acquire a lock that does not exist", func() { lease = acquire(t, lock) }, b.make},
			{"release", func() { release(t, lease) }, b.release},
			{"acquire it again", func() { lease = acquire(t, lock) }, b.acquire},
			{"release it again", func() { release(t, lease) }, b.release},
			{"acquire it in a process that knows nothing", func() { lease = acquire(t, newLock(t, st, nil)) }, b.unknown},
			{"find it held", try(lock), b.refused}, // its last version was a free one, so it tries first
			{"find it held again", try(lock), b.look},
			{"wait for a renewal", func() { time.Sleep(lasting(6 * time.Second)) }, b.renew},
			{"find it held once more", try(lock), b.news},
			{"inspect", func() { _, _ = lock.Inspect(t.Context()) }, b.inspect},
			{"release it at last", func() { release(t, lease) }, b.release},
			{"acquire it after it was seen held", func() { lease = acquire(t, lock) }, b.freed.plus(b.acquire)},
			{"hold it for an hour, if there are renewals", func() { time.Sleep(hold) }, b.renew.times(int(hold / (5 * time.Second))).plus(b.hour)},
			{"release it after that", func() { release(t, lease) }, b.release},
			{"acquire it in a process that knows nothing, after that", func() { lease = acquire(t, newLock(t, st, nil)) }, b.unknown.plus(b.far)},
			{"release it, and that is all", func() { release(t, lease) }, b.release},
		} {
			if got := cost(st, c.f); got != c.want {
				t.Errorf("%s: %v, want %v", c.what, got, c.want)
			}
		}
	})
}

func TestCostOfATakeover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		cut := faultstore.Wrap(st, nil)
		gone := acquire(t, newLock(t, cut, nil))
		cut.Partition(true)
		other := newLock(t, st, patient(leasehold.LockOptions{}))
		if _, err := other.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Fatal(err)
		}
		time.Sleep(takeover(15 * time.Second))
		var lease *leasehold.Lease
		got := cost(st, func() { lease = acquire(t, other) })
		if want := budgets[here()].takeover; got != want {
			t.Errorf("a takeover: %v, want %v", got, want)
		}
		_ = gone.Release(t.Context())
		release(t, lease)
	})
}

func TestWaitingBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		var waited []string
		waiter := newLock(t, st, &leasehold.LockOptions{Trace: leasetest.OnWait(func(i leasehold.Info) { waited = append(waited, i.Holder) })})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		before := st.Counts()
		go func() {
			_, err := waiter.Acquire(ctx)
			done <- err
		}()
		time.Sleep(time.Hour + time.Second)
		// 1471 looks, give or take some by chance, of which nearly 720 show a renewal.
		b, got := budgets[here()], since(st, before)
		least, most := b.news.times(600).plus(b.look.times(800)), b.news.times(720).plus(b.look.times(800)).plus(b.inspect)
		if renews() {
			most = most.plus(b.renew.times(720)).plus(b.hour)
			least = least.plus(b.renew.times(720))
		}
		if !got.within(least, most) {
			t.Errorf("an hour of waiting and of the holder's renewals cost %v, want %v to %v", got, least, most)
		}
		stop()
		err := <-done
		synctest.Wait()
		var held *leasehold.HeldError
		if !errors.Is(err, context.Canceled) || !errors.As(err, &held) || held.Info.Holder != lease.Holder() {
			t.Errorf("the wait ended with %v", err)
		}
		if !slices.Equal(waited, []string{lease.Holder()}) {
			t.Errorf("told of the holders %v", waited)
		}
		if _ = lease.Release(t.Context()); renews() != errors.Is(lease.Err(), leasehold.ErrReleased) {
			t.Errorf("after an hour: %v", lease.Err())
		}
	})
}

func TestHandsOverInMoments(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		first, second := acquire(t, newLock(t, st, nil)), newLock(t, st, nil)
		go func() {
			time.Sleep(300 * time.Millisecond)
			if err := first.Release(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		start := time.Now()
		lease := acquire(t, second)
		if waited := time.Since(start); waited < 300*time.Millisecond || waited > 500*time.Millisecond {
			t.Errorf("a lock held for 300 ms changed hands after %v", waited)
		}
		follows(t, first.Token(), lease.Token())
		release(t, lease)
	})
}

func TestCrashIsWaitedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease, other := rivals(t, &leasehold.LockOptions{TTL: 9 * time.Second})
		start := time.Now()
		next := acquire(t, other)
		waited := time.Since(start)
		// The record's TTL counts, not the waiter's 15 s.
		low, high := protocol.Patience(9*time.Second), takeover(9*time.Second)
		if waited < low || waited > high {
			t.Errorf("taken over after %v, not between %v and %v", waited, low, high)
		}
		if !errors.Is(lease.Err(), leasehold.ErrLost) {
			t.Errorf("the former lease: %v", lease.Err())
		}
		follows(t, lease.Token(), next.Token())
		if err := lease.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("the release of a lost lease said %v", err)
		}
		release(t, next)
	})
}

func TestLeaseEndsBeforeAnybodyElseCanHoldIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		told := make(chan error, 1)
		lease, other := rivals(t, &leasehold.LockOptions{Trace: leasetest.OnLost(func(err error) { told <- err })})
		deadline := lease.Deadline()
		next := make(chan *leasehold.Lease, 1)
		go func() {
			l, err := other.Acquire(context.Background())
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		<-lease.Done()
		synctest.Wait()
		if len(next) != 0 {
			t.Fatal("another had the lock while the lease's context had not ended")
		}
		if now := time.Now(); now.Before(deadline) || now.Sub(deadline) > time.Millisecond {
			t.Errorf("the context ended at %v, the deadline was %v", now, deadline)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, leasehold.ErrLost) || !errors.Is(<-told, leasehold.ErrLost) {
			t.Errorf("the cause is %v", cause)
		}
		if lease.Valid() || !lease.Deadline().IsZero() {
			t.Error("the lease is over and still valid")
		}
		_ = lease.Release(t.Context())
		release(t, <-next)
	})
}

func TestSuspendEndsTheLeaseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		slept.Store(int64(time.Hour))
		if lease.Valid() || !errors.Is(lease.Err(), leasehold.ErrLost) {
			t.Errorf("after an hour of suspend the lease is still valid: %v", lease.Err())
		}
		before := st.Counts().Put
		woke := time.Now()
		<-lease.Done()
		if d := time.Since(woke); d > time.Second {
			t.Errorf("the context ended %v after the machine woke up", d)
		}
		if st.Counts().Put != before {
			t.Error("a lease that is over was renewed")
		}
		if err := lease.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
	})
}

func TestReleaseTellsOfALossThatNoTimerSaw(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease := acquire(t, newLock(t, newStore(), nil))
		slept.Store(int64(time.Hour))
		if err := lease.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("the release of an expired lease said %v", err)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, leasehold.ErrLost) {
			t.Errorf("its context ended because: %v", cause)
		}
	})
}

func TestOneProcessQueuesInOrderOfArrival(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{TTL: time.Minute}) // a third of which is more than all of them take
		lease := acquire(t, lock)
		var order []int
		token := lease.Token()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				l, err := lock.Acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				follows(t, token, l.Token())
				token = l.Token()
				time.Sleep(time.Second)
				if err := l.Release(context.Background()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // it has queued
		}
		if got := cost(st, func() { time.Sleep(4 * time.Second) }); got != (requests{}) {
			t.Errorf("ten goroutines in the queue made %v", got)
		}
		if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) || !strings.Contains(err.Error(), lease.Holder()) {
			t.Errorf("TryAcquire behind a queue: %v", err)
		}
		got := cost(st, func() {
			release(t, lease)
			all.Wait()
		})
		if !slices.IsSorted(order) || len(order) != 10 {
			t.Errorf("served in the order %v", order)
		}
		if want := budgets[here()].pass.times(10).plus(budgets[here()].release); got != want {
			t.Errorf("11 releases and 10 acquisitions cost %v, want %v", got, want)
		}
	})
}

func TestGivingUpInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lock := newLock(t, newStore(), nil)
		lease := acquire(t, lock)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := lock.Acquire(ctx)
		var held *leasehold.HeldError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) {
			t.Errorf("waiting behind a goroutine of this process ended with %v", err)
		}
		release(t, lease)
		release(t, acquire(t, lock)) // the queue goes on
	})
}

// The answer to the claim takes 2 s; the caller gives up after one. The claim landed, and
// must not stay.
func TestAcquireThatWasGivenUpIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: 2 * time.Second})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		start := time.Now()
		if _, err := lock.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		time.Sleep(10 * time.Second)
		if info, err := lock.Inspect(t.Context()); err != nil || !info.Exists || info.Held {
			t.Errorf("the lock that nobody holds is %+v, %v", info, err)
		}
	})
}

func TestLostAnswersAreNotRivals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Trace: leasetest.OnWait(func(i leasehold.Info) { t.Errorf("waited for %v", i.Holder) })})
		st.Inject(faultstore.Fault{Kind: faultstore.LostAnswer, Op: "put"}, faultstore.Fault{Kind: faultstore.LostAnswer, Op: "delete"})
		lease := acquire(t, lock)
		time.Sleep(lasting(time.Minute))
		if !lease.Valid() {
			t.Errorf("the holder took its own renewals for a rival's: %v", lease.Err())
		}
		release(t, lease)
		info, err := lock.Inspect(t.Context())
		if err != nil || info.Held || info.Token != lease.Token() {
			t.Errorf("after the release: %+v, %v", info, err)
		}
	})
}

func TestStoreComesBackInTime(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		st.Partition(true)
		time.Sleep(10 * time.Second)
		st.Partition(false)
		time.Sleep(time.Minute)
		if !lease.Valid() {
			t.Errorf("an outage of 10 s ended a lease of 15 s: %v", lease.Err())
		}
		release(t, lease)
	})
}

func TestReleaseAfterTheContextHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		lease, err := lock.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		time.Sleep(lasting(time.Minute))
		if !lease.Valid() || lease.Context().Value(key{}) != "value" {
			t.Fatal("the lease ended with the context that it was acquired with, or lost its values")
		}
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Errorf("the second release said %v", err)
		}
		if info, _ := lock.Inspect(t.Context()); info.Held {
			t.Error("still held")
		}
	})
}

type key struct{}

func TestReleaseWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		lease := acquire(t, lock)
		st.Partition(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := lease.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the release said %v", err)
		}
		if lease.Valid() {
			t.Error("a lease that is being released is still valid")
		}
		st.Partition(false)
		time.Sleep(5 * time.Second) // it goes on in the background
		if info, _ := lock.Inspect(t.Context()); info.Held {
			t.Error("the release did not go on")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("asked again, the release said %v", err)
		}
	})
}

func TestReleaseThatNeverLandsSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		st.Partition(true)
		start := time.Now()
		err := lease.Release(t.Context())
		if err == nil || !strings.Contains(err.Error(), "may still be taken for held") {
			t.Errorf("the release said %v", err)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("the release took %v", d)
		}
	})
}

func TestDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		broken := errors.New("broken")
		free := func() {
			t.Helper()
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Errorf("after Do: %+v, %v", info, err)
			}
		}
		err := lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			if ctx.Err() != nil || !lease.Valid() || ctx.Value(key{}) != nil {
				t.Error("not valid inside Do")
			}
			return broken
		})
		if !errors.Is(err, broken) || errors.Is(err, leasehold.ErrLost) {
			t.Errorf("Do returned %v", err)
		}
		free()
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not come through")
				}
			}()
			_ = lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { panic("boom") })
		}()
		free()
		ctx, stop := context.WithTimeout(t.Context(), lasting(time.Minute))
		defer stop()
		err = lock.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do returned %v", err)
		}
		free()
		err = lock.Do(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			st.Partition(true)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("Do returned %v", err)
		}
	})
}

func TestTryAcquireSaysWho(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, &leasehold.LockOptions{
			Holder: "db-1", Address: "10.0.1.42:8443", Meta: map[string]string{"version": "1.8.2"},
		}))
		_, err := newLock(t, st, nil).TryAcquire(t.Context())
		var held *leasehold.HeldError
		if !errors.As(err, &held) || !errors.Is(err, leasehold.ErrHeld) {
			t.Fatalf("got %v", err)
		}
		i := held.Info
		if i.Holder != "db-1" || i.Address != "10.0.1.42:8443" || i.Meta["version"] != "1.8.2" ||
			i.Token != lease.Token() || i.TTL != 15*time.Second || !i.Held || i.Abandoned {
			t.Errorf("told %+v", i)
		}
		release(t, lease)
	})
}

func TestAbandonedIsAHintAndNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease, other := rivals(t, nil)
		time.Sleep(time.Hour)
		_, err := other.TryAcquire(t.Context())
		var held *leasehold.HeldError
		if !errors.As(err, &held) || !held.Info.Abandoned {
			t.Fatalf("an hour after the last renewal: %v", err)
		}
		// Seen unchanged for its TTL and margin, it may be taken over at once.
		time.Sleep(20 * time.Second)
		next, err := other.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release(t, next)
		_ = lease.Release(t.Context())
	})
}

func TestExistingNeverCreates(t *testing.T) {
	if !here().Tokens() {
		if _, err := leasehold.NewLock(newStore(), "jobs/backup", &leasehold.LockOptions{Existing: true}); err == nil {
			t.Error("a marker that is free exists")
		}
		return
	}
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Existing: true})
		if _, err := lock.Acquire(t.Context()); !errors.Is(err, store.ErrNotExist) || !strings.Contains(err.Error(), "leasehold init") {
			t.Fatalf("got %v", err)
		}
		if st.Counts().Put != 0 {
			t.Fatal("it wrote")
		}
		made, first, err := admin.Init(t.Context(), lock)
		if err != nil || made.Held || !made.Exists || !first {
			t.Fatalf("init: %+v, %v, %v", made, first, err)
		}
		if again, second, err := admin.Init(t.Context(), newLock(t, st, nil)); err != nil || again.Token != made.Token || second {
			t.Errorf("init again: %+v, %v, %v", again, second, err)
		}
		lease := acquire(t, lock)
		follows(t, made.Token, lease.Token())
		if here() == leasetest.EpochsNoIfMatch {
			// A renewal makes the next epoch, whatever has become of the last.
			release(t, lease)
			erase(t, st)
		} else {
			erase(t, st)
			<-lease.Done()
			if !errors.Is(lease.Err(), leasehold.ErrLost) {
				t.Errorf("the object is gone, and the lease says %v", lease.Err())
			}
			_ = lease.Release(t.Context())
			if _, err := lock.Acquire(t.Context()); !errors.Is(err, store.ErrNotExist) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := newLock(t, st, &leasehold.LockOptions{Existing: true}).Acquire(t.Context()); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// TestFirstTokens: those of one object start at the store's time, those of epochs at 1.
func TestFirstTokens(t *testing.T) {
	st := newStore()
	before := time.Now().UnixMilli()
	lease := acquire(t, newLock(t, st, nil))
	low, high := before, time.Now().UnixMilli()
	switch {
	case hasEpochs():
		low, high = 1, 1
	case !here().Tokens():
		low, high = 0, 0
	}
	if token := int64(lease.Token()); token < low || token > high {
		t.Errorf("token %d is not between %d and %d", token, low, high)
	}
	if info, err := newLock(t, st, nil).Inspect(t.Context()); err != nil || info.Token != lease.Token() || info.Layout.Tokens() != here().Tokens() {
		t.Errorf("the record says %+v, %v", info, err)
	}
	release(t, lease)
}

// notLocks are what nobody of us has written.
var notLocks = map[string]string{
	"garbage":       "not a lock at all",
	"higher format": `{"format":7,"token":1,"state":"free","ttl_ms":1,"write_id":"x"}`,
	"empty":         "",
	"100 KB":        strings.Repeat("x", 100<<10),
}

// plant puts an object in the place of the lock, and returns what says that it is as it was.
func plant(t *testing.T, st *faultstore.Store, key, body string) (untouched func()) {
	t.Helper()
	if _, err := st.Put(t.Context(), key, []byte(body), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	st.Reset()
	return func() {
		t.Helper()
		obj, err := st.Get(t.Context(), key, "")
		if c := st.Counts(); err != nil || string(obj.Body) != body || c.Put+c.Delete != 0 {
			t.Errorf("the object was touched: %v, %+v", err, c)
		}
	}
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	if !here().Tokens() {
		t.Skip("a marker that is not ours is another tool's: see TestAnotherToolsMarkerIsWaitedFor")
	}
	for name, body := range notLocks {
		t.Run(name, func(t *testing.T) {
			st := newStore()
			untouched := plant(t, st, objectKey("jobs/backup", 7), body)
			refuses(t, newLock(t, st, nil), objectKey("jobs/backup", 7))
			untouched()
		})
	}
}

// refuses checks that a lock is not understood, and that the error says which object.
func refuses(t *testing.T, lock *leasehold.Lock, says string) {
	t.Helper()
	_, acquired := lock.Acquire(t.Context())
	_, tried := lock.TryAcquire(t.Context())
	_, inspected := lock.Inspect(t.Context())
	_, _, inited := admin.Init(t.Context(), lock)
	for _, err := range []error{acquired, tried, inspected, inited} {
		if !errors.Is(err, leasehold.ErrForeignObject) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnotherToolsMarkerIsWaitedFor(t *testing.T) {
	needs(t, !here().Tokens(), withoutMarkers)
	for name, body := range notLocks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				untouched := plant(t, st, "jobs/backup", body)
				lock := newLock(t, st, patient(leasehold.LockOptions{}))
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				var held *leasehold.HeldError
				if _, err := lock.Acquire(ctx); !errors.As(err, &held) || held.Info.Holder != "another tool" || held.Info.Abandoned {
					t.Errorf("got %v", err)
				}
				untouched()
				erase(t, st)
				release(t, acquire(t, lock))
			})
		})
	}
}

// TestOtherLayoutsAreForeign: a lock whose objects lie in the same place, in another way.
func TestOtherLayoutsAreForeign(t *testing.T) {
	other, says := leasetest.Object, "belongs to the layout"
	switch here() {
	case leasetest.Object:
		other = leasetest.Marker
	case leasetest.Epochs:
		other, says = leasetest.EpochsNoIfMatch, "used without If-Match: set NoIfMatch, or if_match=false in the store's URL"
	case leasetest.EpochsNoIfMatch:
		other, says = leasetest.Epochs, "used with If-Match, which NoIfMatch, if_match=false in the store's URL or a Proof forbids"
	}
	st := newStore()
	lease := acquire(t, newLock(t, st, other.Options()))
	puts := st.Counts().Put
	refuses(t, newLock(t, st, nil), says)
	if st.Counts().Put != puts || !lease.Valid() {
		t.Errorf("it was written over: %v", lease.Err())
	}
	release(t, lease)
}

func TestUnreachableStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		st.Partition(true)
		start := time.Now()
		_, err := lock.TryAcquire(t.Context())
		if took := time.Since(start); !errors.Is(err, store.ErrUnavailable) || took < 1100*time.Millisecond || took > 1400*time.Millisecond {
			t.Errorf("TryAcquire: %v after %v", err, took)
		}
	})
}

func TestHangingCallbackDelaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		var log leasetest.Log
		lease, _ := rivals(t, &leasehold.LockOptions{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Trace:  locktrace.Join(leasetest.OnRenew(func() { <-hang }), leasetest.OnLost(func(error) { <-hang })),
		})
		start := time.Now()
		<-lease.Done()
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("the context ended after %v", d)
		}
		_ = lease.Release(t.Context())
		time.Sleep(time.Minute)
		close(hang)
		synctest.Wait()
		if !strings.Contains(log.String(), "function=Lost") {
			t.Errorf("the hanging function was not reported: %s", &log)
		}
	})
}

// A function of a Trace that returns within the TTL is not reported.
func TestSlowTraceIsNotReported(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		lease := acquire(t, newLock(t, newStore(), &leasehold.LockOptions{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Trace:  leasetest.OnRenew(func() { time.Sleep(14 * time.Second) }),
		}))
		time.Sleep(7 * time.Second)
		release(t, lease)
		time.Sleep(time.Minute)
		if strings.Contains(log.String(), "does not return") {
			t.Errorf("the log says %s", &log)
		}
	})
}

func TestRenewalsAreTold(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		var deadlines []time.Time
		var held atomic.Pointer[leasehold.Lease]
		lease := acquire(t, newLock(t, newStore(), &leasehold.LockOptions{
			Trace: leasetest.OnRenew(func() { deadlines = append(deadlines, held.Load().Deadline()) }),
		}))
		held.Store(lease)
		first := lease.Deadline()
		time.Sleep(16 * time.Second)
		release(t, lease)
		synctest.Wait()
		if len(deadlines) != 3 || !deadlines[0].Equal(first.Add(5*time.Second)) || !deadlines[2].Equal(first.Add(15*time.Second)) {
			t.Errorf("first %v, then %v", first, deadlines)
		}
	})
}

func TestOptionsThatCannotBe(t *testing.T) {
	st := memstore.New()
	for name, c := range map[string]struct {
		key  string
		opts leasehold.LockOptions
		says string
	}{
		"negative TTL":      {"k", leasehold.LockOptions{TTL: -1}, "TTL"},
		"tiny TTL":          {"k", leasehold.LockOptions{TTL: time.Millisecond}, "1s"},
		"endless TTL":       {"k", leasehold.LockOptions{TTL: 1000 * time.Hour}, "24h"},
		"no key":            {"", leasehold.LockOptions{}, "key"},
		"bad key":           {"a//b", leasehold.LockOptions{}, "slash"},
		"huge meta data":    {"k", leasehold.LockOptions{Meta: map[string]string{"a": strings.Repeat("x", 1<<17)}}, "meta data"},
		"holder not a text": {"k", leasehold.LockOptions{Holder: "a\xff"}, "UTF-8"},
		"unknown layout":    {"k", leasehold.LockOptions{Layout: "pile"}, "use one of [object epochs marker]"},
		"no If-Match":       {"k", leasehold.LockOptions{Layout: leasehold.LayoutObject, NoIfMatch: true}, "which the layout object needs: use the layout epochs"},
		"needless sweep":    {"k", leasehold.LockOptions{Layout: leasehold.LayoutObject, Sweep: true}, "Sweep"},
		"sweep by If-Match": {"k", leasehold.LockOptions{Layout: leasehold.LayoutMarker, Sweep: true}, "markers without If-Match"},
		"free marker":       {"k", leasehold.LockOptions{Layout: leasehold.LayoutMarker, Existing: true}, "marker"},
		"no room":           {strings.Repeat("k/", store.MaxKey/2-9) + "k", leasehold.LockOptions{Layout: leasehold.LayoutEpochs}, "bytes"},
	} {
		_, err := leasehold.NewLock(st, c.key, &c.opts)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leasehold.NewLock(nil, "k", nil); err == nil {
		t.Error("a nil store was accepted")
	}
}

// TestSettle: an acquisition that is given up while its claim is under way is over when
// the claim has been answered, and the lock is free then.
func TestSettle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		if err := lock.Settle(t.Context()); err != nil {
			t.Errorf("a lock that nobody has wanted: %v", err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Nth: 1, Delay: 2 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := lock.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		if err := lock.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while the claim is under way: %v", err)
		}
		if err := lock.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if info, err := newLock(t, st, nil).Inspect(t.Context()); err != nil || info.Held {
			t.Errorf("after it has settled: %+v, %v", info, err)
		}
	})
}

// Work that a resource has refused must not go on: the context ends with the reason, and the
// lock is not taken over before the lease would have ended, or was released.
func TestAbandonedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		reason := errors.New("refused")
		lease.Abandon(reason)
		if cause := context.Cause(lease.Context()); !errors.Is(cause, leasehold.ErrLost) || !errors.Is(cause, reason) || lease.Valid() {
			t.Errorf("the context ended with %v, valid: %v", cause, lease.Valid())
		}
		before := st.Counts()
		time.Sleep(leasehold.DefaultTTL / 2)
		if after := st.Counts(); after != before {
			t.Errorf("the store got %+v, and then %+v", before, after)
		}
		if _, err := newLock(t, st, nil).TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("another may have it at once: %v", err)
		}
		if err := lease.Release(t.Context()); !errors.Is(err, reason) {
			t.Errorf("the release says %v", err)
		}
		lease.Abandon(errors.New("too late"))
		if err := lease.Err(); !errors.Is(err, reason) {
			t.Errorf("and then %v", err)
		}
		release(t, acquire(t, newLock(t, st, nil)))
	})
}

// asks is a proof that notes what it is asked, and says no to some uses.
type asks struct {
	no   []string
	uses []string
}

var errNoProof = errors.New("nobody has shown that")

func (a *asks) Proves(storeName, use string) error {
	a.uses = append(a.uses, storeName+" "+use)
	if slices.Contains(a.no, use) {
		return errNoProof
	}
	return nil
}

// TestProof: where a proof is asked for, it decides, before anything is sent, on the layout
// and on what else the guarantee would rest on.
func TestProof(t *testing.T) {
	st := newStore()
	const without = "epochs without If-Match"
	for _, c := range []struct {
		opts leasehold.LockOptions
		no   []string
		fail bool
		uses []string
	}{
		{leasehold.LockOptions{}, nil, false, []string{"epochs"}},
		{leasehold.LockOptions{}, []string{"epochs"}, false, []string{"epochs", "/k epochs", without}},
		{leasehold.LockOptions{}, []string{"epochs", without}, true, []string{"epochs", "/k epochs", without, "/k " + without}},
		{leasehold.LockOptions{FastStart: true}, []string{"epochs", without}, true, []string{"epochs", "/k epochs", without, "/k " + without}},
		{leasehold.LockOptions{NoIfMatch: true}, []string{"epochs"}, false, []string{without}},
		{leasehold.LockOptions{NoIfMatch: true}, []string{without}, true, []string{without, "/k " + without}},
		{leasehold.LockOptions{}, []string{"fast start"}, false, []string{"epochs"}},
		{leasehold.LockOptions{FastStart: true}, []string{"fast start"}, true, []string{"epochs", "fast start", "/k fast start"}},
		{leasehold.LockOptions{FastStart: true}, nil, false, []string{"epochs", "fast start"}},
		{leasehold.LockOptions{FastStart: true}, []string{"epochs"}, false, []string{"epochs", "/k epochs", without, "fast start"}},
	} {
		a := &asks{no: c.no}
		c.opts.Layout, c.opts.Proof = leasehold.LayoutEpochs, a
		_, err := leasehold.NewElection(st, "k", &leasehold.ElectionOptions{LockOptions: c.opts})
		if errors.Is(err, errNoProof) != c.fail || err != nil != c.fail {
			t.Errorf("%+v: %v", c, err)
		}
		var want []string
		for _, use := range c.uses {
			if !strings.HasPrefix(use, "/") { // of the lock, and else of the store
				use = " " + use
			}
			want = append(want, st.String()+use)
		}
		if !slices.Equal(a.uses, want) {
			t.Errorf("%+v: it was asked for %q", c, a.uses)
		}
	}
	a := &asks{no: []string{"marker", "marker without If-Match"}}
	if _, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{Layout: leasehold.LayoutMarker, Proof: a}); !errors.Is(err, errNoProof) {
		t.Error(err)
	}
	if c := st.Counts(); c != (faultstore.Counts{}) {
		t.Errorf("%+v requests were made", c)
	}
}

// TestIfMatchIsProven: a lock does without If-Match where the store or a proof refuses only that, and says
// so in its records. Its user need not know. Elsewhere it needs the option.
func TestIfMatchIsProven(t *testing.T) {
	for _, l := range []leasetest.Way{leasetest.Epochs, leasetest.Marker} {
		without := leasetest.Way{Layout: l.Layout, NoIfMatch: true}
		no := []string{l.String()}
		for name, c := range map[string]struct {
			own, proof *asks
			opts       *leasehold.LockOptions
			want       leasetest.Way
		}{
			"neither says anything": {&asks{}, &asks{}, l.Options(), l},
			"the proof refuses it":  {&asks{}, &asks{no: no}, l.Options(), without},
			"the store refuses it":  {&asks{no: no}, &asks{}, l.Options(), without},
			"both refuse it":        {&asks{no: no}, &asks{no: no}, l.Options(), without},
			"the option":            {&asks{}, &asks{}, without.Options(), without},
		} {
			bubble(t, func(t *testing.T) {
				st := limited{newStore(), c.own}
				c.opts.Proof = c.proof
				lease := acquire(t, newLock(t, st, c.opts))
				before := st.Counts()
				time.Sleep(7 * time.Second)
				got := since(st.Store, before)
				if want := budgets[c.want].renew; got != want {
					t.Errorf("%s, %s: a renewal took %v, want %v", l, name, got, want)
				}
				release(t, lease)
			})
		}
	}
}

// limited is a store that knows of a use for which it is not safe.
type limited struct {
	*faultstore.Store
	own *asks
}

func (l limited) Proves(storeName, use string) error { return l.own.Proves(storeName, use) }

// TestStoreIsItsOwnProof: a store that says itself what it cannot carry is believed, whatever
// another proof says of it, before anything is sent. A lock in such a store used to be had by
// its first write, and to be lost at its first renewal.
func TestStoreIsItsOwnProof(t *testing.T) {
	st := limited{newStore(), &asks{no: []string{"object"}}}
	opts := leasehold.LockOptions{Layout: leasehold.LayoutObject, Proof: &asks{}}
	if _, err := leasehold.NewLock(st, "k", &opts); !errors.Is(err, errNoProof) {
		t.Errorf("a lock: %v", err)
	}
	if _, err := leasehold.NewSession(t.Context(), st, nil); !errors.Is(err, errNoProof) {
		t.Errorf("a session: %v", err)
	}
	if c := st.Counts(); c != (faultstore.Counts{}) {
		t.Errorf("%+v requests were made", c)
	}
	st.own.no = []string{"fast start"}
	if _, err := leasehold.NewLock(st, "k", &opts); err != nil {
		t.Error(err)
	}
	opts.FastStart = true
	if _, err := leasehold.NewLock(st, "k", &opts); !errors.Is(err, errNoProof) {
		t.Errorf("fast start: %v", err)
	}
}

// TestOptionsOfOneLease: name, meta data and TTL are those of the acquisition, for its lease only,
// also where the lock is passed on inside the process.
func TestOptionsOfOneLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, &leasehold.LockOptions{Holder: "web", Meta: map[string]string{"app": "shop"}})
		meta := map[string]string{"run": "7"}
		lease, err := lock.Acquire(t.Context(), leasehold.WithHolder("job-7"), leasehold.WithMeta(meta), leasehold.WithTTL(40*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		meta["run"] = "8" // it is nobody's concern by now
		looks := func(lease *leasehold.Lease, holder, key, value string, ttl time.Duration) {
			t.Helper()
			info, err := newLock(t, st, nil).Inspect(t.Context())
			if err != nil || info.Holder != holder || info.TTL != ttl || len(info.Meta) != 1 || info.Meta[key] != value || lease.Holder() != holder {
				t.Errorf("%+v, held by %s, %v", info, lease.Holder(), err)
			}
		}
		time.Sleep(15 * time.Second)
		looks(lease, "job-7", "run", "7", 40*time.Second)
		next := make(chan *leasehold.Lease, 1)
		go func() {
			l, err := lock.Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		synctest.Wait()
		release(t, lease)
		lease = <-next
		looks(lease, "web", "app", "shop", leasehold.DefaultTTL)
		release(t, lease)
	})
}

// ends checks that a lease ends by its terms, so long after now, and says so by all ways.
func ends(t *testing.T, lease *leasehold.Lease, in time.Duration, says string) {
	t.Helper()
	began := time.Now()
	if end := leasehold.Internal.Core(lease).End().Sub(began); end != in {
		t.Errorf("it is to end in %v, and says %v", in, end)
	}
	select {
	case <-lease.Done():
	case <-time.After(in + time.Hour):
	}
	if took := time.Since(began); took != in {
		t.Errorf("it ended after %v, want %v", took, in)
	}
	for _, err := range []error{lease.Err(), context.Cause(lease.Context()), lease.Release(t.Context())} {
		if !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, leasehold.ErrTimeUp) || !strings.Contains(err.Error(), says) {
			t.Errorf("it says %v, and not %q", err, says)
		}
	}
	if !leasehold.Internal.Core(lease).End().IsZero() {
		t.Error("a lease that is over is to end once more")
	}
}

// TestMaxHold: a lease is renewed until its longest hold is over, and then ends; the next one of the
// Lock does not.
func TestMaxHold(t *testing.T) {
	needs(t, renews(), "a marker without If-Match is not renewed, and ends before")
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock := newLock(t, st, nil)
		lease, err := lock.TryAcquire(t.Context(), leasehold.WithMaxHold(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		ends(t, lease, time.Minute, "held for 1m0s at most")
		if n := st.Counts().Put; n < 11 || n > 12 { // claim, ten renewals at most, release
			t.Errorf("%d writes", n)
		}
		lease = acquire(t, lock)
		if !leasehold.Internal.Core(lease).End().IsZero() {
			t.Errorf("the next lease ends at %v", leasehold.Internal.Core(lease).End())
		}
		time.Sleep(2 * time.Minute)
		release(t, lease)
	})
}

// TestTimeUpByTheClock: a process that slept through the end of its lease learns the reason from the
// clock, before anybody has told it.
func TestTimeUpByTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease, err := newLock(t, newStore(), nil).Acquire(t.Context(), leasehold.WithMaxHold(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		slept.Store(int64(11 * time.Second))
		if err := lease.Err(); lease.Valid() || !errors.Is(err, leasehold.ErrTimeUp) || !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("valid %t, %v", lease.Valid(), err)
		}
		_ = lease.Release(t.Context())
	})
}

// TestWithoutRenewal: such a lease costs its claim and its release, and ends with its validity.
func TestWithoutRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease, err := newLock(t, st, nil).Acquire(t.Context(), leasehold.WithoutRenewal(), leasehold.WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		ends(t, lease, time.Minute-5*time.Second-10*time.Millisecond, "not to be renewed")
		writes := 2
		if !here().Tokens() {
			writes = 1 // a release deletes the marker
		}
		if n := st.Counts().Put; n != writes {
			t.Errorf("%d writes", n)
		}
	})
}

// TestMaxHoldUnderASession: the lease ends although the session goes on, whose other leases do too.
func TestMaxHoldUnderASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startProcess(t, memstore.New(), "a")
		lease, err := p.lock("one").Acquire(t.Context(), leasehold.WithMaxHold(time.Minute), leasehold.WithHolder("job-7"))
		if err != nil || lease.Holder() != "job-7" {
			t.Fatal(lease, err)
		}
		other := p.acquire("two")
		ends(t, lease, time.Minute, "held for 1m0s at most")
		if other.Err() != nil {
			t.Error(other.Err())
		}
		release(t, other)
		p.close()
	})
}

// TestHoldAtLeast: a lock that is released early rests for what is left: for a candidate that tries,
// one that waits, a new one, and the next goroutine of the same process. Those that wait do so with
// few requests.
func TestHoldAtLeast(t *testing.T) {
	needs(t, here().Tokens(), "a marker that is released is gone, and cannot rest")
	bubble(t, func(t *testing.T) {
		st := newStore()
		lock, other := newLock(t, st, &leasehold.LockOptions{Holder: "a"}), newLock(t, st, &leasehold.LockOptions{Holder: "b"})
		began := time.Now()
		lease, err := lock.Acquire(t.Context(), leasehold.WithHoldAtLeast(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		got := make(chan *leasehold.Lease, 2)
		wait := func(l *leasehold.Lock) {
			next, failed := l.Acquire(t.Context())
			if failed != nil {
				t.Error(failed)
			}
			got <- next
		}
		go wait(lock)
		go wait(other)
		synctest.Wait()
		release(t, lease)
		st.Reset()
		time.Sleep(time.Minute)
		resting(t, newLock(t, st, nil), 8*time.Minute)
		first := <-got
		if after := time.Since(began); after < 10*time.Minute || after > 10*time.Minute+5*time.Second {
			t.Errorf("somebody got it after %v", after)
		}
		if n := st.Counts(); n.Get+n.List > 60 || n.Put > 4 {
			t.Errorf("that took %+v", n)
		}
		release(t, first)
		second := <-got
		if after := time.Since(began); after > 10*time.Minute+30*time.Second {
			t.Errorf("the other got it after %v", after)
		}
		release(t, second)
	})
}

// resting checks what a candidate that tries is told of a lock that rests for about so long.
func resting(t *testing.T, lock *leasehold.Lock, d time.Duration) {
	t.Helper()
	about := func(rest time.Duration) bool { return rest >= d && rest <= d+2*time.Second }
	_, err := lock.TryAcquire(t.Context())
	held, ok := errors.AsType[*leasehold.HeldError](err)
	if !ok || !about(held.Info.Rest) || held.Info.Held || held.Info.Holder != "a" || !strings.Contains(err.Error(), "rests for") {
		t.Errorf("a lock that rests for %v: %v", d, err)
	}
	if info, failed := lock.Inspect(t.Context()); failed != nil || info.Held || !about(info.Rest) {
		t.Errorf("a look shows %+v, %v", info, failed)
	}
	patience, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = lock.Acquire(patience)
	held, ok = errors.AsType[*leasehold.HeldError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) || held.Info.Rest < d-2*time.Second || held.Info.Rest > d+time.Second {
		t.Errorf("one who waits and gives up is told %v", err)
	}
}

// TestRestIsOver: a candidate that starts after the rest, or tries again after it, gets the lock at once.
func TestRestIsOver(t *testing.T) {
	needs(t, here().Tokens(), "a marker that is released is gone, and cannot rest")
	for _, again := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			st := newStore()
			lease, err := newLock(t, st, &leasehold.LockOptions{Holder: "a"}).Acquire(t.Context(), leasehold.WithHoldAtLeast(50*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			release(t, lease)
			lock := newLock(t, st, nil)
			if again {
				resting(t, lock, 50*time.Second)
			}
			time.Sleep(51 * time.Second)
			if lease, err = lock.TryAcquire(t.Context()); err != nil {
				t.Fatalf("one that tries again, %t: %v", again, err)
			}
			release(t, lease)
		})
	}
}

// TestBreakEndsARest: breaking a lock that rests by hand makes it free at once, with its token, and
// those who wait notice within about a minute.
func TestBreakEndsARest(t *testing.T) {
	needs(t, here().Tokens(), "a marker that is released is gone, and cannot rest")
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease, err := newLock(t, st, &leasehold.LockOptions{Holder: "a"}).Acquire(t.Context(), leasehold.WithHoldAtLeast(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		release(t, lease)
		waits := make(chan *leasehold.Lease, 1)
		go func() {
			next, failed := newLock(t, st, nil).Acquire(t.Context())
			if failed != nil {
				t.Error(failed)
			}
			waits <- next
		}()
		time.Sleep(10 * time.Minute)
		lock := newLock(t, st, nil)
		info, err := admin.Break(t.Context(), lock, lease.Token())
		if err != nil || info.Rest != 0 || info.Held || info.Token != lease.Token() {
			t.Fatalf("%+v, %v", info, err)
		}
		if now, err := lock.Inspect(t.Context()); err != nil || now.Rest != 0 || now.Token != lease.Token() {
			t.Errorf("%+v, %v", now, err)
		}
		broken := time.Now()
		next := <-waits
		if took := time.Since(broken); took > 70*time.Second {
			t.Errorf("one who waited noticed after %v", took)
		}
		release(t, next)
	})
}

// TestWrongOptions: what cannot be had fails before anything is sent, and says what was wrong.
func TestWrongOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		alone, marker := newLock(t, st, nil), newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutMarker, NoIfMatch: true})
		p := startProcess(t, st, "a")
		under := p.lock("under")
		large := map[string]string{"k": strings.Repeat("x", 70_000)}
		before := st.Counts()
		for _, c := range []struct {
			lock *leasehold.Lock
			opts []leasehold.AcquireOption
			says string
		}{
			{alone, []leasehold.AcquireOption{leasehold.WithHolder("")}, "WithHolder: the name is empty"},
			{alone, []leasehold.AcquireOption{leasehold.WithHolder("a\xff")}, "UTF-8"},
			{alone, []leasehold.AcquireOption{leasehold.WithMeta(large)}, "shorten"},
			{alone, []leasehold.AcquireOption{leasehold.WithTTL(0)}, "WithTTL: 0s is not between 1s and 24h0m0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithTTL(time.Millisecond)}, "the TTL 1ms is not between 1s and 24h0m0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithTTL(25 * time.Hour)}, "the TTL 25h0m0s is not between 1s and 24h0m0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithMaxHold(0)}, "WithMaxHold: 0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithMaxHold(-time.Second)}, "WithMaxHold: -1s"},
			{alone, []leasehold.AcquireOption{leasehold.WithMaxHold(time.Second - 1)}, "less than 1s"},
			{alone, []leasehold.AcquireOption{leasehold.WithHoldAtLeast(-1)}, "WithHoldAtLeast: -1ns is negative"},
			{alone, []leasehold.AcquireOption{leasehold.WithHoldAtLeast(24*time.Hour + 1)}, "is not between 0 and 24h0m0s"},
			{alone, []leasehold.AcquireOption{leasehold.WithHoldAtLeast(time.Minute + 1), leasehold.WithMaxHold(time.Minute)}, "more than the longest, 1m0s"},
			{under, []leasehold.AcquireOption{leasehold.WithTTL(time.Minute)}, "the TTL of the session"},
			{under, []leasehold.AcquireOption{leasehold.WithoutRenewal()}, "give it a longest hold"},
			{marker, []leasehold.AcquireOption{leasehold.WithHoldAtLeast(time.Second)}, "the layout marker cannot keep a shortest hold"},
		} {
			for name, acquire := range map[string]func() error{
				"Acquire":    func() error { _, err := c.lock.Acquire(t.Context(), c.opts...); return err },
				"TryAcquire": func() error { _, err := c.lock.TryAcquire(t.Context(), c.opts...); return err },
				"Do": func() error {
					return c.lock.Do(t.Context(), func(context.Context, *leasehold.Lease) error { return nil }, c.opts...)
				},
			} {
				if err := acquire(); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.lock.Key()) {
					t.Errorf("%s: %v, want %q", name, err, c.says)
				}
			}
		}
		if after := st.Counts(); after != before {
			t.Errorf("that took requests: %+v, before %+v", after, before)
		}
		p.close()
	})
}

// TestDoOnTerms: the options of Do are for its lease.
func TestDoOnTerms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lock := newLock(t, newStore(), nil)
		err := lock.Do(t.Context(), func(ctx context.Context, lease *leasehold.Lease) error {
			if lease.Holder() != "job-7" {
				t.Errorf("held by %s", lease.Holder())
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, leasehold.WithHolder("job-7"), leasehold.WithMaxHold(5*time.Second))
		if !errors.Is(err, leasehold.ErrTimeUp) {
			t.Error(err)
		}
	})
}

// looks notes when one that waits looks at a lock that another holds, with these options of both,
// in each of the spans of time.
func looks(t *testing.T, opts leasehold.LockOptions, spans ...time.Duration) (at []times) {
	t.Helper()
	at = make([]times, len(spans))
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		lease := acquire(t, newLock(t, inner, &opts))
		st := newStoreOver(inner)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := newLock(t, st, &opts).Acquire(ctx)
			done <- err
		}()
		for i, span := range spans {
			st.Clear()
			at[i].watch(st)
			time.Sleep(span)
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("gave up: %v", err)
		}
		release(t, lease)
	})
	return at
}

// A waiter looked once for each renewal from its first minute on: every five seconds at the default
// TTL, so that a lock stood idle for seconds after a release, and every eight hours at a TTL of a day.
// Now it looks once a second in the first ten minutes whatever the TTL, but at the end of a lease.
func TestWaiterPauses(t *testing.T) {
	needs(t, here() == leasetest.Object, "the pauses are the same in every layout")
	for ttl, c := range map[time.Duration]struct{ most, after time.Duration }{
		2 * time.Second:      {1500 * time.Millisecond, 10 * time.Minute},
		leasehold.DefaultTTL: {5 * time.Second, 50 * time.Minute},
		leasehold.MaxTTL:     {10 * time.Second, 2 * time.Hour},
	} {
		at := looks(t, leasehold.LockOptions{TTL: ttl}, 5*time.Second, 10*time.Minute-5*time.Second, c.after, 10*time.Minute)
		if n := len(at[0].at) + len(at[1].at); n < 560 || n > 620 {
			t.Errorf("TTL %v: %d looks in ten minutes", ttl, n)
		}
		if got := at[1].pauses(); !between(got, 500, 450*time.Millisecond, 2100*time.Millisecond) {
			t.Errorf("TTL %v: after five seconds the pauses are %v", ttl, got)
		}
		if got := at[3].pauses(); !between(got, 46, c.most*3/4, c.most*5/4) {
			t.Errorf("TTL %v: after %v more the pauses are %v", ttl, c.after, got)
		}
	}
}

// TestPollInterval: pauses are those that are asked for, but the end of a lease is looked at at once.
func TestPollInterval(t *testing.T) {
	needs(t, here() == leasetest.Object, "the pauses are the same in every layout")
	for interval, fits := range map[time.Duration]bool{
		-1: false, 1: false, 20*time.Millisecond - 1: false, 20 * time.Millisecond: true, 24 * time.Hour: true, 24*time.Hour + 1: false,
	} {
		if _, err := leasehold.NewLock(newStore(), "jobs/backup", &leasehold.LockOptions{PollInterval: interval}); (err == nil) != fits {
			t.Errorf("an interval of %v: %v", interval, err)
		}
	}
	for _, c := range []struct{ ttl, interval, low, high time.Duration }{
		{leasehold.MaxTTL, 20 * time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond},
		{leasehold.DefaultTTL, time.Second, 750 * time.Millisecond, 1250 * time.Millisecond},
		{leasehold.MaxTTL, time.Minute, 45 * time.Second, 75 * time.Second},
		{leasehold.DefaultTTL, time.Minute, 16 * time.Second, 18 * time.Second},
	} {
		at := looks(t, leasehold.LockOptions{TTL: c.ttl, PollInterval: c.interval}, time.Second+4*c.interval, 20*c.interval)
		if got := at[1].pauses(); !between(got, 15, c.low, c.high) {
			t.Errorf("an interval of %v with the TTL %v: %v", c.interval, c.ttl, got)
		}
	}
}

// TestReleaseIsNoticed: where each request takes 100 to 200 ms and two wait, a lock that was held
// for six seconds is idle for four times as long as a PUT takes, on average. At the default TTL it was
// idle for a second and more.
func TestReleaseIsNoticed(t *testing.T) {
	needs(t, here() == leasetest.Object, "what it costs is counted there: the same in every layout, but for more requests")
	const candidates, rounds, put = 3, 200, 150 * time.Millisecond
	bubble(t, func(t *testing.T) {
		type turn struct {
			candidate int
			lease     *leasehold.Lease
		}
		locks := make([]*leasehold.Lock, candidates)
		shared, got := memstore.New(), make(chan turn)
		want := func(i int) { got <- turn{i, acquire(t, locks[i])} }
		for i := range candidates {
			var st store.Store = shared
			for _, kind := range []faultstore.Kind{faultstore.DelayBefore, faultstore.DelayAfter} {
				half := faultstore.Fault{Kind: kind, Delay: 50 * time.Millisecond, Jitter: 50 * time.Millisecond}
				st = faultstore.Wrap(st, &faultstore.Options{Seed: uint64(i), Faults: []faultstore.Fault{half}})
			}
			locks[i] = newLock(t, st, nil)
			go want(i)
		}
		var idle time.Duration
		for range rounds {
			holder := <-got
			time.Sleep(6 * time.Second)
			began := time.Now()
			go release(t, holder.lease)
			next := <-got
			idle += time.Since(began)
			go func() { got <- next }()
			time.Sleep(time.Second)
			go want(holder.candidate)
		}
		if mean := idle / rounds; mean > 4*put {
			t.Errorf("idle for %v on average, which is %.1f PUTs", mean, mean.Seconds()/put.Seconds())
		} else {
			t.Log(mean)
		}
		for range candidates {
			release(t, (<-got).lease)
		}
	})
}

// setUp returns a store and the options of a lock in it, under a session or not.
func setUp(t *testing.T, inner store.Store, session bool) (st *faultstore.Store, opts *leasehold.LockOptions, end func()) {
	t.Helper()
	if !session {
		return faultstore.Wrap(inner, nil), nil, func() {}
	}
	p := startProcess(t, inner, "a")
	return p.st, &leasehold.LockOptions{Session: p.session}, p.end
}

// ofJobs are the requests about locks, and not about sessions.
func ofJobs(c faultstore.Call) bool { return strings.HasPrefix(c.Key, "jobs/") }

// jobs counts them.
func jobs(st *faultstore.Store) (n int) {
	for _, e := range st.Log() {
		if !e.Late && ofJobs(faultstore.Call{Key: e.Key}) {
			n++
		}
	}
	return n
}

// Settle that was begun before a lease under a session was granted never returned; without
// a session it waited until that lease was released. Any later grant settles an acquisition that
// was given up; one that another goroutine waits for was not given up.
func TestSettleBesideAnAcquisition(t *testing.T) {
	for _, c := range []struct {
		what    string
		session bool
		waits   bool // the acquisition, for a holder, for as long as the test lasts
	}{
		{"a lease", false, false},
		{"a lease under a session", true, false},
		{"a wait", false, true},
		{"a wait under a session", true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) { settleBeside(t, c.session, c.waits) })
		})
	}
}

func settleBeside(t *testing.T, session, waits bool) {
	t.Helper()
	inner := memstore.New()
	st, opts, end := setUp(t, inner, session)
	defer end()
	holder, err := leasehold.NewLock(inner, "jobs/backup", nil)
	if err != nil {
		t.Fatal(err)
	}
	var held *leasehold.Lease
	if waits {
		held = acquire(t, holder)
	}
	st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, When: ofJobs, Delay: time.Second})
	lock := newLock(t, st, opts)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	acquired := make(chan *leasehold.Lease)
	go func() {
		lease, err := lock.Acquire(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		acquired <- lease
	}()
	for range 5 { // before the first request is sent, while each is under way, and after
		settling, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := lock.Settle(settling); err != nil {
			t.Errorf("nothing was given up: %v", err)
		}
		cancel()
		time.Sleep(300 * time.Millisecond)
	}
	stop()
	if lease := <-acquired; lease != nil {
		_ = lease.Release(t.Context())
	}
	st.Clear()
	if held != nil {
		release(t, held)
	}
	if err := lock.Settle(t.Context()); err != nil {
		t.Error(err)
	}
}

// A lease that came as the caller gave up was released in the background, and Settle returned
// before that had landed.
func TestSettleWaitsForALeaseThatIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			slow := newStore()
			slow.Inject(
				faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Nth: 2, Delay: time.Second},
				faultstore.Fault{Kind: faultstore.DelayBefore, Op: "delete", Delay: time.Second},
			)
			st := &told{Store: slow, after: cancel}
			lock := newLock(t, st, nil)
			if _, err := lock.Acquire(ctx); err == nil {
				t.Fatal("acquired")
			}
			if err := lock.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Fatalf("settled, and the lock is %+v, %v", info, err)
			}
		}
	})
}

// Whatever is given up when, and whatever becomes of its requests: Settle returns, and then
// nothing of it is under way and no record of it stands.
func TestSettleAlwaysReturns(t *testing.T) {
	needs(t, here().Tokens(), "the delete of a marker is not sent again when it was lost")
	for _, session := range []bool{false, true} {
		for kind := faultstore.Unavailable; kind <= faultstore.LateDuplicate; kind++ {
			if kind == faultstore.Denied {
				continue // nothing can be settled, and the release says so
			}
			t.Run(fmt.Sprintf("%v, session %v", kind, session), func(t *testing.T) {
				for after := time.Duration(0); after < 2*time.Second; after += 150 * time.Millisecond {
					bubble(t, func(t *testing.T) { settleAfter(t, kind, session, after) })
				}
			})
		}
	}
}

func settleAfter(t *testing.T, kind faultstore.Kind, session bool, after time.Duration) {
	t.Helper()
	inner := newStore()
	st, opts, end := setUp(t, inner, session)
	defer end()
	st.Inject(
		faultstore.Fault{Kind: kind, When: ofJobs, Nth: 2, Delay: 700 * time.Millisecond},
		faultstore.Fault{Kind: kind, When: ofJobs, Nth: 4, Delay: 700 * time.Millisecond},
		faultstore.Fault{Kind: faultstore.DelayAfter, When: ofJobs, Delay: 100 * time.Millisecond},
	)
	lock := newLock(t, st, opts)
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	if err == nil {
		err = lease.Release(t.Context())
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	settling, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	if err = lock.Settle(settling); err != nil {
		t.Fatalf("given up after %v: %v\n%v", after, err, st.Log())
	}
	before := jobs(st)
	info, err := newLock(t, inner, nil).Inspect(t.Context())
	if err != nil || info.Held {
		t.Errorf("given up after %v: %+v, %v\n%v", after, info, err, st.Log())
	}
	time.Sleep(time.Minute)
	if now := jobs(st); now != before {
		t.Errorf("given up after %v, and %d requests became %d after Settle\n%v", after, before, now, st.Log())
	}
	st.Close()
}

// The plain loop that people begin with creates a marker, or else tries again after 0.5 to 1 s.
// It made about so many requests in the competition below on MinIO, in one process and in ten alike.
const (
	loopRequests = 29.0   // for each acquisition
	loopDollars  = 0.1403 // for 1,000 of them
)

// A contest is what came of a competition for one lock.
type contest struct {
	served   map[int]bool
	overlaps int
	inUse    float64 // the share of the time from the first acquisition to the last release
	// Requests for each acquisition.
	get, put, list, delete float64
}

func (c contest) requests() float64 { return c.get + c.put + c.list + c.delete }

// dollars are what the requests for 1,000 acquisitions cost in S3 Standard, us-east-1.
func (c contest) dollars() float64 { return 0.005*(c.put+c.list) + 0.0004*c.get }

// TestContention: a hundred tasks compete for one lock, which each needs for 200 ms, in one
// process and in ten, where a write is answered after 6 ms on average, a LIST after 3 and a
// GET after 1. It notices idle time and requests that nobody needs. With 8 ms one process
// would miss the 95 % already.
func TestContention(t *testing.T) {
	for _, processes := range []int{1, 10} {
		for _, layout := range leasetest.Ways {
			if processes > 1 && layout != leasetest.Object {
				continue // they take the longest, and nothing more is asked of them
			}
			t.Run(fmt.Sprint(layout, " ", processes), func(t *testing.T) {
				bubble(t, func(t *testing.T) { contend(t, layout, processes).check(t, layout, processes) })
			})
		}
	}
}

func (c contest) check(t *testing.T, layout leasetest.Way, processes int) {
	t.Helper()
	t.Logf("in use %.1f %%, %.2f requests, $%.4f for 1,000, %d tasks served", c.inUse*100, c.requests(), c.dollars(), len(c.served))
	epochs := layout.Layout == leasehold.LayoutEpochs
	byDefault := layout == leasetest.Object
	for what, wrong := range map[string]bool{
		"overlaps":                       c.overlaps > 0,
		"tasks that had the lock":        len(c.served) == 0 || processes == 1 && len(c.served) < 100,
		"share of the time in use":       c.inUse > 1 || byDefault && (c.inUse < 0.80 || processes == 1 && c.inUse < 0.95),
		"fewer than one write each":      c.put < 1,
		"LISTs, which only epochs need":  (c.list > 0) != epochs,
		"DELETEs, which only markers do": c.delete > 0 && (epochs || byDefault),
		"requests, of one process":       byDefault && processes == 1 && c.requests() >= loopRequests/10,
		"dollars, of several":            byDefault && processes > 1 && c.dollars() >= loopDollars,
	} {
		if wrong {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// contend lets a hundred tasks compete until they have had the lock a hundred times, with as
// many locks as there would be processes.
func contend(t *testing.T, layout leasetest.Way, processes int) (c contest) {
	t.Helper()
	const enough, tasks, hold = 100, 100, 200 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var (
		mu            sync.Mutex
		inside, turns int
		first, last   time.Time
		all           sync.WaitGroup
		shared        = memstore.New()
		stores        []*faultstore.Store
		locks         []*leasehold.Lock
	)
	c.served = map[int]bool{}
	work := func(ctx context.Context, task int) error {
		mu.Lock()
		if inside++; inside > 1 {
			c.overlaps++
		}
		if c.served[task] = true; first.IsZero() {
			first = time.Now()
		}
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(hold):
		}
		mu.Lock()
		defer mu.Unlock()
		inside--
		if ctx.Err() == nil {
			if turns++; turns == enough {
				last = time.Now()
				stop()
			}
		}
		return nil
	}
	for n := range processes {
		st := someWayOff(shared, uint64(n))
		lock := newLock(t, st, &leasehold.LockOptions{Layout: layout.Layout, NoIfMatch: layout.NoIfMatch})
		stores, locks = append(stores, st), append(locks, lock)
		for task := n * tasks / processes; task < (n+1)*tasks/processes; task++ {
			all.Go(func() {
				for ctx.Err() == nil {
					err := lock.Do(ctx, func(ctx context.Context, _ *leasehold.Lease) error { return work(ctx, task) })
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for i, st := range stores {
		n := st.Counts()
		c.get, c.put, c.list, c.delete = c.get+float64(n.Get)/enough, c.put+float64(n.Put)/enough, c.list+float64(n.List)/enough, c.delete+float64(n.Delete)/enough
		if err := locks[i].Settle(t.Context()); err != nil {
			t.Error(err)
		}
	}
	c.inUse = enough * hold.Seconds() / last.Sub(first).Seconds()
	return c
}

// someWayOff gives a store at some distance: a request and its answer take half each.
func someWayOff(st store.Store, seed uint64) *faultstore.Store {
	for _, kind := range []faultstore.Kind{faultstore.DelayBefore, faultstore.DelayAfter} {
		faults := []faultstore.Fault{
			{Kind: kind, Op: "put", Delay: 2 * time.Millisecond, Jitter: 2 * time.Millisecond},
			{Kind: kind, Op: "delete", Delay: 2 * time.Millisecond, Jitter: 2 * time.Millisecond},
			{Kind: kind, Op: "list", Delay: time.Millisecond, Jitter: time.Millisecond},
			{Kind: kind, Op: "get", Delay: 400 * time.Microsecond, Jitter: 200 * time.Microsecond},
		}
		st = faultstore.Wrap(st, &faultstore.Options{Seed: seed, Faults: faults})
	}
	outer, _ := st.(*faultstore.Store)
	return outer
}

// told is a store that tells when a request was answered.
type told struct {
	store.Store
	after func()
	read  func()
}

func (s *told) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	o, err := s.Store.Get(ctx, key, unless)
	if s.read != nil {
		s.read()
	}
	return o, err
}

func (s *told) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, only)
	if s.after != nil {
		s.after()
	}
	return o, err
}

// The answer to the claim takes a while: the lease ends as if it had not (rule A4).
func TestSlowClaimCountsFromItsSending(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: 3 * time.Second})
		sent := time.Now()
		lease := acquire(t, newLock(t, st, nil))
		if d := lease.Deadline().Sub(sent); d > protocol.Validity(leasehold.DefaultTTL) {
			t.Errorf("the lease ends %v after its claim was sent", d)
		}
		release(t, lease)
	})
}

// The record has whole milliseconds, so the holder must not count on more (rule A7).
func TestTTLIsWholeMilliseconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began := time.Now()
		lock := newLock(t, newStore(), &leasehold.LockOptions{TTL: 2*time.Second + 999*time.Microsecond})
		lease := acquire(t, lock)
		info, err := lock.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := lease.Deadline().Sub(began); d > protocol.Validity(info.TTL) {
			t.Errorf("the lease counts on %v, its record promises %v", d, protocol.Validity(info.TTL))
		}
		release(t, lease)
	})
}

// The caller gives up in the moment in which its claim lands: nobody keeps the lock.
func TestLeaseThatCrossesTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			st := &told{Store: memstore.New(), after: cancel}
			lock := newLock(t, st, nil)
			if _, err := lock.Acquire(ctx); err == nil {
				t.Fatal("acquired")
			}
			if err := lock.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Fatalf("%+v, %v", info, err)
			}
		}
	})
}

// Whom a lease was passed on to gives up in that moment: nobody keeps the lock.
func TestPassedOnToNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 200 {
			lock := newLock(t, memstore.New(), nil)
			lease := acquire(t, lock)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				if l, err := lock.Acquire(ctx); err == nil {
					release(t, l)
				}
			})
			synctest.Wait()
			release(t, lease) // its turn has come,
			cancel()          // and it may not have noticed yet
			all.Wait()
			synctest.Wait()
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Fatalf("%+v, %v", info, err)
			}
		}
	})
}

// A waiter gives up while the lease is being passed on to it, at any one reading of the clock: nobody
// keeps the lock.
func TestPassedOnAsTheWaiterLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for n := range int64(6) {
			lock := newLock(t, memstore.New(), nil)
			lease := acquire(t, lock)
			ctx, cancel := context.WithCancel(t.Context())
			waiter := make(chan error, 1)
			go func() {
				next, err := lock.Acquire(ctx)
				if err == nil {
					err = next.Release(t.Context()) //nolint:contextcheck // ctx may have ended
				}
				waiter <- err
			}()
			synctest.Wait()
			var readings atomic.Int64
			began, at := clock.Now(), time.Now()
			undo := clock.Set(func() time.Duration {
				if readings.Add(1) == n+1 {
					cancel()
					for range 1000 { // it leaves the queue
						runtime.Gosched()
					}
				}
				return began + time.Since(at)
			})
			release(t, lease)
			undo()
			cancel()
			if err := <-waiter; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, leasehold.ErrHeld) {
				t.Error(err)
			}
			if err := lock.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if info, err := lock.Inspect(t.Context()); err != nil || info.Held {
				t.Errorf("%d: %+v, %v", n, info, err)
			}
		}
	})
}

// TestReleasedIsFree: when Release has returned, the next attempt of the same Lock is not kept out by
// what is left of the lease.
func TestReleasedIsFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lock := newLock(t, memstore.New(), &leasehold.LockOptions{Layout: leasehold.LayoutObject}) // others keep all that was
		for n := range 10_000 {
			lease, err := lock.TryAcquire(t.Context())
			if err != nil {
				t.Fatalf("after %d releases: %v", n, err)
			}
			release(t, lease)
		}
	})
}

// stored has the members of each kind of object with a record, by the record's layout. Those of all
// kinds come first. What Terraform reads in a marker is left out.
var stored = func() map[string]string {
	const all = "format state holder address ttl_ms write_id session meta acquired_at renewed_at expires_at "
	const lock = all + "token successor moved_to ended rest term term_token history "
	return map[string]string{
		"":                   lock + "moves_from",
		"epochs":             lock + "layout if_match previous",
		record.LayoutMarker:  all + "layout",
		record.LayoutSession: all + "layout token ended freed",
	}
}()

// A clerk is a store that notes the members of all objects written to it.
type clerk struct {
	store.Store
	mu   sync.Mutex
	seen map[string]map[string]bool // by layout
}

func (c *clerk) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	all, err := record.Members(body)
	if err != nil {
		return nil, err
	}
	var layout string
	if raw, ok := all["layout"]; ok {
		if err := json.Unmarshal(raw, &layout); err != nil {
			return nil, err
		}
	}
	layout, _, _ = strings.Cut(layout, "+") // the ways of a layout store the same
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[layout] == nil {
		c.seen[layout] = map[string]bool{}
	}
	for name := range all {
		c.seen[layout][name] = true
	}
	return c.Store.Put(ctx, key, body, only)
}

// TestMembersOfRecords: each kind of object stores these members, and no others.
func TestMembersOfRecords(t *testing.T) {
	st := &clerk{Store: memstore.New(), seen: map[string]map[string]bool{}}
	for _, layout := range []leasehold.Layout{leasehold.LayoutObject, leasehold.LayoutEpochs, leasehold.LayoutMarker} {
		bubble(t, func(t *testing.T) { useAll(t, st, layout) })
	}
	for layout, members := range stored {
		want := slices.Sorted(slices.Values(strings.Fields(members)))
		got := slices.DeleteFunc(slices.Sorted(maps.Keys(st.seen[layout])), func(name string) bool {
			return layout == record.LayoutMarker && name[0] <= 'Z'
		})
		if !slices.Equal(got, want) {
			t.Errorf("layout %q: stored are\n%q, want\n%q", layout, got, want)
		}
	}
	if len(st.seen) != len(stored) {
		t.Errorf("there are records of %d layouts, want %d", len(st.seen), len(stored))
	}
}

// useAll uses a lock, and a session and a move if the layout allows them, in all ways that show in
// records.
func useAll(t *testing.T, st store.Store, layout leasehold.Layout) {
	t.Helper()
	opts := leasehold.LockOptions{Layout: layout, Holder: "a", Address: "a:80", Meta: map[string]string{"k": "v"}}
	lock := func(key string, opts leasehold.LockOptions) *leasehold.Lock {
		t.Helper()
		l, err := leasehold.NewLock(st, key, &opts)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := "jobs/" + string(layout)
	first := lock(key, opts)
	release(t, acquire(t, first))
	if !layout.Tokens() {
		return
	}
	resting, err := first.Acquire(t.Context(), leasehold.WithHoldAtLeast(time.Minute))
	must(err)
	release(t, resting)
	e, err := leasehold.NewElection(st, key, &leasehold.ElectionOptions{LockOptions: opts})
	must(err)
	_, err = e.Campaign(t.Context())
	must(err)
	must(e.ResignTo(t.Context(), "a"))
	broken := acquire(t, first)
	_, err = admin.Break(t.Context(), lock(key, opts), broken.Token())
	must(err)
	<-broken.Done()
	_ = broken.Release(t.Context()) // it was force-released

	s, err := leasehold.NewSession(t.Context(), st, &leasehold.SessionOptions{Holder: "a", Meta: opts.Meta})
	must(err)
	under := opts
	under.Session = s
	release(t, acquire(t, lock(key, under)))
	time.Sleep(leasehold.DefaultTTL) // the next heartbeat tells of it
	must(admin.BreakSession(t.Context(), st, s.Key()))
	<-s.Done()

	opts.Layout = leasehold.LayoutObject
	_, err = admin.Move(t.Context(), first, lock("moved/"+string(layout), opts), nil)
	must(err)
}

// BenchmarkAcquireRelease: a lock that one candidate takes and gives back, in memory. "young": nobody
// has held it before, so all leases are one entry of its history. "old": it remembers as much as it
// can, sixteen leases of others.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, past := range []string{"young", "old"} {
		b.Run(past, func(b *testing.B) {
			st := memstore.New()
			if past == "old" {
				if _, err := st.Put(b.Context(), "jobs/backup", oldRecord(b), store.IfAbsent()); err != nil {
					b.Fatal(err)
				}
			}
			lock, err := leasehold.NewLock(st, "jobs/backup", &leasehold.LockOptions{Holder: "web-7d9f8b6c5d-x2x4z/1", Layout: leasehold.LayoutObject})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				lease, err := lock.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// oldRecord is the record of a lock that many have held, and that is free.
func oldRecord(t testing.TB) []byte {
	t.Helper()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := record.Record{Token: 1795170600000, TTL: 15 * time.Second, WriteID: "other.1", AcquiredAt: at}
	for n := range 20 {
		r.Term, r.TermToken = int64(n+1), r.Token
		p := record.Past{Token: r.Token, Term: r.Term, Holder: fmt.Sprintf("web-7d9f8b6c5d-%05d/1", n%5), From: at, To: at.Add(time.Minute), How: "released"}
		at = at.Add(time.Minute)
		r.History = r.Remember(p)
		r.Token, r.AcquiredAt, r.RenewedAt = r.Token+1, at, at.Add(time.Minute)
	}
	r.Term, r.TermToken = r.Term+1, r.Token
	body, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return body
}
