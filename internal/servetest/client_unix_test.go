//go:build unix

package servetest_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/servetest"
)

// Only a lock that is held is told with 75, which cron jobs take for a good reason not to run. They used to say it of
// a token that was wrong, and of a request that no server takes.
func TestClientsRefused(t *testing.T) {
	t.Parallel()
	codes := map[int]int{409: 75, 400: 64, 422: 64, 401: 77, 429: 69, 503: 69}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		if _, err := fmt.Sscanf(r.URL.Path, "/v1/locks/%d/acquire", &status); err != nil {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"type":"x","detail":"because of %d"}`+"\n", status)
	}))
	t.Cleanup(s.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	servetest.EachClient(t, func(t *testing.T, kind string) {
		ran := filepath.Join(t.TempDir(), "ran")
		run := func(url, key string) (int, string) {
			said, err := servetest.Client(t, kind, strings.TrimPrefix(url, "http://"), nil, key, "touch", ran).CombinedOutput()
			failed, is := errors.AsType[*exec.ExitError](err)
			if !is {
				t.Fatalf("%s: %v %s", key, err, said)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Errorf("%s: the command ran", key)
			}
			return failed.ExitCode(), string(said)
		}
		for status, want := range codes {
			if code, said := run(s.URL, fmt.Sprint(status)); code != want || !strings.Contains(said, fmt.Sprintf("because of %d", status)) {
				t.Errorf("%d: it ended with %d, want %d: %s", status, code, want, said)
			}
		}
		if code, said := run(gone.URL, "k"); code != 69 || said == "" || strings.Contains(said, "Traceback") {
			t.Errorf("where nobody answers it ended with %d: %s", code, said)
		}
	})
}
