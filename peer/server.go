package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/openfiles"
)

// ServerOptions are the options of [NewServer].
type ServerOptions struct {
	HandlerOptions

	// Handler serves the requests. NewServer then takes no elections, and no HandlerOptions
	// except Logger. Stop ends the contexts of its requests. Default: a [Handler] for the
	// elections.
	Handler http.Handler

	// Addr is the TCP address to listen on. Default ":8443".
	Addr string
	// Path is where questions are answered; other paths get 404. Default DefaultPath.
	Path string

	// Certificate is the server's certificate. It must be valid for the host in the leader's
	// address, or for the followers' [ClientOptions.ServerName].
	Certificate tls.Certificate
	// ClientCAs, if set, requires every follower to present a certificate signed by one of
	// them.
	ClientCAs *x509.CertPool
	// TLS has all other settings, such as GetCertificate for certificates that change; the
	// fields above are added to it. Versions before TLS 1.2 are refused.
	TLS *tls.Config
	// Plain serves HTTP without TLS, for use behind a proxy that terminates TLS. The bearer
	// token is then readable between the proxy and the server.
	Plain bool

	// MaxConns bounds the connections, including idle ones and those being opened. Further ones
	// are closed at once. Default 24,000, but at most 3/4 of the files this process may open,
	// because a leader that cannot connect to its store loses its lease.
	MaxConns int
}

// A Server answers followers' questions over HTTPS on its own port. It uses HTTP/1.1, because
// with one connection per follower that takes less memory than HTTP/2. It limits clients to 16
// KiB of headers, and to 5 s each for opening a connection, sending a question, and reading the
// answer. A Server can be started once. It is safe for concurrent use.
type Server struct {
	opts ServerOptions
	http *http.Server

	mu       sync.Mutex
	listener net.Listener      // nil: not started
	served   chan struct{}     // closed when it no longer accepts connections
	detach   func() bool       // from the context of Start
	fresh    map[net.Conn]bool // connections without a question yet
	conns    int
	stopped  bool
}

// NewServer returns a server for this process's elections. It opens nothing. It fails for the
// reasons of [NewHandler], and if there is no certificate.
func NewServer(opts *ServerOptions, elections ...*leasehold.Election) (*Server, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("peer server: %w", err)
	}
	if o.Handler == nil {
		if o.Handler, err = newHandler(&o.HandlerOptions, elections); err != nil {
			return nil, fmt.Errorf("peer server: %w", err)
		}
	} else if len(elections) > 0 {
		return nil, errors.New("peer server: there are elections and a Handler: give the elections to the Handler")
	}
	requests, end := context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s := &Server{opts: o, served: make(chan struct{}), fresh: map[net.Conn]bool{}}
	s.http = &http.Server{
		Handler:                      http.HandlerFunc(s.route),
		DisableGeneralOptionsHandler: true,
		TLSConfig:                    o.TLS,
		ReadTimeout:                  patience,
		WriteTimeout:                 patience,
		IdleTimeout:                  time.Minute,
		MaxHeaderBytes:               16 << 10,
		ConnState:                    s.track,
		BaseContext:                  func(net.Listener) context.Context { return requests },
		ErrorLog:                     slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		Protocols:                    protocols,
	}
	// Not earlier than the shutdown, so each answer says that the connection will be closed.
	s.http.RegisterOnShutdown(end)
	return s, nil
}

func (o *ServerOptions) withDefaults() (ServerOptions, error) {
	var opts ServerOptions
	if o != nil {
		opts = *o
	}
	if opts.Addr == "" {
		opts.Addr = ":8443"
	}
	if opts.MaxConns == 0 {
		opts.MaxConns = min(24_000, openfiles.Limit()*3/4)
	}
	if opts.MaxConns < 0 {
		return opts, fmt.Errorf("MaxConns is negative: %d", opts.MaxConns)
	}
	if given := opts.HandlerOptions; opts.Handler != nil && (given.Token != "" || given.MaxWait != 0 || given.MaxWaiting != 0 || given.Render != nil || given.Queues != nil) {
		return opts, errors.New("there are HandlerOptions and a Handler: give them to the Handler")
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	var err error
	if opts.Path, err = checkPath(opts.Path); err != nil {
		return opts, err
	}
	opts.TLS, err = opts.tls()
	return opts, err
}

// checkPath returns path or the default. It fails if path is invalid.
func checkPath(path string) (string, error) {
	switch {
	case path == "":
		return DefaultPath, nil
	case !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#"):
		return "", fmt.Errorf("the path %q must begin with a slash and have no ? or # in it", path)
	}
	return path, nil
}

// tls returns the TLS configuration, or nil for plain HTTP.
func (o *ServerOptions) tls() (*tls.Config, error) {
	given := len(o.Certificate.Certificate) > 0
	if o.Plain {
		if given || o.ClientCAs != nil || o.TLS != nil {
			return nil, errors.New("with Plain there is no TLS to configure: leave out Certificate, ClientCAs and TLS, or Plain")
		}
		return nil, nil //nolint:nilnil // no TLS is what was asked for
	}
	config := &tls.Config{}
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	// A follower rarely comes back to this leader, and a ticket costs memory.
	config.SessionTicketsDisabled = true
	if given {
		config.Certificates = []tls.Certificate{o.Certificate}
	}
	if len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
		return nil, errors.New("there is no certificate: set Certificate, or Plain if a proxy in front speaks TLS")
	}
	if o.ClientCAs != nil && config.GetConfigForClient != nil {
		return nil, errors.New("what TLS.GetConfigForClient returns would not ask for a certificate of ClientCAs: set ClientAuth and ClientCAs there, or leave it out")
	}
	if o.ClientCAs != nil {
		config.ClientCAs, config.ClientAuth = o.ClientCAs, tls.RequireAndVerifyClientCert
	}
	return config, nil
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != s.opts.Path {
		send(w, r, http.StatusNotFound, "text/plain; charset=utf-8", []byte("there is nothing here\n"))
		return
	}
	s.opts.Handler.ServeHTTP(w, r)
}

// keepAlive detects within seconds that the other host has vanished.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 3}

// Listen returns a TCP listener for [Server.Serve], with a keep-alive that detects within 8 s
// that a follower's host has vanished.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	listen := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("peer server: %w", err)
	}
	return l, nil
}

// Start listens on Addr and returns. The server runs until Stop is called or ctx ends, which is
// like Stop with 5 s. Start fails if the server was started or stopped before; after Stop the
// error matches [http.ErrServerClosed].
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	err := s.startable()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	l, err := Listen(ctx, s.opts.Addr)
	if err != nil {
		return err
	}
	if err := s.begin(l); err != nil {
		return err
	}
	go func() {
		if err := s.serve(l); err != nil {
			s.opts.Logger.Error("peer server failed", "address", l.Addr().String(), "error", err)
		}
	}()
	detach := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = s.Stop(last)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.detach = detach; s.stopped {
		detach()
	}
	return nil
}

// Serve accepts connections from l and closes it in the end. It adds TLS unless Plain is set.
// It returns nil after Stop, and an error if l fails.
func (s *Server) Serve(l net.Listener) error {
	if err := s.begin(l); err != nil {
		return err
	}
	return s.serve(l)
}

// startable must be called with the mutex locked.
func (s *Server) startable() error {
	switch {
	case s.stopped:
		return fmt.Errorf("peer server: it was stopped, and another one must be made: %w", http.ErrServerClosed)
	case s.listener != nil:
		return errors.New("peer server: it was started before")
	}
	return nil
}

// begin sets the listener.
func (s *Server) begin(l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startable(); err != nil {
		_ = l.Close()
		return err
	}
	s.listener = l
	return nil
}

func (s *Server) serve(l net.Listener) error {
	defer close(s.served)
	var err error
	if s.opts.Plain {
		err = s.http.Serve(l)
	} else {
		err = s.http.ServeTLS(l, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Addr returns the address that the server listens on, or nil before Start or Serve.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// track counts connections, and records those without a question.
func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns++
		s.fresh[c] = true
		if s.conns > s.opts.MaxConns || s.stopped {
			sever(c)
		}
	case http.StateActive:
		delete(s.fresh, c)
	case http.StateClosed:
		delete(s.fresh, c)
		s.conns--
	case http.StateIdle, http.StateHijacked:
	}
}

// sever closes a connection without TLS's close message, which could block.
func sever(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// Stop ends the server. It accepts nothing more, answers every waiting question with the
// present state, and closes the connections. If ctx ends first, Stop cuts the connections and
// returns an error that matches ctx.Err(). Further calls wait for the same. You can stop a
// server that was never started.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	if s.detach != nil {
		s.detach()
	}
	for c := range s.fresh {
		sever(c)
	}
	started := s.listener != nil
	s.mu.Unlock()
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
		err = fmt.Errorf("peer server: connections were cut: %w", err)
	}
	if started {
		select {
		case <-s.served:
		case <-ctx.Done():
		}
	}
	return err
}
