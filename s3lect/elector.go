package s3lect

import (
	"context"
	"time"
)

// An Elector is one instance of an election. All methods may be called at any time by
// any goroutine.
type Elector interface {
	// Start begins to campaign and returns. The election ends with ctx, or with Stop.
	Start(ctx context.Context) error

	// Stop ends the election. If this instance leads, it resigns first.
	Stop() error

	// IsLeader reports whether this instance is the leader now.
	IsLeader() bool

	// WaitForLeadership waits until this instance is the leader, or ctx ends.
	WaitForLeadership(ctx context.Context) error

	// WaitForNextElection waits until an election cycle has ended after since, or one
	// at all if since is zero, and returns the status then. An election cycle has ended
	// when this instance has learnt who leads, or tried to and could not.
	WaitForNextElection(ctx context.Context, since time.Time) (*LeadershipStatus, error)

	// LeaderID is the ServerID of the leader, or empty if none is known.
	LeaderID() string

	// GetLeadershipStatus returns what this instance knows of the leadership.
	GetLeadershipStatus() *LeadershipStatus

	// EnablePeerMode switches peer mode on, with the given PeerCACert.
	EnablePeerMode(caCert []byte) error

	// UpdateConfig changes the configuration.
	UpdateConfig(newConfig ElectorConfig) error

	// GetConfig returns a copy of the configuration.
	GetConfig() *ElectorConfig
}

var _ Elector = (*S3Elector)(nil)

// LeadershipStatus is one instance's knowledge of the leadership.
type LeadershipStatus struct {
	ServerID     string `json:"serverID"` // of this instance
	LockfilePath string `json:"lockfilePath"`
	IsLeader     bool   `json:"isLeader"` // this instance leads

	// The leader; empty if none is known. LeaderID is that of this instance only while
	// IsLeader.
	LeaderID   string `json:"leaderID"`
	LeaderAddr string `json:"leaderAddr"`

	// LeaderLastSeen is when the leader last renewed, by its own clock, as far as this
	// instance has looked, or last answered this instance in peer mode.
	LeaderLastSeen time.Time `json:"leaderLastSeen"`
	// LastElectionTime is when this instance first saw that leader.
	LastElectionTime time.Time `json:"lastElectionTime"`
	// ConsecutiveFails is how many requests to the storage have failed in a row.
	ConsecutiveFails int `json:"consecutiveFails"`
}

// A LeaderRecord is the leader as a lockfile and a health endpoint show it to
// instances of the original package.
type LeaderRecord struct {
	LeaderID    string               `json:"leaderID,omitempty"`
	LeaderAddr  string               `json:"leaderAddr,omitempty"`
	LastUpdated time.Time            `json:"lastUpdated"` // the last renewal; zero: there is no leader
	Metadata    LeaderRecordMetadata `json:"-"`
}

// LeaderRecordMetadata is the storage's metadata of a lockfile.
type LeaderRecordMetadata struct {
	ETag string
}
