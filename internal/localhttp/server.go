// Package localhttp serves HTTP to other programs on the same machine, on a loopback address or
// a socket in the file system. With a token or client certificates it serves on any address.
//
// All resources of a client are limited: connections, headers, and the time for a request and
// its answer, which a handler can change by an [http.ResponseController]. Answers are not
// cached. Foreign web pages get no answers, whether they send requests from another origin or
// have their own name resolved to a loopback address.
package localhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/leasehold/leasehold/internal/openfiles"
)

// Limits for clients.
const (
	DefaultConns   = 64 // connections, unless Options has another number
	maxHeaderBytes = 16 << 10
	patience       = 5 * time.Second // for a request, and for its answer
	idle           = 30 * time.Second
	spareFiles     = 64 // for logs, the heartbeat and other files of the process
)

// MaxConns returns the maximum number of connections of a server: half of the files this
// process may open, minus a reserve. The other half is for the store, because each request can
// cause one to it, and a process without connections to its store loses its leases.
func MaxConns() int { return max(1, (openfiles.Limit()-spareFiles)/2) }

// A Server listens once [Listen] has returned, and answers once [Server.Serve] is called. It
// can be used only once. It is safe for concurrent use.
type Server struct {
	listener net.Listener
	opts     Options
	close    func() error // removes the socket
	local    bool         // it listens on a loopback address
	conns    conns
	http     http.Server
}

// Options are the options of [ListenWith]. The zero value means the defaults.
type Options struct {
	// Token is required of each request. Default: none.
	Token Token
	// TLS makes the server use TLS. If it requires and verifies client certificates, no token
	// is needed on other than local addresses. Default: plain HTTP.
	TLS *tls.Config
	// Conns is the maximum number of connections, up to [MaxConns]. Beyond it, the connection
	// without a request for longest is closed. Default [DefaultConns].
	Conns int
	// Refuse answers a request that is refused before it reaches the handler, with a status and
	// the reason. Default: [http.Error].
	Refuse func(w http.ResponseWriter, r *http.Request, status int, why string)
}

// check returns an error that matches [ErrTokenNeeded] if other machines can reach the address
// without a token or a certificate.
func (o *Options) check(local bool) error {
	if local || o.Token.sum != nil || o.TLS != nil && o.TLS.ClientAuth == tls.RequireAndVerifyClientCert {
		return nil
	}
	return ErrTokenNeeded
}

// ErrTokenNeeded is the error of an address within reach of other machines.
var ErrTokenNeeded = errors.New("it is not a loopback address, so a token is needed")

// Check returns an error that matches [ErrTokenNeeded] if other machines can reach the address
// and there is no token.
func Check(a Address, token Token) error { return CheckWith(a, Options{Token: token}) }

// CheckWith is like Check, for a server with these options.
func CheckWith(a Address, o Options) error { return o.check(a.Local()) }

// Listen starts listening; connections wait until Serve. A socket in the file system is for
// this user only (mode 0600). It replaces a socket left behind by another process. Listen fails
// if the other process still listens, or if the path is another kind of file.
func Listen(ctx context.Context, a Address, token Token) (*Server, error) {
	return ListenWith(ctx, a, Options{Token: token})
}

// ListenWith is like Listen, with options.
func ListenWith(ctx context.Context, a Address, o Options) (*Server, error) {
	if err := CheckWith(a, o); err != nil {
		return nil, err
	}
	if a.network == "unix" {
		l, remove, err := listenUnix(ctx, a.path)
		if err != nil {
			return nil, err
		}
		s := newServer(l, o)
		s.close = remove
		return s, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, a.network, a.String())
	if err != nil {
		return nil, reason(err)
	}
	s, err := Over(l, o)
	if err != nil { // localhost can be any address in /etc/hosts
		return nil, fmt.Errorf("%s is %w", a.host, err)
	}
	return s, nil
}

// Over is like ListenWith, for an existing listener. On failure it closes the listener.
func Over(l net.Listener, o Options) (*Server, error) {
	s := newServer(l, o)
	tcp, ok := l.Addr().(*net.TCPAddr)
	s.local = ok && tcp.IP.IsLoopback()
	if err := o.check(s.local); err != nil {
		_ = l.Close()
		if ok {
			return nil, fmt.Errorf("%v: %w", tcp.IP, err)
		}
		return nil, fmt.Errorf("%v: %w", l.Addr(), err)
	}
	return s, nil
}

func newServer(l net.Listener, o Options) *Server {
	if o.Conns <= 0 {
		o.Conns = DefaultConns
	}
	if o.Refuse == nil {
		o.Refuse = func(w http.ResponseWriter, _ *http.Request, status int, why string) { http.Error(w, why, status) }
	}
	s := &Server{listener: l, opts: o, close: func() error { return nil }}
	s.conns.most = min(o.Conns, MaxConns())
	return s
}

// reason returns why listening failed, without the address, which the caller adds.
func reason(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// Address returns where the server listens: HOST:PORT with the actual port, or unix:PATH.
func (s *Server) Address() string {
	if a := s.listener.Addr(); a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return s.listener.Addr().String()
}

// Serve answers requests with h until [Server.Stop], and then returns nil. Otherwise it returns
// why it cannot continue. If there is a token, h gets only requests with it.
func (s *Server) Serve(h http.Handler, log *slog.Logger) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s.http.Handler = s.guard(h)
	s.http.DisableGeneralOptionsHandler = true
	s.http.ReadHeaderTimeout, s.http.ReadTimeout, s.http.WriteTimeout, s.http.IdleTimeout = patience, patience, patience, idle
	s.http.MaxHeaderBytes = maxHeaderBytes
	s.http.ConnState, s.http.ConnContext = s.conns.track, withConn
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	s.http.Protocols = protocols
	l := s.listener
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// guard applies the checks and headers of all requests.
func (s *Server) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		s.conns.receive(r)
		switch {
		case s.local && !numeric(r.Host):
			s.opts.Refuse(w, r, http.StatusMisdirectedRequest, "this is not "+r.Host+": use the address that the server listens on")
			return
		case !sameOrigin(r):
			s.opts.Refuse(w, r, http.StatusForbidden, "the request comes from a page of another origin")
			return
		}
		if why := s.opts.Token.refusal(w, r); why != "" {
			s.opts.Refuse(w, r, http.StatusUnauthorized, why)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// sameOrigin reports whether the request comes from a page served by this server, or not from a
// page. Browsers, unlike other clients, send the origin with each request that could change
// something, and with each whose answer a page of another origin could read. For other
// requests, such as an image, they send Fetch Metadata; then only links may lead here.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && r.Header.Get("Origin") == ""
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	u, err := url.Parse(origins[0])
	return len(origins) == 1 && err == nil && u.Scheme == scheme && u.Host == r.Host && r.Host != ""
}

// numeric reports whether pages from this host cannot be foreign. A foreign page can have its
// own name resolved to 127.0.0.1, and the browser then lets it read answers from there. But the
// name stays in the Host header, and a page's name cannot be an address.
func numeric(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || host == "" // no browser sends an empty one
}

// Stop closes the listener, lets requests under way finish until ctx ends, and then cuts off
// the rest. It removes the socket, unless the path now belongs to another process.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	_ = s.listener.Close() // Shutdown has closed it, but only if there was a Serve
	return errors.Join(err, s.close())
}
