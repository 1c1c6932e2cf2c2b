package localhttp

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
)

// conns limits the connections of a server. If there are too many, it closes the one that has
// been without a complete request for longest. So a flood of idle connections does not keep out
// clients with requests.
type conns struct {
	most int

	mu      sync.Mutex
	open    map[net.Conn]*list.Element // nil: its request has arrived and is being answered
	waiting list.List                  // of net.Conn: those without a complete request
}

// track notes a connection's state, as the server's ConnState.
func (c *conns) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.open == nil {
			c.open = map[net.Conn]*list.Element{}
		}
		c.open[conn] = c.waiting.PushBack(conn)
		if len(c.open) > c.most {
			c.closeLongest()
		}
	case http.StateIdle:
		if element, is := c.open[conn]; is && element == nil {
			c.open[conn] = c.waiting.PushBack(conn)
		}
	case http.StateClosed, http.StateHijacked:
		c.forget(conn)
	case http.StateActive: // its request may never be complete
	}
}

// closeLongest closes the connection that has waited for longest. There always is one: the
// newest.
func (c *conns) closeLongest() {
	conn, _ := c.waiting.Front().Value.(net.Conn)
	c.forget(conn)
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn() // its Close sends no goodbye, which might block
	}
	_ = conn.Close()
}

func (c *conns) forget(conn net.Conn) {
	if element := c.open[conn]; element != nil {
		c.waiting.Remove(element)
	}
	delete(c.open, conn)
}

// arrived notes that a request of the connection is complete, and is being answered.
func (c *conns) arrived(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element := c.open[conn]; element != nil {
		c.waiting.Remove(element)
		c.open[conn] = nil
	}
}

// connKey is the context key of a request's connection.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// receive notes when the request is complete.
func (c *conns) receive(r *http.Request) {
	conn, is := r.Context().Value(connKey{}).(net.Conn)
	switch {
	case !is:
	case r.Body == nil || r.Body == http.NoBody:
		c.arrived(conn)
	default:
		r.Body = &received{r.Body, func() { c.arrived(conn) }}
	}
}

// received is a body that calls whole at its end.
type received struct {
	io.ReadCloser
	whole func()
}

func (b *received) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.whole()
	}
	return n, err
}
