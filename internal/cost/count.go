package cost

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/leasehold/leasehold/store"
)

// page is how many objects a request for a listing shows.
const page = 1000

// A counter is a store that counts what it is asked.
type counter struct {
	store.Store
	get, put, list, remove atomic.Int64
}

func (c *counter) count() Requests {
	return Requests{float64(c.get.Load()), float64(c.put.Load()), float64(c.list.Load()), float64(c.remove.Load())}
}

func (c *counter) Get(ctx context.Context, key string, unless store.Version) (*store.Object, error) {
	c.get.Add(1)
	return c.Store.Get(ctx, key, unless)
}

func (c *counter) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	c.put.Add(1)
	return c.Store.Put(ctx, key, body, only)
}

func (c *counter) Delete(ctx context.Context, key string) error {
	c.remove.Add(1)
	return c.Store.Delete(ctx, key)
}

func (c *counter) List(ctx context.Context, prefix, after string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for e, err := range c.Store.List(ctx, prefix, after) {
			if n%page == 0 {
				c.list.Add(1)
			}
			n++
			if !yield(e, err) {
				return
			}
		}
		if n == 0 {
			c.list.Add(1)
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
