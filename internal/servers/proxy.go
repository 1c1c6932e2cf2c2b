package servers

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// ProxyOptions say what a [Proxy] does to requests.
type ProxyOptions struct {
	// DropConditions removes If-Match and If-None-Match from every PUT, so that the server
	// seems to ignore conditions. The headers are part of the signature, so the server must not
	// check signatures: use gofakes3.
	DropConditions bool

	// DropIfMatch removes only If-Match from every PUT, so that the server seems to support
	// only "create if absent". The server must not check signatures.
	DropIfMatch bool

	// Alter, if set, changes requests before they are passed on. If it changes conditions, the
	// server must not check signatures. It is called from several goroutines.
	Alter func(r *http.Request)

	// Fault, if set, decides what happens to a request, the n-th of its method since the start,
	// counting from 1. It is called from several goroutines.
	Fault func(r *http.Request, n int) Fault
}

// A Fault is what happens to one request.
type Fault struct {
	unsent bool          // do not pass the request to the server
	mute   bool          // do not answer the client: close the connection
	status int           // answer this, without a body, instead of the server's answer
	delay  time.Duration // before everything else
}

var (
	// Pass leaves the request alone.
	Pass = Fault{}
	// DropAnswer lets the server execute the request, and closes the connection instead of
	// passing on the answer.
	DropAnswer = Fault{mute: true}
	// DropRequest closes the connection, and passes nothing to the server.
	DropRequest = Fault{unsent: true, mute: true}
)

// Status answers with the code, and passes nothing to the server.
func Status(code int) Fault { return Fault{unsent: true, status: code} }

// StatusAfter lets the server execute the request, and answers with the code.
func StatusAfter(code int) Fault { return Fault{status: code} }

// Delay holds the request back for d, and then passes it on.
func Delay(d time.Duration) Fault { return Fault{delay: d} }

// A Proxy sits between clients and one server. It does not change the Host header, so
// signatures for the proxy's address stay valid. Its methods are safe for concurrent use,
// except Hang, Refuse and Restore, which only one goroutine at a time may call.
type Proxy struct {
	Endpoint string // http://127.0.0.1:PORT

	target  *url.URL
	opts    ProxyOptions
	forward http.RoundTripper
	ctx     context.Context // ends with the test
	port    *port
	stop    func() // nil while connections are refused

	mu     sync.Mutex
	counts map[string]int
	open   chan struct{} // closed unless requests hang
}

// StartProxy starts a proxy in front of target, a server's endpoint, and stops it when the test
// ends.
func StartProxy(t testing.TB, target string, opts *ProxyOptions) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	// Each request gets a connection, because an idle one closed by the server would look like
	// an unplanned fault.
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	p := &Proxy{
		Endpoint: "http://" + port.addr,
		target:   u,
		forward:  transport,
		ctx:      ctx,
		port:     port,
		counts:   map[string]int{},
		open:     make(chan struct{}),
	}
	if opts != nil {
		p.opts = *opts
	}
	close(p.open)
	p.listen(t)
	t.Cleanup(func() {
		cancel()
		p.Refuse()
		port.free()
	})
	return p
}

func (p *Proxy) listen(t testing.TB) {
	t.Helper()
	ln, err := net.Listen("tcp", p.port.addr) //nolint:noctx // it does not block
	// freePort in another process may be using the port.
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		ln, err = net.Listen("tcp", p.port.addr) //nolint:noctx // it does not block
	}
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln) // until it is closed
	}()
	p.stop = func() {
		// The listener must be closed separately: if Serve has not begun yet, the server does
		// not know it.
		_ = ln.Close()
		_ = server.Close()
		<-served
	}
}

// Hang holds all new requests until Restore, like a network that carries nothing.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
}

// Refuse breaks all connections, and refuses new ones until Restore.
func (p *Proxy) Refuse() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// Restore ends Hang and Refuse. Requests held by Hang now reach the server, even if their
// clients have left: a network that recovers delivers late.
func (p *Proxy) Restore(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
	p.mu.Unlock()
	if p.stop == nil {
		p.listen(t)
	}
}

// Counts returns the number of requests that arrived, by method, whatever happened to them.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	// The whole body is read first, because the server must be able to get it long after the
	// client's connection has closed.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault, open := p.arrive(r)
	if !p.wait(open, fault.delay) {
		panic(http.ErrAbortHandler)
	}
	var answer reply
	if !fault.unsent {
		if answer, err = p.pass(r, body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	switch {
	case fault.mute:
		panic(http.ErrAbortHandler) // closes the connection
	case fault.status != 0:
		w.WriteHeader(fault.status)
	default:
		maps.Copy(w.Header(), answer.header)
		w.WriteHeader(answer.status)
		_, _ = w.Write(answer.body)
	}
}

// arrive counts the request, and returns what must happen to it.
func (p *Proxy) arrive(r *http.Request) (Fault, <-chan struct{}) {
	p.mu.Lock()
	p.counts[r.Method]++
	n, open := p.counts[r.Method], p.open
	p.mu.Unlock()
	if p.opts.Fault == nil {
		return Pass, open
	}
	return p.opts.Fault(r, n), open
}

// wait reports whether the request may continue, which it may not after the end of the test.
func (p *Proxy) wait(open <-chan struct{}, delay time.Duration) bool {
	select {
	case <-open:
	case <-p.ctx.Done():
		return false
	}
	if delay == 0 {
		return true
	}
	select {
	case <-time.After(delay):
		return true
	case <-p.ctx.Done():
		return false
	}
}

// A reply is a server's complete answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// pass sends the request to the server. It uses the context of the proxy, because the request
// must not end when the client leaves.
func (p *Proxy) pass(r *http.Request, body []byte) (reply, error) {
	out := r.Clone(p.ctx)
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.RequestURI = ""
	out.Body = io.NopCloser(bytes.NewReader(body))
	out.ContentLength, out.TransferEncoding = int64(len(body)), nil
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	if r.Method == http.MethodPut {
		if p.opts.DropConditions || p.opts.DropIfMatch {
			out.Header.Del("If-Match")
		}
		if p.opts.DropConditions {
			out.Header.Del("If-None-Match")
		}
	}
	if p.opts.Alter != nil {
		p.opts.Alter(out)
	}
	answer, err := p.forward.RoundTrip(out)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	return reply{answer.StatusCode, answer.Header, got}, err
}
