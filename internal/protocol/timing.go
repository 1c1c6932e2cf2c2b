package protocol

import (
	"time"

	"github.com/leasehold/leasehold/internal/record"
	"github.com/leasehold/leasehold/internal/retry"
)

// Drift is the inverse of the largest rate error, against real time, that any
// candidate's clock may have: a twelfth, the default slew limit of chrony, and
// more than ntpd or a bad quartz ever show.
const Drift = 12

// slack is the constant part of the margin. It pays for the resolution of clocks
// and timers, and for the moment between looking at the clock and acting on it:
// these do not grow with the TTL. It is part of the protocol: two candidates with
// different slack would need the larger one on both sides.
const slack = 10 * time.Millisecond

// The bounds of a TTL. Under a second the margin and one round trip leave
// nothing to work with; over a day a crash leaves the lock idle for a day.
const (
	MinTTL     = time.Second
	MaxTTL     = record.MaxTTL
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

// Stale is the age of a record, by the store's own clock, from which on its
// holder's lease has ended: the TTL at the fastest clock that the drift bound
// allows, and the resolution of the two times that the age is the difference of.
func Stale(ttl time.Duration) time.Duration { return ttl + ttl/Drift + 3*time.Second }

// Renewal is the interval between the renewals of a lease.
func Renewal(ttl time.Duration) time.Duration { return ttl / 3 }

// MaxRequest bounds every request: one that takes longer is not coming back.
const MaxRequest = 10 * time.Second

const (
	// recent is how old knowledge of a numbered lock may be. Numbers are collected
	// when they are a day old.
	recent = time.Hour

	// enoughLeft is the part of the TTL that must be left of a lease for its record
	// to be deleted: its inverse.
	enoughLeft = 4

	// enoughTries is how many failures in a row are told: an acquisition that does
	// not wait ends with the last one, and others go on and say so.
	enoughTries = 3

	// reminder is how often trouble that goes on is told again.
	reminder = time.Minute
)

// retryDelay is the pause after the n-th failure in a row. A holder has little time to
// renew its lease, so the pause is at most a sixth of the TTL; the others need not be
// slower than a lease of theirs would be renewed. Pauses spread, so that many candidates
// that failed at one moment do not come back at one moment.
func (c *Candidate) retryDelay(n int) time.Duration {
	pause := retry.Pause(n, c.cfg.Retries)
	if c.phase != clear {
		return min(pause, max(c.cfg.TTL/6, retry.Min))
	}
	pause = min(pause, max(Renewal(c.cfg.TTL), time.Second))
	return pause + c.rng.jitter(pause/4)
}
