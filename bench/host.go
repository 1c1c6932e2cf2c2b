package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
)

// A host is what internal/servers takes for a test: it starts servers, and stops them when
// the run ends.
type host struct {
	testing.TB // nil: what is not here, nobody calls
	ctx        context.Context
	cancel     context.CancelFunc
	mu         sync.Mutex
	cleanups   []func()
	failed     error
}

func newHost(ctx context.Context) *host {
	h := &host{}
	h.ctx, h.cancel = context.WithCancel(ctx)
	return h
}

func (h *host) Context() context.Context { return h.ctx }
func (h *host) Helper()                  {}
func (h *host) Name() string             { return "bench" }
func (h *host) Failed() bool             { return h.failed != nil }
func (h *host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *host) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
func (h *host) Log(args ...any) { fmt.Fprintln(os.Stderr, args...) }
func (h *host) Errorf(format string, args ...any) {
	h.failed = errors.Join(h.failed, fmt.Errorf(format, args...))
}
func (h *host) Error(args ...any) { h.Errorf("%s", fmt.Sprint(args...)) }
func (h *host) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}
func (h *host) Fatal(args ...any)                { h.Fatalf("%s", fmt.Sprint(args...)) }
func (h *host) Skip(args ...any)                 { h.Fatalf("%s", fmt.Sprint(args...)) }
func (h *host) Skipf(format string, args ...any) { h.Fatalf(format, args...) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// protect runs f, which may call Fatal.
func (h *host) protect(f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
	err := h.failed
	h.failed = nil
	return err
}

// close stops all that was started, the last one first.
func (h *host) close() {
	h.cancel()
	for i := len(h.cleanups) - 1; i >= 0; i-- {
		_ = h.protect(h.cleanups[i])
	}
	h.cleanups = nil
}
