package s3lect

import (
	"context"
	"net"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
)

// AskThrough makes peer mode ask through a client of the test's own.
func (e *S3Elector) AskThrough(c interface {
	leasehold.Peers
	Close() error
},
) {
	e.connect = func(config ElectorConfig) (asker, error) {
		if !config.PeerMode {
			return nil, nil //nolint:nilnil // as ElectorConfig.client
		}
		return c, nil
	}
}

// Attend is what the health endpoint of the elector knows.
func (e *S3Elector) Attend(ctx context.Context, q peer.Question) (peer.Leadership, error) {
	return peer.Attend(ctx, e.election, q)
}

// Addr is where the server listens.
func (hs *HealthServer) Addr() net.Addr { return hs.server.Addr() }
