package terraform_test

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// A server is one serving process: its own way to the store, and a handler.
type server struct {
	t *testing.T
	*terraform.Handler
	st *faultstore.Store
}

// start makes a server. What it has not released at the end of the test is dropped.
func start(t *testing.T, st store.Store, opts *terraform.Options) *server {
	t.Helper()
	s := &server{t: t, st: faultstore.Wrap(st, nil)}
	var err error
	if s.Handler, err = terraform.New(s.st, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.st.Clear()
		s.st.Partition(false)
		s.close()
	})
	return s
}

func (s *server) close() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), time.Minute)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.t.Errorf("close: %v", err)
	}
}

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request as Terraform does.
func (s *server) do(method, target, body string) answer {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		sum := md5.Sum([]byte(body))
		r.Header.Set("Content-MD5", base64Of(sum[:]))
	}
	return s.send(r)
}

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func (s *server) send(r *http.Request) answer {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// want sends a request that is to be answered with the status.
func (s *server) want(status int, method, target, body string) answer {
	s.t.Helper()
	a := s.do(method, target, body)
	if a.status != status {
		s.t.Fatalf("%s %s: %d, want %d: %s", method, target, a.status, status, a.body)
	}
	return a
}

// lockBody is what Terraform sends to lock.
func lockBody(id string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":"%s@host","Version":"1.11.4","Created":"2026-11-20T10:30:45.123456789Z","Path":""}`, id, id)
}

// stateOf is a state as Terraform writes it.
func stateOf(serial int, of string) string {
	return fmt.Sprintf("{\n  \"version\": 4,\n  \"terraform_version\": \"1.11.4\",\n  \"serial\": %d,\n  \"lineage\": \"a-b-c\",\n  \"outputs\": {\"of\": {\"value\": %q, \"type\": \"string\"}},\n  \"resources\": []\n}\n", serial, of)
}

// lock locks, and stays locked.
func (s *server) lock(name, id string) {
	s.t.Helper()
	a := s.want(http.StatusOK, "LOCK", "/"+name, lockBody(id))
	if holder(s.t, a).ID != id {
		s.t.Fatalf("LOCK: %s", a.body)
	}
}

func (s *server) unlock(name, id string) {
	s.t.Helper()
	if a := s.want(http.StatusOK, "UNLOCK", "/"+name, lockBody(id)); holder(s.t, a).ID != id || a.header.Get("Content-Type") != "application/json" {
		s.t.Errorf("UNLOCK: %+v", a)
	}
}

// holder is who an answer says holds the lock, as Terraform reads it.
func holder(t *testing.T, a answer) terraform.LockInfo {
	t.Helper()
	var i terraform.LockInfo
	if err := json.Unmarshal([]byte(a.body), &i); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return i
}

// goWords are those of its packages, which nobody knows who asks.
var goWords = regexp.MustCompile(`\bGo\b|struct|json:|LockInfo|\bu?int\d*\b|unmarshal|strconv|\bnil\b`)

// detail is why an answer refuses.
func detail(t *testing.T, a answer) string {
	t.Helper()
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != a.status || p.Type != "about:blank" || p.Title != http.StatusText(a.status) || a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("no problem: %v: %s", err, a.body)
	}
	if goWords.MatchString(p.Detail) {
		t.Errorf("what is wrong is said in the words of Go: %s", p.Detail)
	}
	return p.Detail
}

// data are the keys of all states that lie in a store, whether a list names them or not.
func data(t *testing.T, st store.Store) (keys []string) {
	t.Helper()
	for _, key := range leasetest.Objects(t, st) {
		if strings.Contains(key, "/_states/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// bubble runs f in virtual time, with an empty store.
func bubble(t *testing.T, f func(t *testing.T, st *memstore.Store)) {
	t.Helper()
	leasetest.Bubble(t, func(t *testing.T) { f(t, memstore.New()) })
}

// until polls the lock of the state s as Terraform does with -lock-timeout, for so long at most, and tells how long it took.
func (s *server) until(id string, most time.Duration) time.Duration {
	s.t.Helper()
	begin := time.Now()
	for delay := time.Second; ; delay = min(2*delay, 16*time.Second) {
		a := s.do("LOCK", "/s", lockBody(id))
		if a.status == http.StatusOK {
			return time.Since(begin)
		}
		if a.status != http.StatusLocked || time.Since(begin) > most {
			s.t.Fatalf("LOCK after %v: %d: %s", time.Since(begin), a.status, a.body)
		}
		time.Sleep(delay)
	}
}

// waits reports that f has not returned when nothing in the bubble goes on by itself, and returns what waits for it.
func waits[T any](t *testing.T, f func() T) (result func() T) {
	t.Helper()
	c := make(chan T, 1)
	go func() { c <- f() }()
	synctest.Wait()
	select {
	case r := <-c:
		t.Fatalf("it did not wait: %v", r)
	default:
	}
	return func() T { return <-c }
}
