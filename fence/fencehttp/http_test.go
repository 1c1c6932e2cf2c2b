package fencehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/fence"
	"github.com/leasehold/leasehold/fence/fencehttp"
	"github.com/leasehold/leasehold/internal/fencecheck"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// serve starts a server with the handler behind a gate.
func serve(t *testing.T, g *fence.Gate, opts *fencehttp.Options, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(fencehttp.Middleware(g, opts)(handler))
	t.Cleanup(server.Close)
	return server
}

// An answer is a response whose body has been read and closed.
type answer struct {
	*http.Response
	body string
}

// send sends a request with a body, and with the headers Leasehold-Token given.
func send(ctx context.Context, t *testing.T, transport http.RoundTripper, method, url string, tokens ...string) (answer, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("the body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header[fencehttp.Header] = tokens
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if len(r.Header.Values(fencehttp.Header)) != len(tokens) {
		t.Error("the caller's own request was changed")
	}
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body)}, err
}

// ask sends a request that must be answered.
func ask(t *testing.T, method, url string, tokens ...string) answer {
	t.Helper()
	got, err := send(t.Context(), t, nil, method, url, tokens...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestMiddleware(t *testing.T) {
	g := fence.NewGate(&fence.Memory{})
	server := serve(t, g, &fencehttp.Options{
		Optional: func(r *http.Request) bool { return r.Method == http.MethodGet },
	}, func(w http.ResponseWriter, r *http.Request) {
		if h := fence.HolderFrom(r.Context()); h != nil {
			fmt.Fprintf(w, "token %v", h.Token())
		}
	})
	for _, step := range []struct {
		method, path string
		tokens       []string
		status       int
		body         string // a part of it
	}{
		{"PUT", "/a", []string{"7"}, 200, "token 7"},
		{"PUT", "/a", []string{"7"}, 200, "token 7"},
		{"PUT", "/a", []string{"6"}, 412, ""},
		{"GET", "/a", []string{"6"}, 412, ""},
		{"PUT", "/b", []string{"6"}, 200, "token 6"},
		{"PUT", "/a", []string{"9223372036854775807"}, 200, "token 9223372036854775807"},
		{"PUT", "/b", nil, 428, "send the one of your lease in the header Leasehold-Token"},
		{"GET", "/b", nil, 200, ""},
		{"PUT", "/b", []string{"8", "8"}, 400, "it is there 2 times"},
		{"GET", "/b", []string{"rubbish"}, 400, `\"rubbish\" is not a token`},
		{"PUT", "/b", []string{""}, 400, "not a token"},
		{"PUT", "/b", []string{"0"}, 400, "not a token"},
		{"PUT", "/b", []string{"-9"}, 400, "not a token"},
		{"PUT", "/b", []string{"+9"}, 400, "not a token"},
		{"PUT", "/b", []string{"9, 9"}, 400, "not a token"},
		{"PUT", "/b", []string{"99999999999999999999"}, 400, "not a token"},
		{"PUT", "/b", []string{"6"}, 200, "token 6"}, // nothing of that was remembered
	} {
		got := ask(t, step.method, server.URL+step.path, step.tokens...)
		if got.StatusCode != step.status || !strings.Contains(got.body, step.body) {
			t.Errorf("%s %s %q: %d %s, want %d %s", step.method, step.path, step.tokens, got.StatusCode, got.body, step.status, step.body)
		}
		if kind := got.Header.Get("Content-Type"); (kind == "application/problem+json") != (step.status != 200) {
			t.Errorf("%s %s %q: %d has the type %q", step.method, step.path, step.tokens, step.status, kind)
		}
	}
	wantNobody(t, g, "/a", "/b")
}

func TestMiddlewareSaysWhatIsNewest(t *testing.T) {
	server := serve(t, fence.NewGate(&fence.Memory{}), &fencehttp.Options{
		Resource: func(*http.Request) string { return "the ledger" },
	}, func(http.ResponseWriter, *http.Request) {})
	ask(t, "PUT", server.URL+"/a", "43")
	refused := ask(t, "PUT", server.URL+"/b", "42")
	var got map[string]any
	if err := json.Unmarshal([]byte(refused.body), &got); err != nil {
		t.Fatalf("%v: %s", err, refused.body)
	}
	want := map[string]any{
		"title": "Fenced", "status": 412.0, "resource": "the ledger", "token": 42.0, "newest": 43.0,
		"detail": "the ledger refuses token 42: a holder with token 43 has claimed it",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || refused.Header.Get(fencehttp.Header) != "43" {
		t.Errorf("got  %v, %s %q\nwant %v", got, fencehttp.Header, refused.Header.Get(fencehttp.Header), want)
	}
}

// failing is a checker that cannot be asked.
type failing struct{ err error }

func (f failing) Check(context.Context, string, fence.Holder) error { return f.err }

// wantNobody checks that nobody is left inside: one who comes later need not wait.
func wantNobody(t *testing.T, g *fence.Gate, resources ...string) {
	t.Helper()
	for _, resource := range resources {
		_, leave, err := g.Enter(t.Context(), resource, fence.Token(math.MaxInt64))
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
}

// A request whose check fails does not get in, and the client is not told why.
func TestMiddlewareFailsClosed(t *testing.T) {
	var log bytes.Buffer
	down := errors.New("password authentication failed")
	server := serve(t, fence.NewGate(failing{down}), &fencehttp.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
	if got := ask(t, "PUT", server.URL, "1"); got.StatusCode != http.StatusServiceUnavailable || strings.Contains(got.body, "password") {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	if !strings.Contains(log.String(), down.Error()) {
		t.Errorf("the log does not say why: %s", &log)
	}
}

// Without a Logger it is logged all the same.
func TestMiddlewareLogsByDefault(t *testing.T) {
	var text leasetest.Log
	leasetest.LogByDefault(t, &text)
	server := serve(t, fence.NewGate(failing{errors.New("password authentication failed")}), nil, nil)
	ask(t, "PUT", server.URL, "1")
	server.Close()
	if !strings.Contains(text.String(), "password authentication failed") {
		t.Errorf("the log does not say why: %s", &text)
	}
}

// A is in its handler, and paused there; B comes, and is served once A has given up.
func TestMiddlewareDrains(t *testing.T) {
	entered, gone := make(chan struct{}), make(chan error, 1)
	g := fence.NewGate(&fence.Memory{})
	server := serve(t, g, nil, func(_ http.ResponseWriter, r *http.Request) {
		if fence.HolderFrom(r.Context()).Token() > 1 {
			if len(gone) == 0 {
				t.Error("B is served while A is inside")
			}
			return
		}
		close(entered)
		<-r.Context().Done()
		gone <- context.Cause(r.Context())
		panic(http.ErrAbortHandler) // leaves the gate all the same
	})
	first := make(chan error, 1)
	go func() {
		_, err := send(t.Context(), t, nil, "PUT", server.URL+"/r", "1")
		first <- err
	}()
	<-entered
	if got := ask(t, "PUT", server.URL+"/r", "2"); got.StatusCode != http.StatusOK {
		t.Errorf("B: %d %s", got.StatusCode, got.body)
	}
	fencecheck.Refused(t, <-gone, "/r", 1, 2)
	if err := <-first; err == nil {
		t.Error("A has got an answer, although its handler panicked")
	}
	server.Close()
	wantNobody(t, g, "/r")
}

// The optional methods of a ResponseWriter still work behind the middleware.
func TestMiddlewareKeepsResponseWriter(t *testing.T) {
	server := serve(t, fence.NewGate(&fence.Memory{}), nil, func(w http.ResponseWriter, _ *http.Request) {
		if _, ok := w.(http.Flusher); !ok {
			t.Error("no Flusher")
		}
		hijacker, ok := w.(http.Hijacker)
		if !ok {
			t.Error("no Hijacker")
			return
		}
		conn, _, err := hijacker.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 299 Mine\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	})
	if got := ask(t, "PUT", server.URL, "1"); got.StatusCode != 299 {
		t.Errorf("got %s", got.Status)
	}
}

// A handler whose own write is refused answers so that its client's lease ends.
func TestTransport(t *testing.T) {
	var m fence.Memory
	lease := fencecheck.Lease(t)
	newest := fence.Token(lease.Token() + 1)
	server := serve(t, fence.NewGate(&m), nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/further" {
			fencehttp.Error(w, fence.Refuse(fence.HolderFrom(r.Context()), "a table", newest.Token()))
			return
		}
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != "the body" {
			t.Errorf("the server got %q, %v", body, err)
		}
		fmt.Fprint(w, fence.HolderFrom(r.Context()).Token())
	})
	for name, call := range map[string]struct {
		ctx       context.Context
		transport *fencehttp.Transport
	}{
		"its own holder": {t.Context(), &fencehttp.Transport{Holder: lease}},
		"the context's":  {fence.WithHolder(t.Context(), lease), &fencehttp.Transport{}},
	} {
		got, err := send(call.ctx, t, call.transport, "PUT", server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if refused := fencehttp.FromResponse(got.Response); got.body != lease.Token().String() || refused != nil || lease.Err() != nil {
			t.Errorf("%s: the server saw %s; %v; %v", name, got.body, refused, lease.Err())
		}
	}

	at := server.URL + "/further"
	got, err := send(t.Context(), t, &fencehttp.Transport{Holder: lease}, "PUT", at+"?query")
	if err != nil {
		t.Fatal(err)
	}
	fencecheck.Refused(t, fencehttp.FromResponse(got.Response), at, lease.Token(), newest.Token())
	fencecheck.Lost(t, lease, at, newest.Token())
	if !strings.Contains(got.body, `"resource":"a table"`) {
		t.Errorf("the answer has lost its body: %q", got.body)
	}

	if _, err := send(t.Context(), t, &fencehttp.Transport{Holder: lease}, "PUT", server.URL); !errors.Is(err, leasehold.ErrLost) {
		t.Errorf("with a lease that was lost: %v", err)
	}
	if _, err := send(t.Context(), t, &fencehttp.Transport{}, "PUT", server.URL); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("with no holder at all: %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestTransportSendsNothing(t *testing.T) {
	body := &closer{Reader: strings.NewReader("the body")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost/", body)
	if err != nil {
		t.Fatal(err)
	}
	transport := &fencehttp.Transport{Holder: fence.Token(0), Base: roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("it was sent")
	})}
	resp, err := transport.RoundTrip(r)
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, fence.ErrNoToken) || !body.closed {
		t.Errorf("got %v; body closed: %t", err, body.closed)
	}
}

// Only a 412 that names a larger token is a fence's word.
func TestFromResponse(t *testing.T) {
	for _, tc := range []struct {
		status       int
		sent, newest []string
		fenced       bool
	}{
		{412, []string{"5"}, []string{"6"}, true},
		{409, []string{"5"}, []string{"6"}, false},
		{200, []string{"5"}, []string{"6"}, false},
		{412, []string{"5"}, nil, false}, // an If-Match that failed
		{412, []string{"5"}, []string{"5"}, false},
		{412, []string{"5"}, []string{"4"}, false},
		{412, []string{"5"}, []string{"rubbish"}, false},
		{412, []string{"5"}, []string{"6", "7"}, false},
		{412, nil, []string{"6"}, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "https://user:secret@host:8443/a/b?key=secret", http.NoBody)
		r.Header[fencehttp.Header] = tc.sent
		err := fencehttp.FromResponse(&http.Response{StatusCode: tc.status, Header: http.Header{fencehttp.Header: tc.newest}, Request: r})
		if !tc.fenced {
			if err != nil {
				t.Errorf("%d, sent %q, newest %q: %v", tc.status, tc.sent, tc.newest, err)
			}
			continue
		}
		fencecheck.Refused(t, err, "https://host:8443/a/b", 5, 6)
	}
	if err := fencehttp.FromResponse(&http.Response{StatusCode: 412, Header: http.Header{fencehttp.Header: {"6"}}}); err != nil {
		t.Errorf("an answer to no known request: %v", err)
	}
}
