package peer_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/peer"
)

func TestServerOptions(t *testing.T) {
	t.Parallel()
	e, _, _ := lead(t, nil)
	a := servers.NewAuthority(t)
	cert, handler := a.Issue(t, "a.test"), peer.NewHandler(nil, e)
	for want, opts := range map[string]*peer.ServerOptions{
		"no certificate: set Certificate, or Plain": nil,
		"MaxConns is negative":                      {Certificate: cert, MaxConns: -1},
		`path "health" must begin with a slash`:     {Certificate: cert, Path: "health"},
		`path "/x?y" must begin with a slash`:       {Certificate: cert, Path: "/x?y"},
		"end of a line":                             {Certificate: cert, HandlerOptions: peer.HandlerOptions{Token: "x\n"}},
		"with Plain there is no TLS":                {Certificate: cert, Plain: true},
		"ClientCAs and TLS, or Plain":               {TLS: &tls.Config{}, Plain: true},
		"a Handler: give them to the Handler":       {Certificate: cert, Handler: handler, HandlerOptions: peer.HandlerOptions{MaxWait: 1}},
		"HandlerOptions and a Handler":              {Certificate: cert, Handler: handler, HandlerOptions: peer.HandlerOptions{MaxWaiting: 1}},
		"there are HandlerOptions":                  {Certificate: cert, Handler: handler, HandlerOptions: peer.HandlerOptions{Render: func(peer.Leadership) any { return 1 }}},
		"leave out Certificate, ClientCAs and TLS":  {ClientCAs: x509.NewCertPool(), Plain: true},
		"would not ask for a certificate":           {Certificate: cert, ClientCAs: x509.NewCertPool(), TLS: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }}}, //nolint:nilnil // as its documentation says
		"give them to the Handler":                  {Certificate: cert, Handler: handler, HandlerOptions: peer.HandlerOptions{Token: "x"}},
		"give the elections to the Handler":         {Certificate: cert, Handler: handler},
	} {
		if _, err := peer.NewServer(opts, e); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "peer server: ") {
			t.Errorf("%+v: %v, not %q", opts, err, want)
		}
	}
	own := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }} //nolint:nilnil // as its documentation says
	if _, err := peer.NewServer(&peer.ServerOptions{TLS: own}, e); err != nil {
		t.Errorf("with certificates that its TLS chooses: %v", err)
	}
	if _, err := peer.NewServer(&peer.ServerOptions{Certificate: cert}); err == nil || !strings.Contains(err.Error(), "no election") {
		t.Errorf("without elections: %v", err)
	}
	if _, err := peer.NewServer(&peer.ServerOptions{Certificate: cert}, e, e); err == nil || !strings.Contains(err.Error(), "two elections") {
		t.Errorf("with one election twice: %v", err)
	}
	if _, err := peer.ParseCAs([]byte("rubbish")); err == nil {
		t.Error("rubbish is taken for authorities")
	}
}

// start starts a server on a port of this host and stops it at the end.
func start(t testing.TB, opts *peer.ServerOptions, elections ...*leasehold.Election) *peer.Server {
	t.Helper()
	if opts.Addr == "" {
		opts.Addr = "127.0.0.1:0"
	}
	s, err := peer.NewServer(opts, elections...)
	if err != nil {
		t.Fatal(err)
	}
	if s.Addr() != nil {
		t.Errorf("before it has started it listens on %v", s.Addr())
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newClient(t testing.TB, opts *peer.ClientOptions) *peer.Client {
	t.Helper()
	c, err := peer.NewClient(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var now = peer.Question{Lock: key, Holder: "web-2"}

// TestAccess: over TCP, a client with the right certificate and token gets an answer,
// and another is told what is wrong on its side.
func TestAccess(t *testing.T) {
	t.Parallel()
	ours, theirs := servers.NewAuthority(t), servers.NewAuthority(t)
	e, lease, _ := lead(t, &leasehold.ElectionOptions{LockOptions: leasehold.LockOptions{Holder: "web-1"}})
	cert := ours.Issue(t, "127.0.0.1", "leader.test")
	mutual := peer.ServerOptions{Certificate: cert, ClientCAs: rootsOf(t, ours)}
	open := peer.ServerOptions{Certificate: cert}
	token := peer.ServerOptions{Certificate: cert, HandlerOptions: peer.HandlerOptions{Token: "open-sesame"}}
	other := peer.ServerOptions{Certificate: ours.Issue(t, "other.test")}
	reloaded := peer.ServerOptions{TLS: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }}}
	given := peer.ServerOptions{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}
	elsewhere := peer.ServerOptions{Certificate: cert, Path: "/other"}
	trusting := peer.ClientOptions{RootCAs: rootsOf(t, ours)}
	with := func(change func(*peer.ClientOptions)) peer.ClientOptions {
		opts := trusting
		change(&opts)
		return opts
	}
	for _, tc := range []struct {
		name   string
		server peer.ServerOptions
		client peer.ClientOptions
		want   []string // of the error; nil: there is none
	}{
		{"open", open, trusting, nil},
		{"reloaded", reloaded, trusting, nil},
		{"given with its TLS", given, trusting, nil},
		{"other authority", open, peer.ClientOptions{RootCAs: rootsOf(t, theirs)}, []string{"certificate is not accepted", "unknown authority", "check RootCAs"}},
		{"system's authorities", open, peer.ClientOptions{}, []string{"certificate is not accepted"}},
		{"other name", other, trusting, []string{"certificate is not accepted", "127.0.0.1", "check RootCAs, and the names"}},
		{"server name", other, with(func(o *peer.ClientOptions) { o.ServerName = "other.test" }), nil},
		{"wrong server name", open, with(func(o *peer.ClientOptions) { o.ServerName = "other.test" }), []string{"certificate is not accepted", "other.test"}},
		{"mutual", mutual, with(func(o *peer.ClientOptions) { o.Certificate = ours.Issue(t, "web-2") }), nil},
		{"mutual, given with its TLS", mutual, with(func(o *peer.ClientOptions) {
			o.TLS = &tls.Config{Certificates: []tls.Certificate{ours.Issue(t, "web-2")}}
		}), nil},
		{"mutual, no certificate", mutual, trusting, []string{"refuses this side's TLS", "ClientCAs"}},
		{"mutual, other's certificate", mutual, with(func(o *peer.ClientOptions) { o.Certificate = theirs.Issue(t, "web-2") }), []string{"refuses this side's TLS", "ClientCAs"}},
		{"token", token, with(func(o *peer.ClientOptions) { o.Token = "open-sesame" }), nil},
		{"no token", token, trusting, []string{"refuses the bearer token", "401", "same Token"}},
		{"wrong token", token, with(func(o *peer.ClientOptions) { o.Token = "sesame" }), []string{"refuses the bearer token", "401", "same Token"}},
		{"other path", elsewhere, trusting, []string{"knows nothing of the lock, or of the path /health/leadership", "404"}},
		{"same path", elsewhere, with(func(o *peer.ClientOptions) { o.Path = "/other" }), nil},
		{"TLS 1.2", open, with(func(o *peer.ClientOptions) { o.TLS = &tls.Config{MaxVersion: tls.VersionTLS12} }), nil},
		{"no TLS", peer.ServerOptions{Plain: true}, trusting, []string{"does not speak TLS"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			address := start(t, &tc.server, e).Addr().String()
			said, err := newClient(t, &tc.client).Ask(t.Context(), address, now)
			// A server that refuses a certificate sends an alert and closes. If the request arrives after that, TCP resets
			// the connection and may drop the alert.
			for range 100 {
				if tc.want == nil || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					break
				}
				said, err = newClient(t, &tc.client).Ask(t.Context(), address, now)
			}
			switch {
			case tc.want == nil && (err != nil || !said.Leading || said.Token != int64(lease.Token()) || said.Holder != "web-1" || said.Lock != key):
				t.Errorf("got %+v: %v", said, err)
			case tc.want != nil && err == nil:
				t.Errorf("got an answer: %+v", said)
			}
			for _, want := range append(tc.want, address) {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
		})
	}
}

// TestOldTLS: neither side speaks TLS 1.1, whatever its configuration says.
func TestOldTLS(t *testing.T) {
	t.Parallel()
	a := servers.NewAuthority(t)
	e, _, _ := lead(t, nil)
	cert := a.Issue(t, "127.0.0.1")
	old := &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, RootCAs: rootsOf(t, a), Certificates: []tls.Certificate{cert}}
	lenient := &tls.Config{MinVersion: tls.VersionTLS10}
	s := start(t, &peer.ServerOptions{Certificate: cert, TLS: lenient}, e)
	if c, err := (&tls.Dialer{Config: old}).DialContext(t.Context(), "tcp", s.Addr().String()); err == nil {
		c.Close()
		t.Error("the server speaks TLS 1.1")
	}
	l := must(tls.Listen("tcp", "127.0.0.1:0", old))
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		served <- err
	}()
	_, err := newClient(t, &peer.ClientOptions{RootCAs: rootsOf(t, a), TLS: lenient}).Ask(t.Context(), l.Addr().String(), now)
	if old := <-served; err == nil || old == nil {
		t.Errorf("the client speaks TLS 1.1: %v, %v", err, old)
	}
}

// The full URL of an address may have a path of its own, such as that of a proxy.
func TestAddressIsAURL(t *testing.T) {
	t.Parallel()
	a := servers.NewAuthority(t)
	e, _, _ := lead(t, nil)
	s := start(t, &peer.ServerOptions{Certificate: a.Issue(t, "127.0.0.1"), Path: "/a/b"}, e)
	c := newClient(t, &peer.ClientOptions{RootCAs: rootsOf(t, a), Path: "/a/b"})
	for _, path := range []string{"", "/", "/a/b"} {
		if said, err := c.Ask(t.Context(), "https://"+s.Addr().String()+path, now); err != nil || !said.Leading {
			t.Errorf("%+v, %v", said, err)
		}
	}
}

// TestPlain: behind a proxy that ends TLS.
func TestPlain(t *testing.T) {
	t.Parallel()
	e, _, _ := lead(t, nil)
	s := start(t, &peer.ServerOptions{Plain: true}, e)
	for path, status := range map[string]int{peer.DefaultPath: 200, "/": 404, peer.DefaultPath + "/": 404, "/health//leadership": 404, "*": 404} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path = path
		got, err := new(http.Transport).RoundTrip(r)
		if err != nil || got.StatusCode != status || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v, %v", path, got, err)
			continue
		}
		if names := len(got.Header); names != 4 { // and Date
			t.Errorf("%s: the headers are %v", path, got.Header)
		}
		got.Body.Close()
	}
}

// TestStop: a hundred questions that wait are answered with what is true, and Stop
// returns, however often it is called.
func TestStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const size = 100
		w := newWorld(t)
		e, lease, _ := lead(t, nil)
		h := peer.NewHandler(nil, e)
		s := must(peer.NewServer(&peer.ServerOptions{Certificate: w.Issue(t, "leader.test"), Handler: h}))
		closed := w.open(t, "leader.test:1", s)
		q := now
		q.Known, q.Wait = version(t, h), 20*time.Second
		answers := make(chan peer.Leadership, size)
		for range size {
			c := newClient(t, &w.client)
			go func() {
				said, err := c.Ask(t.Context(), "leader.test:1", q)
				if err != nil {
					t.Error(err)
				}
				answers <- said
			}()
		}
		// One has connected and says nothing, one has sent half a question.
		silent := must(w.Dial(t.Context(), "", "leader.test:1"))
		half := tls.Client(must(w.Dial(t.Context(), "", "leader.test:1")), &tls.Config{RootCAs: rootsOf(t, w.Authority), ServerName: "leader.test"})
		if _, err := io.WriteString(half, "GET /health/lead"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h.Waiting() != size {
			t.Fatalf("%d wait", h.Waiting())
		}
		time.Sleep(2 * time.Second) // else they would not ask again whatever the server says
		began := time.Now()
		var stops sync.WaitGroup
		for range 3 {
			stops.Go(func() {
				if err := s.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		for range size {
			if said := <-answers; !said.Leading || said.Token != int64(lease.Token()) {
				t.Errorf("it was told %+v", said)
			}
		}
		stops.Wait()
		closed()
		if time.Since(began) > time.Second {
			t.Errorf("Stop took %v", time.Since(began))
		}
		for _, c := range []net.Conn{silent, half} {
			_, _ = io.Copy(io.Discard, c) // until it is closed
		}
		for _, c := range w.conns {
			c.Close()
		}
		if err := s.Start(t.Context()); !errors.Is(err, http.ErrServerClosed) || !strings.Contains(err.Error(), "another one must be made") {
			t.Errorf("started again: %v", err)
		}
		if err := s.Serve(door{w.listen("leader.test:2")}); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("served again: %v", err)
		}
		if _, err := w.Dial(t.Context(), "", "leader.test:2"); err == nil {
			t.Error("the listener of a server that was stopped is open")
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// An answer that does not come to an end keeps Stop no longer than its context says.
func TestStopIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		stuck, release := make(chan struct{}), make(chan struct{})
		s := must(peer.NewServer(&peer.ServerOptions{Plain: true, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(stuck)
			<-release
		})}))
		l := w.listen("leader.test:1")
		served := make(chan error, 1)
		go func() { served <- s.Serve(door{l}) }()
		c := must(w.Dial(t.Context(), "", "leader.test:1"))
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", peer.DefaultPath)
		<-stuck
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second || !strings.Contains(err.Error(), "were cut") {
			t.Errorf("after %v Stop returned %v", time.Since(began), err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes came", n)
		}
		c.Close()
		close(release)
	})
}

// TestStart: a server is started once, and the end of the context stops it.
func TestStart(t *testing.T) {
	t.Parallel()
	a := servers.NewAuthority(t)
	e, _, _ := lead(t, nil)
	h := peer.NewHandler(nil, e)
	opts := &peer.ServerOptions{Certificate: a.Issue(t, "127.0.0.1"), Addr: "127.0.0.1:0", Handler: h}
	s := must(peer.NewServer(opts))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	address := s.Addr().String()
	if err := s.Start(ctx); err == nil || !strings.Contains(err.Error(), "started before") {
		t.Errorf("started twice: %v", err)
	}
	taken := *opts
	taken.Addr = address
	if err := must(peer.NewServer(&taken)).Start(t.Context()); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("started on a port that is taken: %v", err)
	}
	c := newClient(t, &peer.ClientOptions{RootCAs: rootsOf(t, a)})
	q := now
	q.Known, q.Wait = version(t, h), time.Minute
	go func() {
		for h.Waiting() == 0 {
			time.Sleep(time.Millisecond)
		}
		end()
	}()
	if said, err := c.Ask(t.Context(), address, q); err != nil || !said.Leading {
		t.Errorf("%+v, %v", said, err)
	}
	for { // until nobody listens
		if _, err := c.Ask(t.Context(), address, now); err != nil {
			break
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	never := must(peer.NewServer(opts))
	if err := never.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := never.Start(t.Context()); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("started after it was stopped: %v", err)
	}
}

// TestSlowClients: hundreds that connect and say nothing, or a byte at a time, are
// cut off within the server's patience, and meanwhile a follower gets its answer.
func TestSlowClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const size = 300
		w := newWorld(t)
		e, _, _ := lead(t, nil)
		var log leasetest.Log
		s := must(peer.NewServer(&peer.ServerOptions{Certificate: w.Issue(t, "leader.test"), HandlerOptions: peer.HandlerOptions{
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}}, e))
		defer w.open(t, "leader.test:1", s)()
		var cut sync.WaitGroup
		began := time.Now()
		for i := range size {
			c := must(w.Dial(t.Context(), "", "leader.test:1"))
			cut.Go(func() {
				slow(w, c, i)
				if d := time.Since(began); d != 5*time.Second {
					t.Errorf("client %d was cut off after %v", i, d)
				}
			})
		}
		synctest.Wait()
		if said, err := newClient(t, &w.client).Ask(t.Context(), "leader.test:1", now); err != nil || !said.Leading {
			t.Errorf("%+v, %v", said, err)
		}
		cut.Wait()
		if want := "level=DEBUG msg=\"http: TLS handshake error"; !strings.Contains(log.String(), want) {
			t.Errorf("the log says %s", &log)
		}
	})
}

// slow is one of several kinds of slow client. It returns when it is cut off.
func slow(w *world, c net.Conn, kind int) {
	defer c.Close()
	over := make(chan struct{})
	drip := func(c io.Writer, text string) {
		for _, b := range []byte(text) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			select {
			case <-time.After(time.Second):
			case <-over:
				return
			}
		}
	}
	endless := strings.Repeat("x", 1000)
	switch kind % 3 {
	case 1: // a handshake that does not end
		go drip(c, "\x16\x03\x01\x04\x00"+endless)
	case 2: // headers that do not end
		conn := tls.Client(c, &tls.Config{RootCAs: w.roots, ServerName: "leader.test"})
		if conn.Handshake() == nil { //nolint:noctx // the server cuts it off
			go drip(conn, "GET / HTTP/1.1\r\nHost: "+endless)
		}
		c = conn
	}
	_, _ = io.Copy(io.Discard, c)
	close(over)
}

// TestHTTP1: a server speaks HTTP/1.1 with a client that could do more, and gives it no ticket to come back with.
func TestHTTP1(t *testing.T) {
	t.Parallel()
	a := servers.NewAuthority(t)
	e, _, _ := lead(t, nil)
	s := start(t, &peer.ServerOptions{Certificate: a.Issue(t, "127.0.0.1")}, e)
	config := &tls.Config{RootCAs: rootsOf(t, a), NextProtos: []string{"h2", "http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	for range 2 {
		c, _ := must((&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", s.Addr().String())).(*tls.Conn)
		_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", peer.DefaultPath)
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Errorf("it says %q, %v", line, err)
		}
		if with := c.ConnectionState(); with.NegotiatedProtocol != "http/1.1" || with.DidResume {
			t.Errorf("it speaks %s, and resumes a session: %t", with.NegotiatedProtocol, with.DidResume)
		}
		c.Close()
	}
}

// TestLateAnswers: a Handler has five seconds to answer, and a connection that nobody uses is kept for a minute.
func TestLateAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		e, _, _ := lead(t, nil)
		h := peer.NewHandler(nil, e)
		var takes time.Duration
		s := must(peer.NewServer(&peer.ServerOptions{Plain: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(takes)
			h.ServeHTTP(w, r)
		})}))
		defer w.open(t, "leader.test:80", s)()
		ask := func(takesNow time.Duration) error {
			takes = takesNow
			c := must(w.Dial(t.Context(), "", "leader.test:80"))
			defer c.Close()
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", peer.DefaultPath)
			began, in := time.Now(), bufio.NewReader(c)
			if _, err := in.ReadString('\n'); err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, in)
			if kept := time.Since(began) - takes; kept != time.Minute {
				t.Errorf("it was kept for %v", kept)
			}
			return nil
		}
		if err := ask(4900 * time.Millisecond); err != nil {
			t.Errorf("in time: %v", err)
		}
		if err := ask(5100 * time.Millisecond); err == nil {
			t.Error("too late, and it was answered")
		}
	})
}

// accepted is a listener that remembers its connections.
type accepted struct {
	door
	all *[]weak.Pointer[wire]
}

func (a accepted) Accept() (net.Conn, error) {
	c, err := a.door.Accept()
	if w, ok := c.(*wire); ok {
		*a.all = append(*a.all, weak.Make(w))
	}
	return c, err
}

// TestKeepsNothingOfAConnection: a server keeps nothing of those who connect and leave, whether or not they ask.
func TestKeepsNothingOfAConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		e, _, _ := lead(t, nil)
		s := must(peer.NewServer(&peer.ServerOptions{Plain: true}, e))
		var all []weak.Pointer[wire]
		l := w.listen("leader.test:80")
		served := make(chan error, 1)
		go func() { served <- s.Serve(accepted{door{l}, &all}) }()
		for _, text := range []string{"", "GET " + peer.DefaultPath + " HTTP/1.1\r\nHost: x\r\n\r\n"} {
			c := must(w.Dial(t.Context(), "", "leader.test:80"))
			_, _ = io.WriteString(c, text)
			synctest.Wait()
			c.Close()
			time.Sleep(time.Minute)
		}
		for range 10 {
			runtime.GC()
		}
		for i, c := range all {
			if c.Value() != nil {
				t.Errorf("connection %d of %d is kept", i, len(all))
			}
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil || len(all) != 2 {
			t.Errorf("served %d: %v", len(all), err)
		}
	})
}

// broken is a listener that fails.
type broken struct{ net.Listener }

func (broken) Accept() (net.Conn, error) { return nil, errors.New("out of order") }

// TestServeFails: Serve returns why its listener failed, and has closed it.
func TestServeFails(t *testing.T) {
	t.Parallel()
	e, _, _ := lead(t, nil)
	s := must(peer.NewServer(&peer.ServerOptions{Plain: true}, e))
	l := must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))
	if err := s.Serve(broken{l}); err == nil || err.Error() != "out of order" {
		t.Errorf("it returned %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("its listener is open: %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMaxConns: one connection too many is closed at once, and room is made by any
// that ends.
func TestMaxConns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		e, _, _ := lead(t, nil)
		s := must(peer.NewServer(&peer.ServerOptions{Certificate: w.Issue(t, "leader.test"), MaxConns: 2}, e))
		defer w.open(t, "leader.test:1", s)()
		first, second, third := newClient(t, &w.client), newClient(t, &w.client), newClient(t, &w.client)
		for _, c := range []*peer.Client{first, second} {
			if said, err := c.Ask(t.Context(), "leader.test:1", now); err != nil || !said.Leading {
				t.Errorf("%+v, %v", said, err)
			}
		}
		began := time.Now()
		if said, err := third.Ask(t.Context(), "leader.test:1", now); err == nil || time.Since(began) != 0 {
			t.Errorf("one connection too many: %+v, after %v", said, time.Since(began))
		}
		_ = first.Close()
		synctest.Wait()
		if said, err := third.Ask(t.Context(), "leader.test:1", now); err != nil || !said.Leading {
			t.Errorf("%+v, %v", said, err)
		}
	})
}

// TestLargeHeaders: a question with more than 16 KiB of headers and some slack is
// refused.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	e, _, _ := lead(t, nil)
	s := start(t, &peer.ServerOptions{Plain: true}, e)
	for size, want := range map[int]string{18 << 10: "200", 20_900: "431"} {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", peer.DefaultPath, strings.Repeat("x", size))
		}()
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("headers of %d bytes got %q, %v", size, line, err)
		}
		c.Close()
	}
}
