package s3store

import (
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store"
)

var _ io.Closer = (*Store)(nil)

// idler is an HTTP client whose idle connections can be closed, as http.Client is one.
type idler interface{ CloseIdleConnections() }

// idlerOf is the HTTP client of a store that owns it.
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

// Close closes the connections of a store that owns its client (see [Options.OwnClient]): those
// that are idle at once, with the goroutines that serve them, and those in use when their requests
// have ended. The client of any other store it leaves as it is, since others may use that too.
//
// It does not wait for requests and cuts none off, as of an http.Client. Calls of a closed store
// still work and open connections anew, so call Close last: after every lease has been released,
// every session closed, and Lock.Settle has returned. It may be called more than once, by any
// goroutine. It returns nil.
func (s *Store) Close() error {
	if s.idle != nil {
		s.idle.CloseIdleConnections()
	}
	return nil
}
