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
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
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
		waiter := newLock(t, st, &leasehold.LockOptions{OnWait: func(i leasehold.Info) { waited = append(waited, i.Holder) }})
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
		lease, other := rivals(t, &leasehold.LockOptions{OnLost: func(_ *leasehold.Lease, err error) { told <- err }})
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
		lock := newLock(t, st, &leasehold.LockOptions{OnWait: func(i leasehold.Info) { t.Errorf("waited for %v", i.Holder) }})
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
		if here() == leasehold.LayoutEpochs {
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
	other := map[leasehold.Layout]leasehold.Layout{
		leasehold.LayoutObject: leasehold.LayoutMarkerIfMatch, leasehold.LayoutMarkerIfMatch: leasehold.LayoutObject, leasehold.LayoutMarker: leasehold.LayoutObject,
		leasehold.LayoutEpochs: leasehold.LayoutEpochsIfMatch, leasehold.LayoutEpochsIfMatch: leasehold.LayoutEpochs,
	}[here()]
	st := newStore()
	lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: other}))
	puts := st.Counts().Put
	refuses(t, newLock(t, st, nil), "belongs to the layout")
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
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			OnRenew: func(*leasehold.Lease) { <-hang },
			OnLost:  func(*leasehold.Lease, error) { <-hang },
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
		if !strings.Contains(log.String(), "callback=OnLost") {
			t.Errorf("the hanging callback was not reported: %s", &log)
		}
	})
}

// A callback that returns within the TTL is not reported.
func TestSlowCallbackIsNotReported(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		lease := acquire(t, newLock(t, newStore(), &leasehold.LockOptions{
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			OnRenew: func(*leasehold.Lease) { time.Sleep(14 * time.Second) },
		}))
		time.Sleep(7 * time.Second)
		release(t, lease)
		time.Sleep(time.Minute)
		if strings.Contains(log.String(), "callback") {
			t.Errorf("the log says %s", &log)
		}
	})
}

func TestRenewalsAreTold(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		var deadlines []time.Time
		lease := acquire(t, newLock(t, newStore(), &leasehold.LockOptions{
			OnRenew: func(l *leasehold.Lease) { deadlines = append(deadlines, l.Deadline()) },
		}))
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
		"unknown layout":    {"k", leasehold.LockOptions{Layout: "pile"}, "epochs+if-match"},
		"needless sweep":    {"k", leasehold.LockOptions{Layout: leasehold.LayoutObject, Sweep: true}, "Sweep"},
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

// asks is a proof that notes what it is asked, and says no to one use.
type asks struct {
	no   string
	uses []string
}

var errNoProof = errors.New("nobody has shown that")

func (a *asks) Proves(storeName, use string) error {
	a.uses = append(a.uses, storeName+" "+use)
	if use == a.no {
		return errNoProof
	}
	return nil
}

// TestProof: where a proof is asked for, it decides, before anything is sent, on the layout
// and on what else the guarantee would rest on.
func TestProof(t *testing.T) {
	st := newStore()
	for _, c := range []struct {
		no   string
		fast bool
		fail bool
		uses []string
	}{
		{"", false, false, []string{"epochs"}},
		{"epochs", false, true, []string{"epochs", "/k epochs"}},
		{"epochs", true, true, []string{"epochs", "/k epochs"}},
		{"fast start", false, false, []string{"epochs"}},
		{"fast start", true, true, []string{"epochs", "fast start", "/k fast start"}},
		{"", true, false, []string{"epochs", "fast start"}},
	} {
		a := &asks{no: c.no}
		_, err := leasehold.NewElection(st, "k", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: leasehold.LayoutEpochs, FastStart: c.fast, Proof: a}})
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
	a := &asks{no: "marker"}
	if _, err := leasehold.NewLock(st, "k", &leasehold.LockOptions{Layout: leasehold.LayoutMarker, Proof: a}); !errors.Is(err, errNoProof) {
		t.Error(err)
	}
	if c := st.Counts(); c != (faultstore.Counts{}) {
		t.Errorf("%+v requests were made", c)
	}
}

// limited is a store that knows of a use for which it is not safe.
type limited struct {
	*faultstore.Store
	*asks
}

// TestStoreIsItsOwnProof: a store that says itself what it cannot carry is believed, whatever
// another proof says of it, before anything is sent. A lock in such a store used to be had by
// its first write, and to be lost at its first renewal.
func TestStoreIsItsOwnProof(t *testing.T) {
	st := limited{newStore(), &asks{no: "object"}}
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
	st.no = "fast start"
	if _, err := leasehold.NewLock(st, "k", &opts); err != nil {
		t.Error(err)
	}
	opts.FastStart = true
	if _, err := leasehold.NewLock(st, "k", &opts); !errors.Is(err, errNoProof) {
		t.Errorf("fast start: %v", err)
	}
}
