package peer_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/peer"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// TestChanged: over real TLS, whoever leaves a fair lock tells the process that has it now, which looks at once.
func TestChanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.client.Token, w.server.Token = "open-sesame", "open-sesame"
		st := faultstore.Wrap(w.st, nil)
		locks := map[string]*semaphore.Lock{}
		var ends []func()
		for _, name := range []string{"a", "b"} {
			client := newClient(t, &w.client)
			l := must(semaphore.NewLock(st, "jobs/l", &semaphore.Options{Holder: name, Address: address(name), TTL: time.Hour, Peers: client}))
			opts := w.server
			opts.Certificate, opts.Queues = w.Issue(t, host(name)), []peer.Queue{l}
			ends = append(ends, w.open(t, address(name), must(peer.NewServer(&opts))))
			locks[name] = l
		}
		held := must(locks["a"].Acquire(t.Context()))
		got := make(chan *leasehold.Lease)
		go func() { got <- must(locks["b"].Acquire(t.Context())) }()
		time.Sleep(9 * time.Hour)
		began := time.Now()
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease := <-got
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("it heard after %v", took)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		for _, l := range locks {
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for _, end := range ends {
			end()
		}
	})
}

// heard is a queue that counts what it hears.
type heard struct {
	key string
	of  []store.Version
}

func (h *heard) Key() string             { return h.key }
func (h *heard) Changed(v store.Version) { h.of = append(h.of, v) }

// TestChangedAnswers: what a handler says to words of changes, and what the client makes of that.
func TestChangedAnswers(t *testing.T) {
	t.Parallel()
	e, _, _ := lead(t, nil)
	one, two := &heard{key: "jobs/a&b"}, &heard{key: "jobs/a&b"}
	h := peer.NewHandler(&peer.HandlerOptions{Token: "open-sesame", Queues: []peer.Queue{one, two}}, e)
	ask := func(h http.Handler, method, query, token, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, peer.DefaultPath+"?"+query, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec
	}
	for _, c := range []struct {
		h                          http.Handler
		method, query, token, body string
		status                     int
		says                       string
	}{
		{h, "POST", "lock=jobs%2Fa%26b&version=v7", "open-sesame", "", 204, ""},
		{h, "POST", "lock=jobs%2Fa%26b&version=v7", "x", "", 401, "the bearer token is wrong"},
		{h, "POST", "lock=jobs%2Fa%26b&version=v7", "open-sesame", "x", 400, "has no body"},
		{h, "POST", "lock=other&version=v7", "open-sesame", "", 404, `no semaphore "other" here`},
		{h, "POST", "lock=jobs%2Fa%26b&lock=other", "open-sesame", "", 400, "comes 2 times"},
		{h, "PUT", "lock=jobs%2Fa%26b&version=v7", "open-sesame", "", 405, "use GET or HEAD"},
		{h, "GET", "", "open-sesame", "", 200, `"state":"held"`}, // of its one election
		{h, "GET", "lock=jobs%2Fa%26b", "open-sesame", "", 404, "there is no election"},
		{peer.NewHandler(nil, e), "POST", "lock=jobs%2Fa%26b&version=v7", "", "", 405, "use GET or HEAD"},
		{peer.NewHandler(&peer.HandlerOptions{Queues: []peer.Queue{&heard{key: "other"}}}, e), "GET", "", "", "", 200, `"state":"held"`},
		{peer.NewHandler(&peer.HandlerOptions{Queues: []peer.Queue{one}}), "GET", "", "", "", 400, "there are 0 elections here"},
	} {
		rec := ask(c.h, c.method, c.query, c.token, c.body)
		if rec.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s ?%s: its headers are %v", c.method, c.query, rec.Header())
		}
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.says) || c.status == 204 && rec.Body.Len() > 0 {
			t.Errorf("%s ?%s: %d %s, not %d with %q", c.method, c.query, rec.Code, rec.Body, c.status, c.says)
		}
	}
	for _, q := range []*heard{one, two} {
		if len(q.of) != 1 || q.of[0] != "v7" {
			t.Errorf("a queue has heard %q", q.of)
		}
	}
	if _, err := peer.NewServer(&peer.ServerOptions{Plain: true, Handler: h, HandlerOptions: peer.HandlerOptions{Queues: []peer.Queue{one}}}); err == nil || !strings.Contains(err.Error(), "give them to the Handler") {
		t.Errorf("made: %v", err)
	}
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	stranger := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(stranger.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client := func(token string) *peer.Client {
		c := must(peer.NewClient(&peer.ClientOptions{Token: token, RootCAs: roots}))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	known, wrong, closed := client("open-sesame"), client("x"), client("open-sesame")
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	there := server.Listener.Addr().String()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx          context.Context
		c            *peer.Client
		address, key string
		says         string
	}{
		{t.Context(), known, there, "jobs/a&b", ""},
		{t.Context(), known, there, "other", "it knows nothing of the semaphore"},
		{t.Context(), known, "nowhere", "jobs/a&b", "neither HOST:PORT nor an https URL"},
		{t.Context(), known, stranger.Listener.Addr().String(), "jobs/a&b", "it answers 418"},
		{t.Context(), wrong, there, "jobs/a&b", "it refuses the bearer token"},
		{t.Context(), closed, there, "jobs/a&b", peer.ErrClosed.Error()},
		{over, known, there, "jobs/a&b", context.Canceled.Error()},
	} {
		err := c.c.Changed(c.ctx, c.address, c.key, "v8")
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "telling "+c.address+": ")) {
			t.Errorf("telling %s of %q: %v, not %q", c.address, c.key, err, c.says)
		}
	}
	if len(one.of) != 2 || one.of[1] != "v8" {
		t.Errorf("a queue has heard %q", one.of)
	}
}

// A handler that nobody can ask and nobody can tell is a mistake.
func TestHandlerOfNothing(t *testing.T) {
	t.Parallel()
	if _, err := peer.NewServer(&peer.ServerOptions{Plain: true}); err == nil || !strings.Contains(err.Error(), "no election to answer for, and no semaphore") {
		t.Errorf("made: %v", err)
	}
}
