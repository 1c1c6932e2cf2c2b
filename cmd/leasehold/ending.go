package main

import "time"

// sameStop is how long several signals count as one. timeout(1) and service managers send two at once, and a shell sends
// ^C to every process of a pipeline.
const sameStop = time.Second

// An ending tells the first signal, which stops something, from a second one, which stops it at once. The zero value has
// seen no signal yet.
type ending struct{ since time.Time }

// again reports whether the signal that came now is a second one.
func (e *ending) again() bool {
	if e.since.IsZero() {
		e.since = time.Now()
	}
	return time.Since(e.since) >= sameStop
}
