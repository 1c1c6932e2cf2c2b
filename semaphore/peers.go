package semaphore

import (
	"context"
	"sync"

	"github.com/leasehold/leasehold/internal/protocol"
	"github.com/leasehold/leasehold/internal/protocol/queue"
	"github.com/leasehold/leasehold/store"
)

// maxAddress is the maximum length of an address in entries, in bytes.
const maxAddress = 512

// said counts the notifications that are being sent.
type said struct {
	mu         sync.Mutex
	open       int
	none       chan struct{} // closed when open is 0; nil: not waited for
	complained string        // the address in the last warning
}

// tell notifies another process that the table has changed. That is optional, because the
// process would find out by polling.
func (d *driver) tell(a queue.Tell) {
	if d.opts.Peers == nil {
		return
	}
	s := &d.said
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), protocol.MaxRequest)
		defer cancel()
		err := d.opts.Peers.Changed(ctx, a.Address, d.key, store.Version(a.Version))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open--; s.open == 0 && s.none != nil {
			close(s.none)
			s.none = nil
		}
		if err != nil && s.complained != a.Address {
			s.complained = a.Address // warn only once, since it does no harm
			d.opts.Logger.Warn("a process does not hear that the queue has changed, and finds out by looking",
				"semaphore", d.at().String(), "address", a.Address, "error", err)
		}
	}()
}

// done waits until all notifications have been sent.
func (s *said) done(ctx context.Context) error {
	s.mu.Lock()
	if s.open == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.none == nil {
		s.none = make(chan struct{})
	}
	none := s.none
	s.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
