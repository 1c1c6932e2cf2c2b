package leasehold_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/layout"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

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
	for _, l := range []leasehold.Layout{leasehold.LayoutEpochs, leasehold.LayoutEpochsIfMatch} {
		t.Run(string(l), func(t *testing.T) {
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

func race(t *testing.T, l leasehold.Layout, seed uint64) (terms, deleted int) {
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
				lock, err := leasehold.NewLock(net, "l", &leasehold.LockOptions{Layout: l, TTL: 3 * time.Second})
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
		e := layout.Epochs{Store: net, Key: "l", IfMatch: l == leasehold.LayoutEpochsIfMatch}
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
