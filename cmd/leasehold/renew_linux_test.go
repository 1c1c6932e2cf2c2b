package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/leasehold/leasehold/internal/clitest"
)

// withWrites is an S3 server whose writes are answered by a function, and what a process needs to use it.
func withWrites(t *testing.T, put func(w http.ResponseWriter, r *http.Request, s3 http.Handler)) (url string, env []string) {
	t.Helper()
	memory := s3mem.New()
	if err := memory.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(memory).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			put(w, r, s3)
			return
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return "s3://bucket/l?endpoint=" + server.URL, awsEnv()
}

// TestLeaseFileGone: if the file of a lease cannot be written any more once the store has taken a renewal, that is a failure,
// because the lease can no longer be used. After a release it is a warning, because the lock is free.
func TestLeaseFileGone(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	for _, tt := range []struct {
		command string
		code    int
		says    string
	}{
		{"renew", exitInternal, "leasehold: the lease was renewed, and could not be written: open FILE"},
		{"release", 0, "leasehold: the lease is over, and FILE"},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var armed atomic.Bool
		lock, env := withWrites(t, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
			if armed.Load() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			}
			s3.ServeHTTP(w, r)
		})
		file := filepath.Join(dir, "lease.json")
		if code, says := outcome(t, env, "acquire", "--ttl", "10m", "--file", file, lock); code != 0 {
			t.Fatalf("acquire: %d, %s", code, says)
		}
		armed.Store(true)
		code, says := outcome(t, env, tt.command, file)
		if want := strings.ReplaceAll(tt.says, "FILE", dir); code != tt.code || !strings.HasPrefix(says, want) {
			t.Errorf("%s: exit code %d, and it says %q, want %d and %q", tt.command, code, says, tt.code, want)
		}
	}
}

// TestUnsettledRenewal: what has become of a renewal that the store has failed at may be open. Of a lease on stdin it is then
// written to stdout, and can be used for another try. If the renewal is found to have landed, it is as good as any.
func TestUnsettledRenewal(t *testing.T) {
	t.Parallel()
	if !clitest.UnderTest.Tokens() {
		t.Skip(withoutLeases)
	}
	for _, lands := range []bool{false, true} {
		var armed atomic.Bool
		lock, env := withWrites(t, func(w http.ResponseWriter, r *http.Request, s3 http.Handler) {
			if !armed.Load() {
				s3.ServeHTTP(w, r)
				return
			}
			if lands {
				s3.ServeHTTP(httptest.NewRecorder(), r)
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		// use is what a command makes of a lease on stdin.
		use := func(stdin string, args ...string) (code int, out, says string) {
			t.Helper()
			cmd := clitest.Command(t, "", args...)
			cmd.Env = append(cmd.Env, env...)
			var stdout, stderr strings.Builder
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
			err := cmd.Run()
			if _, ended := errors.AsType[*osexec.ExitError](err); err != nil && !ended {
				t.Fatal(err)
			}
			return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
		}
		want := exitUnavailable
		if lands {
			want = 0
		}
		_, lease, _ := use("", "acquire", "--ttl", "10m", lock)
		armed.Store(true)
		code, renewed, says := use(lease, "renew", "-")
		if code != want || strings.Contains(renewed, `"pending"`) == lands || (says == "") != lands {
			t.Fatalf("if it lands: %v: exit code %d, it writes %s and says %s", lands, code, renewed, says)
		}
		armed.Store(false)
		if code, again, says := use(renewed, "renew", "-"); code != 0 || strings.Contains(again, `"pending"`) {
			t.Errorf("if it lands: %v: the next renewal ends with %d, writes %s and says %s", lands, code, again, says)
		}
	}
}
