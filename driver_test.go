package leasehold_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/multilock"
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
	needs(t, here() == leasetest.Object, "it counts the looks at one object: the same in every layout")
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
	needs(t, here() == leasetest.Object, "it counts the looks at one object: the same in every layout")
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

// hints asks everybody who says of a lock whether its holder looks to be gone. The lock is
// held under a session if there is one; plain and under are candidates that know nothing.
func hints(t *testing.T, st store.Store, key string, under *process) map[string]leasehold.Info {
	t.Helper()
	said := map[string]leasehold.Info{}
	var mu sync.Mutex
	say := func(who string, i leasehold.Info) {
		mu.Lock()
		defer mu.Unlock()
		said[who] = i
	}
	held := func(who string, err error) {
		var h *leasehold.HeldError
		if !errors.As(err, &h) {
			t.Errorf("%s: %v", who, err)
			return
		}
		say(who, h.Info)
	}
	fresh := func(opts *leasehold.LockOptions) *leasehold.Lock { return locksOf(t, st, opts, key)[0] }
	_, err := fresh(nil).TryAcquire(t.Context())
	held("TryAcquire", err)
	inSession, err := leasehold.NewLock(under.st, key, &leasehold.LockOptions{Session: under.session})
	if err != nil {
		t.Fatal(err)
	}
	_, err = inSession.TryAcquire(t.Context())
	held("TryAcquire under a session", err)
	info, err := fresh(nil).Inspect(t.Context())
	if err != nil {
		t.Error(err)
	}
	say("Inspect", info)
	for e, err := range admin.List(t.Context(), st, key) {
		if err != nil {
			t.Error(err)
		}
		if e.Key == key {
			say("List", e.Info)
		}
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	waiter := fresh(&leasehold.LockOptions{Trace: leasetest.OnWait(func(i leasehold.Info) { say("a wait for "+i.Key, i) })})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, waited := waiter.Acquire(limited)
		held("Acquire", waited)
	}()
	time.Sleep(900 * time.Millisecond)
	_, err = waiter.TryAcquire(limited)
	held("TryAcquire beside an Acquire", err)
	<-ended
	synctest.Wait()
	return said
}

// A wait was told of the holder's session as if that was a lock, by its key; and a holder under
// a session, whose record nobody renews, looked abandoned when that was older than a TTL. Who
// breaks such a lock ends a healthy session, with all its leases.
func TestHintsUnderASession(t *testing.T) {
	for _, c := range []struct {
		what string
		dead bool
		age  time.Duration
	}{
		{"a session that has just begun", false, time.Second},
		{"a session that goes on", false, 2 * time.Hour},
		{"a session whose process has just died", true, 5 * time.Second},
		{"a session whose process has died", true, time.Hour},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				inner := memstore.New()
				a, b := startProcess(t, inner, "a"), startProcess(t, inner, "b")
				const key = "shards/1"
				a.acquire(key)
				time.Sleep(c.age)
				if c.dead {
					time.Sleep(time.Hour)
					a.st.Partition(true)
					time.Sleep(c.age)
				}
				gone := c.dead && c.age > 20*time.Second
				said := hints(t, inner, key, b)
				for who, i := range said {
					if who == "a wait for "+key {
						continue // when it began to wait it knew of no session
					}
					if i.Abandoned != gone || i.Key != key || i.Session != a.session.Key() {
						t.Errorf("%s says %+v", who, i)
					}
				}
				if len(said) != 7 {
					t.Errorf("of 7 these have said anything: %v", said)
				}
				own, err := a.lock(key).TryAcquire(t.Context())
				var held *leasehold.HeldError
				tells := errors.As(err, &held) && !held.Info.Abandoned && held.Info.Key == key
				if over := errors.Is(err, leasehold.ErrSessionOver); own != nil || over != gone || !over && !tells {
					t.Errorf("beside the holder in its own process: %v", err)
				}
				a.st.Partition(false)
				time.Sleep(time.Minute)
				a.end()
				b.end()
			})
		})
	}
}

// A follower of a leader under a session took it for abandoned.
func TestChangesUnderASession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		a := startProcess(t, inner, "a")
		opts := &leasehold.ElectionOptions{}
		leader, err := leasehold.NewElection(a.st, "leader", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Session: a.session}})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := leader.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		follower, err := leasehold.NewElection(inner, "leader", opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		seen := 0
		for c := range follower.Observe(ctx) {
			if seen++; c.Info.Abandoned {
				t.Errorf("%v: %+v", c.Kind, c.Info)
			}
		}
		if s := follower.Status(); seen == 0 || s.Leader.Abandoned || s.Leader.Session != a.session.Key() {
			t.Errorf("%d changes, and the leader is %+v", seen, s.Leader)
		}
		release(t, lease)
		a.end()
	})
}

// The age of a record was forgotten when a look found it unchanged, and then the wall clock of
// its holder said how old it was.
func TestAgeOfWhatHasNotChanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		lease := acquire(t, newLock(t, st, nil))
		other := newLock(t, st, nil)
		began := time.Now()
		for range 3 {
			var held *leasehold.HeldError
			if _, err := other.TryAcquire(t.Context()); !errors.As(err, &held) {
				t.Fatal(err)
			}
			if i := held.Info; i.Age != time.Since(began) || i.Version == "" {
				t.Errorf("after %v: %+v", time.Since(began), i)
			}
			time.Sleep(time.Second)
		}
		release(t, lease)
	})
}

// slowDeletes is a store whose deletes take their time, and are not called back.
type slowDeletes struct {
	store.Store
	each           time.Duration
	sent, underWay atomic.Int64
	t              *testing.T
}

func (s *slowDeletes) Delete(ctx context.Context, key string) error {
	s.sent.Add(1)
	if s.underWay.Add(1) > 1 {
		s.t.Error("two collections go on at once")
	}
	defer s.underWay.Add(-1)
	time.Sleep(s.each)
	return s.Store.Delete(context.WithoutCancel(ctx), key)
}

// aged plants five epochs that are old enough to be collected, the 99th among them, which is the last,
// and another tool's object.
func aged(t *testing.T, l leasetest.Way, each time.Duration) *slowDeletes {
	t.Helper()
	inner := memstore.New()
	for _, n := range []int{1, 2, 3, 4, 5, 99} {
		body := tokenRecord(l, int64(n), "free")
		if n == 3 {
			body = "another tool's"
		}
		if _, err := inner.Put(t.Context(), layoutKey(n), []byte(body), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(25 * time.Hour)
	return &slowDeletes{Store: inner, each: each, t: t}
}

var withEpochs = []leasetest.Way{leasetest.Epochs, leasetest.EpochsNoIfMatch}

// The holder that makes the hundredth epoch removes old ones, leaves objects that are not ours, and
// says so. Release and Settle wait until that has ended, but Settle does not wait for a removal under
// a lease that is held.
func TestPastIsRemoved(t *testing.T) {
	ends := map[string]func(*testing.T, *leasehold.Lock, *leasehold.Lease){
		"held": func(t *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) {
			time.Sleep(time.Minute)
			release(t, lease)
		},
		"released": func(t *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) { release(t, lease) },
		"settled": func(t *testing.T, lock *leasehold.Lock, lease *leasehold.Lease) {
			go func() { _ = lease.Release(context.Background()) }()
			<-lease.Done()
			time.Sleep(100 * time.Millisecond) // its release has landed
			if err := lock.Settle(t.Context()); err != nil {
				t.Error(err)
			}
		},
	}
	for _, l := range withEpochs {
		for end, f := range ends {
			t.Run(fmt.Sprintf("%s, %s", l, end), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var log leasetest.Log
					st := aged(t, l, time.Second)
					lock := newLock(t, st, &leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch, Logger: debugLog(&log)})
					lease := acquire(t, lock)
					time.Sleep(1500 * time.Millisecond)
					if st.underWay.Load() != 1 {
						t.Fatalf("this shows nothing: %d deletes were sent", st.sent.Load())
					}
					began := time.Now()
					if err := lock.Settle(t.Context()); err != nil || time.Since(began) > 0 {
						t.Errorf("a lease that is held has been waited for: %v, %v", time.Since(began), err)
					}
					f(t, lock, lease)
					sent := st.sent.Load()
					if st.underWay.Load() > 0 || end == "held" && sent != 5 || end != "held" && sent != 2 {
						t.Errorf("%d deletes were sent, %d of them still under way", sent, st.underWay.Load())
					}
					time.Sleep(time.Minute)
					if now := st.sent.Load(); now != sent {
						t.Errorf("%d deletes, and a minute later %d", sent, now)
					}
					if _, err := st.Get(t.Context(), layoutKey(3), ""); err != nil {
						t.Errorf("another tool's object: %v", err)
					}
					if whole := strings.Contains(log.String(), `msg="epochs of the past were collected"`); whole != (end == "held") {
						t.Errorf("what is said of it: %s", &log)
					}
					if end == "held" && !strings.Contains(log.String(), " deleted=5") {
						t.Errorf("what is said of it: %s", &log)
					}
				})
			})
		}
	}
}

// A holder that makes the two hundredth epoch while it still removes what the hundredth was to remove
// does not begin again, and the next time it does.
func TestPastIsRemovedOnceAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		st := aged(t, leasetest.EpochsNoIfMatch, 8*time.Second) // five times, and 34 s make a hundred renewals
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, NoIfMatch: true, TTL: time.Second, Logger: debugLog(&log)})
		lease := acquire(t, lock)
		time.Sleep(90 * time.Second)
		if n := strings.Count(log.String(), "epochs of the past were collected"); n != 2 {
			t.Errorf("the past was removed %d times, want twice: %s", n, &log)
		}
		release(t, lease)
	})
}

// An error that keeps the past from being removed is reported, and does no harm to the lease.
func TestPastThatCannotBeRemoved(t *testing.T) {
	for _, l := range withEpochs {
		bubble(t, func(t *testing.T) {
			var log leasetest.Log
			st := newStoreOver(aged(t, l, 0))
			st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "delete"})
			lease := acquire(t, newLock(t, st, &leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch, Logger: debugLog(&log)}))
			time.Sleep(time.Minute)
			if text := log.String(); !strings.Contains(text, "epochs of the past were not collected") || strings.Contains(text, "epochs of the past were collected") {
				t.Errorf("what is said of it: %s", text)
			}
			release(t, lease)
		})
	}
}

// A claim of the hundredth epoch whose caller has given up, and a renewal of which the lease has
// ended meanwhile, begin nothing: no lease goes on that it could be done under.
func TestPastIsLeftWithoutALease(t *testing.T) {
	for _, l := range withEpochs {
		bubble(t, func(t *testing.T) {
			var log leasetest.Log
			slow := aged(t, l, time.Second)
			st := newStoreOver(slow)
			st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: time.Second})
			lock := newLock(t, st, &leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch, Logger: debugLog(&log)})
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, err := lock.Acquire(ctx); err == nil {
				t.Fatal("acquired")
			}
			if err := lock.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if slow.sent.Load() > 0 || strings.Contains(log.String(), "epochs of the past") {
				t.Errorf("of a claim that was given up: %d deletes, %s", slow.sent.Load(), &log)
			}
		})
	}
	bubble(t, func(t *testing.T) {
		var log leasetest.Log
		slow := aged(t, leasetest.EpochsNoIfMatch, time.Second)
		if _, err := slow.Put(t.Context(), layoutKey(198), []byte(tokenRecord(leasetest.EpochsNoIfMatch, 198, "free")), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		st := newStoreOver(slow)
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: time.Second, When: func(c faultstore.Call) bool {
			return c.Key == layout.EpochKey("jobs/backup", 200)
		}})
		lock := newLock(t, st, &leasehold.LockOptions{Layout: leasehold.LayoutEpochs, NoIfMatch: true, Logger: debugLog(&log)})
		lease := acquire(t, lock)
		time.Sleep(5500 * time.Millisecond) // a renewal is under way
		release(t, lease)
		if epoch := recordIn(t, slow, layoutKey(200)); !epoch.Held {
			t.Fatalf("this shows nothing: %+v", epoch)
		}
		if slow.sent.Load() > 0 || strings.Contains(log.String(), "epochs of the past") {
			t.Errorf("of a renewal of a lease that has ended: %d deletes, %s", slow.sent.Load(), &log)
		}
	})
}

// deletes counts what was sent.
func deletes(st *faultstore.Store) int { return st.Counts().Delete }

// collecting acquires a lock with epochs until its holder collects the past, which takes a
// second for each of about a hundred epochs.
func collecting(t *testing.T, l leasetest.Way, session bool) (*faultstore.Store, *leasehold.Lock, *leasehold.Lease) {
	t.Helper()
	st := newStore()
	before := newLock(t, st, &leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch})
	for range 150 {
		release(t, acquire(t, before))
	}
	time.Sleep(25 * time.Hour)
	opts := &leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch}
	if session {
		s, err := leasehold.NewSession(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		opts.Session = s
		t.Cleanup(func() { _ = s.Close(context.Background()) })
	}
	st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "delete", Delay: time.Second})
	lock := newLock(t, st, opts)
	for range 200 {
		lease, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if deletes(st) > 0 {
			return st, lock, lease
		}
		release(t, lease)
	}
	t.Fatal("nobody has collected anything")
	return nil, nil, nil
}

// A holder's collection of the past went on for up to a minute after Release and Settle had
// returned, in a process that took itself for done.
func TestCollectionEndsWithTheLease(t *testing.T) {
	for _, l := range withEpochs {
		for end, f := range map[string]func(*testing.T, *leasehold.Lock, *leasehold.Lease){
			"released": func(t *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) { release(t, lease) },
			"given up": func(_ *testing.T, _ *leasehold.Lock, lease *leasehold.Lease) { lease.Abandon(context.Canceled) },
			"settled": func(t *testing.T, lock *leasehold.Lock, lease *leasehold.Lease) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				go func() { _ = lease.Release(ctx) }()
				<-lease.Done()
				if err := lock.Settle(t.Context()); err != nil {
					t.Error(err)
				}
			},
		} {
			for _, session := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, session %t", l, end, session), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						st, lock, lease := collecting(t, l, session)
						before := deletes(st)
						time.Sleep(5 * time.Second)
						if now := deletes(st); now <= before {
							t.Fatalf("this shows nothing: %d deletes, then %d", before, now)
						}
						f(t, lock, lease)
						before = deletes(st)
						time.Sleep(2 * time.Minute)
						if now := deletes(st); now != before {
							t.Errorf("%d deletes, and two minutes later %d", before, now)
						}
						_ = lease.Release(t.Context())
					})
				})
			}
		}
	}
}

// A ledger is a store that remembers which epochs were created, and looks at the leases
// whenever something lands.
type ledger struct {
	store.Store
	mu      sync.Mutex
	created map[int64]int
	top     int64
	deleted int
	broken  string
	look    func() string
}

func (l *ledger) fault(format string, args ...any) {
	if l.broken == "" {
		l.broken = fmt.Sprintf(format, args...)
	}
}

func (l *ledger) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, err := l.Store.Put(ctx, key, body, only)
	if _, n, ok := layout.Epoch(key); ok && err == nil && only.Absent() {
		l.top = max(l.top, n)
		if l.created[n]++; l.created[n] > 1 {
			l.fault("epoch %d was created again", n)
		}
	}
	if why := l.look(); why != "" {
		l.fault("%s", why)
	}
	return o, err
}

func (l *ledger) Delete(ctx context.Context, key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, n, ok := layout.Epoch(key); ok {
		if l.deleted++; n >= l.top {
			l.fault("the highest epoch, %d, was deleted", n)
		}
	}
	return l.Store.Delete(ctx, key)
}

func (l *ledger) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return l.Store.List(ctx, prefix, after)
}

// TestCollectionRacesElections: three candidates for a minute and a half, whose network
// loses answers, delays and doubles requests by up to 2 s, and who crash; and a
// collection every second of all that is 6 s old. No two lead, no number is created
// twice, and the highest is never deleted.
func TestCollectionRacesElections(t *testing.T) {
	rounds := int(leasetest.Seeds(10))
	for _, l := range withEpochs {
		t.Run(l.String(), func(t *testing.T) {
			terms, deleted := 0, 0
			for seed := range uint64(rounds) {
				bubble(t, func(t *testing.T) {
					n, d := race(t, l, seed)
					terms, deleted = terms+n, deleted+d
				})
				if t.Failed() {
					return
				}
			}
			t.Logf("%d rounds, %d terms, %d epochs collected", rounds, terms, deleted)
			if terms < 3*rounds || deleted < 3*rounds {
				t.Error("too little happens in them to prove anything")
			}
		})
	}
}

func race(t *testing.T, l leasetest.Way, seed uint64) (terms, deleted int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	book := &ledger{Store: memstore.New(), created: map[int64]int{}}
	var leases []*leasehold.Lease
	var mu sync.Mutex
	book.look = func() string {
		mu.Lock()
		defer mu.Unlock()
		valid := 0
		for _, lease := range leases {
			if lease.Valid() {
				valid++
			}
		}
		if valid > 1 {
			return fmt.Sprintf("%d leases are valid", valid)
		}
		return ""
	}
	ctx, stop := context.WithTimeout(t.Context(), 90*time.Second)
	defer stop()
	var all sync.WaitGroup
	var nets []*faultstore.Store
	network := func() *faultstore.Store {
		const late = 2 * time.Second
		net := faultstore.Wrap(book, &faultstore.Options{Seed: random.Uint64(), Faults: []faultstore.Fault{
			{Kind: faultstore.LostAnswer, Probability: 0.05},
			{Kind: faultstore.LateLanding, Op: "put", Probability: 0.05, Jitter: late},
			{Kind: faultstore.LateDuplicate, Op: "put", Probability: 0.05, Jitter: late},
			{Kind: faultstore.LateDuplicate, Op: "delete", Probability: 0.05, Jitter: late},
			{Kind: faultstore.DelayBefore, Probability: 0.1, Jitter: late / 4},
			{Kind: faultstore.DelayAfter, Probability: 0.1, Jitter: late / 4},
		}})
		nets = append(nets, net)
		return net
	}
	for i := range 3 {
		all.Go(func() {
			mine := rand.New(rand.NewPCG(seed, uint64(10+i)))
			for ctx.Err() == nil {
				mu.Lock()
				net := network()
				mu.Unlock()
				lock, err := leasehold.NewLock(net, "l", &leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch, TTL: 3 * time.Second})
				if err != nil {
					t.Error(err)
					return
				}
				for ctx.Err() == nil {
					lease, err := lock.Acquire(ctx)
					if err != nil {
						break
					}
					mu.Lock()
					leases, terms = append(leases, lease), terms+1
					mu.Unlock()
					time.Sleep(time.Duration(mine.Int64N(int64(4 * time.Second))))
					crashes := mine.IntN(4) == 0
					net.Partition(crashes)
					_ = lease.Release(context.WithoutCancel(ctx))
					time.Sleep(time.Duration(mine.Int64N(int64(time.Second))))
					if crashes {
						break
					}
				}
			}
		})
	}
	all.Go(func() {
		mu.Lock()
		net := network()
		mu.Unlock()
		e := layout.Epochs{Store: net, Key: "l", IfMatch: !l.NoIfMatch}
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			for _, err := range e.Collect(ctx, layout.Collection{Keep: 1, Age: 6 * time.Second, Limit: -1}) {
				if err != nil {
					break // its network is bad
				}
			}
		}
	})
	all.Wait()
	time.Sleep(time.Minute) // what was given up is followed to its end
	for _, net := range nets {
		net.Wait()
	}
	book.mu.Lock()
	defer book.mu.Unlock()
	if book.broken != "" {
		for _, net := range nets {
			t.Logf("%v\n%v", net, net.Log())
		}
		t.Errorf("seed %d: %s", seed, book.broken)
	}
	return terms, book.deleted
}

// tokenRecord is the text of a record with a token that somebody has set by hand.
func tokenRecord(l leasetest.Way, token int64, state string) string {
	name := ""
	if l != leasetest.Object {
		name = fmt.Sprintf(`,"layout":%q`, l.Layout)
	}
	if l == leasetest.Epochs {
		name += `,"if_match":true`
	}
	return fmt.Sprintf(`{"format":1,"token":%d,"state":%q,"holder":"x","ttl_ms":1000,"write_id":"x%d"%s}`, token, state, token, name)
}

// The largest token but one was acquired over, and the record of the next one was called
// foreign ever after: nobody could acquire, inspect or break the lock, or learn how to repair it.
func TestTokenThatIsTooLarge(t *testing.T) {
	for _, l := range leasetest.Ways {
		if !l.Tokens() {
			continue
		}
		for _, token := range []int64{record.LastToken - 1, record.LastToken, 1 << 62, math.MaxInt64 - 1, math.MaxInt64} {
			for _, state := range []string{"free", "held"} {
				t.Run(fmt.Sprintf("%s, %s, %d", l, state, token), func(t *testing.T) {
					bubble(t, func(t *testing.T) { tooLarge(t, l, token, state) })
				})
			}
		}
	}
}

func tooLarge(t *testing.T, l leasetest.Way, token int64, state string) {
	t.Helper()
	st := memstore.New()
	key := "jobs/backup"
	if l != leasetest.Object {
		key = layoutKey(7)
	}
	obj, err := st.Put(t.Context(), key, []byte(tokenRecord(l, token, state)), store.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	lock := newLock(t, st, &leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch, TTL: time.Second})
	// Either the acquisition is refused, or its lease can be used as before.
	lease, err := lock.Acquire(t.Context())
	if usable := token < record.LastToken; usable != (err == nil) {
		t.Fatalf("acquired: %v", err)
	}
	if err == nil {
		if lease.Token() <= leasehold.Token(token) {
			t.Errorf("token %v after %d", lease.Token(), token)
		}
		time.Sleep(time.Minute)
		release(t, lease)
		return
	}
	e, err := leasehold.NewElection(st, "jobs/backup", &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Layout: l.Layout, NoIfMatch: l.NoIfMatch}})
	if err != nil {
		t.Fatal(err)
	}
	_, acquired := lock.Acquire(t.Context())
	_, tried := lock.TryAcquire(t.Context())
	_, all := multilock.AcquireAll(t.Context(), []*leasehold.Lock{lock})
	_, campaigned := e.Campaign(t.Context())
	ran := e.Run(t.Context(), func(context.Context, *leasehold.Lease) error { return nil })
	for _, err := range []error{acquired, tried, all, campaigned, ran} {
		if !errors.Is(err, leasehold.ErrTokenTooLarge) || errors.Is(err, leasehold.ErrForeignObject) || !strings.Contains(err.Error(), "another name") {
			t.Errorf("got %v", err)
		}
	}
	if now, look := st.Get(t.Context(), key, ""); look != nil || now.Version != obj.Version {
		t.Errorf("it was written over: %+v, %v", now, look)
	}
	info, err := lock.Inspect(t.Context())
	if err != nil || info.Token != leasehold.Token(token) || info.Held != (state == "held") {
		t.Errorf("inspected: %+v, %v", info, err)
	}
	for info, err := range admin.List(t.Context(), st, "") {
		if err != nil || info.Token != leasehold.Token(token) {
			t.Errorf("listed: %+v, %v", info, err)
		}
	}
	if info, err = admin.Break(t.Context(), lock, info.Token); err != nil || info.Held {
		t.Errorf("broken: %+v, %v", info, err)
	}
	if token == record.LastToken {
		return // it may have been given out, so who has seen it goes on from there
	}
	// Somebody puts it right, as docs/maintain.md says, and the same candidates go on.
	keys := objects(t, st)
	key = keys[len(keys)-1]
	if obj, err = st.Get(t.Context(), key, ""); err == nil {
		_, err = st.Put(t.Context(), key, []byte(tokenRecord(l, 100, "free")), store.IfMatch(obj.Version))
	}
	if err != nil {
		t.Fatal(err)
	}
	lease = acquire(t, lock)
	if lease.Token() != 101 {
		t.Errorf("after 100 came the token %v", lease.Token())
	}
	release(t, lease)
}

// layoutKey is the key of the n-th epoch of the lock.
func layoutKey(n int) string { return fmt.Sprintf("jobs/backup/%010d.json", n) }

// A marker that may not be swept yet is no trouble with the store: the candidate that waits
// for its holder, which is gone, used to be told that the store fails.
func TestWaitForMarkerIsNoTrouble(t *testing.T) {
	if here() != leasetest.Object {
		t.Skip("the same in every layout")
	}
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		candidate := func(holder string) *leasehold.Lock {
			lock, err := leasehold.NewLock(st, "l", &leasehold.LockOptions{
				Layout: leasehold.LayoutMarker, NoIfMatch: true, Sweep: true, Holder: holder,
				Trace: leasetest.OnTrouble(func(err error) { t.Errorf("%s has trouble: %v", holder, err) }),
			})
			if err != nil {
				t.Fatal(err)
			}
			return lock
		}
		gone := acquire(t, candidate("gone"))
		next := acquire(t, candidate("next"))
		_ = next.Release(t.Context())
		_ = gone.Release(t.Context()) // which is lost
	})
}

var callsSeed = flag.Uint64("calls.seed", 0, "the one seed of TestRandomCalls; 0: many")

// TestRandomCalls calls whatever there is to be called, from several goroutines of two processes
// with a bad network, and believes what the calls return:
//
//   - no error comes with a lease that is valid, or that was lost in this moment and says so;
//   - "released" and "resigned" go with a record that is not held by that lease any more;
//   - lead is not called with a lease that is released;
//   - two leases of a lock are never valid at once, and a holder that looks abandoned has none;
//   - every callback and every error is about the lock that it belongs to;
//   - Settle returns, and so does all else, long before its context ends;
//   - when all has returned nothing is under way, and every lock can be acquired.
//
// A seed gives the same calls and the same faults; which goroutine is first at one instant it
// does not decide.
func TestRandomCalls(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	if *callsSeed > 0 {
		bubble(t, func(t *testing.T) { callAtRandom(t, *callsSeed) })
		return
	}
	for seed := uint64(1); seed <= leasetest.Seeds(25); seed++ {
		bubble(t, func(t *testing.T) { callAtRandom(t, seed) })
		if t.Failed() {
			t.Fatalf("go test -run TestRandomCalls -calls.seed %d .", seed)
		}
	}
}

var callKeys = []string{"jobs/a", "jobs/b", "jobs/c"}

const (
	callTTL    = 5 * time.Second
	longEnough = 10 * time.Minute // for all that does not wait for another holder
)

// callers are what calls at random, and what they know of each other.
type callers struct {
	t     *testing.T
	inner store.Store

	mu     sync.Mutex
	leases map[*leasehold.Lease]string // to their sessions
	broken map[string]bool             // locks with their tokens, and sessions, by hand: their holders learn of it later
	checks sync.WaitGroup              // of what is to become true later
}

// A caller is one process.
type caller struct {
	*callers
	net       *faultstore.Store
	locks     [2][]*leasehold.Lock
	elections [2]*leasehold.Election
	session   *leasehold.Session
}

// weather makes the network bad.
func weather(seed uint64) []faultstore.Fault {
	r := rand.New(rand.NewPCG(seed, 2))
	var faults []faultstore.Fault
	for _, f := range []faultstore.Fault{
		{Kind: faultstore.DelayBefore, Probability: 0.3, Jitter: 2 * time.Second},
		{Kind: faultstore.DelayAfter, Probability: 0.3, Jitter: 2 * time.Second},
		{Kind: faultstore.LostAnswer, Probability: 0.1},
		{Kind: faultstore.LostRequest, Probability: 0.1},
		{Kind: faultstore.Unavailable, Probability: 0.1},
		{Kind: faultstore.Conflict, Probability: 0.1},
		{Kind: faultstore.LateLanding, Probability: 0.05, Jitter: 4 * time.Second},
		{Kind: faultstore.LateDuplicate, Probability: 0.05, Jitter: 4 * time.Second},
	} {
		if f.Probability *= r.Float64(); r.IntN(2) == 0 {
			faults = append(faults, f)
		}
	}
	return faults
}

func callAtRandom(t *testing.T, seed uint64) {
	t.Helper()
	all := &callers{t: t, inner: memstore.New(), leases: map[*leasehold.Lease]string{}, broken: map[string]bool{}}
	var working sync.WaitGroup
	var processes []*caller
	for p := range uint64(2) {
		c := all.start(seed*10 + p)
		processes = append(processes, c)
		for w := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, p*10+w))
			working.Go(func() {
				for range 12 {
					c.call(r)
					time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
				}
			})
		}
	}
	working.Wait()
	all.checks.Wait()
	for _, c := range processes {
		c.stop()
	}
	before := 0
	for _, c := range processes {
		before += len(c.net.Log())
	}
	time.Sleep(10 * time.Minute)
	for _, c := range processes {
		before -= len(c.net.Log())
	}
	if before != 0 {
		t.Errorf("%d requests were sent when all had returned", -before)
	}
	for _, key := range append(callKeys, "leaders/x") {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		lease, err := locksOf(t, all.inner, nil, key)[0].Acquire(ctx)
		if err != nil {
			t.Errorf("%s cannot be acquired in the end: %v", key, err)
		} else {
			release(t, lease)
		}
		cancel()
	}
	if t.Failed() {
		for _, c := range processes {
			t.Logf("%v\n%v", c.net, c.net.Log())
		}
	}
}

func (all *callers) start(seed uint64) *caller {
	c := &caller{callers: all, net: faultstore.Wrap(all.inner, &faultstore.Options{Seed: seed})}
	var err error
	if c.session, err = leasehold.NewSession(all.t.Context(), c.net, &leasehold.SessionOptions{TTL: callTTL}); err != nil {
		all.t.Fatal(err)
	}
	for i, session := range []*leasehold.Session{nil, c.session} {
		for _, key := range callKeys {
			c.locks[i] = append(c.locks[i], locksOf(all.t, c.net, &leasehold.LockOptions{
				TTL:     callTTL,
				Session: session,
				Trace: locktrace.Join(leasetest.OnWait(func(i leasehold.Info) { all.about("a wait", key, i.Key) }), &locktrace.Trace{
					Renewed: func(_ context.Context, e locktrace.Renewed) { all.about("a renewal", key, e.Key) },
					Lost:    func(_ context.Context, e locktrace.Lost) { all.about("a loss", key, e.Key) },
				}),
			}, key)...)
		}
		c.elections[i], err = leasehold.NewElection(c.net, "leaders/x", &leasehold.ElectionOptions{
			LockOptions: leasehold.LockOptions{
				TTL:     callTTL,
				Session: session,
				Trace:   &locktrace.Trace{Leader: func(_ context.Context, e locktrace.Leader) { all.about("a leader", "leaders/x", e.Key) }},
			},
		})
		if err != nil {
			all.t.Fatal(err)
		}
	}
	c.net.Inject(weather(seed)...)
	return c
}

// stop ends the process in order, with a good network. A session that has ended by itself
// before may have been released in a bad one.
func (c *caller) stop() {
	over := c.session.Err() != nil
	c.net.Clear()
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	defer cancel()
	if err := c.session.Close(ctx); err != nil && !errors.Is(err, leasehold.ErrLost) && (!over || !errors.Is(err, protocol.ErrUnsettled)) {
		c.t.Errorf("Close: %v", err)
	}
	c.settle(ctx)
	c.net.Close()
}

func (c *caller) settle(ctx context.Context) {
	for i, election := range c.elections {
		for _, lock := range c.locks[i] {
			if err := lock.Settle(ctx); err != nil {
				c.t.Errorf("Settle of %s: %v", lock.Key(), err)
			}
		}
		if err := election.Settle(ctx); err != nil {
			c.t.Errorf("Settle of the election: %v", err)
		}
	}
}

// about fails unless something about one lock is about that one.
func (all *callers) about(what, key, got string) {
	if got != key {
		all.t.Errorf("%s of %s is about %s", what, key, got)
	}
}

// call makes one call, and does what has to follow.
func (c *caller) call(r *rand.Rand) {
	under := r.IntN(2) // none, or its session
	locks, election := c.locks[under], c.elections[under]
	lock := locks[r.IntN(len(locks))]
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(20*time.Second))))
	defer cancel()
	long, stop := context.WithTimeout(context.Background(), longEnough)
	defer stop()
	hold := time.Duration(r.Int64N(int64(8 * time.Second)))
	switch r.IntN(12) {
	case 0, 1:
		lease, err := lock.Acquire(ctx)
		c.acquired("Acquire", lock.Key(), lease, err)
		c.hold(hold, lease)
	case 2:
		lease, err := lock.TryAcquire(long)
		c.acquired("TryAcquire", lock.Key(), lease, err)
		c.hold(hold, lease)
	case 3, 4:
		leases, err := multilock.AcquireAll(ctx, locks)
		if err != nil {
			c.acquired("AcquireAll", "", nil, err)
		}
		for i, lease := range leases {
			c.acquired("AcquireAll", locks[i].Key(), lease, nil)
		}
		c.hold(hold, leases...)
	case 5:
		lease, err := multilock.AcquireAny(ctx, locks)
		if err == nil {
			c.acquired("AcquireAny", lease.Key(), lease, nil)
			c.hold(hold, lease)
		}
	case 6, 7:
		if lease := c.lead(ctx, election, r.IntN(2) == 0, hold); lease != nil {
			c.hold(hold, lease)
		}
	case 8:
		_ = c.resign(long, election)
	case 9:
		c.settle(long)
	case 10:
		c.inspect(long, lock, r.IntN(4) == 0)
	case 11:
		for _, err := range admin.Collect(long, c.net, "", nil) {
			c.honest("Collect", err)
		}
	}
}

// acquired checks what an acquisition has returned.
func (c *caller) acquired(what, key string, lease *leasehold.Lease, err error) {
	var held *leasehold.HeldError
	switch {
	case (err == nil) != (lease != nil):
		c.t.Errorf("%s: %v, %v", what, lease, err)
	case err == nil:
		c.about(what, key, lease.Key())
		// A call that has waited for others since has looked at the lease once more.
		end := lease.Err()
		resigned := what == "Campaign" && errors.Is(end, leasehold.ErrReleased) // by another goroutine, since
		if end != nil && !resigned && (!errors.Is(end, leasehold.ErrLost) || what == "AcquireAll") {
			c.t.Errorf("%s: no error, and the lease: %v", what, end)
		}
		under := ""
		if slices.Contains(c.session.Leases(), lease) {
			under = c.session.Key()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leases[lease] = under
		for other := range c.leases {
			if other != lease && other.Key() == lease.Key() && lease.Valid() && other.Valid() && !c.brokenLocked(lease) && !c.brokenLocked(other) {
				c.t.Errorf("two leases of %s are valid: tokens %v and %v", lease.Key(), lease.Token(), other.Token())
			}
		}
	case errors.As(err, &held) && key != "":
		c.about(what+"'s HeldError", key, held.Info.Key)
	case errors.Is(err, leasehold.ErrLost) && what != "AcquireAll" && !errors.Is(err, leasehold.ErrSessionOver):
		c.t.Errorf("%s: lost a lease that it never gave: %v", what, err)
	}
}

func (c *caller) brokenLocked(l *leasehold.Lease) bool {
	return c.broken[fmt.Sprint(l.Key(), l.Token())] || c.broken[c.leases[l]]
}

// hold works under leases for a while, and releases them.
func (c *caller) hold(d time.Duration, leases ...*leasehold.Lease) {
	time.Sleep(d)
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	defer cancel()
	for _, lease := range leases {
		if lease != nil {
			c.released("Release", lease, lease.Release(ctx))
		}
	}
}

// released checks what a release has returned.
func (c *caller) released(what string, lease *leasehold.Lease, err error) {
	c.mu.Lock()
	delete(c.leases, lease)
	c.mu.Unlock()
	if errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("%s does not return: %v", what, err)
	}
	if err != nil {
		return
	}
	look := locksOf(c.t, c.inner, nil, lease.Key())[0]
	c.checks.Go(func() {
		// It may have been passed on to another goroutine of this process, which replaces the
		// record or frees it.
		for began := time.Now(); ; time.Sleep(time.Second) {
			info, err := look.Inspect(context.Background())
			if err == nil && (!info.Held || info.Token != lease.Token()) {
				return
			}
			// The one it was passed on to may have given up, and the store may not have answered what was sent
			// for that: then it is left to expire.
			if lease.Key() != "leaders/x" && info.Abandoned && c.unanswered(lease.Key()) {
				return
			}
			if lease.Key() == "leaders/x" || time.Since(began) > time.Minute {
				c.t.Errorf("%s has said that %s is released, and %v later it is %+v, %v", what, lease.Key(), time.Since(began), info, err)
				return
			}
		}
	})
}

// unanswered reports that the last write of an object by this process had no answer that says that it landed.
func (c *caller) unanswered(key string) bool {
	outcome := ""
	for _, e := range c.net.Log() {
		if e.Op == "put" && e.Key == key && !e.Late {
			outcome = e.Outcome
		}
	}
	return outcome != "" && !strings.HasPrefix(outcome, "version")
}

// lead campaigns, and returns the lease that is to be held and released, if there is one.
func (c *caller) lead(ctx context.Context, election *leasehold.Election, run bool, d time.Duration) *leasehold.Lease {
	if run {
		err := election.Run(ctx, func(work context.Context, lease *leasehold.Lease) error {
			if errors.Is(lease.Err(), leasehold.ErrReleased) {
				c.t.Errorf("lead is called with a lease that is released; its context: %v", work.Err())
			}
			c.acquired("Run", "leaders/x", lease, nil)
			select {
			case <-work.Done():
			case <-time.After(d):
			}
			if errors.Is(lease.Err(), leasehold.ErrReleased) {
				c.t.Errorf("the lease was released while lead ran")
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.leases, lease)
			return nil
		})
		if err == nil {
			c.t.Errorf("Run returned %v", err)
		}
		return nil
	}
	lease, err := election.Campaign(ctx)
	if errors.Is(err, leasehold.ErrResigned) {
		return nil
	}
	if err == nil && errors.Is(lease.Err(), leasehold.ErrReleased) {
		err, lease = leasehold.ErrResigned, nil // another goroutine resigned as it came
	}
	c.acquired("Campaign", "leaders/x", lease, err)
	return lease
}

// resign resigns, and checks what that has returned.
func (c *caller) resign(ctx context.Context, election *leasehold.Election) error {
	before := election.Status()
	err := election.Resign(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("Resign does not return: %v", err)
	}
	if err != nil || !before.Leading {
		return err
	}
	info, look := locksOf(c.t, c.inner, nil, "leaders/x")[0].Inspect(ctx)
	if look != nil || info.Held && info.Token == before.Leader.Token {
		c.t.Errorf("resigned, and the lock is %+v, %v", info, look)
	}
	return nil
}

// inspect looks at a lock, and may break it.
func (c *caller) inspect(ctx context.Context, lock *leasehold.Lock, breaks bool) {
	info, err := lock.Inspect(ctx)
	c.honest("Inspect", err)
	if err != nil || !info.Exists {
		return
	}
	c.about("Inspect", lock.Key(), info.Key)
	c.mu.Lock()
	for lease := range c.leases {
		if lease.Key() == info.Key && lease.Token() == info.Token && info.Abandoned && lease.Valid() && !c.brokenLocked(lease) {
			c.t.Errorf("a lease is valid that looks abandoned: %+v", info)
		}
	}
	c.mu.Unlock()
	if !breaks {
		return
	}
	c.mu.Lock()
	c.broken[fmt.Sprint(info.Key, info.Token)], c.broken[info.Session] = true, info.Session != ""
	c.mu.Unlock()
	after, err := admin.Break(ctx, lock, info.Token)
	if err == nil && after.Held {
		c.t.Errorf("broken: %+v", after)
	}
	if !errors.Is(err, admin.ErrTokenChanged) {
		c.honest("Break", err)
	}
}

// honest fails for an error that a bad network does not explain.
func (c *caller) honest(what string, err error) {
	for _, kind := range []error{store.ErrUnavailable, store.ErrUnknownOutcome, store.ErrConflict, store.ErrPrecondition} {
		if errors.Is(err, kind) {
			return
		}
	}
	if err != nil && !strings.Contains(fmt.Sprint(err), "try again") {
		c.t.Errorf("%s: %v", what, err)
	}
}
