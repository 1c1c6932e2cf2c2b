package terraform_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve/terraform"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestLog: what the log tells of locks and states, and how loud: what the client did wrong is no warning.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		var log leasetest.Log
		s := start(t, st, &terraform.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Path: "/tf/"})
		s.want(http.StatusOK, "LOCK", "/tf/s", lockBody("x"))
		s.want(http.StatusLocked, "LOCK", "/tf/s", lockBody("y"))
		s.want(http.StatusOK, "POST", "/tf/s?ID=x", stateOf(1, "x"))
		s.want(http.StatusOK, "POST", "/tf/s?ID=x", stateOf(1, "x")) // again
		s.want(http.StatusOK, "UNLOCK", "/tf/s", lockBody("y"))
		s.want(http.StatusOK, "UNLOCK", "/tf/s", lockBody("x"))
		s.want(http.StatusOK, "DELETE", "/tf/s", "")
		for _, path := range []string{"/tf/", "/other/s", "/"} {
			if d := detail(t, s.want(http.StatusNotFound, "GET", path, "")); d != "the address names no state: it is /tf/NAME" {
				t.Errorf("%s: %s", path, d)
			}
		}
		s.want(http.StatusOK, "LOCK", "/tf/b", lockBody("b"))
		other := start(t, st, &terraform.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		other.want(http.StatusOK, "UNLOCK", "/b", `{"ID":"b"}`)
		s.st.Inject(faultstore.Fault{Kind: faultstore.Denied, Op: "get", Key: "locks/b/_lock"})
		s.want(http.StatusInternalServerError, "LOCK", "/tf/b", lockBody("c"))
		s.st.Clear()
		s.close()
		if a := s.want(http.StatusServiceUnavailable, "GET", "/tf/s", ""); a.header.Get("Retry-After") != "1" || detail(t, a) != "the server stops" {
			t.Errorf("a server that stops: %+v", a)
		}
		token := leasetest.RecordIn(t, st, "locks/s/_lock").Token - 1 // DELETE has taken one of its own
		text := regexp.MustCompile(`time=\S+ |[0-9a-f]{32}|behind faults of seed 0[^/]*`).ReplaceAllString(log.String(), "")
		want := fmt.Sprintf(`level=INFO msg=locked state=s id=x who=x@host operation=OperationTypeApply token=%[1]d
level=INFO msg=refused method=LOCK path=/tf/s status=423 reason="the state is locked by x@host, with the ID x"
level=INFO msg=stored state=s number=1 bytes=%[2]d deleted=false token=%[1]d id=x
level=WARN msg="a run unlocks that does not hold the lock any more" state=s id=y who=y@host
level=INFO msg=unlocked state=s id=x
level=INFO msg=stored state=s number=2 bytes=0 deleted=true token=%[3]d id=
level=INFO msg=refused method=GET path=/tf/ status=404 reason="the address names no state: it is /tf/NAME"
level=INFO msg=refused method=GET path=/other/s status=404 reason="the address names no state: it is /tf/NAME"
level=INFO msg=refused method=GET path=/ status=404 reason="the address names no state: it is /tf/NAME"
level=INFO msg=locked state=b id=b who=b@host operation=OperationTypeApply token=%[1]d
level=WARN msg="a lock was broken" state=b id=b who=b@host token=%[1]d
level=WARN msg=refused method=LOCK path=/tf/b status=500 reason="the lock could not be read: `, token, len(stateOf(1, "x")), token+1)
		if !strings.HasPrefix(text, want) || !strings.HasSuffix(text, `level=WARN msg=refused method=GET path=/tf/s status=503 reason="the server stops"`+"\n") {
			t.Errorf("the log is\n%s\nwant\n%s", text, want)
		}
	})
}

// A timed writer notes the deadlines of a connection.
type timed struct {
	*httptest.ResponseRecorder
	text string
}

func (w *timed) note(what string, t time.Time) error {
	if t.IsZero() {
		w.text += what + " none, "
	} else {
		w.text += fmt.Sprintf("%s %v, ", what, time.Until(t))
	}
	return nil
}

func (w *timed) SetReadDeadline(t time.Time) error  { return w.note("read", t) }
func (w *timed) SetWriteDeadline(t time.Time) error { return w.note("write", t) }
func (w *timed) FlushError() error                  { w.text += "sent, "; return nil }

// TestDeadlines: a request has five minutes and a moment, whatever the server before it gives, and the next one on the
// connection has what that gives.
func TestDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/s", nil))
		if want := "read 5m5s, write 5m5s, sent, write none, "; w.text != want || w.Code != http.StatusNotFound || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s, want %s; %d %v", w.text, want, w.Code, w.Header())
		}
	})
}

// TestManyLargeStates: each gives its room back.
func TestManyLargeStates(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.lock("s", "x")
		for n := range 6 {
			s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(n+1, strings.Repeat("x", 1<<20)))
		}
		s.unlock("s", "x")
	})
}

// TestDamagedAnswer: the answer that a small state is not what was stored has none of its headers.
func TestDamagedAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		s.want(http.StatusOK, "POST", "/s", stateOf(1, "x"))
		key := data(t, st)[0]
		if _, err := st.PutLarge(t.Context(), key, strings.NewReader(stateOf(1, "y"))); err != nil {
			t.Fatal(err)
		}
		a := s.want(http.StatusInternalServerError, "GET", "/s", "")
		if d := detail(t, a); !strings.HasPrefix(d, "state 1 of s: ") || !strings.HasSuffix(d, "it is not what was stored") || a.header.Get("Content-Length") != "" || a.header.Get("Content-MD5") != "" {
			t.Errorf("%v %s", a.header, a.body)
		}
	})
}

// TestCollectsItsOwn: what a run that broke off has left goes when the next one stores; what has another name stays.
func TestCollectsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, st *memstore.Store) {
		s := start(t, st, nil)
		for _, name := range []string{"0000000001-0000000000000000001-left", "notes", "0000000001-9000000000000000000-later"} {
			if _, err := st.Put(t.Context(), "states/s/_states/"+name, []byte("x"), store.IfAbsent()); err != nil {
				t.Fatal(err)
			}
		}
		s.lock("s", "x")
		s.want(http.StatusOK, "POST", "/s?ID=x", stateOf(1, "x"))
		s.unlock("s", "x")
		var left []string
		for _, key := range data(t, st) {
			left = append(left, strings.TrimPrefix(key, "states/s/_states/"))
		}
		if len(left) != 3 || left[1] != "0000000001-9000000000000000000-later" || left[2] != "notes" {
			t.Errorf("in the store are %q", left)
		}
	})
}
