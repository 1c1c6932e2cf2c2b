package lock

import (
	"time"

	"github.com/leasehold/leasehold/internal/engine"
)

// Callbacks calls the user's functions one after the other, in the order in which they were
// added, on a goroutine of its own. The goroutine ends when no call is left.
//
// The functions cannot run where they are added, because the engine is locked there: a callback
// that releases its own lease would wait for itself, and one that hangs would hold up a renewal.
// Nor can each have its own goroutine, because a user who hears of a loss before the lease that was
// lost cannot make sense of it.
type Callbacks struct {
	Patience time.Duration     // how long a call may take before it is reported
	Hangs    func(name string) // reports it
	Most     int               // how many calls are kept that have not begun; 0 means no limit

	mu      engine.Mutex
	pending []callback
	running bool
}

type callback struct {
	name string
	call func()
}

// Add queues a call and returns at once. It may be called while the engine is locked. It reports
// false if Most calls are queued already; then the call is dropped.
func (c *Callbacks) Add(name string, call func()) bool {
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

// run ends when the queue is empty, so an idle lock keeps no goroutine. It decides that under the
// mutex of Add: a call added at the same moment is either seen here or starts the next goroutine.
func (c *Callbacks) run() {
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
		// A hanging call cannot be ended. Without this report the lock would just fall silent.
		late := time.AfterFunc(c.Patience, func() { c.Hangs(next.name) })
		next.call()
		late.Stop()
	}
}
