package lock

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/store"
)

// Peers let followers in an election ask the leader whether it leads.
//
// A leader's answer makes a follower poll the store later or sooner. It never extends or ends a
// lease. So a wrong, late or lost answer only costs time.
type Peers interface {
	// Ask asks the candidate at the address in its record, and returns its answer. It returns
	// soon after ctx has ended. Any error means that there is no answer. One goroutine at a time
	// calls Ask for each election.
	Ask(ctx context.Context, address string, q Question) (Leadership, error)
}

// A Question is what a follower asks a leader. Its content is not trusted: it can only affect
// who is told first or named as successor. The transport decides who may ask.
type Question struct {
	Lock   string        // the key of the election's lock
	Holder string        // the name of the follower
	Waited time.Duration // how long it has wanted to lead; 0 if it only observes
	Known  string        // Leadership.Version of the last answer; empty: answer at once
	Wait   time.Duration // how long to wait while Known is still current
}

// Leadership is what a candidate tells its peers about its own leadership. Apart from the
// remaining time of the lease, it never says more than the record in the store.
//
// It is not signed. A follower uses it to decide when to poll, and uses the proof in Record to
// skip a poll; the store's conditional write decides the rest.
type Leadership struct {
	Lock string

	// Leading reports that the lease is valid now, the last renewal was in time, and no request
	// to the store has failed since.
	Leading bool
	// Free reports that the candidate has stopped leading and its release is confirmed.
	Free bool

	// The current lease, or the last one. All are zero if there was none.
	Token       int64
	Holder      string
	Address     string
	Meta        map[string]string
	Incarnation string // of this candidate and this start
	TTL         time.Duration
	AcquiredAt  time.Time // by its own wall clock
	RenewedAt   time.Time // when the last successful renewal was sent
	Successor   string    // with Free: the candidate it named to go first

	// Record and Object, when Free, are what the release wrote and its version in the store. If
	// the version is a hash of the record, they prove each other, and the follower need not
	// poll. They are empty if unknown.
	Record []byte
	Object store.Version

	// Remaining is how long the lease is still valid unless it is renewed.
	Remaining time.Duration

	// Version changes whenever Leading, Free or the lease does.
	Version string
}
