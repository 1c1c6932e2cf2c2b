package s3lect

import (
	"context"
	"fmt"
	"reflect"
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
type hooks struct{ under atomic.Bool }

func (h *hooks) call(ctx context.Context, name string, hook func(context.Context) error) error {
	if hook == nil {
		return nil
	}
	h.under.Store(true)
	defer h.under.Store(false)
	if err := hook(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

var callFunction = runtime.FuncForPC(reflect.ValueOf((*hooks).call).Pointer()).Name()

// calling reports that a hook is under way and this is its goroutine. Only the stack
// tells that: the hook has a context that could, but a caller of Stop has none.
func (h *hooks) calling() bool {
	if !h.under.Load() {
		return false
	}
	var stack [256]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(1, stack[:])])
	for {
		frame, more := frames.Next()
		if frame.Function == callFunction {
			return true
		}
		if !more {
			return false
		}
	}
}
