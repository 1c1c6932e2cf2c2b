// Package clock reads the monotonic clock that goes on while the machine is
// suspended. A lease is timed by it: the timers and the monotonic readings of
// package time stand still during suspend on Linux, so a laptop that slept
// through the end of its lease would wake up believing that it still holds it.
//
// The origin is arbitrary but the same for every process of the machine until
// it reboots, so that one process can hand a deadline to another. (A Linux
// time namespace shifts the origin: both must be in the same one.)
//
// The clock depends on the platform:
//
//	Linux    CLOCK_BOOTTIME       counts suspend
//	macOS    CLOCK_MONOTONIC      counts sleep
//	Windows  QueryInterruptTime   counts sleep and hibernation
//	others   CLOCK_MONOTONIC      need not count suspend
//
// A virtual machine that its host has frozen is outside of this: where the
// guest's clocks stand still, no reading of them can show it.
package clock

import (
	"sync/atomic"
	"time"
)

var source atomic.Pointer[func() time.Duration]

// Now returns the time since the origin. It never decreases and is safe for
// concurrent use. It costs about 0.2 µs. It panics if the platform has no such
// clock, since nothing that is timed by it could then be right.
func Now() time.Duration {
	if now := source.Load(); now != nil {
		return (*now)()
	}
	return read()
}

// Set makes Now return now() until restore is called. It is for tests only: of
// suspend, and of code under testing/synctest, where now must follow the time
// of the bubble. The clock is one for the whole process, so tests that set it
// must not run in parallel with others that read it.
func Set(now func() time.Duration) (restore func()) {
	before := source.Swap(&now)
	return func() { source.Store(before) }
}
