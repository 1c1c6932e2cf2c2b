package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
	"github.com/leasehold/leasehold/internal/protocol"
)

// A Process is the Runtime of the product: the machine's clock, goroutines and contexts.
type Process struct{}

// Now reads the clock that also counts while the machine is suspended.
func (Process) Now() protocol.Now { return protocol.Now{Clock: clock.Now(), Wall: time.Now()} }

// maxSleep bounds how long a timer runs before it checks the clock, because timers may stand still while the
// machine is suspended. So a process notices within a second after a suspension that its leases have
// ended. Until then, Valid tells, because it reads the clock itself (rule A10).
const maxSleep = time.Second

// Alarm returns a timer that checks the clock every second.
func (Process) Alarm(f func()) Alarm { return timer{time.AfterFunc(maxSleep, f)} }

type timer struct{ t *time.Timer }

func (t timer) Set(at time.Duration) { t.t.Reset(min(max(at-clock.Now(), 0), maxSleep)) }
func (t timer) Stop()                { t.t.Stop() }

// After uses a timer that may stand still while the machine is suspended.
func (Process) After(d time.Duration, f func()) { time.AfterFunc(d, f) }

// Apart starts a goroutine.
func (Process) Apart(f func()) { go f() }

// Ask makes the request in its own goroutine.
func (Process) Ask(r Request) (giveUp func()) {
	ctx, cancel := context.WithTimeout(r.Context, r.Timeout)
	go func() {
		growStack(r.Timeout)
		r.Do(ctx)
		cancel()
		r.Done()
	}()
	return cancel
}

// growStack grows the stack of a new goroutine at once. A store's client can use more than 32 KiB of stack,
// and each time a stack is too small, the runtime copies it to one of twice the size. That took a sixth
// of the CPU time of a small request.
//
// The array is part of the frame and is not touched, because no timeout is negative.
//
//go:noinline
func growStack(timeout time.Duration) {
	if timeout < 0 {
		var room [56 << 10]byte
		for i := range room {
			room[i] = room[i/2] + touched
		}
		touched = room[len(room)-1]
	}
}

var touched byte // so that the array is not optimized away

// Draw draws from a uniform distribution.
func (Process) Draw(n int) int { return mathrand.IntN(max(n, 1)) }

// Parallel returns 32.
func (Process) Parallel() int { return maxParallel }

// maxParallel keeps many requests from queueing in a store's client, where their timeouts already run. A
// crowd of engines finds out whether the store takes more: see some.
const maxParallel = 32

// Incarnation returns 128 random bits.
func (Process) Incarnation() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
