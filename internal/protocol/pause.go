package protocol

import "time"

// The bounds of every pause.
const (
	MinPause = 50 * time.Millisecond
	MaxPause = 4 * time.Second
)

// Pause returns how long to wait before the next try after n failures in a row. Every retry of a
// request to a store waits for it, so no answer of a store causes a flood of requests, and nothing
// stays idle for long after the store has recovered.
//
// The pauses are those in retries, then the last one doubled after each failure. None is shorter
// than MinPause doubled n-1 times, or longer than MaxPause. Nil means 100 ms and 1 s.
func Pause(n int, retries []time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	if len(retries) == 0 {
		retries = []time.Duration{100 * time.Millisecond, time.Second}
	}
	pause := retries[min(n, len(retries))-1] << min(max(n-len(retries), 0), 16)
	return min(max(pause, MinPause<<min(n-1, 16)), MaxPause)
}
