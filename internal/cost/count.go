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

// page is how many objects a request for a listing shows.
const page = 1000

// A counter is a store that counts what it is asked; of a quorum, what its members are.
type counter struct {
	store.Store
	get, put, list, remove atomic.Int64
	behind                 bool // the members count
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

// newCounter gives a quorum that is nobody else's: what another has written costs more to write.
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

// asked counts, unless the members do.
func (c *counter) asked(n *atomic.Int64) {
	if !c.behind {
		n.Add(1)
	}
}

// A member is one of a quorum, whose requests are counted with those of the others.
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

// paged calls asked for each request that a listing is made of.
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

// VersionOf is that of the store behind it, or empty.
func (c *counter) VersionOf(body []byte) store.Version {
	if h, ok := c.Store.(store.Hashed); ok {
		return h.VersionOf(body)
	}
	return ""
}
