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

// GCS is the name of the emulator of Google Cloud Storage: see [StartGCS]. It has a module of
// its own, because its dependencies would change the builds of the other servers.
const GCS = "fake-gcs-server"

// StartGCS is like Start, for the emulator of Google Cloud Storage. It needs no credentials and
// does not speak S3. Of the server's methods, use only [Server.GCSBucket], MakeBucket, Stop,
// Restart, Pause and Resume. Like gofakes3, it keeps its data in memory.
func StartGCS(t testing.TB) *Server {
	t.Helper()
	path := binary(t, GCS)
	return start(t, GCS, listsGCSBuckets, func(port *port, dir string) command {
		return pinned[GCS].command(path, port.addr, dir)
	})
}

// listsGCSBuckets reports whether the emulator serves requests.
func listsGCSBuckets(ctx context.Context, s *Server) error {
	return s.gcs(ctx, http.MethodGet, "")
}

// GCSBucket is like Bucket, for [StartGCS].
func (s *Server) GCSBucket(t testing.TB) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text())
	s.MakeBucket(t, name)
	return name
}

// GCSURL is like URL, for [StartGCS].
func (s *Server) GCSURL(bucket string) string { return GCSURLAt(s.Endpoint, bucket) }

// GCSURLAt is like GCSURL, for a proxy in front of the server.
func GCSURLAt(endpoint, bucket string) string { return "gs://" + bucket + "?endpoint=" + endpoint }

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
