package s3lect

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/leasehold/leasehold"
)

// lead is this instance's time as the leader. ctx ends with it.
func (e *S3Elector) lead(ctx context.Context, lease *leasehold.Lease) error {
	e.mu.Lock()
	e.term, e.ready = ctx, false
	acquired := e.config.OnAcquireLeadership
	e.mu.Unlock()
	e.logger.Info("acquired leadership", "token", int64(lease.Token()))
	err := e.hooks.call(ctx, "OnAcquireLeadership", acquired)
	if err == nil {
		e.mu.Lock()
		e.ready = true
		e.mu.Unlock()
		e.cycle()
		<-ctx.Done()
	}
	e.mu.Lock()
	e.term = nil
	lost, grace := e.config.OnLoseLeadership, e.config.ttl()/3
	e.mu.Unlock()
	e.cycle()
	e.logger.Info("lost leadership", "token", int64(lease.Token()), "cause", context.Cause(ctx))
	// For this the election keeps the lease, if it has one yet.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if failed := e.hooks.call(last, "OnLoseLeadership", lost); failed != nil {
		e.logger.Warn("a hook failed", "error", failed)
	}
	return err
}

// hooks calls the hooks of one elector, one at a time.
type hooks struct{ by atomic.Uint64 } // the goroutine of the one that is under way; 0: none

func (h *hooks) call(ctx context.Context, name string, hook func(context.Context) error) error {
	if hook == nil {
		return nil
	}
	h.by.Store(goroutine())
	defer h.by.Store(0)
	if err := hook(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// calling reports that a hook is under way and this is its goroutine. Only the number of the goroutine tells
// that: the hook has a context that could, but a caller of Stop has none.
func (h *hooks) calling() bool {
	by := h.by.Load()
	return by != 0 && by == goroutine()
}

// goroutine is the number of this goroutine, as a stack trace begins with it: "goroutine 42 [running]:".
func goroutine() (number uint64) {
	var trace [64]byte
	_, _ = fmt.Sscanf(string(trace[:runtime.Stack(trace[:], false)]), "goroutine %d ", &number)
	return number
}
