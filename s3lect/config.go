package s3lect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/protocol/candidate"
	"github.com/leasehold/leasehold/peer"
)

// ElectorConfig is the configuration of an instance.
type ElectorConfig struct {
	// LockfilePath is the key of the lockfile in the Storage. Without a Storage it is
	// the URL of an object, s3://BUCKET/KEY with the parameters of package storeurl, or
	// a key in the store whose URL is in the environment variable LEASEHOLD_STORE.
	LockfilePath string

	// ServerID names this instance, and should be its alone.
	ServerID string

	// ServerAddr is the HOST:PORT at which the others ask this instance while it leads.
	ServerAddr string

	// FrequentInterval is how often a follower looks while the leader is new or late.
	// Default 5 s.
	FrequentInterval time.Duration

	// InfrequentInterval is how often a follower looks while the leader is steady,
	// give or take a quarter, and never more often than FrequentInterval. The longer
	// it is, the later a leader that is gone is replaced. Default 30 s, or twice the
	// LeaderTimeout if that is less.
	InfrequentInterval time.Duration

	// LeaderTimeout is how long a leader that no longer renews is waited for; it renews
	// every third of it. Less than a second is taken as a second; at most 24 h.
	// Default 15 s.
	LeaderTimeout time.Duration

	// PeerMode makes a follower ask the leader itself, and look at the storage only
	// when that does not answer; then it looks every FrequentInterval.
	PeerMode bool

	// PeerHealthPath is the path of the health endpoint. Default "/health/leadership".
	PeerHealthPath string

	// PeerTimeout is how long a connection to the leader may take to be made, and an
	// answer to come after the wait that was asked for. Default 3 s.
	PeerTimeout time.Duration

	// PeerCACert has, as PEM, the authorities that may sign a leader's certificate.
	// Default: those that the system trusts.
	PeerCACert []byte

	// OnAcquireLeadership is called when this instance has become the leader, before
	// WaitForLeadership returns. If it returns an error, the instance resigns. Its
	// context ends with the leadership.
	OnAcquireLeadership func(ctx context.Context) error

	// OnLoseLeadership is called once for each call of OnAcquireLeadership, when that
	// leadership is over, or about to be: after Stop, the end of Start's context, and an
	// error of OnAcquireLeadership, nobody else leads before it has returned or its
	// context has ended, a third of the LeaderTimeout later. Its error is logged.
	OnLoseLeadership func(ctx context.Context) error
}

// Validate reports what of the configuration cannot be used, and puts in the defaults
// of what is zero.
func (c *ElectorConfig) Validate() error {
	switch {
	case c.LockfilePath == "":
		return errors.New("the LockfilePath is missing")
	case c.ServerID == "":
		return errors.New("the ServerID is missing")
	case c.ServerAddr == "":
		return errors.New("the ServerAddr is missing")
	case c.LeaderTimeout > leasehold.MaxTTL:
		return fmt.Errorf("the LeaderTimeout %v is longer than %v", c.LeaderTimeout, leasehold.MaxTTL)
	}
	for name, d := range map[string]time.Duration{
		"FrequentInterval": c.FrequentInterval, "InfrequentInterval": c.InfrequentInterval,
		"LeaderTimeout": c.LeaderTimeout, "PeerTimeout": c.PeerTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("the %s %v is negative", name, d)
		}
	}
	c.LeaderTimeout = cmp.Or(c.LeaderTimeout, leasehold.DefaultTTL)
	c.FrequentInterval = cmp.Or(c.FrequentInterval, 5*time.Second)
	c.InfrequentInterval = cmp.Or(c.InfrequentInterval, min(30*time.Second, 2*c.LeaderTimeout))
	c.PeerTimeout = cmp.Or(c.PeerTimeout, 3*time.Second)
	c.PeerHealthPath = "/" + strings.TrimPrefix(cmp.Or(c.PeerHealthPath, peer.DefaultPath), "/")
	return nil
}

func (c ElectorConfig) clone() ElectorConfig {
	c.PeerCACert = slices.Clone(c.PeerCACert)
	return c
}

// ttl is the TTL of the records that this instance writes.
func (c ElectorConfig) ttl() time.Duration { return max(c.LeaderTimeout, leasehold.MinTTL) }

// pace is what of the configuration an election can change while it runs. In peer mode
// it looks at the storage only when the leader does not answer, and that is no steady
// leader.
func (c ElectorConfig) pace() candidate.Retune {
	infrequent := max(c.FrequentInterval, c.InfrequentInterval)
	if c.PeerMode {
		infrequent = c.FrequentInterval
	}
	return candidate.Retune{TTL: c.ttl(), Frequent: c.FrequentInterval, Infrequent: infrequent}
}

// client makes the client of peer mode; nil without.
func (c ElectorConfig) client() (asker, error) {
	if !c.PeerMode {
		return nil, nil //nolint:nilnil // no client is what was asked for
	}
	opts := &peer.ClientOptions{Path: c.PeerHealthPath, Timeout: c.PeerTimeout}
	if len(c.PeerCACert) > 0 {
		roots, err := peer.ParseCAs(c.PeerCACert)
		if err != nil {
			return nil, fmt.Errorf("the PeerCACert cannot be used: %w", err)
		}
		opts.RootCAs = roots
	}
	return peer.NewClient(opts)
}
