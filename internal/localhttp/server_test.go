package localhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/internal/pipenet"
	"github.com/leasehold/leasehold/internal/servers"
)

// serve serves with h until the end of the test, and returns the server's address.
func serve(t *testing.T, address string, token localhttp.Token, h http.HandlerFunc) *localhttp.Server {
	t.Helper()
	s := listen(t, address, token)
	done := make(chan error, 1)
	go func() { done <- s.Serve(h, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
		defer cancel()
		if err := errors.Join(s.Stop(ctx), <-done); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return s
}

func listen(t *testing.T, address string, token localhttp.Token) *localhttp.Server {
	t.Helper()
	s, err := localhttp.Listen(t.Context(), parsed(t, address), token)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return s
}

func parsed(t *testing.T, address string) localhttp.Address {
	t.Helper()
	a, err := localhttp.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func secret(t *testing.T) localhttp.Token {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := localhttp.ReadToken(file)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

type answer struct {
	code   int
	header http.Header
	body   string
}

// ask makes a request with a connection of its own.
func ask(t *testing.T, s *localhttp.Server, change func(*http.Request)) answer {
	t.Helper()
	network, address, found := strings.Cut(s.Address(), ":")
	if network != "unix" || !found {
		network, address = "tcp", s.Address()
	}
	return askBy(t, s, func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), network, address)
		if err != nil {
			t.Error(err)
			return new(net.TCPConn)
		}
		return c
	}, change)
}

// askBy is ask, by the connection that dial makes.
func askBy(t *testing.T, s *localhttp.Server, dial func() net.Conn, change func(*http.Request)) answer {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
	}}
	host := s.Address()
	if strings.HasPrefix(host, "unix:") {
		host = "leasehold"
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{w.StatusCode, w.Header, string(body)}
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// With a token, nothing is answered to those that do not bear it, on whatever path.
func TestToken(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		s := serve(t, address, secret(t), hello)
		for _, tc := range []struct {
			header    string
			status    int
			challenge string
		}{
			{"", 401, "Bearer"},
			{"Basic secret", 401, "Bearer"},
			{"Basic " + base64.StdEncoding.EncodeToString([]byte("secret")), 401, "Bearer"}, // no password
			{"Basic " + base64.StdEncoding.EncodeToString([]byte("secret:")), 401, `Bearer error="invalid_token"`},
			{"Basic " + base64.StdEncoding.EncodeToString([]byte("secret:secre")), 401, `Bearer error="invalid_token"`},
			{"Basic " + base64.StdEncoding.EncodeToString([]byte(":secret")), 200, ""},
			{"Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:secret")), 200, ""},
			{"Digest secret", 401, "Bearer"},
			{"Bearer", 401, `Bearer error="invalid_token"`},
			{"Bearer secre", 401, `Bearer error="invalid_token"`},
			{"Bearer secret2", 401, `Bearer error="invalid_token"`},
			{"Bearer secret", 200, ""},
			{"bearer  secret", 200, ""},
		} {
			got := ask(t, s, func(r *http.Request) { r.Header.Set("Authorization", tc.header); r.URL.Path = "/any" })
			// A browser asks its user for a password by the second challenge.
			challenges := []string{tc.challenge, `Basic realm="leasehold", charset="UTF-8"`}
			if tc.challenge == "" {
				challenges = nil
			}
			if got.code != tc.status || !slices.Equal(got.header.Values("WWW-Authenticate"), challenges) || got.header.Get("Cache-Control") != "no-store" || (got.body == "hello") != (tc.status == 200) {
				t.Errorf("%s, %q: %+v", address, tc.header, got)
			}
		}
	}
}

// Without a token nothing listens where others can reach it.
func TestTokenNeeded(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "host.example:0"} {
		if s, err := localhttp.Listen(t.Context(), parsed(t, address), localhttp.Token{}); !errors.Is(err, localhttp.ErrTokenNeeded) {
			t.Errorf("%s: %v, %v", address, s, err)
		}
	}
}

// A page whose own name leads to a loopback address gets no answer there.
func TestRebinding(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", localhttp.Token{}, hello)
	u := serve(t, "unix:"+filepath.Join(t.TempDir(), "s"), localhttp.Token{}, hello)
	for host, want := range map[string]int{
		"evil.example": 421, "evil.example:4040": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "a:b:c": 421,
		"localhost": 200, "localhost:1": 200, "127.0.0.1": 200, "127.0.0.1:1": 200, "[::1]:1": 200, "[::1]": 200,
	} {
		if got := ask(t, s, func(r *http.Request) { r.Host = host }); got.code != want || (got.body == "hello") != (want == 200) {
			t.Errorf("%s: %+v", host, got)
		}
		if got := ask(t, u, func(r *http.Request) { r.Host = host }); got.code != 200 {
			t.Errorf("%s by a socket: %+v", host, got)
		}
	}
}

// A page of another site causes nothing here, though browsers name no origin for what it shows: but a link may lead here.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", localhttp.Token{}, hello)
	for _, tc := range []struct {
		method, site, mode, dest, origin string
		want                             int
	}{
		{"GET", "", "", "", "", 200}, // no browser
		{"GET", "none", "navigate", "document", "", 200},
		{"GET", "same-origin", "cors", "empty", "", 200},
		{"POST", "same-origin", "cors", "empty", "http://" + s.Address(), 200},
		{"GET", "cross-site", "navigate", "document", "", 200},
		{"GET", "same-site", "navigate", "document", "", 200},
		{"GET", "cross-site", "navigate", "iframe", "", 403},
		{"GET", "cross-site", "no-cors", "image", "", 403},
		{"GET", "same-site", "no-cors", "script", "", 403}, // of another port of this machine
		{"POST", "cross-site", "navigate", "document", "", 403},
		{"GET", "cross-site", "navigate", "document", "null", 403},
		{"GET", "same-origin", "cors", "empty", "http://evil.example", 403},
	} {
		got := ask(t, s, func(r *http.Request) {
			r.Method = tc.method
			for name, value := range map[string]string{"Sec-Fetch-Site": tc.site, "Sec-Fetch-Mode": tc.mode, "Sec-Fetch-Dest": tc.dest, "Origin": tc.origin} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
		})
		if got.code != tc.want || (got.body == "hello") != (tc.want == 200) {
			t.Errorf("%+v: %+v", tc, got)
		}
	}
}

// One client takes no more than there is, and keeps nobody out: of connections that ask nothing the oldest is closed.
// It used to be the newest, so that a flood kept everybody out.
func TestBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const flood = 200
		s, dial, stop := serveInMemory(t, localhttp.Options{})
		ended := make(chan int, flood)
		began := time.Now()
		for i := range flood { // and say nothing
			c := dial()
			go func() {
				_, _ = io.Copy(io.Discard, c)
				ended <- i
			}()
			synctest.Wait() // it is the newest
		}
		for range flood - localhttp.DefaultConns { // at once, while those after them have time for a request
			if i := <-ended; i >= flood-localhttp.DefaultConns {
				t.Errorf("connection %d ended before those that are older", i)
			}
		}
		if got := askBy(t, s, dial, nil); got.code != 200 {
			t.Errorf("one that asks meanwhile: %+v", got)
		}
		<-ended // another one was closed for it
		if took := time.Since(began); took != 0 {
			t.Errorf("that took %v", took)
		}
		for range localhttp.DefaultConns - 1 { // when they have taken too long
			<-ended
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("connections without a request were closed after %v", took)
		}
		if got := askBy(t, s, dial, nil); got.code != 200 {
			t.Errorf("after all that: %+v", got)
		}
		if got := askBy(t, s, dial, func(r *http.Request) { r.Header.Set("X", strings.Repeat("x", 32<<10)) }); got.code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("32 KiB of headers: %+v", got)
		}
		stop()
	})
}

// What a client begins and does not end is cut off when its time is over, wherever it has stopped; and a number of
// connections of its own can be given.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, dial, stop := serveInMemory(t, localhttp.Options{Conns: 4})
		var each sync.WaitGroup
		for _, text := range []string{
			"", "GET / HT", "GET / HTTP/1.1\r\nHost: localhost\r\nX: y\r\n", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf",
		} {
			c, began := dial(), time.Now()
			each.Go(func() {
				go func() { _, _ = io.WriteString(c, text) }()
				_, _ = io.Copy(io.Discard, c)
				if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
					t.Errorf("%q was cut off after %v", text, took)
				}
			})
		}
		each.Wait()
		stop()
	})
}

// serveInMemory serves in a bubble, where dial makes a connection; stop must be called.
func serveInMemory(t *testing.T, o localhttp.Options) (s *localhttp.Server, dial func() net.Conn, stop func()) {
	t.Helper()
	l := pipenet.Loopback(4040)
	s, err := localhttp.Over(l, o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(http.HandlerFunc(readAll), slog.New(slog.DiscardHandler)) }()
	dial = func() net.Conn {
		c, err := l.DialContext(t.Context(), "", "")
		if err != nil {
			t.Error(err)
			return new(net.TCPConn)
		}
		return c
	}
	return s, dial, func() {
		if err := errors.Join(s.Stop(t.Context()), <-done); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}
}

// readAll answers when it has read a request.
func readAll(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	hello(w, r)
}

// A listener that others can reach needs a token, and is closed where there is none.
func TestOver(t *testing.T) {
	t.Parallel()
	for _, addr := range []net.Addr{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, &net.UnixAddr{Name: "x", Net: "unix"}} {
		l := pipenet.Listen(addr)
		if s, err := localhttp.Over(l, localhttp.Options{}); !errors.Is(err, localhttp.ErrTokenNeeded) || !strings.Contains(err.Error(), strings.TrimSuffix(addr.String(), ":1")) {
			t.Errorf("%v: %v, %v", addr, s, err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v: it is open: %v", addr, err)
		}
	}
}

// Stop lets the request under way be answered, and nothing listens afterwards.
func TestStop(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan bool), make(chan bool)
	s := listen(t, "127.0.0.1:0", localhttp.Token{})
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-finish
			_, _ = io.WriteString(w, "hello")
		}), slog.New(slog.DiscardHandler))
	}()
	answered := make(chan string, 1)
	go func() { answered <- ask(t, s, nil).body }()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(t.Context()) }()
	if err := <-served; err != nil { // which ends before the request
		t.Error(err)
	}
	close(finish)
	if body := <-answered; body != "hello" {
		t.Errorf("the request under way was answered with %q", body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Address()); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}

// A server that never served can be stopped.
func TestStopUnserved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s := listen(t, "unix:"+path, localhttp.Token{})
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket: %v", err)
	}
}

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
