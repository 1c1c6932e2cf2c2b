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

// A Process is the Runtime of what ships: the clock of the machine, goroutines and contexts.
type Process struct{}

// Now reads the clock that goes on while the machine is suspended.
func (Process) Now() protocol.Now { return protocol.Now{Clock: clock.Now(), Wall: time.Now()} }

// maxSleep bounds how long a timer may run without a look at the clock: timers
// stand still while the machine is suspended, the clock does not.
// So a process whose machine has slept for an hour finds its leases ended within a second, without
// being told of the sleep. Until then Valid tells, which looks at the clock itself (rule A10).
const maxSleep = time.Second

// Alarm is a timer, which looks at the clock every second.
func (Process) Alarm(f func()) Alarm { return timer{time.AfterFunc(maxSleep, f)} }

type timer struct{ t *time.Timer }

func (t timer) Set(at time.Duration) { t.t.Reset(min(max(at-clock.Now(), 0), maxSleep)) }
func (t timer) Stop()                { t.t.Stop() }

// After is a timer that stands still while the machine is suspended.
func (Process) After(d time.Duration, f func()) { time.AfterFunc(d, f) }

// Apart is a goroutine.
func (Process) Apart(f func()) { go f() }

// Ask makes a request in a goroutine of its own.
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

// growStack makes room at once on the stack of a new goroutine that a request needs bit by bit:
// the client of a store can call more than 32 KiB deep, and each time that a stack has become
// too small all that is on it is copied to one of twice the size, which took a sixth of the
// processor time of a small request.
//
// The room is part of the frame, and not touched, since no time-out is negative.
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

var touched byte // so that the room is there

// Draw draws evenly.
func (Process) Draw(n int) int { return mathrand.IntN(max(n, 1)) }

// Parallel is 32.
func (Process) Parallel() int { return maxParallel }

// maxParallel keeps a crowd of requests from waiting for each other in the client of a store, where
// their time-outs run already. A crowd of engines finds out whether there may be more: see some.
const maxParallel = 32

// Incarnation makes 128 random bits.
func (Process) Incarnation() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
