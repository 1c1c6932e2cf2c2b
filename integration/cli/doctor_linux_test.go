package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
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

// unconditional removes the condition of a write.
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

// liars are S3 servers that break one promise each. An earlier doctor called most of them safe.
var liars = []struct {
	name, use string
	make      func(t *testing.T) http.HandlerFunc
	said      string // about the use
}{
	{"keeps conditions up to 1 KiB", "object", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		return func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > 1<<10 {
				unconditional(r)
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   racing creates of 2 KiB: "},
	{"does not apply a create after a delete", "object", func(t *testing.T) http.HandlerFunc {
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
	{"answers 503 to a create and applies it 300 ms later without its condition", "object", func(t *testing.T) http.HandlerFunc {
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
	{"answers 304 to whatever is asked", "object", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   read unless unchanged: "},
	{"gives half of one body in ten", "object", func(t *testing.T) http.HandlerFunc {
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
	{"has two copies, one for every second connection", "object", func(t *testing.T) http.HandlerFunc {
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
	{"keeps conditions while 16 requests are under way", "object", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
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
	{"dates one answer in 100 a minute later", "fast start", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		var answers atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) {
			if answers.Add(1)%100 == 0 {
				w = dater{w, time.Minute}
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   age by the store's clock: the times in answers contradict each other by "},
	{"keeps conditions of names up to 500 bytes", "object", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		return func(w http.ResponseWriter, r *http.Request) {
			if len(r.URL.Path) > 500 {
				unconditional(r)
			}
			h.ServeHTTP(w, r)
		}
	}, "BAD   keys of all shapes: "},
	{"cuts names at 400 bytes", "object", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		return func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = r.URL.Path[:min(len(r.URL.Path), 400)]
			r.URL.RawPath = ""
			h.ServeHTTP(w, r)
		}
	}, "BAD   keys of all shapes: "},
	// Only a lock below a prefix has a name that long: the key has 768 bytes at most.
	{"cuts names at 900 bytes", "object", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
		return func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = r.URL.Path[:min(len(r.URL.Path), len("/b/")+900)]
			r.URL.RawPath = ""
			h.ServeHTTP(w, r)
		}
	}, "BAD   keys of all shapes: "},
	{"shows once more what was deleted", "object", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
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
	{"keeps conditions on each connection", "object", func(t *testing.T) http.HandlerFunc {
		h := s3server(t)
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
}

// diagnosed runs the command on a bucket of a server, below a prefix that makes long keys.
func diagnosed(t *testing.T, h http.Handler, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	cmd := clitest.Command(t, "", append(append([]string{"doctor"}, args...), "s3://b/"+strings.Repeat("p", 200)+"?region=x&endpoint="+server.URL)...)
	cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=s", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
	var out, console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &console
	err := cmd.Run()
	if _, ok := errors.AsType[*osexec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	if sent, announced := received.Load(), numberIn(t, console.String(), `at most (\d+) requests`); sent > announced {
		t.Errorf("%d requests, announced %d", sent, announced)
	}
	if sent, told := received.Load(), numberIn(t, out.String(), `(?m)^(\d+) requests in `); told > sent {
		t.Errorf("%d requests, and it tells of %d", sent, told)
	}
	return out.String(), console.String(), cmd.ProcessState.ExitCode()
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

// TestDoctorRefusesLiars: the command refuses each of them with 78, and accepts a server that does not
// lie. It sends as many requests as it says, and at most as many as it announced.
func TestDoctorRefusesLiars(t *testing.T) {
	t.Parallel()
	for _, l := range liars {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := diagnosed(t, l.make(t), "--races", "20", "--largest-body", "65536", "--use", l.use)
			if code != 78 || !strings.Contains(stdout, l.said) || !regexp.MustCompile(`\n  `+l.use+` +NO\n`).MatchString(stdout) || !strings.Contains(stderr, "not proven to be safe") {
				t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
	t.Run("none of these", func(t *testing.T) {
		t.Parallel()
		stdout, stderr, code := diagnosed(t, s3server(t), "--races", "100", "--use", "fast start")
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
