package cost

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/quorumstore"
)

// page is the number of objects in one response to a listing.
const page = 1000

// A counter is a store that counts its requests. Of a quorum, it counts those to the members.
type counter struct {
	store.Store
	get, put, list, remove atomic.Int64
	behind                 bool // the members count the requests
	gate                   *gate
}

// A gate lets writes through until the measurement ends. A candidate that has stopped may still have a write in
// flight, which would recreate an object after the clean-up.
type gate struct {
	mu     sync.Mutex
	closed bool
	writes sync.WaitGroup // in flight
}

var errEnded = fmt.Errorf("the measurement has ended: %w", store.ErrDenied)

// pass sends a write, unless the gate is closed.
func (g *gate) pass(write func() (*store.Object, error)) (*store.Object, error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, errEnded
	}
	g.writes.Add(1)
	g.mu.Unlock()
	defer g.writes.Done()
	return write()
}

// close refuses further writes and waits for those in flight. The candidates bound each of them.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.writes.Wait()
}

// newCounter returns a counter. Each counter of a quorum is a writer of its own, because a write after
// another writer's costs more.
func newCounter(st store.Store, g *gate) (*counter, error) {
	quorum, ok := st.(*quorumstore.Store)
	if !ok {
		return &counter{Store: st, gate: g}, nil
	}
	c := &counter{behind: true, gate: g}
	over, err := quorum.Over(func(m store.Store) store.Store { return &member{m, c} })
	if err != nil {
		return nil, err
	}
	c.Store = over
	return c, nil
}

// asked counts a request, unless the members count it.
func (c *counter) asked(n *atomic.Int64) {
	if !c.behind {
		n.Add(1)
	}
}

// A member is a quorum's member, which adds its requests to the quorum's.
type member struct {
	store.Store
	all *counter
}

func (m *member) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	m.all.get.Add(1)
	return m.Store.Get(ctx, key, unless)
}

func (m *member) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	m.all.put.Add(1)
	return m.Store.Put(ctx, key, body, only)
}

func (m *member) Delete(ctx context.Context, key string) error {
	m.all.remove.Add(1)
	return m.Store.Delete(ctx, key)
}

func (m *member) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return paged(m.Store.List(ctx, prefix, after), func() { m.all.list.Add(1) })
}

func (c *counter) count() Requests {
	return Requests{float64(c.get.Load()), float64(c.put.Load()), float64(c.list.Load()), float64(c.remove.Load())}
}

func (c *counter) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	c.asked(&c.get)
	return c.Store.Get(ctx, key, unless)
}

func (c *counter) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	return c.gate.pass(func() (*store.Object, error) {
		c.asked(&c.put)
		return c.Store.Put(ctx, key, body, only)
	})
}

func (c *counter) Delete(ctx context.Context, key string) error {
	c.asked(&c.remove)
	return c.Store.Delete(ctx, key)
}

func (c *counter) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return paged(c.Store.List(ctx, prefix, after), func() { c.asked(&c.list) })
}

// paged calls asked for each request of a listing.
func paged(entries iter.Seq2[store.Entry, error], asked func()) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for e, err := range entries {
			if n%page == 0 {
				asked()
			}
			n++
			if !yield(e, err) {
				return
			}
		}
		if n == 0 {
			asked()
		}
	}
}

// VersionOf is [store.Hashed]'s. It returns "" if the store does not implement it.
func (c *counter) VersionOf(body []byte) store.Version {
	if h, ok := c.Store.(store.Hashed); ok {
		return h.VersionOf(body)
	}
	return ""
}
