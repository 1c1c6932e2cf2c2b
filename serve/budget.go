package serve

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/cost"
	"github.com/leasehold/leasehold/store"
)

// An op is a kind of request to a store.
type op int

const (
	opGet op = iota
	opPut
	opList
	opDelete
	ops
)

var opNames = [ops]string{"get", "put", "list", "delete"}

// A meter counts requests, in total and for each second of the last minute.
type meter struct {
	mu     sync.Mutex
	total  [ops]int64
	recent [60]struct {
		second int64
		n      [ops]int64
	}
}

func (m *meter) add(o op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total[o]++
	second := time.Now().Unix()
	at := &m.recent[second%60]
	if at.second != second {
		at.second, at.n = second, [ops]int64{}
	}
	at.n[o]++
}

func (m *meter) totals() [ops]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total
}

func (m *meter) lastMinute() (n [ops]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Unix()
	for i := range m.recent {
		if at := &m.recent[i]; at.second > now-60 && at.second <= now {
			for o := range n {
				n[o] += at.n[o]
			}
		}
	}
	return n
}

func sum(n [ops]int64) (all int64) {
	for _, k := range n {
		all += k
	}
	return all
}

// A counting store counts its requests. Each page of a listing is one request.
type counting struct {
	store.Store
	all *meter
}

// entriesOnPage is the number of entries in one page of a listing in S3.
const entriesOnPage = 1000

func (c *counting) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	c.all.add(opGet)
	return c.Store.Get(ctx, key, unless)
}

func (c *counting) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	c.all.add(opPut)
	return c.Store.Put(ctx, key, body, only)
}

func (c *counting) Delete(ctx context.Context, key string) error {
	c.all.add(opDelete)
	return c.Store.Delete(ctx, key)
}

func (c *counting) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		c.all.add(opList)
		entries := 0
		for entry, err := range c.Store.List(ctx, prefix, after) {
			if entries > 0 && entries%entriesOnPage == 0 {
				c.all.add(opList)
			}
			entries++
			if !yield(entry, err) {
				return
			}
		}
	}
}

// Proves passes the call on to the store, if it has the method: see store.Proof.
func (c *counting) Proves(storeName, use string) error {
	return store.Proves(c.Store, storeName, use)
}

// VersionOf passes the call on to the store, if it has the method: see store.Hashed.
func (c *counting) VersionOf(body []byte) store.Version {
	if h, is := c.Store.(store.Hashed); is {
		return h.VersionOf(body)
	}
	return ""
}

// A budget limits the requests of the watcher: so many a minute on average, plus, once at the
// start, as many as the first read of all objects takes. A read that exceeds what is left
// delays the next one.
type budget struct {
	limit int
	sent  *meter // by the watcher

	mu      sync.Mutex
	left    float64
	at      time.Time
	counted int64
	refused int
}

func newBudget(limit, first int) *budget {
	return &budget{limit: limit, sent: new(meter), left: float64(limit + first), at: time.Now()}
}

// settle brings left up to date. The mutex is locked.
func (b *budget) settle() {
	now, sent := time.Now(), sum(b.sent.totals())
	b.left -= float64(sent - b.counted)
	full := b.left + now.Sub(b.at).Minutes()*float64(b.limit)
	b.left = max(b.left, min(full, float64(b.limit))) // the extra budget of the first read is not taken away
	b.at, b.counted = now, sent
}

// pause returns the time until the next read may begin; 0: now.
func (b *budget) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.settle(); b.left > 0 {
		return 0
	}
	b.refused++
	return time.Duration((-b.left + 1) / float64(b.limit) * float64(time.Minute))
}

func (b *budget) timesRefused() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// priceOf returns the list prices with that name, or nil for an empty name.
func priceOf(name string) (*cost.Price, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // there are stores that cost nothing by the request
	}
	return cost.ListPrices().Store(name)
}

// dollars returns the price of a month in which each minute has these requests.
func dollars(p *cost.Price, n [ops]int64) float64 {
	minutes := cost.Month.Minutes()
	return p.Of(cost.Requests{Get: float64(n[opGet]), Put: float64(n[opPut]), List: float64(n[opList]), Delete: float64(n[opDelete])}.Times(minutes))
}
