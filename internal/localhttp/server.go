// Package localhttp serves HTTP to what else runs on a machine: on a loopback address or a socket
// in the file system, or, to those that bear a token or a certificate, on any address.
//
// Everything that a client may take is bounded: connections, headers, and the time for a request
// and its answer, which a handler may change for its own by an [http.ResponseController]. No answer
// is cached, and no page in a browser gets one that this server has not served: neither by asking from
// another origin, nor by having its own name resolved to a loopback address.
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

// The most that one client may take.
const (
	DefaultConns   = 64 // connections, unless Options say another number
	maxHeaderBytes = 16 << 10
	patience       = 5 * time.Second // for a request, and for its answer
	idle           = 30 * time.Second
	spareFiles     = 64 // for logs, the heartbeat and whatever else the process opens
)

// MaxConns is how many connections a server accepts at most: half of the files that this process may open, without some.
// The other half is for the store, since each request can send one to it: a process that can open no connection to its
// store loses its leases.
func MaxConns() int { return max(1, (openfiles.Limit()-spareFiles)/2) }

// A Server listens from [Listen] on, answers from [Server.Serve] on, and is used once. It is safe
// for concurrent use.
type Server struct {
	listener net.Listener
	opts     Options
	close    func() error // removes the socket
	local    bool         // it listens on a loopback address
	conns    conns
	http     http.Server
}

// Options are those of [ListenWith]. The zero value gives the defaults.
type Options struct {
	// Token is what each request must bear. Default: none.
	Token Token
	// TLS is spoken if it is there. If it demands a certificate of each client that is verified, that does
	// for a token on an address that is not local. Default: HTTP as it is.
	TLS *tls.Config
	// Conns is how many connections there may be at a time. When there are more, the one is closed that has
	// been without a request for longest. There are never more than [MaxConns]. Default [DefaultConns].
	Conns int
	// Refuse answers a request that is refused before the handler gets it, with a status and the reason.
	// Default: [http.Error].
	Refuse func(w http.ResponseWriter, r *http.Request, status int, why string)
}

// check returns an error that matches [ErrTokenNeeded] if others can reach the address, and need neither a
// token nor a certificate.
func (o *Options) check(local bool) error {
	if local || o.Token.sum != nil || o.TLS != nil && o.TLS.ClientAuth == tls.RequireAndVerifyClientCert {
		return nil
	}
	return ErrTokenNeeded
}

// ErrTokenNeeded is that of an address that others than this machine can reach.
var ErrTokenNeeded = errors.New("it is not a loopback address, so a token is needed")

// Check returns an error that matches [ErrTokenNeeded] if others can reach the address, and there
// is no token.
func Check(a Address, token Token) error { return CheckWith(a, Options{Token: token}) }

// CheckWith is Check, for a server with these options.
func CheckWith(a Address, o Options) error { return o.check(a.Local()) }

// Listen begins to listen, so that connections wait to be served. A socket in the file system is
// for this user alone (mode 0600). One that another process has left behind is replaced; if that
// process still listens, or if something else has the path, that is an error.
func Listen(ctx context.Context, a Address, token Token) (*Server, error) {
	return ListenWith(ctx, a, Options{Token: token})
}

// ListenWith is Listen, with options.
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
	if err != nil { // localhost can be anything, as /etc/hosts has it
		return nil, fmt.Errorf("%s is %w", a.host, err)
	}
	return s, nil
}

// Over is ListenWith, for a listener that is there already. Where it may not serve, the listener is closed.
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

// reason is why nothing listens, without the address, which the caller says.
func reason(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// Address is where the server listens: HOST:PORT with the port that it has got, or unix:PATH.
func (s *Server) Address() string {
	if a := s.listener.Addr(); a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return s.listener.Addr().String()
}

// Serve answers with h until [Server.Stop], and then returns nil; else it returns why it cannot
// go on. h gets only those requests that bear the token, if there is one.
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

// guard is what holds for each request.
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

// sameOrigin reports whether the request comes from a page that this server has served, or from no page.
// Browsers name the origin in each request that could change something, and in each whose answer a page of
// another origin could read; no other client needs to. Of the rest, such as an image of another page, they say
// where it comes from (Fetch Metadata): then only a link may lead here.
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

// numeric reports whether no foreign page can have been loaded from this host. A page can have
// its own name resolved to 127.0.0.1, and then a browser lets it read what is there: but the name
// stays in the Host header. It cannot have an address for a name.
func numeric(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || host == "" // no browser sends none
}

// Stop closes the listener, lets requests that are under way be answered until ctx ends, and cuts
// the others off then. The socket is removed, unless another process has the path by now.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	_ = s.listener.Close() // Shutdown has, if there was a Serve
	return errors.Join(err, s.close())
}
