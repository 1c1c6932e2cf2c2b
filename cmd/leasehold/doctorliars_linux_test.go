package main

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/clitest"
)

// unconditional makes a write one without a condition.
func unconditional(r *http.Request) {
	r.Header.Del("If-Match")
	r.Header.Del("If-None-Match")
}

// A dater changes the date of an answer.
type dater struct {
	http.ResponseWriter
	by time.Duration
}

func (d dater) WriteHeader(code int) {
	d.Header().Set("Date", time.Now().Add(d.by).UTC().Format(http.TimeFormat))
	d.ResponseWriter.WriteHeader(code)
}

func (d dater) Write(p []byte) (int, error) {
	if d.Header().Get("Date") == "" {
		d.WriteHeader(http.StatusOK)
	}
	return d.ResponseWriter.Write(p)
}

// liars are S3 servers that lie in one way each.
var liars = []struct {
	name, use string
	lie       func(h http.Handler) http.HandlerFunc
	said      string
}{
	{"keeps conditions while 16 requests are under way", "object", func(h http.Handler) http.HandlerFunc {
		var underway atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) {
			defer underway.Add(-1)
			if underway.Add(1) > 16 {
				unconditional(r)
			}
			if r.Method == http.MethodPut {
				time.Sleep(10 * time.Millisecond)
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   many "},
	{"dates one answer in 100 a minute later", "fast start", func(h http.Handler) http.HandlerFunc {
		var answers atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) {
			if answers.Add(1)%100 == 0 {
				w = dater{w, time.Minute}
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   age by the store's clock: the times in answers contradict each other by "},
	{"keeps conditions of names up to 500 bytes", "object", func(h http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if len(r.URL.Path) > 500 {
				unconditional(r)
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   keys of all shapes: "},
	{"cuts names at 400 bytes", "object", func(h http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = r.URL.Path[:min(len(r.URL.Path), 400)]
			r.URL.RawPath = ""
			h.ServeHTTP(w, r)
		}
	}, "BAD   keys of all shapes: "},
	// Only a lock below a prefix has a name that long: the key has 768 bytes at most.
	{"cuts names at 900 bytes", "object", func(h http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = r.URL.Path[:min(len(r.URL.Path), len("/b/")+900)]
			r.URL.RawPath = ""
			h.ServeHTTP(w, r)
		}
	}, "BAD   keys of all shapes: "},
	{"shows once more what was deleted", "object", func(h http.Handler) http.HandlerFunc {
		var last sync.Map
		return func(w http.ResponseWriter, r *http.Request) {
			switch key := r.URL.Path; r.Method {
			case http.MethodDelete:
				was := httptest.NewRecorder()
				h.ServeHTTP(was, httptest.NewRequestWithContext(r.Context(), http.MethodGet, key, nil))
				if was.Code == http.StatusOK {
					last.Store(key, was)
				}
			case http.MethodPut:
				last.Delete(key)
			case http.MethodGet:
				found, _ := last.Load(key)
				if ghost, ok := found.(*httptest.ResponseRecorder); ok {
					maps.Copy(w.Header(), ghost.Header())
					_, _ = w.Write(ghost.Body.Bytes())
					return
				}
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   reads, of all requests: "},
	{"keeps conditions on each connection", "object", func(h http.Handler) http.HandlerFunc {
		var turns sync.Map
		return func(w http.ResponseWriter, r *http.Request) {
			found, _ := turns.LoadOrStore(r.RemoteAddr, new(sync.Mutex))
			turn := found.(*sync.Mutex) //nolint:errcheck,forcetypeassert // all of them are
			turn.Lock()
			defer turn.Unlock()
			if r.Method != http.MethodPut {
				h.ServeHTTP(w, r)
				return
			}
			// It looks, waits, and writes whatever is there by then.
			body, _ := io.ReadAll(r.Body)
			now := httptest.NewRecorder()
			h.ServeHTTP(now, httptest.NewRequestWithContext(r.Context(), http.MethodHead, r.URL.String(), nil))
			if now.Code == http.StatusOK && r.Header.Get("If-Match") != now.Header().Get("ETag") || now.Code != http.StatusOK && r.Header.Get("If-Match") != "" {
				w.WriteHeader(http.StatusPreconditionFailed)
				return
			}
			time.Sleep(2 * time.Millisecond)
			unconditional(r)
			r.Body = io.NopCloser(bytes.NewReader(body))
			h.ServeHTTP(w, r)
		}
	}, "BAD   racing creates: "},
	{"", "fast start", func(h http.Handler) http.HandlerFunc { return h.ServeHTTP }, "  fast start       safe\n"},
}

// TestDoctorOfServers: the command refuses each server that lies, with 78, and accepts one that does
// not. It sends as many requests as it says, and no more than it announced.
func TestDoctorOfServers(t *testing.T) {
	t.Parallel()
	if clitest.UnderTest != leasehold.LayoutObject {
		t.Skip("the same in every layout: it is about stores")
	}
	for _, l := range liars {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			backend := s3mem.New()
			if err := backend.CreateBucket("b"); err != nil {
				t.Fatal(err)
			}
			h := l.lie(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
			var received atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				received.Add(1)
				h(w, r)
			}))
			t.Cleanup(server.Close)
			cmd := clitest.Command(t, "", "doctor", "--races", "20", "--largest-body", "65536", "--use", l.use, "s3://b/"+strings.Repeat("p", 200)+"?region=x&endpoint="+server.URL)
			cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
			var out, console strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &console
			err := cmd.Run()
			want := exitUnsafe
			if l.name == "" {
				want = 0
			}
			if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(out.String(), l.said) {
				t.Errorf("exit code %d, %v\n%s\n%s", code, err, &out, &console)
			}
			sent := received.Load()
			if announced := numberIn(t, console.String(), `at most (\d+) requests`); sent > announced {
				t.Errorf("%d requests, announced %d", sent, announced)
			}
			if told := numberIn(t, out.String(), `(?m)^(\d+) requests in `); sent > told {
				t.Errorf("%d requests, and it tells of %d", sent, told)
			}
		})
	}
}

// numberIn is the first one that the pattern finds in a text.
func numberIn(t *testing.T, text, pattern string) int64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no %s in %q", pattern, text)
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDoctorOfRedirects: an endpoint that redirects to itself gets a few requests, and no more than were
// announced. It got 1.2 million.
func TestDoctorOfRedirects(t *testing.T) {
	t.Parallel()
	if clitest.UnderTest != leasehold.LayoutObject {
		t.Skip("the same in every layout: it is about stores")
	}
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
		http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	cmd := clitest.Command(t, "", "doctor", "s3://b/locks?region=x&endpoint="+server.URL)
	cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
	var console strings.Builder
	cmd.Stderr = &console
	if err := cmd.Run(); err == nil || received.Load() > 100 {
		t.Errorf("%d requests, %v: %s", received.Load(), err, &console)
	}
	t.Logf("figures: %d requests; %s", received.Load(), &console)
}
