// Package retry says how long to wait before another try. All code of leasehold that
// tries a store again asks it, so that no store is flooded, whatever it answers, and
// nothing stands idle for long after it has come back.
package retry

import "time"

// The bounds of every pause.
const (
	Min = 50 * time.Millisecond
	Max = 4 * time.Second
)

// Default are the pauses after the first failures in a row.
var Default = []time.Duration{100 * time.Millisecond, time.Second}

// Pause is how long to wait before another try after the n-th failure in a row: what
// retries say, or else Default, and after these the last one doubled each time; but
// never less than Min doubled n-1 times, and never more than Max.
func Pause(n int, retries []time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	if len(retries) == 0 {
		retries = Default
	}
	pause := retries[min(n, len(retries))-1] << min(max(n-len(retries), 0), 16)
	return min(max(pause, Min<<min(n-1, 16)), Max)
}
