package semaphore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A turn that a caller of the same process gives to the next one costs the write that does it, and no looks: they would
// find nothing that the process has not written. The line is made by one write, too.
func TestTurnsOfOneProcess(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		const callers, hold = 100, 20 * time.Millisecond
		st := faultstore.Wrap(memstore.New(), &faultstore.Options{Faults: []faultstore.Fault{{Kind: faultstore.DelayAfter, Delay: 4 * time.Millisecond}}})
		l, err := semaphore.NewLock(st, "seats", nil)
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

// Of those that come at one moment each has got into the line before those who had their turn have come back often:
// the longest wait is not much longer than the mean, which the first turns shorten, since the line forms then.
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
				l, err := semaphore.NewRWLock(slow, "seats", &semaphore.Options{Holder: fmt.Sprint(i)})
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
			l, err := semaphore.NewLock(st, "seats", &semaphore.Options{Holder: fmt.Sprint(i)})
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
		case e.Key == "seats":
			n.table++
		case e.Op == "get":
			n.watch++
		}
	}
	return n
}
