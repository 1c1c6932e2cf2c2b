package multilock_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/multilock"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// The tests of other packages need these too.
var (
	bubble  = leasetest.Bubble
	here    = leasetest.Here
	needs   = leasetest.Needs
	acquire = leasetest.Acquire
	release = leasetest.Release
)

const withoutSessions = "a marker has no record that can name a session"

// newStore is an empty store behind a network that can be made bad.
func newStore() *faultstore.Store { return faultstore.Wrap(memstore.New(), nil) }

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

func keys(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("shards/%05d", i))
	}
	return all
}

// A process is one in which there is a session, with its own way to the store.
type process struct {
	t       *testing.T
	st      *faultstore.Store
	session *leasehold.Session
}

func startProcess(t *testing.T, st store.Store, name string) *process {
	t.Helper()
	needs(t, here().Tokens(), withoutSessions)
	p := &process{t: t, st: faultstore.Wrap(st, nil)}
	s, err := leasehold.NewSession(t.Context(), p.st, &leasehold.SessionOptions{Holder: name})
	if err != nil {
		t.Fatal(err)
	}
	p.session = s
	return p
}

func (p *process) lock(key string) *leasehold.Lock {
	p.t.Helper()
	return locksOf(p.t, p.st, &leasehold.LockOptions{Session: p.session}, key)[0]
}

func (p *process) acquire(key string) {
	p.t.Helper()
	acquire(p.t, p.lock(key))
}

// end ends the process in order.
func (p *process) end() {
	p.t.Helper()
	leasetest.EndSession(p.t, p.session)
}

// close ends the process with its session first, so that its locks name that still.
func (p *process) close() {
	p.t.Helper()
	leasetest.CloseSession(p.t, p.session)
}

// plant puts an object that is no lock in the place of one.
func plant(t *testing.T, st store.Store, key string) {
	t.Helper()
	if _, err := st.Put(t.Context(), key, []byte("no lock"), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
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

// inOneObject are the options of locks that lie in one object each.
var inOneObject = &leasehold.LockOptions{Layout: leasehold.LayoutObject}

// denyRelease makes a store refuse to free the lock under a key.
func denyRelease(st *faultstore.Store, key string) {
	st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "put", Key: key, When: func(c faultstore.Call) bool {
		return strings.Contains(string(c.Body), `"state":"free"`)
	}})
}

// TestAcquireAll: all or none, and callers that want the same locks in other orders do not
// wait for each other for ever.
func TestAcquireAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		var callers sync.WaitGroup
		var inside [100]sync.Mutex
		for c := range 4 {
			var locks []*leasehold.Lock
			for i := range 100 {
				lock, err := leasehold.NewLock(st, fmt.Sprintf("shards/%02d", (i*7+c*13)%100), leasetest.Patient(leasehold.LockOptions{}))
				if err != nil {
					t.Fatal(err)
				}
				locks = append(locks, lock)
			}
			callers.Go(func() {
				for range 3 {
					leases, err := multilock.AcquireAll(t.Context(), locks)
					if err != nil {
						t.Error(err)
						return
					}
					for i, lease := range leases {
						if lease.Key() != locks[i].Key() {
							t.Errorf("the lease of %s is in the place of that of %s", lease.Key(), locks[i].Key())
						}
						if !inside[i].TryLock() {
							t.Errorf("%s has two holders", lease.Key())
						}
					}
					time.Sleep(2 * time.Second)
					for i := range leases {
						inside[i].Unlock()
					}
					if err = multilock.ReleaseAll(t.Context(), leases); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
	})
}

// TestAcquireAllOrNone: what was acquired is released when the rest cannot be.
func TestAcquireAllOrNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
		a.acquire(keys(100)[77])
		var locks []*leasehold.Lock
		for _, key := range keys(100) {
			locks = append(locks, b.lock(key))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := multilock.AcquireAll(ctx, locks); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while one is held: %v", err)
		}
		if held := b.session.Leases(); len(held) > 0 {
			t.Errorf("%d are still held", len(held))
		}
		if _, err := multilock.AcquireAll(t.Context(), append(locks, locks[3])); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("one lock twice: %v", err)
		}
		a.end()
		leases, err := multilock.AcquireAll(t.Context(), locks)
		if err != nil || len(leases) != 100 || leases[42].Key() != locks[42].Key() {
			t.Errorf("%d leases, %v", len(leases), err)
		}
		b.end()
	})
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
		leases, err := multilock.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b", "jobs/c"))
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
		if err := multilock.ReleaseAll(t.Context(), leases); err != nil {
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
		leases, err := multilock.AcquireAll(t.Context(), locksOf(t, st, &leasehold.LockOptions{TTL: 3 * time.Second}, "jobs/a", "jobs/b"))
		if err != nil {
			t.Fatal(err)
		}
		if err := multilock.ReleaseAll(t.Context(), leases); err != nil {
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
		_, err := multilock.AcquireAll(ctx, locksOf(t, st, nil, "jobs/a", "jobs/b"))
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
		leases, err := multilock.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if err != nil {
			t.Fatal(err)
		}
		if err = multilock.ReleaseAll(t.Context(), leases); err != nil {
			t.Error(err)
		}
		st.Inject(faultstore.Fault{Kind: faultstore.Denied})
		began := time.Now()
		_, err = multilock.AcquireAll(t.Context(), locksOf(t, st, nil, "jobs/a", "jobs/b"))
		if !errors.Is(err, store.ErrDenied) || time.Since(began) > time.Second {
			t.Errorf("denied: after %v %v", time.Since(began), err)
		}
	})
}

// TestAcquireAllOfOneTwice: a lock that is named twice would wait for itself.
func TestAcquireAllOfOneTwice(t *testing.T) {
	st := newStore()
	for _, keys := range [][]string{{"a", "a"}, {"a", "b", "a"}, {"b", "b", "a"}, {"a", "b", "b"}} {
		leases, err := multilock.AcquireAll(t.Context(), locksOf(t, st, nil, keys...))
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
		plant(t, st, "jobs/c")
		others := locksOf(t, st, inOneObject, "jobs/a")
		held := acquire(t, others[0])
		began := time.Now()
		_, err := multilock.AcquireAll(t.Context(), locksOf(t, st, inOneObject, "jobs/a", "jobs/b", "jobs/c"))
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
		_, err := multilock.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
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
		_, err := multilock.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b", "jobs/c"))
		told(t, "of one that comes after one that was lost", err)
	})
	bubble(t, func(t *testing.T) { // as the caller gives up
		st := newStore()
		ctx, stop := context.WithCancel(t.Context())
		denyRelease(st, "jobs/b")
		st.Inject(faultstore.Fault{Kind: faultstore.DelayAfter, Key: "jobs/a", Delay: time.Second})
		time.AfterFunc(500*time.Millisecond, stop)
		_, err := multilock.AcquireAll(ctx, locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
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
		lease := acquire(t, locksOf(t, newStore(), nil, "jobs/a")[0])
		if err := multilock.ReleaseAll(t.Context(), []*leasehold.Lease{nil, lease, nil}); err != nil || lease.Valid() {
			t.Errorf("valid %v: %v", lease.Valid(), err)
		}
	})
}

// about selects what is asked about one lock, in any layout.
func about(key string, op ...string) func(faultstore.Call) bool {
	return func(c faultstore.Call) bool {
		return strings.HasPrefix(c.Key, key) && (len(op) == 0 || strings.Contains(strings.Join(op, " "), c.Op))
	}
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
	lease, err := multilock.AcquireAny(t.Context(), locks)
	if err != nil {
		t.Fatal(err)
	}
	if err = lease.Err(); err != nil {
		t.Fatal(err)
	}
	return lease, time.Since(began)
}

// TestAcquireAny: one of those that are free, or the first that becomes free.
func TestAcquireAny(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := startProcess(t, st, "a"), startProcess(t, st, "b")
		var locks []*leasehold.Lock
		for i, key := range keys(50) {
			locks = append(locks, b.lock(key))
			if i != 17 {
				a.acquire(key)
			}
		}
		lease, err := multilock.AcquireAny(t.Context(), locks)
		if err != nil || lease.Key() != locks[17].Key() {
			t.Fatalf("AcquireAny: %v, %v", lease, err)
		}
		locks = slices.Delete(locks, 17, 18)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err = multilock.AcquireAny(ctx, locks); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("when all are held: %v", err)
		}
		got := make(chan *leasehold.Lease)
		go func() {
			first, failed := multilock.AcquireAny(t.Context(), locks)
			if failed != nil {
				t.Error(failed)
			}
			got <- first
		}()
		time.Sleep(time.Minute)
		if err = multilock.ReleaseAll(t.Context(), a.session.Leases()[20:23]); err != nil {
			t.Fatal(err)
		}
		lease = <-got
		time.Sleep(time.Minute)
		if held := b.session.Leases(); len(held) != 2 || !slices.Contains(held, lease) {
			t.Errorf("%d leases are held, not those 2 that were won", len(held))
		}
		if _, err = multilock.AcquireAny(t.Context(), nil); err == nil {
			t.Error("any of no locks was acquired")
		}
		a.end()
		b.end()
	})
}

// TestAcquireAnySaysWhy: who gives up while it tries the first lock is told why the store failed.
func TestAcquireAnySaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := newStore()
		st.Partition(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		lease, err := multilock.AcquireAny(ctx, locksOf(t, st, nil, "jobs/a", "jobs/b"))
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
		plant(t, st, "jobs/a")
		held := acquire(t, locksOf(t, st, inOneObject, "jobs/b")[0])
		time.AfterFunc(time.Minute, func() { _ = held.Release(context.Background()) })
		lease, err := multilock.AcquireAny(t.Context(), locksOf(t, st, inOneObject, "jobs/a", "jobs/b"))
		if err != nil || lease.Key() != "jobs/b" {
			t.Fatalf("%v, %v", lease, err)
		}
		if _, err = multilock.AcquireAny(t.Context(), locksOf(t, st, inOneObject, "jobs/a")); !errors.Is(err, leasehold.ErrForeignObject) {
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
				lease, err := multilock.AcquireAny(t.Context(), locks)
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

// suspendedWithALease are the options of locks with which the machine is suspended for an hour when the first of them has
// been granted a lease, and before anybody has it.
func suspendedWithALease() *leasehold.LockOptions {
	var once sync.Once
	suspend := func(_ context.Context, e locktrace.AcquireDone) {
		if e.Err == nil {
			once.Do(func() { leasetest.Slept.Store(int64(time.Hour)) })
		}
	}
	return &leasehold.LockOptions{Layout: leasehold.LayoutObject, Trace: &locktrace.Trace{AcquireDone: suspend}}
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
		lease, err := multilock.AcquireAny(t.Context(), locks)
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
					if held := leasetest.Held(t, st, "jobs/a", "jobs/b"); len(held) != 1 || held[0] != "jobs/b" {
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
		if held := leasetest.Held(t, st, "jobs/a", "jobs/b"); len(held) != 1 || held[0] != "jobs/a" {
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
			lease, err := multilock.AcquireAny(ctx, locks)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			st.Clear()
			settleAll(t, locks)
			held := leasetest.Held(t, st, keys(10)...)
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

// TestAcquireAnyLosesWhatItHadAtOnce: the machine is suspended while it is handed a lock that was free, and what it
// had is lost: it says so, as where it has waited.
func TestAcquireAnyLosesWhatItHadAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		locks := locksOf(t, memstore.New(), suspendedWithALease(), "jobs/a")
		lease, err := multilock.AcquireAny(t.Context(), locks)
		if lease != nil || !errors.Is(err, leasehold.ErrLost) || errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "the lock ") {
			t.Fatalf("%v, %v", lease, err)
		}
		synctest.Wait()
		release(t, acquire(t, locks[0]))
	})
}
