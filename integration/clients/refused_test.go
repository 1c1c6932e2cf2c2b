//go:build unix

package clients_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servetest"
	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store/memstore"
)

// Only a lock that is held is told with 75, which cron jobs take for a good reason not to run. They used to say it of
// a token that was wrong, and of a request that no server takes.
func TestClientsRefused(t *testing.T) {
	t.Parallel()
	codes := map[int]int{409: 75, 400: 64, 422: 64, 401: 77, 410: 69, 429: 69, 503: 69}
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
		if code, said := run("http://"+testenv.Refused, "k"); code != 69 || said == "" || strings.Contains(said, "Traceback") {
			t.Errorf("where nobody answers it ended with %d: %s", code, said)
		}
	})
}

// The connection of an acquisition breaks before its answer arrives: the client asks again, and works under the lease that it
// was given by then. It used to end with 69, and the lock was held by nobody for its TTL.
func TestClientsAskAgain(t *testing.T) {
	t.Parallel()
	s := servetest.Start(t, memstore.New(), 0, 15*time.Second)
	servetest.EachClient(t, func(t *testing.T, kind string) {
		var asked atomic.Int64
		token := ""
		breaks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/acquire") || asked.Add(1) > 1 {
				s.ServeHTTP(w, r)
				return
			}
			lost := httptest.NewRecorder()
			s.ServeHTTP(lost, r)
			var lease servetest.Answer
			if err := json.Unmarshal(lost.Body.Bytes(), &lease); err != nil || lost.Code != http.StatusOK {
				t.Errorf("%v, %d %s", err, lost.Code, lost.Body)
			}
			token = fmt.Sprint(lease.Token)
			panic(http.ErrAbortHandler)
		}))
		t.Cleanup(breaks.Close)
		env := []string{"LEASEHOLD_WAIT=10m", "LEASEHOLD_TTL=30m"} // without the lease it would wait
		said, err := servetest.Client(t, kind, strings.TrimPrefix(breaks.URL, "http://"), env, "again-"+kind, "sh", "-c", `echo "token $LEASEHOLD_TOKEN"; exit 7`).Output()
		if failed, is := errors.AsType[*exec.ExitError](err); !is || failed.ExitCode() != 7 || string(said) != "token "+token+"\n" {
			t.Errorf("it was asked %d times, and ended with %v: %s, want token %s", asked.Load(), err, said, token)
		}
		a := s.Answered(t, "POST", "/v1/locks/again-"+kind+"/acquire", "")
		if a.Code != http.StatusOK {
			t.Errorf("the lock is not free: %d %s", a.Code, a.Body)
		}
		s.Answered(t, "DELETE", "/v1/leases/"+a.Lease, "")
	})
}

// Whoever has the ID of a lease can release it, and all users of a machine see the arguments of commands: the client for
// shells used to give it to curl as one.
func TestShellHidesItsLease(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl here")
	}
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	script := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>'" + seen + "'\nexec '" + curl + "' \"$@\"\n"
	if err = os.WriteFile(filepath.Join(dir, "curl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := servetest.Start(t, memstore.New(), 0, 15*time.Second)
	var id atomic.Value
	address := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, is := strings.CutPrefix(r.URL.Path, "/v1/leases/"); is {
			path, _, _ = strings.Cut(path, "/")
			id.Store(path)
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(address.Close)
	said, err := servetest.Client(t, "shell", strings.TrimPrefix(address.URL, "http://"), []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, "k", "true").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	args, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	if lease, _ := id.Load().(string); lease == "" || strings.Contains(string(args), lease) || strings.Contains(string(args), `"id"`) {
		t.Errorf("the lease is %q, and curl was called with\n%s", lease, args)
	}
}
