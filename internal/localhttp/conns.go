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

// conns bounds the connections of a server. When there are too many, the one is closed that has kept the
// server waiting for a request for longest: a flood of connections that ask nothing keeps out nobody who asks.
type conns struct {
	most int

	mu      sync.Mutex
	open    map[net.Conn]*list.Element // nil: a request of it has arrived, and is being answered
	waiting list.List                  // of net.Conn: those of which no request has arrived in full
}

// track follows a connection. The server calls it.
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
	case http.StateActive: // of a request that may never end
	}
}

// closeLongest closes the connection that has been waited for longest. There is one: the newest.
func (c *conns) closeLongest() {
	conn, _ := c.waiting.Front().Value.(net.Conn)
	c.forget(conn)
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn() // whose Close says no goodbye, for which it might wait
	}
	_ = conn.Close()
}

func (c *conns) forget(conn net.Conn) {
	if element := c.open[conn]; element != nil {
		c.waiting.Remove(element)
	}
	delete(c.open, conn)
}

// arrived says that a request of the connection is there in full, which is answered now.
func (c *conns) arrived(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element := c.open[conn]; element != nil {
		c.waiting.Remove(element)
		c.open[conn] = nil
	}
}

// connKey is where the context of a request has its connection.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// receive notes when the request has arrived.
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

// received is a body that says when it has been read to its end.
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
