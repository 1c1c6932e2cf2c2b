package protocol

import (
	"math"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Now is the time on the driver's clocks. It is an argument, not a function, so a step sees a
// single time, and a test can choose it.
type Now struct {
	Clock time.Duration // suspend-aware and monotonic: all decisions use it
	Wall  time.Time     // for the times in records, which are for people only
}

// Version is the store's name for one state of the object, and empty if there is no object. You can
// only compare versions for equality: stores do not promise that later ones are larger.
type Version string

// Drift is the inverse of the largest rate error, against real time, of any candidate's clock:
// a twelfth, the default slew limit of chrony, and more than ntpd or a bad quartz ever shows. A
// larger bound would shorten validity and lengthen patience. Every lease since Gray's and
// Cheriton's (1989) relies on such a bound, but most do not say so.
const Drift = 12

// slack is the margin's constant part, for what does not grow with the TTL: the resolution of
// clocks and timers, and the time between reading the clock and acting on it. It is part of the
// protocol: if two candidates had different slacks, both would need the larger one.
const slack = 10 * time.Millisecond

// The bounds of a TTL. Below a second, the margin and one round trip leave nothing to work
// with; above a day, a crash leaves the lock idle for a day.
const (
	MinTTL     = time.Second
	MaxTTL     = record.MaxTTL
	DefaultTTL = 15 * time.Second
)

// Margin returns the time by which a holder stops early and a follower waits longer: TTL/12 +
// 10 ms on each side. If no clock's rate is off by more than 1/Drift, the holder's clock has
// counted TTL − margin before anybody else's has counted TTL + margin, because for m ≥ ρ·TTL,
//
//	(TTL − m)/(1 − ρ) ≤ (TTL + m)/(1 + ρ)
//
// Both sides keep it because neither candidate can know whose clock is wrong.
func Margin(ttl time.Duration) time.Duration { return ttl/Drift + slack }

// Validity returns how long a lease is valid, counted by its holder from before its request's
// first byte (rule A4). Nobody else can have counted from an earlier time. Chubby's clients do
// the same, for the same reason.
func Validity(ttl time.Duration) time.Duration { return ttl - Margin(ttl) }

// Patience returns how long another candidate must have seen a record unchanged before it may
// take the lock over, counted from the receipt of the first answer with it (rule A5).
func Patience(ttl time.Duration) time.Duration { return ttl + Margin(ttl) }

// Stale returns the age, by the store's own clock, from which on a record's lease has ended:
// the TTL at the fastest clock within the drift bound, plus the resolution of the two times
// whose difference is the age.
func Stale(ttl time.Duration) time.Duration { return ttl + ttl/Drift + 3*time.Second }

// Renewal returns the interval between renewals. A third leaves time for one that is never
// answered: the read after it and the next renewal still come before the lease ends. Clients of
// etcd renew at a third too.
func Renewal(ttl time.Duration) time.Duration { return ttl / 3 }

// SeldomWatch returns the interval at which a waiter far back in the queue polls its
// predecessor's session. It is longer than the time after which a silent session is dead, so
// the second poll with the same heartbeat shows a dead session.
func SeldomWatch(ttl time.Duration) time.Duration { return ttl * 8 / 5 }

// MaxRequest bounds every request: one that takes longer is not coming back.
const MaxRequest = 10 * time.Second

// FirstPoll is the first poll interval after a lock got a new holder.
const FirstPoll = 20 * time.Millisecond

// Never is a reading that no clock reaches.
const Never = time.Duration(math.MaxInt64)

// EnoughTries is how many failures in a row are reported. An acquisition that does not wait ends
// with the last one. Others continue and say so.
const EnoughTries = 3

// FirstToken returns where a new object's tokens start: at the store's time in milliseconds, or
// else the wall clock's. In practice, they are above those of a deleted object with the same
// name.
func FirstToken(date, wall time.Time) int64 {
	if date.IsZero() {
		date = wall
	}
	return max(date.UnixMilli(), 1)
}
