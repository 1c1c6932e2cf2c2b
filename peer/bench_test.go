package peer_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
)

// BenchmarkAnswer is one answer without a network.
func BenchmarkAnswer(b *testing.B) {
	e, _, _ := lead(b, nil)
	h := peer.NewHandler(nil, e)
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, peer.DefaultPath+"?lock=leaders%2Fscheduler&holder=web-2&waited=1m", nil)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// BenchmarkAsk is one question and its answer on a connection over TLS and TCP, both
// sides; with connect it makes the connection too.
func BenchmarkAsk(b *testing.B) {
	a := servers.NewAuthority(b)
	e, _, _ := lead(b, nil)
	s := start(b, &peer.ServerOptions{Certificate: a.Issue(b, "127.0.0.1")}, e)
	opts := &peer.ClientOptions{RootCAs: rootsOf(b, a)}
	ask := func(b *testing.B, c *peer.Client) {
		b.Helper()
		if _, err := c.Ask(b.Context(), s.Addr().String(), now); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("again", func(b *testing.B) {
		c := newClient(b, opts)
		b.ReportAllocs()
		for b.Loop() {
			ask(b, c)
		}
	})
	b.Run("connect", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c := must(peer.NewClient(opts))
			ask(b, c)
			_ = c.Close()
		}
	})
}
