// Package pipenet has listeners in memory. Their connections are pipes, which block as virtual time (testing/synctest)
// needs it, and where a connection to this machine would not.
package pipenet

import (
	"context"
	"net"
	"sync"
)

// A Listener is a net.Listener that is dialled by way of itself.
type Listener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// Listen makes a listener with that address, which only tells those who ask for it.
func Listen(addr net.Addr) *Listener {
	l := &Listener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Loopback listens at a TCP port of the loopback address, as far as anybody can see.
func Loopback(port int) *Listener {
	return Listen(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
}

// DialContext returns a connection that was accepted. It suits a field of http.Transport: the address that is dialled
// does not matter.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	var err error
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: l.addr, Err: err}
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener, and no connection. It may be called again.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr is the address that it was made with.
func (l *Listener) Addr() net.Addr { return l.addr }
