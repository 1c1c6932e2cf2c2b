// Package localhttp serves HTTP to what else runs on a machine: on a loopback address or a socket
// in the file system, or, to those that bear a token, on any address.
//
// Everything that a client may take is bounded: connections, headers, and the time for a request
// and its answer. No answer is cached, and no page in a browser gets one by having its own name
// resolved to a loopback address.
package localhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// The most that one client may take.
const (
	maxConns       = 64
	maxHeaderBytes = 16 << 10
	patience       = 5 * time.Second // for a request, and for its answer
	idle           = 30 * time.Second
)

// A Server listens from [Listen] on, answers from [Server.Serve] on, and is used once. It is safe
// for concurrent use.
type Server struct {
	listener net.Listener
	token    Token
	close    func() error // removes the socket
	local    bool         // it listens on a loopback address
	conns    atomic.Int64
	http     http.Server
}

// ErrTokenNeeded is that of an address that others than this machine can reach.
var ErrTokenNeeded = errors.New("it is not a loopback address, so a token is needed")

// Check returns an error that matches [ErrTokenNeeded] if others can reach the address, and there
// is no token.
func Check(a Address, token Token) error {
	if !a.Local() && !token.set {
		return ErrTokenNeeded
	}
	return nil
}

// Listen begins to listen, so that connections wait to be served. A socket in the file system is
// for this user alone (mode 0600). One that another process has left behind is replaced; if that
// process still listens, or if something else has the path, that is an error.
func Listen(ctx context.Context, a Address, token Token) (*Server, error) {
	if err := Check(a, token); err != nil {
		return nil, err
	}
	s := &Server{token: token, close: func() error { return nil }}
	if a.network == "unix" {
		l, remove, err := listenUnix(ctx, a.path)
		if err != nil {
			return nil, err
		}
		s.listener, s.close = l, remove
		return s, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, a.network, a.String())
	if err != nil {
		return nil, reason(err)
	}
	tcp, ok := l.Addr().(*net.TCPAddr)
	s.listener, s.local = l, ok && tcp.IP.IsLoopback()
	if !s.local && !token.set { // localhost can be anything, as /etc/hosts has it
		_ = l.Close()
		return nil, fmt.Errorf("%s is %v: %w", a.host, tcp.IP, ErrTokenNeeded)
	}
	return s, nil
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
	s.http.ConnState = s.track
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	s.http.Protocols = protocols
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// track closes connections of which there are too many.
func (s *Server) track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if s.conns.Add(1) > maxConns {
			_ = c.Close()
		}
	case http.StateClosed:
		s.conns.Add(-1)
	case http.StateActive, http.StateIdle, http.StateHijacked:
	}
}

// guard is what holds for each request.
func (s *Server) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch {
		case s.local && !numeric(r.Host):
			http.Error(w, "this is not "+r.Host+": use the address that the server listens on", http.StatusMisdirectedRequest)
		case s.token.refuses(w, r):
		default:
			h.ServeHTTP(w, r)
		}
	})
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
