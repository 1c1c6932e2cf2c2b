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

// ProxyOptions are what a [Proxy] does to the requests that pass it.
type ProxyOptions struct {
	// DropConditions takes If-Match and If-None-Match from every PUT, so that
	// a server which keeps to them becomes one that does not. The headers are
	// a part of the signature, so the server must be one that checks none:
	// gofakes3.
	DropConditions bool

	// DropIfMatch takes only If-Match from every PUT, so that the server becomes one
	// that knows of no other condition than "create if absent". It too must be one
	// that checks no signatures.
	DropIfMatch bool

	// Alter, if set, changes requests before they are passed on. To change the headers of
	// conditions, too, needs a server that checks no signatures. It is called from several
	// goroutines.
	Alter func(r *http.Request)

	// Fault, if set, decides what becomes of a request: the n-th of its method
	// since the start, counted from 1. It is called from several goroutines.
	Fault func(r *http.Request, n int) Fault
}

// A Fault is what becomes of one request.
type Fault struct {
	unsent bool          // show the server nothing
	mute   bool          // give the client no answer: close the connection
	status int           // answer this, without a body, in the server's place
	delay  time.Duration // before all of it
}

var (
	// Pass leaves the request alone.
	Pass = Fault{}
	// DropAnswer has the server carry the request out and then closes the
	// connection instead of passing on the answer.
	DropAnswer = Fault{mute: true}
	// DropRequest closes the connection and shows the server nothing.
	DropRequest = Fault{unsent: true, mute: true}
)

// Status answers with the code and shows the server nothing.
func Status(code int) Fault { return Fault{unsent: true, status: code} }

// StatusAfter has the server carry the request out and answers with the code.
func StatusAfter(code int) Fault { return Fault{status: code} }

// Delay holds the request back for d, and then passes it on.
func Delay(d time.Duration) Fault { return Fault{delay: d} }

// A Proxy stands between clients and one server. It passes the Host header on as
// it is, so that signatures made for the proxy's address stay valid. Its methods
// are safe for concurrent use, but for Hang, Refuse and Restore, which are for
// one goroutine at a time.
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

// StartProxy starts a proxy before target, the endpoint of a server, and stops it
// when the test ends.
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
	// A connection for each request: one that the server has closed while it
	// lay idle would look like a fault that nobody asked for.
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
	// Another process may be looking at the port, as freePort does.
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
		// The listener first and by itself: Serve may not have begun yet, and
		// then the server does not know of it.
		_ = ln.Close()
		_ = server.Close()
		<-served
	}
}

// Hang holds all requests that come from now on, as a network does that carries
// nothing, until Restore.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
}

// Refuse breaks all connections and refuses new ones, until Restore.
func (p *Proxy) Refuse() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// Restore ends Hang and Refuse. Requests that hung now reach the server, even
// those whose client has gone: a network that heals delivers late.
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

// Counts says how many requests came, by method, whatever became of them.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	// All of it before anything else: the server must be able to have the
	// whole request when the client's connection is long gone.
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

// arrive counts the request and looks up what is to become of it.
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

// wait reports whether the request may go on; it may not once the test is over.
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

// A reply is all of a server's answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// pass gives the request to the server. The client's leaving must not end it,
// hence the context of the proxy.
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
