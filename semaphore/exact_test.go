package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

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
		if err != nil || len(info.Holders) != 1 || info.Key != "seats" || !info.Exists || info.Size != semaphore.MaxSize || info.Token != l.Token() || info.Version == "" {
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

// TestWhoHolds: the error of an acquisition that finds no seat says whose the seats are.
func TestWhoHolds(t *testing.T) {
	for _, c := range []struct {
		weights []int
		waits   int
		says    string
	}{
		{[]int{3}, 0, "the semaphore seats has 3 of 3 seats taken, by p0"},
		{[]int{1, 2}, 0, "the semaphore seats has 3 of 3 seats taken, by p0 and 1 more"},
		{[]int{1, 1}, 2, "the semaphore seats has 2 of 3 seats taken, by p0 and 1 more, and 1 wait"},
		{nil, 0, ""},
		{[]int{1}, 0, ""},
	} {
		leasetest.Bubble(t, func(t *testing.T) {
			st := memstore.New()
			s := newSemaphore(t, st, 3, nil)
			released(t, acquired(t, s, 1)) // so there is an object
			var held []*semaphore.Lease
			for i, weight := range c.weights {
				l, err := s.Acquire(t.Context(), weight, semaphore.WithHolder(fmt.Sprint("p", i)))
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
		if n := last.Counts().Get - leasetest.RequestsFor(last, "seats"); n < 2 || n > 20 {
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
	if l, err := semaphore.NewLock(nil, "seats", nil); l != nil || err == nil {
		t.Errorf("there is a lock: %v", err)
	}
	if l, err := semaphore.NewRWLock(nil, "seats", nil); l != nil || err == nil {
		t.Errorf("there is a reader/writer lock: %v", err)
	}
}

// TestReader: a reader takes one seat of many, and one that waits looks when it is told that it has its own.
func TestReader(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		l, err := semaphore.NewRWLock(st, "seats", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, acquire := range []func(context.Context) (*semaphore.Lease, error){l.RLock, l.TryRLock} {
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
		if info, failed := l.Inspect(t.Context()); failed != nil || info.Size != 1_048_576 || w.Weight() != 1_048_576 {
			t.Errorf("it looks like %+v, %v", info, failed)
		}
		got := make(chan *semaphore.Lease, 1)
		go func() {
			r, err := l.RLock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
		time.Sleep(time.Hour) // by now it looks every few seconds
		before := leasetest.RequestsFor(st, "seats")
		l.Changed("a word")
		synctest.Wait()
		if n := leasetest.RequestsFor(st, "seats") - before; n != 1 {
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
			if err := s.Do(t.Context(), 1, func(context.Context, *semaphore.Lease) error { f(); return nil }); err != nil {
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
		if !strings.Contains(log.String(), "seats were not released") {
			t.Errorf("it says %s", &log)
		}
		st.Clear()
		if err := s.Close(t.Context()); err != nil && !errors.Is(err, leasehold.ErrLost) {
			t.Error(err)
		}
	})
}

// TestGivesUpOfNobody: one that gives up because the store fails is not told that somebody holds seats, if nobody
// does.
func TestGivesUpOfNobody(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := faultstore.Wrap(memstore.New(), nil)
		s := newSemaphore(t, st, 1, nil)
		released(t, acquired(t, s, 1))
		st.Inject(faultstore.Fault{Kind: faultstore.Unavailable, Op: "put", Key: "seats"})
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := s.Acquire(short, 1); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("gave up: %v", err)
		}
		st.Clear()
		closed(t, s)
	})
}

// TestNoPeers: a process that has no way to tell others gives them seats all the same.
func TestNoPeers(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		st := memstore.New()
		net := &words{}
		a, b := newSemaphore(t, st, 1, nil), newSemaphore(t, st, 1, net.options(true, "b"))
		held := acquired(t, a, 1)
		got := make(chan *semaphore.Lease, 1)
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
