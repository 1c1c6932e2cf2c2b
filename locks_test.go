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
	"github.com/leasehold/leasehold/internal/engine"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/multilock"
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
		if held := leasetest.Held(t, st, "jobs/a"); len(held) > 0 {
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
			if held := leasetest.Held(t, st, "jobs/a"); len(held) > 0 {
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
		if err := multilock.ReleaseAll(t.Context(), leases[1:]); err != nil {
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
