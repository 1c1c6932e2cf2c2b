package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/leasehold/leasehold/internal/clitest"
)

// s3server is an S3 server in this process with the bucket "b".
func s3server(t *testing.T) http.Handler {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("b"); err != nil {
		t.Fatal(err)
	}
	return gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

// answer has the server carry out a request of its own.
func answer(h http.Handler, method, url string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// liars are servers that speak S3 and do not keep to what they say. The command said that
// all of them were safe, or, of the two copies, that there was no object.
var liars = []struct {
	name string
	make func(t *testing.T) http.HandlerFunc
	said string // about the use object
}{
	{"keeps conditions up to 1 KiB", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		return func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > 1<<10 {
				r.Header.Del("If-Match")
				r.Header.Del("If-None-Match")
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   racing creates of 2 KiB: "},
	{"does not apply a create after a delete", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		var gone sync.Map
		return func(w http.ResponseWriter, r *http.Request) {
			_, deleted := gone.Load(r.URL.Path)
			switch {
			case r.Method == http.MethodDelete:
				gone.Store(r.URL.Path, true)
			case r.Method == http.MethodPut && r.Header.Get("If-None-Match") != "" && deleted &&
				answer(h, http.MethodHead, r.URL.String(), nil).Code == http.StatusNotFound:
				w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
				return
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   what was created after a delete: "},
	{"answers 503 to a create and applies it 300 ms later without its condition", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		var creates atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut || r.Header.Get("If-None-Match") == "" || creates.Add(1)%20 != 0 {
				h.ServeHTTP(w, r)
				return
			}
			body, _ := io.ReadAll(r.Body)
			url := r.URL.String()
			time.AfterFunc(300*time.Millisecond, func() {
				if late := answer(h, http.MethodPut, url, body); late.Code != http.StatusOK {
					t.Errorf("a late write was answered %d, %s", late.Code, late.Body)
				}
			})
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, "BAD   "},
	{"answers 304 to whatever is asked", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   read unless unchanged: "},
	{"gives half of one body in ten", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		var gets atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Query().Has("list-type") || gets.Add(1)%10 != 0 {
				h.ServeHTTP(w, r)
				return
			}
			whole := httptest.NewRecorder()
			h.ServeHTTP(whole, r)
			for name, values := range whole.Header() {
				w.Header()[name] = values
			}
			w.Header().Del("Content-Length")
			w.WriteHeader(whole.Code)
			_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
		}
	}, "BAD   "},
	{"has two copies, one for every second connection", func(t *testing.T) http.HandlerFunc {
		copies := []http.Handler{s3server(t), s3server(t)}
		var mu sync.Mutex
		of := map[string]int{}
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			n, known := of[r.RemoteAddr]
			if !known {
				n = len(of)
				of[r.RemoteAddr] = n
			}
			mu.Unlock()
			copies[n%2].ServeHTTP(w, r)
		}
	}, "BAD   "},
}

// diagnosed runs the command on a bucket of a server.
func diagnosed(t *testing.T, h http.Handler, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	cmd := clitest.Command(t, "", append(append([]string{"doctor"}, args...), "s3://b/locks?region=x&endpoint="+server.URL)...)
	cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
	var out, console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &console
	err := cmd.Run()
	if failed, ok := errors.AsType[*osexec.ExitError](err); ok {
		return out.String(), console.String(), failed.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), console.String(), 0
}

func TestDoctorRefusesLiars(t *testing.T) {
	t.Parallel()
	for _, l := range liars {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := diagnosed(t, l.make(t), "--races", "100")
			if code != 78 || !strings.Contains(stdout, l.said) || !strings.Contains(stdout, "\n  object           NO\n") || !strings.Contains(stderr, "not proven to be safe") {
				t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
	t.Run("none of these", func(t *testing.T) {
		t.Parallel()
		stdout, stderr, code := diagnosed(t, s3server(t), "--races", "100")
		if code != 0 || strings.Contains(stdout, "BAD") || strings.Contains(stdout+stderr, "$") {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
}

// On a terminal one line says how far it is; it is gone in the end.
func TestDoctorOnTerminal(t *testing.T) {
	t.Parallel()
	screen, line := clitest.Terminal(t)
	cmd := clitest.Command(t, "", "doctor", "--races", "300", "file://"+t.TempDir())
	cmd.Stderr, cmd.Stdout = line, nil
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = line.Close()
	var seen bytes.Buffer
	_, _ = io.Copy(&seen, screen) // ends with an error: nobody is left at the other end
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !regexp.MustCompile(`\r\x1b\[Kleasehold: racing updates: \d+ of at most \d+ requests\r\x1b\[K`).Match(seen.Bytes()) {
		t.Errorf("the terminal shows %q", &seen)
	}
	if !strings.HasSuffix(seen.String(), "\r\x1b[K") {
		t.Errorf("the terminal ends with %q", seen.String()[max(0, seen.Len()-100):])
	}
}
