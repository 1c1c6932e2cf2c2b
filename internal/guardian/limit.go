//go:build linux || darwin

package guardian

import "time"

// A limit is the time until which a command may run, as far as one of the enforcers knows. All
// decisions about time are made here; the time is an argument.
type limit struct {
	Deadline time.Duration // reading of package clock after which nothing may run
	Grace    time.Duration // from SIGTERM to SIGKILL
	ending   bool          // the ending has begun: extensions are ignored
}

// extend moves the deadline later, never earlier. If two orders overtake each other, the later
// deadline counts, because it was a deadline of the lease.
func (l *limit) extend(deadline time.Duration) bool {
	if l.ending || deadline <= l.Deadline {
		return false
	}
	l.Deadline = deadline
	return true
}

// end begins the ending, which never makes the deadline later. It reports whether this call
// began it.
func (l *limit) end(now time.Duration) bool {
	if l.ending {
		return false
	}
	l.ending = true
	l.Deadline = min(l.Deadline, now+l.Grace)
	return true
}

// due reports whether it is time for SIGTERM.
func (l *limit) due(now time.Duration) bool { return l.ending || now >= l.Deadline-l.Grace }

// over reports whether the deadline has passed.
func (l *limit) over(now time.Duration) bool { return now >= l.Deadline }

// Timers stop while the machine is suspended, but the deadline does not move. So every process
// reads the clock at least this often.
const (
	longNap  = time.Second
	shortNap = 100 * time.Millisecond // while something is being ended
)

// nap returns how long the sender of SIGTERM and SIGKILL may sleep.
func (l *limit) nap(now time.Duration) time.Duration {
	switch {
	case !l.ending:
		return max(min(longNap, l.Deadline-l.Grace-now), 0)
	case !l.over(now):
		return min(shortNap, l.Deadline-now)
	}
	return shortNap
}

// rest returns how long a sender of only SIGKILL may sleep.
func (l *limit) rest(now time.Duration) time.Duration {
	return max(min(longNap, l.Deadline-now), 0)
}
