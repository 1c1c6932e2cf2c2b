package s3store

import (
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store"
)

var _ io.Closer = (*Store)(nil)

// idler is an HTTP client, such as http.Client, with idle connections that can be closed.
type idler interface{ CloseIdleConnections() }

// idlerOf returns the HTTP client if the store owns it.
func idlerOf(client *s3.Client, owned bool) (idler, error) {
	if !owned {
		return nil, nil //nolint:nilnil // the caller's is none of ours
	}
	http := client.Options().HTTPClient
	if c, ok := http.(idler); ok {
		return c, nil
	}
	return nil, fmt.Errorf("s3store: %w: OwnClient is set, and the HTTP client, a %T, has no method CloseIdleConnections: give the S3 client an http.Client", store.ErrInvalid, http)
}

// Close closes the connections of a store that owns its client (see [Options.OwnClient]). Idle
// connections and their goroutines end at once, others when their requests have ended. Close
// does nothing to any other client, which may be in use elsewhere.
//
// Close does not wait for requests or cut them off, like that of an http.Client. Calls after
// Close still work and open new connections, so call Close last: after all leases were
// released, all sessions were closed, and Lock.Settle has returned. You can call it more than
// once and from any goroutine. It returns nil.
func (s *Store) Close() error {
	if s.idle != nil {
		s.idle.CloseIdleConnections()
	}
	return nil
}
