package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

func newSemaphore(t *testing.T, st store.Store, size int, opts *semaphore.Options) *semaphore.Semaphore {
	t.Helper()
	s, err := semaphore.New(st, "seats", size, opts)
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

func released(t *testing.T, all ...*semaphore.Lease) {
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
				if err := s.Do(t.Context(), 1, func(_ context.Context, l *semaphore.Lease) error {
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
		before := leasetest.RequestsFor(st, "seats")
		leases := make(chan *semaphore.Lease, 50)
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
		if sent := leasetest.RequestsFor(st, "seats") - before; sent > 4 {
			t.Errorf("50 acquisitions and releases took %d requests", sent)
		}
		released(t, first)
		closed(t, s)
	})
}

// A process that is gone loses its seats and its place in the line after a TTL and margin.
func TestDeadHolder(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := faultstore.Wrap(st, nil)
		var lost error
		gone := newSemaphore(t, net, 1, &semaphore.Options{OnLost: func(_ *semaphore.Lease, err error) { lost = err }})
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
		got := make(chan *semaphore.Lease, 1)
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
// when it stood in line.
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
		w := newLock(&semaphore.Options{OnWait: func(semaphore.Place) {
			mu.Lock()
			defer mu.Unlock()
			if inLine.IsZero() {
				inLine = time.Now()
			}
		}})
		all := []closer{w}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var later []leasehold.Token // of readers that came when the writer stood in line
		readers := 0
		for i := range 25 {
			l := newLock(nil)
			all = append(all, l)
			wg.Go(func() {
				for time.Sleep(time.Duration(i) * 80 * time.Millisecond); ctx.Err() == nil; {
					came := time.Now()
					err := l.RDo(ctx, func(_ context.Context, lease *semaphore.Lease) error {
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
		if err := w.Do(writing, func(_ context.Context, lease *semaphore.Lease) error {
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

// Who does not wait is told at once who holds the seats, and leaves nothing behind.
func TestTry(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		a, b := newSemaphore(t, st, 2, &semaphore.Options{Holder: "a"}), newSemaphore(t, st, 2, &semaphore.Options{Holder: "b"})
		held, err := a.Acquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.TryAcquire(t.Context(), 1)
		var who *semaphore.HeldError
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

// Whoever does not wait, and finds no seat, begins no session for that: each run of a cron job used to
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
		var lease *semaphore.Lease
		var deadlines []time.Time
		s := newSemaphore(t, memstore.New(), 1, &semaphore.Options{OnRenew: func() {
			mu.Lock()
			defer mu.Unlock()
			deadlines = append(deadlines, lease.Deadline())
		}})
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
		got := make(chan *semaphore.Lease, 1)
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
