package servers_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
)

func TestStartGCS(t *testing.T) {
	srv := servers.StartGCS(t)
	bucket := srv.GCSBucket(t)
	if other := srv.GCSBucket(t); other == bucket {
		t.Fatalf("two buckets have the name %s", bucket)
	}
	gcs(t, http.MethodPost, srv.Endpoint+"/upload/storage/v1/b/"+bucket+"/o?"+url.Values{"uploadType": {"media"}, "name": {"k"}}.Encode(), "one", 200)
	object := srv.Endpoint + "/storage/v1/b/" + bucket + "/o/k?alt=media"
	if got := gcs(t, http.MethodGet, object, "", 200); got != "one" {
		t.Errorf("k has %q, want %q", got, "one")
	}
	srv.Restart(t)
	gcs(t, http.MethodGet, object, "", 404) // it keeps its data in memory
}

func gcs(t *testing.T, method, to, body string, want int) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		t.Fatalf("%s %s: %s, %s, %v; want the status %d", method, to, resp.Status, said, err, want)
	}
	return string(said)
}
