package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/locktrace"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func newSemaphore(t *testing.T, st store.Store, size int, opts *semaphore.Options) *semaphore.Semaphore {
	t.Helper()
	s, err := semaphore.New(st, "slots", size, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type closer interface{ Close(context.Context) error }

func closed(t *testing.T, all ...closer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, s := range all {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

func released(t *testing.T, all ...*leasehold.Lease) {
	t.Helper()
	for _, l := range all {
		if err := l.Release(t.Context()); err != nil || l.Valid() || !errors.Is(l.Err(), leasehold.ErrReleased) {
			t.Errorf("released: %v, %v, %v", err, l.Valid(), l.Err())
		}
	}
}

// As many hold as there is room for, the others wait in the order in which they came, and each grant
// has a larger token.
func TestOrder(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		var all []closer
		var mu sync.Mutex
		tokens := make([]leasehold.Token, 20) // in the order in which they came
		var wg sync.WaitGroup
		holding, most := 0, 0
		for i := range tokens {
			s := newSemaphore(t, st, 3, &semaphore.Options{Holder: fmt.Sprint("p", i)})
			all = append(all, s)
			wg.Go(func() {
				if err := s.Do(t.Context(), 1, func(_ context.Context, l *leasehold.Lease) error {
					mu.Lock()
					tokens[i] = l.Token()
					holding++
					most = max(most, holding)
					mu.Unlock()
					time.Sleep(5 * time.Second)
					mu.Lock()
					holding--
					mu.Unlock()
					return l.Err()
				}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		if most != 3 {
			t.Errorf("%d held at a time", most)
		}
		if !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != 20 || tokens[0] == 0 {
			t.Errorf("the tokens were %v", tokens)
		}
		closed(t, all...)
	})
}

// Goroutines of one process share what they send: what they want at one moment is one write.
func TestOneWriteForMany(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: 20 * time.Millisecond}}})
		s := newSemaphore(t, st, 100, nil)
		first, err := s.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		before := leasetest.RequestsFor(st, "slots")
		leases := make(chan *leasehold.Lease, 50)
		for range 50 {
			go func() {
				l, err := s.Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
				}
				leases <- l
			}()
		}
		var all sync.WaitGroup
		for range 50 {
			l := <-leases
			all.Go(func() { released(t, l) })
		}
		all.Wait()
		if sent := leasetest.RequestsFor(st, "slots") - before; sent > 4 {
			t.Errorf("50 acquisitions and releases took %d requests", sent)
		}
		released(t, first)
		closed(t, s)
	})
}

// A process that is gone loses its slots and its place in the queue after a TTL and margin.
func TestDeadHolder(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := faultstore.Wrap(st, nil)
		var lost error
		gone := newSemaphore(t, net, 1, &semaphore.Options{Trace: leasetest.OnLost(func(err error) { lost = err })})
		dead, err := gone.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		next := newSemaphore(t, st, 1, nil)
		told := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_, err := gone.Acquire(ctx, 1) // and one that waits, and is gone too
			told <- err
		}()
		time.Sleep(time.Second)
		got := make(chan *leasehold.Lease, 1)
		go func() {
			l, err := next.Acquire(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		time.Sleep(time.Second)
		began := time.Now()
		net.Partition(true)
		l := <-got
		if took := time.Since(began); took > 20*time.Second || dead.Valid() {
			t.Errorf("it took %v, and the dead lease is valid: %v", took, dead.Valid())
		}
		if !errors.Is(dead.Err(), leasehold.ErrLost) {
			t.Errorf("the dead lease: %v", dead.Err())
		}
		cancel() // it waits on, under another session as soon as there can be one
		if err := <-told; !errors.Is(err, context.Canceled) {
			t.Errorf("who waited beside it: %v", err)
		}
		net.Partition(false)
		if err := dead.Release(t.Context()); !errors.Is(err, leasehold.ErrLost) {
			t.Errorf("released: %v", err)
		}
		synctest.Wait()
		if !errors.Is(lost, leasehold.ErrLost) {
			t.Errorf("OnLost: %v", lost)
		}
		released(t, l)
		closed(t, next)
		_ = gone.Close(t.Context()) // it was lost
	})
}

// A writer among readers that come and go gets its turn after those that came before it, and before those that came
// when it stood in the queue.
func TestWriterAmongReaders(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		var inLine time.Time // when the writer stood in it; zero: not yet
		var mu sync.Mutex
		newLock := func(opts *semaphore.Options) *semaphore.RWLock {
			l, err := semaphore.NewRWLock(st, "table", opts)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		w := newLock(&semaphore.Options{Trace: &locktrace.Trace{Waiting: func(context.Context, locktrace.Waiting) {
			mu.Lock()
			defer mu.Unlock()
			if inLine.IsZero() {
				inLine = time.Now()
			}
		}}})
		all := []closer{w}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var later []leasehold.Token // of readers that came when the writer stood in the queue
		readers := 0
		for i := range 25 {
			l := newLock(nil)
			all = append(all, l)
			wg.Go(func() {
				for time.Sleep(time.Duration(i) * 80 * time.Millisecond); ctx.Err() == nil; {
					came := time.Now()
					err := l.RDo(ctx, func(_ context.Context, lease *leasehold.Lease) error {
						mu.Lock()
						readers++
						if !inLine.IsZero() && came.After(inLine) {
							later = append(later, lease.Token())
						}
						mu.Unlock()
						time.Sleep(2 * time.Second)
						mu.Lock()
						readers--
						mu.Unlock()
						return nil
					})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		var turn leasehold.Token
		writing, giveUp := context.WithTimeout(t.Context(), time.Minute)
		defer giveUp()
		if err := w.Do(writing, func(_ context.Context, lease *leasehold.Lease) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if readers != 0 || len(later) > 0 {
				t.Errorf("%d readers beside a writer, and %d that came later had their turn before it", readers, len(later))
			}
			turn = lease.Token()
			return nil
		}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the writer waited for %v", took)
		}
		time.Sleep(10 * time.Second)
		stop()
		wg.Wait()
		if len(later) == 0 || slices.Min(later) < turn {
			t.Errorf("the writer had the token %d, readers that came later %v", turn, later)
		}
		closed(t, all...)
	})
}

// Who does not wait is told at once who holds the slots, and leaves nothing behind.
func TestTry(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := newSemaphore(t, st, 2, &semaphore.Options{Holder: "a"}), newSemaphore(t, st, 2, &semaphore.Options{Holder: "b"})
		held, err := a.Acquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.TryAcquire(t.Context(), 1)
		var who *leasehold.HeldError
		if !errors.Is(err, leasehold.ErrHeld) || !errors.As(err, &who) || who.Info.Holders[0].Holder != "a" || len(who.Info.Waiters) != 0 {
			t.Errorf("tried: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err = b.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("gave up: %v", err)
		}
		time.Sleep(time.Second)
		if i, e := b.Inspect(t.Context()); e != nil || len(i.Waiters) != 0 || len(i.Holders) != 1 || i.Taken() != 2 {
			t.Errorf("it looks like %+v, %v", i, e)
		}
		released(t, held)
		l, err := b.TryAcquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		other := newSemaphore(t, st, 3, nil)
		if _, err := other.Acquire(t.Context(), 1); !errors.Is(err, semaphore.ErrSize) || !strings.Contains(err.Error(), "must say the same size") {
			t.Errorf("another size: %v", err)
		}
		released(t, l)
		closed(t, a, b, other)
	})
}

// A semaphore that nobody uses any more ends its session by itself, and begins another one when it is
// used again.
func TestRests(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 1, nil)
		for range 2 {
			l, err := s.Acquire(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			released(t, l)
			time.Sleep(time.Minute)
			before := len(st.Log())
			time.Sleep(time.Hour)
			if sent := len(st.Log()) - before; sent != 0 {
				t.Errorf("%d requests in an hour in which nobody wants anything", sent)
			}
		}
	})
}

// The session of a semaphore lasts for a TTL after its last use, and not after an earlier one.
func TestRestsAfterTheLastUse(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := newSemaphore(t, memstore.New(), 2, nil)
		session := func() string {
			t.Helper()
			l := acquired(t, s, 1)
			defer released(t, l)
			info, err := s.Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return info.Holders[len(info.Holders)-1].Session
		}
		kept := acquired(t, s, 1)
		first := session()
		time.Sleep(leasehold.DefaultTTL - time.Second)
		released(t, kept)
		time.Sleep(leasehold.DefaultTTL - time.Second)
		if now := session(); now != first {
			t.Error("it was closed before a TTL had passed")
		}
		time.Sleep(leasehold.DefaultTTL + time.Second)
		if now := session(); now == first {
			t.Error("it was not closed a TTL after the last use")
		}
		closed(t, s)
	})
}

// The session that a semaphore begins as the last one is closed for want of use stays.
func TestRestsWhileItBegins(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 1, nil)
		released(t, acquired(t, s, 1))
		time.Sleep(leasehold.DefaultTTL - time.Second)
		leasetest.Slept.Store(int64(time.Hour)) // so the last one is over
		st.Inject(faultstore.Fault{Kind: faultstore.DelayBefore, Op: "put", Key: "sessions/*", Delay: 3 * time.Second})
		l := acquired(t, s, 1)
		synctest.Wait()
		n := 0
		for _, key := range leasetest.Objects(t, st) {
			if strings.HasPrefix(key, "sessions/") {
				n++
			}
		}
		if !l.Valid() || n != 2 { // or it was closed before it was used, and another one begun
			t.Errorf("it was closed: %v; there are %d sessions", l.Err(), n)
		}
		released(t, l)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Whoever does not wait, and finds no slot, begins no session for that: each run of a cron job used to
// leave an object behind. A store that fails ends the attempt, as it does that for a lock: it used to go
// on for as long as the store failed.
func TestTryLeavesNothing(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		a := newSemaphore(t, st, 2, nil)
		held, err := a.Acquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		before, sent := leasetest.Objects(t, st), len(st.Log())
		b := newSemaphore(t, st, 2, nil)
		if _, err := b.TryAcquire(t.Context(), 1); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("tried: %v", err)
		}
		if n := len(st.Log()) - sent; n != 1 {
			t.Errorf("%d requests", n)
		}
		if after := leasetest.Objects(t, st); !slices.Equal(before, after) {
			t.Errorf("there was %v, and is %v", before, after)
		}
		released(t, held)
		closed(t, a, b)
		for kind, want := range map[faultstore.Kind]error{faultstore.Unavailable: store.ErrUnavailable, faultstore.Hang: context.DeadlineExceeded} {
			most := leasehold.DefaultTTL
			if kind == faultstore.Unavailable {
				most = 3 * time.Second // for three failures
			}
			bad := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: kind}}})
			c, began := newSemaphore(t, bad, 2, nil), time.Now()
			_, err := c.TryAcquire(t.Context(), 1)
			if took := time.Since(began); took > most || !errors.Is(err, want) || errors.Is(err, context.Canceled) || t.Context().Err() != nil {
				t.Errorf("%v: after %v: %v", kind, took, err)
			}
			closed(t, c)
		}
	})
}

// The user hears of each heartbeat, when the deadlines have moved.
func TestOnRenew(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var lease *leasehold.Lease
		var deadlines []time.Time
		s := newSemaphore(t, memstore.New(), 1, &semaphore.Options{Trace: leasetest.OnRenew(func() {
			mu.Lock()
			defer mu.Unlock()
			deadlines = append(deadlines, lease.Deadline())
		})})
		held, err := s.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		lease = held
		mu.Unlock()
		first := held.Deadline()
		time.Sleep(leasehold.DefaultTTL)
		released(t, held)
		closed(t, s)
		mu.Lock()
		defer mu.Unlock()
		if len(deadlines) < 2 || !deadlines[0].After(first) || !deadlines[1].After(deadlines[0]) {
			t.Errorf("first until %v, then until %v", first, deadlines)
		}
	})
}

// A store that cannot be reached for longer than a TTL ends the session of one that waits, and not its wait:
// that used to fail, with the error of a lease that was lost.
func TestWaitOutlivesItsSession(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := faultstore.Wrap(st, nil)
		a, b := newSemaphore(t, st, 1, nil), newSemaphore(t, net, 1, nil)
		held := acquired(t, a, 1)
		got := make(chan *leasehold.Lease, 1)
		go func() {
			l, err := b.Acquire(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		time.Sleep(time.Second)
		net.Partition(true)
		time.Sleep(time.Minute)
		net.Partition(false)
		time.Sleep(time.Minute)
		if i, err := a.Inspect(t.Context()); err != nil || len(i.Waiters) == 0 {
			t.Errorf("nobody waits any more: %+v, %v", i, err)
		}
		released(t, held)
		select {
		case l := <-got:
			if l == nil {
				return
			}
			released(t, l)
		case <-time.After(time.Minute):
			t.Error("it is not served any more")
		}
		// Who gives up while its session is over is told so.
		held = acquired(t, a, 1)
		net.Partition(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("gave up: %v", err)
		}
		net.Partition(false)
		released(t, held)
		closed(t, a)
		_ = b.Close(t.Context()) // its session may be lost
	})
}

// soonGranted bounds how long it takes those who have been given slots together with the head of the queue to
// find out.
const soonGranted = leasehold.DefaultTTL/3*5/4 + time.Second

// Readers who wait for a writer get their slots by one write, and know it soon. Where slots are held for long all
// but the first used to find out two minutes later.
func TestReadersTogether(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		newLock := func(name string) *semaphore.RWLock {
			l, err := semaphore.NewRWLock(st, "table", &semaphore.Options{Holder: name})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		w := newLock("writer")
		all := []closer{w}
		for range 2 { // the first one shows for how long writers write
			held, err := w.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			const n = 20
			late := make(chan *leasehold.Lease, n)
			for i := range n {
				r := newLock(fmt.Sprint("reader", i))
				all = append(all, r)
				go func() {
					l, err := r.RLock(t.Context())
					if err != nil {
						t.Error(err)
					}
					late <- l
				}()
			}
			time.Sleep(10 * time.Minute)
			released(t, held)
			began := time.Now()
			for range n {
				released(t, <-late)
			}
			if took := time.Since(began); took > soonGranted {
				t.Errorf("after the writer's release it took %v until the last reader had its slot", took)
			}
		}
		closed(t, all...)
	})
}

// Slots of several that die at one moment are in use again together. Each waiter in turn used to become the head and
// to begin to wait for the next one's end then, and three slots took three TTLs and longer.
func TestDeadTogether(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := faultstore.Wrap(st, nil)
		first := newSemaphore(t, st, 3, nil)
		held := acquired(t, first, 3)
		time.Sleep(10 * time.Minute) // so slots are held for long
		released(t, held)
		closed(t, first)
		for range 3 {
			acquired(t, newSemaphore(t, net, 3, nil), 1)
		}
		got := make(chan *leasehold.Lease, 3)
		for range 3 {
			s := newSemaphore(t, st, 3, nil)
			go func() {
				l, err := s.Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
		}
		time.Sleep(time.Minute)
		began := time.Now()
		net.Partition(true)
		leases := []*leasehold.Lease{<-got, <-got, <-got}
		// The one that is watched is late by two thirds of a TTL, and then all are watched for a TTL and margin.
		const dead = leasehold.DefaultTTL*2/3 + leasehold.DefaultTTL*13/12 + leasehold.DefaultTTL/3
		if took := time.Since(began); took > dead+soonGranted {
			t.Errorf("it took %v until all three slots were in use", took)
		}
		released(t, leases...)
	})
}

// TestManyDeadTogether: when the holder and all before a waiter die at one moment, it has the slot in a time that
// does not depend on how many they were. It took up to 13 minutes: a waiter far behind looked every few minutes, and began
// to watch anew with each dead one that was given the slot.
func TestManyDeadTogether(t *testing.T) {
	for _, dead := range []int{3, 10, 40} {
		t.Run(strconv.Itoa(dead), func(t *testing.T) {
			leasetest.Bubble(t, func(t *testing.T) {
				st := memstore.New()
				net := faultstore.Wrap(st, nil)
				first := newSemaphore(t, st, 1, nil)
				held := acquired(t, first, 1)
				time.Sleep(time.Minute) // a turn
				released(t, held)
				closed(t, first)
				acquired(t, newSemaphore(t, net, 1, nil), 1)
				ctx, giveUp := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range dead {
					s := newSemaphore(t, net, 1, nil)
					all.Go(func() {
						if _, err := s.Acquire(ctx, 1); err == nil {
							t.Error("one of the dead has the slot")
						}
					})
					time.Sleep(100 * time.Millisecond)
				}
				got := make(chan *leasehold.Lease)
				own := faultstore.Wrap(st, nil)
				s := newSemaphore(t, own, 1, nil)
				go func() { got <- acquired(t, s, 1) }()
				time.Sleep(45 * time.Second)
				began, asked := time.Now(), len(own.Log())
				net.Partition(true)
				lease := <-got
				// Two looks find the one before it dead, and then all are watched for a TTL and margin.
				const most = leasehold.DefaultTTL*8/5*2*5/4 + leasehold.DefaultTTL*13/12 + leasehold.DefaultTTL/3
				took, requests := time.Since(began), len(own.Log())-asked
				t.Logf("%d dead: %v, %d requests", dead, took, requests)
				if took > most+soonGranted {
					t.Errorf("it took %v, more than %v", took, most)
				}
				if limit := 100 + 20*dead; requests > limit {
					t.Errorf("%d requests, more than %d", requests, limit)
				}
				released(t, lease)
				giveUp()
				all.Wait()
			})
		})
	}
}

// A turn that a caller of the same process gives to the next one costs the write that does it, and no looks: they would
// find nothing that the process has not written. The queue is made by one write, too.
func TestTurnsOfOneProcess(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const callers, hold = 100, 20 * time.Millisecond
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayAfter, Delay: 4 * time.Millisecond}}})
		l, err := semaphore.NewLock(st, "slots", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				lease, err := l.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(hold)
				released(t, lease)
			})
		}
		all.Wait()
		use, requests := callers*hold.Seconds()/time.Since(began).Seconds(), float64(count(st).table)/callers
		t.Logf("%.2f requests a turn, in use for %.0f %%", requests, 100*use)
		if requests > 1.1 || use < 0.8 {
			t.Error("a turn may cost 1.1 requests, and the lock is to be in use for 80 %")
		}
		closed(t, l)
	})
}

// A crowd is so many processes that come at one moment, what each of its turns may cost in requests, and how many times
// the mean wait the longest may be. All of that varies from run to run, since pauses are drawn and goroutines that wake at one
// instant come in any order: the bounds are at least eight standard deviations from the mean.
type crowd struct {
	many             int
	requests, unfair float64
}

// Of those that come at one moment each has got into the queue before those who had their turn have come back often:
// the longest wait is not much longer than the mean, which the first turns shorten, since the queue forms then.
func TestComeAtOnce(t *testing.T) { comeAtOnce(t, crowd{many: 40, requests: 14, unfair: 3.2}) }

func comeAtOnce(t *testing.T, c crowd) {
	t.Helper()
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayAfter, Delay: 4 * time.Millisecond}}})
		r := rush(t, st, c.many)
		requests := float64(count(st).table) / float64(len(r.waits))
		t.Logf("%v; %.1f requests a turn", r, requests)
		if r.unfair() > c.unfair || requests > c.requests {
			t.Errorf("the longest wait may be %v times the mean, and a turn may cost %v requests", c.unfair, c.requests)
		}
	})
}

// Of a store that does one request after the other a crowd that comes at one moment is as many requests. They are
// not to keep it from being of use by trying: each release has its answer soon, and nobody's session ends for
// want of one.
func TestCrowdOnABusyStore(t *testing.T) { onABusyStore(t, crowd{many: 40, requests: 17}) }

// onABusyStore has the store be as slow for the whole crowd, however many they are.
func onABusyStore(t *testing.T, c crowd) {
	t.Helper()
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		began := time.Now()
		each := time.Second / time.Duration(c.many)
		r := rush(t, &busy{Store: st, get: each / 4, put: each}, c.many)
		took, requests := time.Since(began), float64(count(st).table)/float64(len(r.waits))
		t.Logf("%v; %.1f requests a turn; %v in all", r, requests, took.Round(time.Second))
		if requests > c.requests || slices.Max(r.releases) > 8 || took > 50*time.Second {
			t.Errorf("a turn may cost %v requests, a release take 8s, and all of it 50s", c.requests)
		}
	})
}

// Fifty readers that leave at one moment are a crowd, too. Each has a TTL to take its entry out, and one that does not
// has to end its session.
func TestLeaveABusyStore(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const readers = 50
		st := faultstore.Wrap(memstore.New(), nil)
		slow := &busy{Store: st, get: 4 * time.Millisecond, put: 16 * time.Millisecond}
		var all, in sync.WaitGroup
		in.Add(readers)
		leave := make(chan struct{})
		took := make([]time.Duration, readers)
		for i := range readers {
			all.Go(func() {
				l, err := semaphore.NewRWLock(slow, "slots", &semaphore.Options{Holder: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
					return
				}
				lease, err := l.RLock(t.Context())
				in.Done()
				if err != nil {
					t.Error(err)
					return
				}
				<-leave
				began := time.Now()
				released(t, lease)
				took[i] = time.Since(began)
				closed(t, l)
			})
		}
		in.Wait()
		before := count(st).table
		close(leave)
		all.Wait()
		requests := float64(count(st).table-before) / readers
		t.Logf("the longest release takes %v, %.1f requests each", slices.Max(took).Round(time.Millisecond), requests)
		if slices.Max(took) > 12*time.Second || requests > 12 {
			t.Error("a release may take 12s of the 15s that it has, and 12 requests")
		}
	})
}

// busy is a store that does one request after the other, each in so long.
type busy struct {
	store.Store
	get, put time.Duration

	mu   sync.Mutex
	free time.Time // when it has done all that it was asked for
}

func (b *busy) do(d time.Duration) {
	b.mu.Lock()
	if now := time.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(d/2 + rand.N(d))
	done := b.free
	b.mu.Unlock()
	time.Sleep(time.Until(done))
}

func (b *busy) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	b.do(b.get)
	return b.Store.Get(ctx, key, unless)
}

func (b *busy) Put(ctx context.Context, key string, body []byte, c store.Condition) (*store.Object, error) {
	b.do(b.put)
	return b.Store.Put(ctx, key, body, c)
}

// A rushed is how long those waited who came at one moment, and their releases took, in seconds.
type rushed struct{ waits, releases []float64 }

// unfair is the longest wait over the mean.
func (r *rushed) unfair() float64 {
	sum := 0.0
	for _, w := range r.waits {
		sum += w
	}
	return slices.Max(r.waits) / (sum / float64(len(r.waits)))
}

func (r *rushed) String() string {
	return fmt.Sprintf("the longest wait is %.2f times the mean, the longest release takes %.1f s", r.unfair(), slices.Max(r.releases))
}

// rush has so many processes come at one moment, three times each: few would not be in each other's way.
func rush(t *testing.T, st store.Store, many int) *rushed {
	t.Helper()
	const turns, hold = 3, 20 * time.Millisecond
	var r rushed
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			l, err := semaphore.NewLock(st, "slots", &semaphore.Options{Holder: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
				return
			}
			for range turns {
				came := time.Now()
				lease, err := l.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				waited := time.Since(came).Seconds()
				time.Sleep(hold)
				left := time.Now()
				released(t, lease)
				mu.Lock()
				r.waits, r.releases = append(r.waits, waited), append(r.releases, time.Since(left).Seconds())
				mu.Unlock()
			}
			closed(t, l)
		})
	}
	all.Wait()
	if len(r.waits) != turns*many {
		t.Fatalf("%d turns", len(r.waits))
	}
	return &r
}

// traffic is what was sent.
type traffic struct{ table, watch int }

func count(st *faultstore.Store) (n traffic) {
	for _, e := range st.Log() {
		switch {
		case e.Key == "slots":
			n.table++
		case e.Op == "get":
			n.watch++
		}
	}
	return n
}

// TestShown: an entry says who holds it, by default host and process, since when, and which it is; and a semaphore
// may be as large as MaxSize.
func TestShown(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := newSemaphore(t, memstore.New(), semaphore.MaxSize, nil)
		l := acquired(t, s, 7)
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "unknown"
		}
		info, err := s.Inspect(t.Context())
		if err != nil || len(info.Holders) != 1 || info.Key != "slots" || info.Layout != "table" || !info.Exists || !info.Held || info.Size != semaphore.MaxSize || info.Token != l.Token() || info.Version == "" {
			t.Fatalf("it looks like %+v, %v", info, err)
		}
		h := info.Holders[0]
		if h.Holder != fmt.Sprintf("%s/%d", host, os.Getpid()) || h.ID == "" || h.Weight != 7 || h.Token != l.Token() || !h.Since.Equal(time.Now()) {
			t.Errorf("its holder is %+v", h)
		}
		released(t, l)
		closed(t, s)
	})
}

// TestWhoHolds: the error of an acquisition that finds no slot says whose the slots are.
func TestWhoHolds(t *testing.T) {
	for _, c := range []struct {
		weights []int
		waits   int
		says    string
	}{
		{[]int{3}, 0, "3 of 3 slots of the semaphore slots are taken, by p0"},
		{[]int{1, 2}, 0, "3 of 3 slots of the semaphore slots are taken, by p0 and 1 more"},
		{[]int{1, 1}, 2, "2 of 3 slots of the semaphore slots are taken, by p0 and 1 more, and 1 wait"},
		{nil, 0, ""},
		{[]int{1}, 0, ""},
	} {
		leasetest.Bubble(t, func(t *testing.T) {
			st := memstore.New()
			s := newSemaphore(t, st, 3, nil)
			released(t, acquired(t, s, 1)) // so there is an object
			var held []*leasehold.Lease
			for i, weight := range c.weights {
				l, err := s.Acquire(t.Context(), weight, leasehold.WithHolder(fmt.Sprint("p", i)))
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, l)
			}
			var all sync.WaitGroup
			if c.waits > 0 {
				all.Go(func() { released(t, acquired(t, s, c.waits)) })
			}
			synctest.Wait()
			other := newSemaphore(t, st, 3, nil)
			l, err := other.TryAcquire(t.Context(), 1)
			if (err == nil) != (c.says == "") || err != nil && err.Error() != c.says {
				t.Errorf("it says %v, not %s", err, c.says)
			}
			if l != nil {
				released(t, l)
			}
			released(t, held...)
			all.Wait()
			closed(t, s, other)
		})
	}
}

// TestSessionSaysWhose: the session that a semaphore begins has what its options say of the process.
func TestSessionSaysWhose(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		s := newSemaphore(t, st, 1, &semaphore.Options{TTL: time.Minute, Holder: "me", Address: "10.0.0.1:1", Meta: map[string]string{"k": "v"}})
		l := acquired(t, s, 1)
		info, err := s.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := leasetest.RecordIn(t, st, info.Holders[0].Session)
		if r.TTL != time.Minute || r.Holder != "me" || r.Address != "10.0.0.1:1" || r.Meta["k"] != "v" || len(r.Meta) != 1 {
			t.Errorf("its session is %+v", r)
		}
		released(t, l)
		closed(t, s)
	})
}

// TestLooksByItsTTL: those far behind in a queue read the session of the one before them once in 8/5 of a TTL: seldom where
// that is long.
func TestLooksByItsTTL(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const ttl = 10 * time.Minute
		st := memstore.New()
		holder := newSemaphore(t, st, 1, &semaphore.Options{TTL: ttl})
		held := acquired(t, holder, 1)
		all := []closer{holder}
		var waiting sync.WaitGroup
		var last *faultstore.Store
		for range 4 {
			last = faultstore.Wrap(st, nil)
			s := newSemaphore(t, last, 1, &semaphore.Options{TTL: ttl})
			all = append(all, s)
			waiting.Go(func() { released(t, acquired(t, s, 1)) })
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		if n := last.Counts().Get - leasetest.RequestsFor(last, "slots"); n < 2 || n > 20 {
			t.Errorf("the last looks %d times in an hour at the session of the one before it", n)
		}
		released(t, held)
		waiting.Wait()
		closed(t, all...)
	})
}

// TestSessionNotClosed: the log says so where the session of a semaphore that nobody uses any more could not be closed.
func TestSessionNotClosed(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		var log leasetest.Log
		s := newSemaphore(t, st, 1, &semaphore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		released(t, acquired(t, s, 1))
		time.Sleep(leasehold.DefaultTTL - time.Second)
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: "sessions/*"})
		time.Sleep(time.Hour)
		if n := strings.Count(log.String(), "the session of a semaphore was not closed"); n != 1 {
			t.Errorf("it is said %d times: %s", n, &log)
		}
		st.Clear()
		closed(t, s)
	})
}

// TestNoLock: what makes no semaphore makes no lock.
func TestNoLock(t *testing.T) {
	t.Parallel()
	if l, err := semaphore.NewLock(nil, "slots", nil); l != nil || err == nil {
		t.Errorf("there is a lock: %v", err)
	}
	if l, err := semaphore.NewRWLock(nil, "slots", nil); l != nil || err == nil {
		t.Errorf("there is a reader/writer lock: %v", err)
	}
}

// TestReader: a reader takes one slot of many, and one that waits looks when it is told that it has its own.
func TestReader(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		l, err := semaphore.NewRWLock(st, "slots", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, acquire := range []func(context.Context) (*leasehold.Lease, error){l.RLock, l.TryRLock} {
			r, failed := acquire(t.Context())
			if failed != nil {
				t.Fatal(failed)
			}
			info, failed := l.Inspect(t.Context())
			if failed != nil || info.Taken() != 1 {
				t.Errorf("it looks like %+v, %v", info, failed)
			}
			released(t, r)
		}
		w, err := l.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Processes that disagreed on the size would refuse each other.
		if info, failed := l.Inspect(t.Context()); failed != nil || info.Size != 1_048_576 || leasehold.Internal.Core(w).Of().Weight() != 1_048_576 {
			t.Errorf("it looks like %+v, %v", info, failed)
		}
		got := make(chan *leasehold.Lease, 1)
		go func() {
			r, err := l.RLock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
		time.Sleep(time.Hour) // by now it looks every few seconds
		before := leasetest.RequestsFor(st, "slots")
		l.Changed("a word")
		synctest.Wait()
		if n := leasetest.RequestsFor(st, "slots") - before; n != 1 {
			t.Errorf("it looked %d times", n)
		}
		released(t, w)
		released(t, <-got)
		closed(t, l)
	})
}

// TestSaysNothing: when all is well nothing is logged; and a release that fails at the end of Do is, as nobody else
// would tell of it.
func TestSaysNothing(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		var log leasetest.Log
		s := newSemaphore(t, st, 1, &semaphore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		do := func(f func()) {
			if err := s.Do(t.Context(), 1, func(context.Context, *leasehold.Lease) error { f(); return nil }); err != nil {
				t.Error(err)
			}
		}
		do(func() {})
		time.Sleep(time.Hour) // its session has been closed
		do(func() {})
		if log.String() != "" {
			t.Errorf("all was well, and it says %s", &log)
		}
		do(func() { st.Inject(faultstore.Fault{Kind: faultstore.Unavailable}) })
		if !strings.Contains(log.String(), "slots were not released") {
			t.Errorf("it says %s", &log)
		}
		st.Clear()
		if err := s.Close(t.Context()); err != nil && !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
	})
}

// TestGivesUpOfNobody: one that gives up because the store fails is not told that somebody holds slots, if nobody
// does.
func TestGivesUpOfNobody(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 1, nil)
		released(t, acquired(t, s, 1))
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: "slots"})
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := s.Acquire(short, 1); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("gave up: %v", err)
		}
		st.Clear()
		closed(t, s)
	})
}

// TestNoPeers: a process that has no way to tell others gives them slots all the same.
func TestNoPeers(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := &words{}
		a, b := newSemaphore(t, st, 1, nil), newSemaphore(t, st, 1, net.options(true, "b"))
		held := acquired(t, a, 1)
		got := make(chan *leasehold.Lease, 1)
		go func() { got <- acquired(t, b, 1) }()
		time.Sleep(time.Second)
		released(t, held)
		released(t, <-got)
		closed(t, a, b)
	})
}

// TestKeepsNothingOfALease: a semaphore that is used again and again does not grow: of a lease that was released, and of
// an acquisition that was given up, it keeps nothing.
func TestKeepsNothingOfALease(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := newSemaphore(t, memstore.New(), 1, nil)
		l := acquired(t, s, 1)
		if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, leasehold.ErrHeld) {
			t.Error(err)
		}
		released(t, l)
		closed(t, s)
		lease := weak.Make(l)
		synctest.Wait()
		for range 10 {
			runtime.GC()
		}
		if lease.Value() != nil {
			t.Error("the lease is kept")
		}
		runtime.KeepAlive(s)
	})
}

// TestCostIsDocumented: docs/requests-commands.md says of semaphores what is counted, in each row.
func TestCostIsDocumented(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayBefore, Delay: 10 * time.Millisecond}}})
		rows := costRows(t)
		costs := func(what string, f func()) {
			before := st.Counts()
			f()
			after := st.Counts()
			got := fmt.Sprintf("%d|%d", after.Get-before.Get, after.Put-before.Put)
			if rows[what] != got {
				t.Errorf("%s: the document says %q GETs|PUTs, and it took %s", what, rows[what], got)
			}
			delete(rows, what)
		}
		a := newSemaphore(t, st, 100, nil)
		take := func(s *semaphore.Semaphore, n int) (all []*leasehold.Lease) {
			leases := make(chan *leasehold.Lease, n)
			for range n {
				go func() {
					l, err := s.Acquire(t.Context(), 1)
					if err != nil {
						t.Error(err)
					}
					leases <- l
				}()
			}
			for range n {
				all = append(all, <-leases)
			}
			return all
		}
		var held []*leasehold.Lease
		costs("a process's first acquisition, with its session", func() { held = take(a, 1) })
		costs("release", func() { released(t, held...) })
		costs("the next acquisition, within two seconds of the last read", func() { held = take(a, 1) })
		released(t, held...)
		time.Sleep(3 * time.Second)
		costs("a later acquisition", func() { held = take(a, 1) })
		released(t, held...)
		costs("50 acquisitions of one process at once", func() { held = take(a, 50) })
		costs("50 releases of one process at once", func() {
			var all sync.WaitGroup
			for _, l := range held {
				all.Go(func() { released(t, l) })
			}
			all.Wait()
		})
		costs("Inspect", func() {
			if _, err := a.Inspect(t.Context()); err != nil {
				t.Error(err)
			}
		})
		full := take(a, 100)
		b := newSemaphore(t, st, 100, nil)
		costs("TryAcquire without a free slot, by a process that holds nothing", func() {
			if _, err := b.TryAcquire(t.Context(), 1); !errors.Is(err, leasehold.ErrHeld) {
				t.Error(err)
			}
		})
		time.Sleep(5 * time.Second)
		costs("a minute of holding 100 slots, TTL 15 s", func() { time.Sleep(time.Minute) })
		for _, l := range full {
			released(t, l)
		}
		costs("Close", func() { closed(t, a) })
		for what := range rows {
			t.Errorf("%s: nothing is counted", what)
		}
		closed(t, b)
	})
}

// costRows are the cells of the table.
func costRows(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/requests-commands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## Semaphores\n")
	if !found {
		t.Fatal("docs/requests-commands.md has nothing of semaphores")
	}
	rows := map[string]string{}
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|") && len(rows) > 0:
			return rows
		case !strings.HasPrefix(line, "| ") || strings.TrimSpace(cells[0]) == "":
		default:
			rows[strings.ReplaceAll(strings.TrimSpace(cells[0]), "`", "")] = strings.TrimSpace(cells[1]) + "|" + strings.TrimSpace(cells[2])
		}
	}
	return rows
}
