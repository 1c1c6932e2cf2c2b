//go:build linux || darwin

package guardian

import "time"

// A limit says until when a command may run, as far as one of its enforcers knows.
// All decisions about time are here; the time is an argument.
type limit struct {
	Deadline time.Duration // a reading of package clock: nothing may run any more
	Grace    time.Duration // from SIGTERM to SIGKILL
	ending   bool          // what was begun is finished: no extension counts any more
}

// extend moves the deadline on, and never back: of two orders that overtook one
// another the later deadline counts, which was a lease's own.
func (l *limit) extend(deadline time.Duration) bool {
	if l.ending || deadline <= l.Deadline {
		return false
	}
	l.Deadline = deadline
	return true
}

// end begins the ending, which never makes the deadline later. It reports
// whether the ending had not begun yet.
func (l *limit) end(now time.Duration) bool {
	if l.ending {
		return false
	}
	l.ending = true
	l.Deadline = min(l.Deadline, now+l.Grace)
	return true
}

// due reports that it is time for SIGTERM.
func (l *limit) due(now time.Duration) bool { return l.ending || now >= l.Deadline-l.Grace }

// over reports that nothing may run any more.
func (l *limit) over(now time.Duration) bool { return now >= l.Deadline }

// A timer stands still while the machine is suspended, and the deadline does
// not: so nobody sleeps for longer than a moment without looking at the clock.
const (
	longNap  = time.Second
	shortNap = 100 * time.Millisecond // while something is being ended
)

// nap is how long the sender of the SIGTERM and the SIGKILL need not look.
func (l *limit) nap(now time.Duration) time.Duration {
	switch {
	case !l.ending:
		return max(min(longNap, l.Deadline-l.Grace-now), 0)
	case !l.over(now):
		return min(shortNap, l.Deadline-now)
	}
	return shortNap
}

// rest is how long a sender of the SIGKILL alone need not look.
func (l *limit) rest(now time.Duration) time.Duration {
	return max(min(longNap, l.Deadline-now), 0)
}
