//go:build unix

package clock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func read() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(fmt.Sprintf("clock: clock_gettime(%d): %v", id, err))
	}
	return time.Duration(t.Nano())
}
