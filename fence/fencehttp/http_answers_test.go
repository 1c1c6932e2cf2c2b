package fencehttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencehttp"
)

// Each refusal, as it goes over the wire. No test noticed when a title, a detail or a header
// was missing.
func TestAnswers(t *testing.T) {
	gate := fence.NewGate(new(fence.Memory))
	_, leave, err := gate.Enter(t.Context(), "/r", fence.Token(7))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	server := fencehttp.Middleware(gate, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		tokens []string
		status int
		newest string
		body   string
	}{
		{nil, 428, "", `{"title":"A token is required","status":428,"detail":"` + fence.ErrNoToken.Error() + `: send the one of your lease in the header Leasehold-Token"}`},
		{[]string{"x"}, 400, "", `{"title":"Not a token","status":400,"detail":"*"}`},
		{[]string{"0"}, 400, "", `{"title":"Not a token","status":400,"detail":"*"}`},
		{[]string{"8", "9"}, 400, "", `{"title":"Not a token","status":400,"detail":"*it is there 2 times"}`},
		{[]string{"6"}, 412, "7", `{"title":"Fenced","status":412,"detail":"*","resource":"/r","token":6,"newest":7}`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/r", nil)
		for _, token := range c.tokens {
			r.Header.Add("Leasehold-Token", token)
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		got := w.Result()
		before, after, _ := strings.Cut(c.body, "*")
		body := w.Body.String()
		if got.StatusCode != c.status || !strings.HasPrefix(body, before) || !strings.HasSuffix(body, after) || got.Header.Get("Leasehold-Token") != c.newest {
			t.Errorf("%q: %d, %q, %s\nwant %d, %q, %s", c.tokens, got.StatusCode, got.Header.Get("Leasehold-Token"), body, c.status, c.newest, c.body)
		}
		if h := got.Header; h.Get("Content-Type") != "application/problem+json" || h.Get("Content-Length") != strconv.Itoa(len(body)) || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%q: the headers are %v", c.tokens, h)
		}
	}
	w := httptest.NewRecorder()
	fencehttp.Error(w, errors.New("a secret"))
	if body := w.Body.String(); w.Code != 503 || body != `{"title":"The token could not be checked","status":503,"detail":"Nothing was done. Try again."}` {
		t.Errorf("any other error: %d %s", w.Code, body)
	}
}

// checked is a Checker with that answer.
type checked struct{ err error }

func (c checked) Check(context.Context, string, fence.Holder) error { return c.err }

// The log has why a Checker failed, and nothing of a stale token or of a client that has
// gone. No test noticed when it had. Without a logger, and without Optional, the same is
// answered.
func TestMiddlewareLogs(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		err    error
		logged bool
	}{
		{"the checker fails", t.Context(), errors.New("no database"), true},
		{"the token is stale", t.Context(), &fence.FencedError{Resource: "/r", Token: 1, Newest: 2}, false},
		{"the client has gone", gone, errors.New("no database"), false},
	} {
		var logged bytes.Buffer
		var codes []int
		for _, o := range []*fencehttp.Options{nil, {Logger: slog.New(slog.NewTextHandler(&logged, nil))}} {
			server := fencehttp.Middleware(fence.NewGate(checked{c.err}), o)(http.NotFoundHandler())
			r := httptest.NewRequestWithContext(c.ctx, http.MethodPost, "/r", nil)
			r.Header.Set("Leasehold-Token", "1")
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			codes = append(codes, w.Code)
		}
		if codes[0] != codes[1] || codes[0] == http.StatusNotFound {
			t.Errorf("%s: %v", c.name, codes)
		}
		if text := logged.String(); (text != "") != c.logged || c.logged && !strings.Contains(text, "resource=/r token=1 error=\"no database\"") {
			t.Errorf("%s: logged %q", c.name, text)
		}
	}
}

// Where a token is optional for a request, the handler serves it without one; with one that
// is wrong it is refused all the same. No test noticed when the handler was not called.
func TestOptionalTokens(t *testing.T) {
	served := 0
	server := fencehttp.Middleware(fence.NewGate(new(fence.Memory)), &fencehttp.Options{
		Optional: func(r *http.Request) bool { return r.Method == http.MethodGet },
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for _, c := range []struct {
		method, token string
		status, serve int
	}{
		{http.MethodGet, "", 200, 1}, {http.MethodPost, "", 428, 0}, {http.MethodGet, "rubbish", 400, 0}, {http.MethodGet, "3", 200, 1}, {http.MethodGet, "2", 412, 0},
	} {
		served = 0
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/r", nil)
		if c.token != "" {
			r.Header.Set("Leasehold-Token", c.token)
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != c.status || served != c.serve {
			t.Errorf("%s with %q: %d, served %d times, want %d, %d", c.method, c.token, w.Code, served, c.status, c.serve)
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that does not answer fences nobody, and its error is that of the request. No test
// noticed when a missing answer was looked at. The resource in the error is the URL without
// user, query and fragment.
func TestTransportWithoutAnAnswer(t *testing.T) {
	broken := errors.New("connection reset")
	client := &fencehttp.Transport{Holder: fence.Token(3), Base: transport(func(*http.Request) (*http.Response, error) { return nil, broken })}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://service.example/r", nil)
	if resp, err := client.RoundTrip(r); resp != nil || !errors.Is(err, broken) { //nolint:bodyclose // there is none
		t.Errorf("%v, %v", resp, err)
	}
	at := &url.URL{Scheme: "http", Host: "service.example", Path: "/r", RawQuery: "q=1", Fragment: "here", User: url.UserPassword("u", "p")}
	for newest, want := range map[string]leasehold.Token{"": 0, "rubbish": 0, "2": 0, "3": 0, "4": 4} {
		resp := &http.Response{StatusCode: http.StatusPreconditionFailed, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: &http.Request{URL: at, Header: http.Header{"Leasehold-Token": {"3"}}}}
		if newest != "" {
			resp.Header.Set("Leasehold-Token", newest)
		}
		err := fencehttp.FromResponse(resp)
		got, fenced := errors.AsType[*fence.FencedError](err)
		if fenced != (want > 0) || fenced && *got != (fence.FencedError{Resource: "http://service.example/r", Token: 3, Newest: want}) {
			t.Errorf("a 412 with %q as the newest: %v", newest, err)
		}
	}
	if got := fmt.Sprint(fencehttp.FromResponse(&http.Response{StatusCode: http.StatusPreconditionFailed})); got != "<nil>" {
		t.Errorf("an answer without its request: %s", got)
	}
}
