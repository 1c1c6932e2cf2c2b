package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/admin"
	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func newLocks(t *testing.T, st store.Store, opts *leasehold.LockOptions) *leasehold.Locks {
	t.Helper()
	locks, err := leasehold.NewLocks(st, opts)
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

// kept is how many keys are kept.
func kept(locks *leasehold.Locks) int {
	n, _ := leasehold.Kept(locks)
	return n
}

// had acquires a lock that is free.
func had(t *testing.T, locks *leasehold.Locks, key string) *leasehold.Lease {
	t.Helper()
	lease, err := locks.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// forgetting is how long a key is kept at most that was used once and is free: four TTLs, and until the next sweep.
const forgetting = 5 * leasehold.DefaultTTL

func heapNow() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// documentedKey is how many bytes a key takes by docs/cost.md.
func documentedKey(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("\nA key of `Locks` .* It takes about ([0-9.]+) KB until then,\n").FindSubmatch(text)
	if m == nil {
		t.Fatal("docs/cost.md does not say what a key of Locks takes")
	}
	kilobytes, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(kilobytes * 1000)
}

// TestLocksForget: keys that are not used any more cost nothing some TTLs later, neither memory nor a goroutine, and those
// that are in use stay. Until then they take what docs/cost.md says, which used to be a quarter less.
func TestLocksForget(t *testing.T) {
	needs(t, here() == leasetest.Object, "it measures what lies in a store too: the same in every layout")
	bubble(t, func(t *testing.T) {
		const n = 1000
		locks := newLocks(t, memstore.New(), nil)
		lease := had(t, locks, "jobs/held")
		touch := func() {
			for _, key := range keys(n) {
				release(t, had(t, locks, key))
			}
		}
		touch() // and the store has room for all of them from now on
		time.Sleep(forgetting)
		goroutines, before := runtime.NumGoroutine(), heapNow()
		touch()
		if got := kept(locks); got != n+1 {
			t.Fatalf("%d keys are kept, want %d", got, n+1)
		}
		touched, more := heapNow()-before, runtime.NumGoroutine()-goroutines
		time.Sleep(forgetting)
		synctest.Wait()
		if size, room := leasehold.Kept(locks); size != 1 || room != 1 {
			t.Errorf("%d keys are kept, in room for %d, and one is held", size, room)
		}
		left := heapNow() - before
		each, documented := (touched-left)/n, documentedKey(t)
		each -= 3 * int(unsafe.Sizeof(engine.Mutex{})-unsafe.Sizeof(sync.Mutex{})) // where its mutexes are checked
		t.Logf("%d keys take %d bytes each, and %d bytes are left when they have been forgotten", n, each, left)
		if each < documented*9/10 || each > documented*11/10 || more > 3 {
			t.Errorf("%d keys take %d bytes each and %d goroutines, and docs/cost.md says %d bytes", n, each, more, documented)
		}
		// Each record in the store remembers one lease more.
		if left > 100_000+n*200 {
			t.Errorf("%d bytes are left, of %d", left, touched)
		}
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		release(t, lease)
		time.Sleep(forgetting)
		synctest.Wait()
		if got := kept(locks); got != 0 {
			t.Errorf("%d keys are kept", got)
		}
	})
}

// TestLocksTakeOver: what was seen of a holder that is gone survives between calls, also where they come seldom; a
// Lock that is made for each call never takes over. A caller that tries once a second takes over within TTL + m + 1 s: the
// jitter of waiters, up to TTL/10, used to come on top.
func TestLocksTakeOver(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 45 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := newStore()
				cut := faultstore.Wrap(st, nil)
				gone := acquire(t, newLock(t, cut, nil))
				cut.Partition(true)
				began := time.Now()
				locks := newLocks(t, st, patient(leasehold.LockOptions{}))
				for {
					lease, err := locks.TryAcquire(t.Context(), gone.Key())
					after := time.Since(began)
					if after > triedTakeover(leasehold.DefaultTTL, every) || err != nil && renews() && !errors.Is(err, leasehold.ErrHeld) {
						t.Fatalf("after %v: %v", after, err)
					}
					if err == nil {
						t.Logf("after %v", after)
						release(t, lease)
						break
					}
					if _, other := newLock(t, st, patient(leasehold.LockOptions{})).TryAcquire(t.Context()); renews() && !errors.Is(other, leasehold.ErrHeld) {
						t.Errorf("a new Lock: %v", other)
					}
					time.Sleep(every)
				}
				_ = gone.Release(t.Context())
				cut.Partition(false)
			})
		})
	}
}

// TestLocksCost: the second acquisition of a key costs what it costs a Lock, until the key was forgotten, and goroutines
// that wait for a key cost nothing.
func TestLocksCost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		b := budgets[here()]
		locks := newLocks(t, st, nil)
		release(t, had(t, locks, "jobs/backup"))
		var lease *leasehold.Lease
		if got := cost(st, func() { lease = had(t, locks, "jobs/backup") }); got != b.acquire {
			t.Errorf("acquire it again: %v, want %v", got, b.acquire)
		}
		waited := make(chan error)
		if got := cost(st, func() {
			go func() {
				waited <- locks.Do(t.Context(), "jobs/backup", func(context.Context, *leasehold.Lease) error { return nil })
			}()
			_, err := locks.TryAcquire(t.Context(), "jobs/backup")
			if held, ok := errors.AsType[*leasehold.HeldError](err); !ok || held.Info.Token != lease.Token() {
				t.Error(err)
			}
			synctest.Wait()
		}); got != (requests{}) {
			t.Errorf("another goroutine waits, and one tries: %v", got)
		}
		if got := cost(st, func() {
			release(t, lease)
			if err := <-waited; err != nil {
				t.Error(err)
			}
		}); got != b.pass.plus(b.release) {
			t.Errorf("to pass it on, and release it: %v, want %v", got, b.pass.plus(b.release))
		}
		time.Sleep(forgetting)
		if got := cost(st, func() { lease = had(t, locks, "jobs/backup") }); got != b.unknown {
			t.Errorf("acquire it when it was forgotten: %v, want %v", got, b.unknown)
		}
		if got := cost(st, func() {
			if info, err := locks.Inspect(t.Context(), "jobs/backup"); err != nil || info.Token != lease.Token() {
				t.Errorf("%+v, %v", info, err)
			}
		}); got != b.inspect {
			t.Errorf("inspect: %v, want %v", got, b.inspect)
		}
		release(t, lease)
	})
}

// TestLocksClose: Close ends who waits, refuses who comes, and waits for who works and for what was given up.
func TestLocksClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		locks := newLocks(t, st, nil)
		lease := had(t, locks, "jobs/a")
		other := acquire(t, locksOf(t, st, nil, "jobs/b")[0])
		ended := make(chan error, 3)
		for _, key := range []string{"jobs/a", "jobs/b"} { // behind oneself, and behind another
			go func() {
				_, err := locks.Acquire(t.Context(), key)
				ended <- err
			}()
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := locks.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "jobs/a") {
			t.Errorf("while a lease is held: %v", err)
		}
		_, tried := locks.TryAcquire(t.Context(), "jobs/c")
		_, looked := locks.Inspect(t.Context(), "jobs/c")
		for _, err := range []error{<-ended, <-ended, tried, looked} {
			if !errors.Is(err, leasehold.ErrClosed) || errors.Is(err, context.Canceled) || !leasehold.Final(err) {
				t.Errorf("they are closed: %v", err)
			}
		}
		time.AfterFunc(5*time.Second, func() { release(t, lease) })
		began := time.Now()
		if err := locks.Close(t.Context()); err != nil || time.Since(began) != 5*time.Second || lease.Err() == nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := locks.Close(t.Context()); err != nil || kept(locks) != 0 {
			t.Errorf("once more: %v, and %d keys are kept", err, kept(locks))
		}
		release(t, other)
	})
}

// A hesitant context holds up who asks when it ends.
type hesitant struct {
	context.Context
	asked chan struct{}
}

func (h *hesitant) Done() <-chan struct{} {
	<-h.asked
	return h.Context.Done()
}

// TestLocksCountCalls: a call that has just begun keeps its key, though nothing is to be seen of it there, and Close waits
// for it: it would send a request after Close else.
func TestLocksCountCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		locks := newLocks(t, st, nil)
		release(t, had(t, locks, "jobs/a"))
		slow := &hesitant{t.Context(), make(chan struct{})}
		ended, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := locks.TryAcquire(slow, "jobs/a")
			ended <- err
		}()
		time.Sleep(time.Hour)
		if got := kept(locks); got != 1 {
			t.Errorf("%d keys are kept, and one is in use", got)
		}
		go func() { closed <- locks.Close(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Fatalf("closed, with a call under way: %v", err)
		default:
		}
		close(slow.asked)
		if err := <-ended; !errors.Is(err, leasehold.ErrClosed) {
			t.Fatal(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if held := heldOf(t, st, "jobs/a"); len(held) > 0 {
			t.Errorf("%q are held", held)
		}
	})
}

// TestLocksCloseSettles: an acquisition that Close ends is undone before Close returns.
func TestLocksCloseSettles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			st := newStore()
			st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Op: "put", Delay: 2 * time.Second})
			locks := newLocks(t, st, nil)
			ended := make(chan error, 1)
			go func() {
				_, err := locks.Acquire(t.Context(), "jobs/a")
				ended <- err
			}()
			time.Sleep(time.Duration(rand.N(2000)) * time.Millisecond)
			if err := locks.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, leasehold.ErrClosed) {
				t.Error(err)
			}
			st.Clear()
			if held := heldOf(t, st, "jobs/a"); len(held) > 0 {
				t.Errorf("%q are held", held)
			}
		}
	})
}

// TestLocksUnderASession: leases are under the session, which keeps no candidate that was forgotten.
func TestLocksUnderASession(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		p := startProcess(t, memstore.New(), "a")
		locks := newLocks(t, p.st, &leasehold.LockOptions{Session: p.session})
		var leases []*leasehold.Lease
		for _, key := range keys(100) {
			leases = append(leases, had(t, locks, key))
		}
		time.Sleep(time.Hour)
		if held := p.session.Leases(); len(held) != 100 || kept(locks) != 100 {
			t.Errorf("%d leases are held, and %d keys kept", len(held), kept(locks))
		}
		if err := leasehold.ReleaseAll(t.Context(), leases[1:]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(forgetting + time.Second)
		if kept(locks) != 1 || leasehold.Members(p.session) != 1 {
			t.Errorf("%d keys are kept, and %d candidates in the session", kept(locks), leasehold.Members(p.session))
		}
		release(t, leases[0])
		if err := locks.Close(t.Context()); err != nil {
			t.Error(err)
		}
		p.end()
	})
}

// TestLocksRefuse: what cannot be used is told at once, and a key that cannot is not kept.
func TestLocksRefuse(t *testing.T) {
	if _, err := leasehold.NewLocks(nil, nil); err == nil {
		t.Error("without a store")
	}
	if _, err := leasehold.NewLocks(memstore.New(), &leasehold.LockOptions{TTL: time.Millisecond}); err == nil || !strings.Contains(err.Error(), "TTL") {
		t.Errorf("with a TTL of a millisecond: %v", err)
	}
	locks := newLocks(t, memstore.New(), nil)
	if _, err := locks.TryAcquire(t.Context(), "a//b"); err == nil || !strings.Contains(err.Error(), "a//b") || kept(locks) != 0 {
		t.Errorf("a key that is none: %v, and %d are kept", err, kept(locks))
	}
}

// TestLocksHammer: goroutines of two processes use few keys, with pauses in which keys are forgotten; no two hold one.
func TestLocksHammer(t *testing.T) {
	needsRenewals(t)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		var inside [5]atomic.Int64
		var entered, forgotten atomic.Int64
		work := func(key int) {
			if inside[key].Add(1) != 1 {
				t.Errorf("two hold the key %d", key)
			}
			entered.Add(1)
			time.Sleep(rand.N(100 * time.Millisecond))
			inside[key].Add(-1)
		}
		var all sync.WaitGroup
		for range 2 {
			locks := newLocks(t, faultstore.Wrap(st, nil), &leasehold.LockOptions{TTL: time.Second})
			for range 6 {
				all.Go(func() {
					for range 100 {
						hammer(t, locks, rand.N(len(inside)), work)
						if time.Sleep(rand.N(50 * time.Millisecond)); rand.N(20) == 0 {
							time.Sleep(10 * time.Second)
						}
						if kept(locks) < len(inside) {
							forgotten.Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		t.Logf("%d times a lock was held, and %d times a key had been forgotten", entered.Load(), forgotten.Load())
		if entered.Load() < 500 || forgotten.Load() == 0 {
			t.Errorf("a lock was held %d times, and a key forgotten %d times", entered.Load(), forgotten.Load())
		}
	})
}

func hammer(t *testing.T, locks *leasehold.Locks, key int, work func(key int)) {
	t.Helper()
	name := fmt.Sprint("keys/", key)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	switch rand.N(4) {
	case 0:
		lease, err := locks.TryAcquire(ctx, name)
		if err == nil {
			work(key)
			err = lease.Release(ctx)
		}
		if err != nil && !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
	case 1:
		if _, err := locks.Inspect(ctx, name); err != nil {
			t.Error(err)
		}
	default:
		err := locks.Do(ctx, name, func(context.Context, *leasehold.Lease) error {
			work(key)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// locksOf makes a lock for each key.
func locksOf(t *testing.T, st store.Store, opts *leasehold.LockOptions, keys ...string) (locks []*leasehold.Lock) {
	t.Helper()
	for _, key := range keys {
		lock, err := leasehold.NewLock(st, key, opts)
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
	}
	return locks
}

// breakLock frees a lock by hand, and tries again as Break says when its holder renews it
// at that very moment.
func breakLock(t *testing.T, lock *leasehold.Lock) leasehold.Token {
	t.Helper()
	var info leasehold.Info
	var err error
	for range 3 {
		if info, err = lock.Inspect(t.Context()); err == nil {
			_, err = admin.Break(t.Context(), lock, info.Token)
		}
		if err == nil {
			return info.Token
		}
	}
	t.Error(err)
	return info.Token
}

// AcquireAll returned a lease without an error that was lost while it waited for another lock.
func TestAcquireAllLosesALease(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		st := faultstore.Wrap(inner, nil)
		others := locksOf(t, inner, nil, "jobs/a", "jobs/b", "jobs/c")
		held := acquire(t, others[1])
		var broken leasehold.Token
		go func() {
			time.Sleep(time.Minute)
			broken = breakLock(t, others[0])
			time.Sleep(time.Minute)
			release(t, held)
		}()
		leases, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b", "jobs/c"))
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range leases {
			if err := lease.Err(); err != nil {
				t.Errorf("acquired, and the lease of %s: %v", lease.Key(), err)
			}
		}
		if leases[0].Token() <= broken {
			t.Errorf("token %v, and %v was broken", leases[0].Token(), broken)
		}
		if err := leasehold.ReleaseAll(t.Context(), leases); err != nil {
			t.Error(err)
		}
	})
}

// A lease that was to be given back, because another lock was held, was lost before that: the
// whole call failed with ErrLost.
func TestAcquireAllGivesBackWhatIsLost(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		others := locksOf(t, inner, nil, "jobs/a", "jobs/b")
		held := acquire(t, others[0])
		go func() {
			time.Sleep(time.Second)
			breakLock(t, others[1])
			time.Sleep(time.Minute)
			release(t, held)
		}()
		st := faultstore.Wrap(inner, nil)
		isA := func(c faultstore.Call) bool { return len(c.Key) > 5 && c.Key[:6] == "jobs/a" }
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, When: isA, Nth: 1, Delay: 5 * time.Second})
		leases, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, &leasehold.LockOptions{TTL: 3 * time.Second}, "jobs/a", "jobs/b"))
		if err != nil {
			t.Fatal(err)
		}
		if err := leasehold.ReleaseAll(t.Context(), leases); err != nil {
			t.Error(err)
		}
	})
}

// An acquisition that was given up while one of its leases had been lost said ErrLost besides:
// the caller never had that lease.
func TestAcquireAllGivenUp(t *testing.T) {
	needs(t, here().Tokens(), withoutSessions)
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		others := locksOf(t, st, nil, "jobs/a", "jobs/b")
		held := acquire(t, others[1])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			time.Sleep(30 * time.Second)
			breakLock(t, others[0])
		}()
		_, err := leasehold.AcquireAll(ctx, locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leasehold.ErrLost) {
			t.Errorf("given up: %v", err)
		}
		release(t, held)
	})
}

// A store that is away is waited out, as by Acquire: AcquireAll tries its locks before it waits,
// and a try fails.
func TestAcquireAllWaitsOutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Partition(true)
		go func() {
			time.Sleep(10 * time.Minute)
			st.Partition(false)
		}()
		leases, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if err != nil {
			t.Fatal(err)
		}
		if err = leasehold.ReleaseAll(t.Context(), leases); err != nil {
			t.Error(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		began := time.Now()
		_, err = leasehold.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if !errors.Is(err, store.ErrDenied) || time.Since(began) > time.Second {
			t.Errorf("denied: after %v %v", time.Since(began), err)
		}
	})
}

// inOneObject are the options of locks that lie in one object each.
var inOneObject = &leasehold.LockOptions{Layout: leasehold.LayoutObject}

// denyRelease makes a store refuse to free the lock under a key.
func denyRelease(st *faultstore.Store, key string) {
	st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: key, When: func(c faultstore.Call) bool {
		return strings.Contains(string(c.Body), `"state":"free"`)
	}})
}

// TestAcquireAllOfOneTwice: a lock that is named twice would wait for itself.
func TestAcquireAllOfOneTwice(t *testing.T) {
	st := newStore()
	for _, keys := range [][]string{{"a", "a"}, {"a", "b", "a"}, {"b", "b", "a"}, {"a", "b", "b"}} {
		leases, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, nil, keys...))
		if leases != nil || err == nil || !strings.Contains(err.Error(), "would wait for itself") {
			t.Errorf("%q: %v, %v", keys, leases, err)
		}
	}
	if c := st.Counts(); c != (faultstore.Counts{}) {
		t.Errorf("%+v requests were made", c)
	}
}

// TestAcquireAllFailsAtOnce: where one of the locks cannot be had, another that is held is not waited for.
func TestAcquireAllFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		plant(t, st, "jobs/c", "no lock")
		others := locksOf(t, st, inOneObject, "jobs/a")
		held := acquire(t, others[0])
		began := time.Now()
		_, err := leasehold.AcquireAll(t.Context(), locksOf(t, st, inOneObject, "jobs/a", "jobs/b", "jobs/c"))
		if !errors.Is(err, leasehold.ErrForeignObject) || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		release(t, acquire(t, locksOf(t, st, inOneObject, "jobs/b")[0])) // it was given back
		release(t, held)
	})
}

// TestAcquireAllThatCannotGiveBack: a lock that was to be given back, and is not free, is told of, once.
func TestAcquireAllThatCannotGiveBack(t *testing.T) {
	told := func(t *testing.T, what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrDenied) || strings.Count(err.Error(), "may still be taken for held") != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	bubble(t, func(t *testing.T) { // as it begins to wait for another one
		st := newStore()
		held := acquire(t, locksOf(t, st, inOneObject, "jobs/a")[0])
		denyRelease(st, "jobs/b")
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err := leasehold.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
		told(t, "of one that comes after one that is held", err)
		st.Clear()
		release(t, held)
	})
	bubble(t, func(t *testing.T) { // as another one was lost meanwhile
		st := newStore()
		others := locksOf(t, st, inOneObject, "jobs/a", "jobs/c")
		held := acquire(t, others[1])
		time.AfterFunc(time.Minute, func() {
			breakLock(t, others[0])
			time.Sleep(10 * time.Second)
			denyRelease(st, "jobs/b")
			release(t, held)
		})
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		_, err := leasehold.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b", "jobs/c"))
		told(t, "of one that comes after one that was lost", err)
	})
	bubble(t, func(t *testing.T) { // as the caller gives up
		st := newStore()
		ctx, stop := context.WithCancel(t.Context())
		denyRelease(st, "jobs/b")
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Key: "jobs/a", Delay: time.Second})
		time.AfterFunc(500*time.Millisecond, stop)
		_, err := leasehold.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
		told(t, "of one that the caller has no use for", err)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it was given up: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// TestReleaseAllSkipsNone: there need not be a lease in each place.
func TestReleaseAllSkipsNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease := acquire(t, newLock(t, newStore(), nil))
		if err := leasehold.ReleaseAll(t.Context(), []*leasehold.Lease{nil, lease, nil}); err != nil || lease.Valid() {
			t.Errorf("valid %v: %v", lease.Valid(), err)
		}
	})
}

// TestAcquireAnySaysWhy: who gives up while it tries the first lock is told why the store failed.
func TestAcquireAnySaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Partition(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		lease, err := leasehold.AcquireAny(ctx, locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if lease != nil || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("%v, %v", lease, err)
		}
	})
}

// TestAcquireAnyOfTheOthers: a lock that cannot be waited for keeps nobody from waiting for the others; only
// where none can be, it fails.
func TestAcquireAnyOfTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		plant(t, st, "jobs/a", "no lock")
		held := acquire(t, locksOf(t, st, inOneObject, "jobs/b")[0])
		time.AfterFunc(time.Minute, func() { _ = held.Release(context.Background()) })
		lease, err := leasehold.AcquireAny(t.Context(), locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
		if err != nil || lease.Key() != "jobs/b" {
			t.Fatalf("%v, %v", lease, err)
		}
		if _, err = leasehold.AcquireAny(t.Context(), locksOf(t, st, inOneObject, "jobs/a")); !errors.Is(err, leasehold.ErrForeignObject) {
			t.Error(err)
		}
		release(t, lease)
	})
}

// TestAcquireAnyOfMany: of many locks that are free at one moment one is had, and the others go back, also
// those that came before the first one was known.
func TestAcquireAnyOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		t.Cleanup(clock.Set(func() time.Duration {
			runtime.Gosched() // each looks at its new lease before any goes on
			return time.Since(start) + time.Hour
		}))
		for range 3 {
			st := memstore.New()
			a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
			var locks []*leasehold.Lock
			for _, key := range keys(20) {
				a.acquire(key)
				locks = append(locks, b.lock(key))
			}
			got := make(chan *leasehold.Lease)
			go func() {
				lease, err := leasehold.AcquireAny(t.Context(), locks)
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
			time.Sleep(time.Minute)
			a.close()
			lease := <-got
			synctest.Wait()
			if held := b.session.Leases(); len(held) != 1 || held[0] != lease {
				t.Errorf("%d are held by one that wanted one", len(held))
			}
			b.end()
		}
	})
}

// TestAcquireAnyLosesWhatItWon: the machine is suspended before the other locks have been given up, and what
// was won is lost: it says so, and leaves the lock for the next call.
func TestAcquireAnyLosesWhatItWon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		others := locksOf(t, st, inOneObject, "jobs/a", "jobs/b")
		a, b := acquire(t, others[0]), acquire(t, others[1])
		locks := locksOf(t, st, suspendedWithALease(), "jobs/a", "jobs/b")
		time.AfterFunc(time.Minute, func() { release(t, a) })
		lease, err := leasehold.AcquireAny(t.Context(), locks)
		if lease != nil || !errors.Is(err, leasehold.ErrLost) || !strings.HasPrefix(err.Error(), "the lock ") {
			t.Fatalf("%v, %v", lease, err)
		}
		_ = b.Release(t.Context())
		synctest.Wait()
		for _, lock := range locks {
			release(t, acquire(t, lock))
		}
	})
}

// A crowd is a store that takes its time for a look, and counts how many are under way at once.
type crowd struct {
	store.Store
	delay     time.Duration
	now, most atomic.Int64
}

func (c *crowd) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	select {
	case <-time.After(c.delay):
	case <-ctx.Done():
	}
	c.now.Add(-1)
	return c.Store.Get(ctx, key, unless)
}

// about selects what is asked about one lock, in any layout.
func about(key string, op ...string) func(faultstore.Call) bool {
	return func(c faultstore.Call) bool {
		return strings.HasPrefix(c.Key, key) && (len(op) == 0 || strings.Contains(strings.Join(op, " "), c.Op))
	}
}

// held are the locks that somebody holds.
func heldOf(t *testing.T, st store.Store, keys ...string) (held []string) {
	t.Helper()
	for _, lock := range locksOf(t, st, nil, keys...) {
		info, err := lock.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.Held {
			held = append(held, lock.Key())
		}
	}
	return held
}

// settleAll waits until nothing is under way of what was given up.
func settleAll(t *testing.T, locks []*leasehold.Lock) {
	t.Helper()
	for _, lock := range locks {
		if err := lock.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// anyOf acquires one of the locks, and says how long that took.
func anyOf(t *testing.T, locks []*leasehold.Lock) (*leasehold.Lease, time.Duration) {
	t.Helper()
	began := time.Now()
	lease, err := leasehold.AcquireAny(t.Context(), locks)
	if err != nil {
		t.Fatal(err)
	}
	if err = lease.Err(); err != nil {
		t.Fatal(err)
	}
	return lease, time.Since(began)
}

// TestAcquireAnyLooksAtMany: one free lock among many is found by eight looks at a time, and never more.
func TestAcquireAnyLooksAtMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memstore.New()
		all := keys(81)
		release(t, acquire(t, locksOf(t, inner, nil, all[0])[0]))
		for _, lock := range locksOf(t, inner, nil, all[1:]...) {
			defer release(t, acquire(t, lock))
		}
		st := &crowd{Store: inner, delay: 20 * time.Millisecond}
		lease, took := anyOf(t, locksOf(t, st, nil, all...))
		// One after the other would be 81 looks, and 41 on average.
		if lease.Key() != all[0] || took > 15*st.delay {
			t.Errorf("after %v: %v", took, lease.Key())
		}
		if most := st.most.Load(); most != 8 {
			t.Errorf("%d looks at a time, want 8", most)
		}
		release(t, lease)
	})
}

// TestAcquireAnyCosts: of many locks that are free one is claimed, by one write.
func TestAcquireAnyCosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		b := budgets[here()]
		all := keys(40)
		for _, lock := range locksOf(t, st, nil, all...) {
			release(t, acquire(t, lock))
		}
		locks := locksOf(t, st, nil, all...)
		var lease *leasehold.Lease
		got := cost(st, func() { lease, _ = anyOf(t, locks) })
		if most := b.unknown.plus(b.inspect.times(7)).plus(b.look.times(8)); !got.within(requests{put: b.unknown.put}, most) {
			t.Errorf("nothing known: %v, want %v at most", got, most)
		}
		release(t, lease)
		for _, lock := range locks { // whose last versions are known from now on
			release(t, acquire(t, lock))
		}
		if got = cost(st, func() { lease, _ = anyOf(t, locks) }); got != b.acquire {
			t.Errorf("all known to be free: %v, want %v", got, b.acquire)
		}
		release(t, lease)
	})
}

// TestAcquireAnyPassesASlowLock: where the store does not answer about one lock, another is had, at once or a second
// later, and nothing is left of the first.
func TestAcquireAnyPassesASlowLock(t *testing.T) {
	for _, c := range []struct {
		what  string
		fault faultstore.Fault
		most  time.Duration
	}{
		{"a look", faultstore.Fault{Kind: faultstore.DelayBefore, When: about("jobs/a"), Delay: time.Hour}, 0},
		{"a claim", faultstore.Fault{Kind: faultstore.DelayBefore, When: about("jobs/a", "put"), Delay: 6 * time.Second}, time.Second},
		{"the answer to a claim", faultstore.Fault{Kind: faultstore.DelayAfter, When: about("jobs/a", "put"), Delay: 6 * time.Second}, time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for range 10 {
					st := newStore()
					st.Inject(c.fault)
					locks := locksOf(t, st, nil, "jobs/a", "jobs/b")
					lease, took := anyOf(t, locks)
					if lease.Key() != "jobs/b" || took > c.most {
						t.Errorf("after %v: %v", took, lease.Key())
					}
					st.Clear()
					settleAll(t, locks)
					if held := heldOf(t, st, "jobs/a", "jobs/b"); len(held) != 1 || held[0] != "jobs/b" {
						t.Errorf("%q are held by one that wanted one", held)
					}
					release(t, lease)
				}
			})
		})
	}
}

// TestAcquireAnyGoesOnWithASlowClaim: a claim that takes long wins all the same where all others are held.
func TestAcquireAnyGoesOnWithASlowClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		other := acquire(t, locksOf(t, st, nil, "jobs/b")[0])
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, When: about("jobs/a", "put"), Nth: 1, Delay: 4 * time.Second})
		locks := locksOf(t, st, nil, "jobs/a", "jobs/b")
		lease, took := anyOf(t, locks)
		if lease.Key() != "jobs/a" || took != 4*time.Second {
			t.Errorf("after %v: %v", took, lease.Key())
		}
		st.Clear()
		release(t, other)
		settleAll(t, locks[1:])
		if held := heldOf(t, st, "jobs/a", "jobs/b"); len(held) != 1 || held[0] != "jobs/a" {
			t.Errorf("%q are held by one that wanted one", held)
		}
		release(t, lease)
	})
}

// TestAcquireAnyHoldsOne: however slow the store is, one lock is held in the end, and none when the caller gives up.
func TestAcquireAnyHoldsOne(t *testing.T) {
	for after := 500 * time.Millisecond; after <= 8*time.Second; after += 500 * time.Millisecond {
		bubble(t, func(t *testing.T) {
			st := newStore()
			for _, key := range keys(10) {
				st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, When: about(key, "put"), Nth: 1, Delay: 1500 * time.Millisecond, Jitter: 4 * time.Second})
			}
			locks := locksOf(t, st, nil, keys(10)...)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			lease, err := leasehold.AcquireAny(ctx, locks)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			st.Clear()
			settleAll(t, locks)
			held := heldOf(t, st, keys(10)...)
			if lease == nil && len(held) > 0 || lease != nil && (len(held) != 1 || held[0] != lease.Key()) {
				t.Errorf("given up after %v: %v, and %q are held", after, lease, held)
			}
			if lease != nil {
				release(t, lease)
			}
		})
	}
}

// TestAcquireAnyPassesALockThatFails: one that is denied keeps nobody from the others, free now or later.
func TestAcquireAnyPassesALockThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 10 {
			st := newStore()
			locks := locksOf(t, st, nil, "jobs/a", "jobs/b")
			release(t, acquire(t, locks[0])) // known to be free
			st.Inject(faultstore.Fault{Kind: faultstore.Denied, When: about("jobs/a")})
			lease, took := anyOf(t, locks)
			if lease.Key() != "jobs/b" || took > time.Second {
				t.Errorf("after %v: %v", took, lease.Key())
			}
			time.AfterFunc(5*time.Second, func() { release(t, lease) })
			again, took := anyOf(t, locksOf(t, st, nil, "jobs/a", "jobs/b"))
			if again.Key() != "jobs/b" || took < 4*time.Second || took > 10*time.Second {
				t.Errorf("after %v: %v", took, again.Key())
			}
			release(t, again)
		}
	})
}

// suspendedWithALease are the options of locks with which the machine is suspended for an hour when the first of them has
// been granted a lease, and before anybody has it.
func suspendedWithALease() *leasehold.LockOptions {
	var once sync.Once
	suspend := func(_ context.Context, e locktrace.AcquireDone) {
		if e.Err == nil {
			once.Do(func() { slept.Store(int64(time.Hour)) })
		}
	}
	return &leasehold.LockOptions{Layout: leasehold.LayoutObject, Trace: &locktrace.Trace{AcquireDone: suspend}}
}

// TestAcquireAnyLosesWhatItHadAtOnce: the machine is suspended while it is handed a lock that was free, and what it
// had is lost: it says so, as where it has waited.
func TestAcquireAnyLosesWhatItHadAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		locks := locksOf(t, memstore.New(), suspendedWithALease(), "jobs/a")
		lease, err := leasehold.AcquireAny(t.Context(), locks)
		if lease != nil || !errors.Is(err, leasehold.ErrLost) || errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "the lock ") {
			t.Fatalf("%v, %v", lease, err)
		}
		synctest.Wait()
		release(t, acquire(t, locks[0]))
	})
}
