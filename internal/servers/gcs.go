package servers

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// GCS is the name of the emulator of Google Cloud Storage: see [StartGCS]. It is pinned in a module
// of its own, because what it depends on would change what the other servers are built from.
const GCS = "fake-gcs-server"

// StartGCS is Start for the emulator of Google Cloud Storage. It wants no credentials and speaks no
// S3: of the methods of the server, [Server.GCSBucket], MakeBucket, Stop, Restart, Pause and Resume
// are for it. It keeps its data in memory, as gofakes3 does.
func StartGCS(t testing.TB) *Server {
	t.Helper()
	path := binary(t, GCS)
	return start(t, GCS, listsGCSBuckets, func(port *port, dir string) command {
		return pinned[GCS].command(path, port.addr, dir)
	})
}

// listsGCSBuckets is how the emulator shows that it serves requests.
func listsGCSBuckets(ctx context.Context, s *Server) error {
	return s.gcs(ctx, http.MethodGet, "")
}

// GCSBucket is Bucket for [StartGCS].
func (s *Server) GCSBucket(t testing.TB) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text())
	s.MakeBucket(t, name)
	return name
}

// GCSURL is URL for [StartGCS].
func (s *Server) GCSURL(bucket string) string { return GCSURLAt(s.Endpoint, bucket) }

// GCSURLAt is GCSURL for a proxy that stands before the server.
func GCSURLAt(endpoint, bucket string) string { return "gs://" + bucket + "?endpoint=" + endpoint }

// gcs sends a request about the buckets.
func (s *Server) gcs(ctx context.Context, method, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, s.Endpoint+"/storage/v1/b?project=test", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, said)
	}
	return err
}
