package serve_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/store/memstore"
)

// A timed writer notes the deadlines that an answer sets, as seconds from now; none: they are lifted.
type timed struct {
	*httptest.ResponseRecorder
	text string
	deaf atomic.Bool // what is written goes nowhere, which only a flush tells
}

func (w *timed) note(what string, t time.Time) error {
	if t.IsZero() {
		w.text += what + " none, "
	} else {
		w.text += fmt.Sprintf("%s %v, ", what, time.Until(t).Seconds())
	}
	return nil
}

func (w *timed) SetReadDeadline(t time.Time) error  { return w.note("read", t) }
func (w *timed) SetWriteDeadline(t time.Time) error { return w.note("write", t) }
func (w *timed) WriteHeader(code int) {
	w.text += fmt.Sprint(code)
	w.ResponseRecorder.WriteHeader(code)
}

func (w *timed) FlushError() error {
	if w.deaf.Load() {
		return fmt.Errorf("broken pipe")
	}
	w.text += " sent"
	return nil
}

// Whatever may take longer than a client is usually given lifts the deadlines of its connection while it goes on, and each
// answer has ten seconds to be written from when it is there. Without the first a wait is cut off, and without the second a
// client that reads nothing holds its connection for ever.
func TestDeadlines(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{AllowBreak: true})
		k := acquired(t, s, "k", `{"ttl":"1h"}`)
		other := acquired(t, s, "other", `{"ttl":"1h"}`)
		const patient, answer = "read none, write none, ", "write 10, "
		for _, tc := range []struct{ method, path, body, want string }{
			{"GET", "/healthz", "", answer + "200 sent"},
			{"GET", "/readyz", "", answer + "200 sent"},
			{"GET", "/metrics", "", answer + "200 sent"},
			{"GET", "/openapi.json", "", answer + "200 sent"},
			{"HEAD", "/healthz", "", answer + "200"},
			{"GET", "/", "", answer + "307 sent"},
			{"GET", "/v1/locks", "", patient + answer + "200 sent"},
			{"GET", "/v1/locks/k", "", patient + answer + "200 sent"},
			{"GET", "/v1/locks/none", "", patient + answer + "404 sent"},
			{"GET", "/v1/locks/k/history", "", patient + answer + "200 sent"},
			{"GET", "/v1/elections/k", "", patient + answer + "200 sent"},
			{"GET", "/v1/leases/" + k.Lease, "", answer + "200 sent"},
			{"GET", "/v1/leases/" + k.Lease + "?wait=5s", "", patient + answer + "200 sent"},
			{"POST", "/v1/leases/" + k.Lease + "/keepalive", "", answer + "200 sent"},
			{"POST", "/v1/locks/k/acquire", `{"wait":"30s"}`, patient + answer + "409 sent"},
			{"POST", "/v1/locks/new/acquire", ``, patient + answer + "200 sent"},
			{"POST", "/v1/locks/named/acquire", `{"id":"0123456789abcdefghijklmnopqrstuv","wait":"30s"}`, patient + answer + "200 sent"},
			{"POST", "/v1/elections/e/campaign", ``, patient + answer + "200 sent"},
			{"POST", "/v1/locks/k/acquire", `[]`, answer + "400 sent"},
			{"POST", "/v1/locks/other/break", fmt.Sprintf(`{"token":%d}`, other.Token), patient + answer + "200 sent"},
			{"DELETE", "/v1/leases/" + k.Lease, "", patient + answer + "204"}, // of which a recorder takes no body,
		} {
			r := httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, strings.NewReader(tc.body))
			if tc.body == "" {
				r = httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, nil)
			}
			r.Header.Set("Content-Type", "application/json")
			w := &timed{ResponseRecorder: httptest.NewRecorder()}
			if s.ServeHTTP(w, r); w.text != tc.want {
				t.Errorf("%s %s %s: %s, want %s", tc.method, tc.path, tc.body, w.text, tc.want)
			}
			if tc.method == "HEAD" && w.Body.Len() > 0 {
				t.Errorf("HEAD %s has a body: %s", tc.path, w.Body)
			}
		}
		stopped(t, s)
	})
}

// A stream says at once that it is one, and each event and sign of life has ten seconds to be written; it ends when that fails,
// when its client leaves, and when the server stops. What is asked for with HEAD ends with the headers.
func TestStreamDeadlines(t *testing.T) {
	leasetest.Bubble(t, func(t *testing.T) {
		s := started(t, memstore.New(), &serve.Options{Every: time.Hour})
		stream := func(ctx context.Context, method string, w *timed) <-chan struct{} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "/v1/events", nil))
			}()
			synctest.Wait()
			return done
		}
		const begins = "read none, write none, 200"
		head := &timed{ResponseRecorder: httptest.NewRecorder()}
		<-stream(t.Context(), "HEAD", head)
		if h := head.Header(); head.text != begins || head.Body.Len() > 0 || len(h) != 3 || h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("HEAD: %s %v %q", head.text, h, head.Body)
		}
		gone := &timed{ResponseRecorder: httptest.NewRecorder()}
		gone.deaf.Store(true)
		<-stream(t.Context(), "GET", gone)
		scraped(t, s).wants(t, "when its client is gone", scrape{"leasehold_serve_subscribers": 0})

		ctx, leave := context.WithCancel(t.Context())
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		left := stream(ctx, "GET", w)
		stays := stream(t.Context(), "GET", &timed{ResponseRecorder: httptest.NewRecorder()})
		deaf := &timed{ResponseRecorder: httptest.NewRecorder()}
		cut := stream(t.Context(), "GET", deaf)
		scraped(t, s).wants(t, "three", scrape{"leasehold_serve_subscribers": 3, `leasehold_serve_answers_total{status="200"}`: 6})
		deaf.deaf.Store(true)
		time.Sleep(15 * time.Second)
		<-cut
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if want := begins + strings.Repeat("write 10,  sent", 4); w.text != want || !strings.HasPrefix(w.Body.String(), "retry: 2000\n\nevent: snapshot\n") || !strings.HasSuffix(w.Body.String(), "\n\n:\n\n:\n\n") {
			t.Errorf("a stream: %s, want %s: %q", w.text, want, w.Body)
		}
		leave()
		<-left
		scraped(t, s).wants(t, "one", scrape{"leasehold_serve_subscribers": 1})
		stopped(t, s)
		<-stays
	})
}
