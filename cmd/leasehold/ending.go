package main

import "time"

// sameStop is how long signals count as one: timeout(1) and service managers send some of them at a time, and a shell sends
// what its user has typed to all of a pipeline.
const sameStop = time.Second

// An ending tells the signal that ends something from one more, which ends that at once. Its zero value is that of
// something no signal has ended so far.
type ending struct{ since time.Time }

// again reports that a signal that came now is one more.
func (e *ending) again() bool {
	if e.since.IsZero() {
		e.since = time.Now()
	}
	return time.Since(e.since) >= sameStop
}
