package protocol

import (
	"math"
	"time"

	"github.com/leasehold/leasehold/internal/record"
)

// Drift is the inverse of the largest rate error, against real time, that any
// candidate's clock may have: a twelfth, the default slew limit of chrony, and
// more than ntpd or a bad quartz ever show.
// A larger bound would cost validity on one side and patience on the other. Every lease since
// Gray's and Cheriton's (1989) rests on some such bound; most leave it unsaid.
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
// It is kept on both sides since either clock may be the one that is wrong, and neither candidate
// can know whose.
func Margin(ttl time.Duration) time.Duration { return ttl/Drift + slack }

// Validity is how long a lease is valid, counted by its holder from before the
// first byte of the request that wrote it (rule A4).
// Nobody else can have counted from an earlier time. Chubby's clients are as careful, for the same
// reason.
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
// A third leaves time for one that is never answered: the look that tells what became of it and
// the next renewal still come before the lease ends. Clients of etcd renew at a third too.
func Renewal(ttl time.Duration) time.Duration { return ttl / 3 }

// SeldomWatch is the interval at which a waiter whose turn is far away polls its predecessor's session.
// It is longer than the time after which a silent session is dead, so the second poll that shows the
// same heartbeat shows a dead session.
func SeldomWatch(ttl time.Duration) time.Duration { return ttl * 8 / 5 }

// MaxRequest bounds every request: one that takes longer is not coming back.
const MaxRequest = 10 * time.Second

// Never is a reading that no clock reaches.
const Never = time.Duration(math.MaxInt64)

const (
	// recent is how old knowledge of a numbered lock may be. Numbers are collected
	// when they are a day old.
	recent = time.Hour

	// enoughLeft is the part of the TTL that must be left of a lease for its record
	// to be deleted: its inverse.
	enoughLeft = 4

	// EnoughTries is how many failures in a row are reported. An acquisition that does not wait
	// ends with the last one. Others continue and say so.
	EnoughTries = 3

	// reminder is how often trouble that goes on is told again.
	reminder = time.Minute
)
