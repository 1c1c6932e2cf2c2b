package localhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/internal/servers"
)

// serveWith is serve, with options.
func serveWith(t *testing.T, address string, o localhttp.Options, h http.HandlerFunc) *localhttp.Server {
	t.Helper()
	s, err := localhttp.ListenWith(t.Context(), parsed(t, address), o)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(h, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := errors.Join(s.Stop(ctx), <-done); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return s
}

// A page of another origin gets no answer; one that the server has served does, and what is no page.
func TestOrigin(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64
	s := serveWith(t, "127.0.0.1:0", localhttp.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, status int, why string) {
		refused.Add(1)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "refused: "+why)
	}}, hello)
	for _, tc := range []struct {
		origins []string
		code    int
	}{
		{nil, 200},
		{[]string{"http://" + s.Address()}, 200},
		{[]string{"https://" + s.Address()}, 403},
		{[]string{"http://127.0.0.1"}, 403},
		{[]string{"http://localhost:1"}, 403},
		{[]string{"http://evil.example"}, 403},
		{[]string{"null"}, 403},
		{[]string{""}, 403},
		{[]string{"http://" + s.Address(), "http://evil.example"}, 403},
	} {
		got := ask(t, s, func(r *http.Request) { r.Header["Origin"] = tc.origins })
		if got.code != tc.code || (got.body == "hello") != (tc.code == 200) || tc.code != 200 && !strings.HasPrefix(got.body, "refused: ") {
			t.Errorf("%q: %+v", tc.origins, got)
		}
	}
	if n := refused.Load(); n != 7 {
		t.Errorf("%d were refused", n)
	}
}

// A request that has arrived is never cut off for connections that ask nothing, however long its answer takes; one
// whose body does not come is.
func TestConns(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan string, 2), make(chan bool)
	s := serveWith(t, "127.0.0.1:0", localhttp.Options{Conns: 4}, func(w http.ResponseWriter, r *http.Request) {
		begun <- r.Method
		_, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			<-finish
		}
		_, _ = io.WriteString(w, "hello")
	})
	answered := make(chan string, 1)
	go func() { answered <- ask(t, s, nil).body }()
	<-begun
	dial := func(text string) net.Conn {
		t.Helper()
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	slow := dial("POST / HTTP/1.1\r\nHost: " + s.Address() + "\r\nContent-Length: 10\r\n\r\nx")
	<-begun
	for range 20 {
		dial("")
	}
	_ = slow.SetReadDeadline(time.Now().Add(4 * time.Second)) // sooner than it would end by itself
	if _, err := slow.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the slow one: %v", err)
	} else if ne, is := errors.AsType[net.Error](err); is && ne.Timeout() {
		t.Error("the slow one stays, and keeps others out")
	}
	close(finish)
	if body := <-answered; body != "hello" {
		t.Errorf("the one that had asked: %q", body)
	}
}

// With TLS and an authority for clients, a certificate does for a token on any address.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority := servers.NewAuthority(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.PEM())
	config := &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, "127.0.0.1")}, MinVersion: tls.VersionTLS12}
	if _, err := localhttp.ListenWith(t.Context(), parsed(t, "0.0.0.0:0"), localhttp.Options{TLS: config}); !errors.Is(err, localhttp.ErrTokenNeeded) {
		t.Errorf("without a certificate of clients: %v", err)
	}
	config = config.Clone()
	config.ClientCAs, config.ClientAuth = pool, tls.RequireAndVerifyClientCert
	s := serveWith(t, "0.0.0.0:0", localhttp.Options{TLS: config}, hello)
	_, port, err := net.SplitHostPort(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	for what, certificates := range map[string][]tls.Certificate{"none": nil, "ours": {authority.Issue(t, "client")}, "a stranger's": {servers.NewAuthority(t).Issue(t, "client")}} {
		client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certificates, MinVersion: tls.VersionTLS12}}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.Do(r)
		if err == nil {
			_ = w.Body.Close()
		}
		if (err == nil) != (what == "ours") {
			t.Errorf("with the certificate %s: %v", what, err)
		}
	}
}
