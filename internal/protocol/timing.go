package protocol

import "time"

// Drift is the inverse of the largest rate error, against real time, that any
// candidate's clock may have: a twelfth, the default slew limit of chrony, and
// more than ntpd or a bad quartz ever show.
const Drift = 12

// slack is the constant part of the margin. It pays for what does not grow with
// the TTL: the resolution of clocks and timers, and the moment between looking
// at the clock and acting on it. It is part of the protocol: two candidates with
// different slack would need the larger one on both sides.
const slack = 10 * time.Millisecond

// The bounds of a TTL. Under a second the margin and one round trip leave
// nothing to work with; over a day a crash leaves the lock idle for a day.
const (
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 15 * time.Second
)

// Margin is the time that a holder stops early and that a follower waits longer:
// TTL/12 + 10 ms on each side. If no clock's rate is off by more than 1/Drift,
// the holder's clock has counted TTL − margin before anybody else's has counted
// TTL + margin, because (TTL − m)/(1 − ρ) ≤ (TTL + m)/(1 + ρ) for m ≥ ρ·TTL.
func Margin(ttl time.Duration) time.Duration { return ttl/Drift + slack }

// Validity is how long a lease is valid, counted by its holder from before the
// first byte of the request that wrote it (rule A4).
func Validity(ttl time.Duration) time.Duration { return ttl - Margin(ttl) }

// Patience is how long another candidate must have seen a record unchanged,
// counted from the receipt of the answer that first showed it, before it may
// take the lock over (rule A5).
func Patience(ttl time.Duration) time.Duration { return ttl + Margin(ttl) }

// Renewal is the interval between the renewals of a lease.
func Renewal(ttl time.Duration) time.Duration { return ttl / 3 }

const (
	// firstPoll is how soon a waiter looks again at a lock that just got a new
	// holder; each further look waits half as long again, up to Renewal.
	firstPoll = 20 * time.Millisecond

	// maxRequest bounds every request: one that takes longer is not coming back.
	maxRequest = 10 * time.Second

	// firstContact is how many reads may fail before the first one that
	// succeeds; then an acquisition ends with the store's error. Later outages
	// are waited out.
	firstContact = 3
)

// retryDelay is the pause after the n-th failure in a row: 100 ms, 1 s, and then
// doubling up to limit. No pause is longer than limit.
func retryDelay(n int, limit time.Duration) time.Duration {
	switch {
	case n <= 0:
		return 0
	case n == 1:
		return min(100*time.Millisecond, limit)
	}
	return min(time.Second<<min(n-2, 16), limit)
}
