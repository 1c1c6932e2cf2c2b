package leasehold

import "sync"

// callbacks runs functions of the user one after the other, each in the order in
// which it was added, on a goroutine that ends when there are none left.
type callbacks struct {
	mu      sync.Mutex
	pending []func()
	running bool
}

func (c *callbacks) add(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, f)
	if !c.running {
		c.running = true
		go c.run()
	}
}

func (c *callbacks) run() {
	for {
		c.mu.Lock()
		if len(c.pending) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		f := c.pending[0]
		c.pending = c.pending[1:]
		c.mu.Unlock()
		f()
	}
}
