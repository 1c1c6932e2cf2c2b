// Package callback runs functions of the user outside of what calls them.
package callback

import (
	"time"

	"github.com/leasehold/leasehold/internal/lockorder"
)

// A Queue runs functions of the user one after the other, each in the order in
// which it was added, on a goroutine that ends when there are none left.
//
// They do not run where their reason arises: that is under the engine's mutex, so a callback
// that releases its own lease would wait for itself, and one that hangs would keep a renewal
// from being sent. One goroutine for each call would not do either: a user who is told of a
// loss before the lease that was lost cannot make sense of it.
type Queue struct {
	Patience time.Duration     // how long one may take before it is reported
	Hangs    func(name string) // reports it
	Most     int               // how many calls are kept that have not begun; 0: any number

	mu      lockorder.Mutex
	pending []callback
	running bool
}

type callback struct {
	name string
	call func()
}

// Add queues a call and returns at once. It runs nothing itself, so it may be called under the
// engine's mutex, as the driver does. It reports false if as many are kept as may be: then the call is
// not made.
func (c *Queue) Add(name string, call func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Most > 0 && len(c.pending) >= c.Most {
		return false
	}
	c.pending = append(c.pending, callback{name, call})
	if !c.running {
		c.running = true
		go c.run()
	}
	return true
}

// run ends when the queue is empty, so a lock that reports nothing keeps no goroutine. It decides
// that under the mutex that Add takes too: a callback that is added at that very moment is either
// seen by this goroutine or finds that there is none and starts the next.
func (c *Queue) run() {
	for {
		c.mu.Lock()
		if len(c.pending) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		next := c.pending[0]
		c.pending = c.pending[1:]
		c.mu.Unlock()
		// It cannot be ended, but it can be named: otherwise its lock just seems to have
		// stopped telling anything.
		late := time.AfterFunc(c.Patience, func() { c.Hangs(next.name) })
		next.call()
		late.Stop()
	}
}
