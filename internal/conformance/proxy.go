package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/internal/clock"
)

// A fault is what becomes of one request.
type fault struct {
	name   string
	unsent bool          // the server does not see it
	mute   bool          // the connection is closed instead of an answer
	status int           // this is the answer, in place of the server's
	before time.Duration // it is held back for so long
	after  time.Duration // its answer is
	twice  bool          // the server gets it twice, and the second answer is passed on
	silent bool          // there is no answer at all, until the proxy stops
}

var (
	pass        = fault{}
	dropAnswer  = fault{name: "carried out, answer lost", mute: true}
	dropRequest = fault{name: "lost before the server", unsent: true, mute: true}
	twice       = fault{name: "delivered twice", twice: true}
	silence     = fault{name: "lost before the server, no answer", unsent: true, silent: true}
)

func status(code int) fault {
	return fault{name: fmt.Sprintf("answered %d", code), unsent: true, status: code}
}

func statusAfter(code int) fault {
	return fault{name: fmt.Sprintf("carried out, answered %d", code), status: code}
}

func lateAnswer(d time.Duration) fault {
	return fault{name: fmt.Sprintf("answer %v late", d), after: d}
}

func lateRequest(d time.Duration) fault {
	return fault{name: fmt.Sprintf("carried out %v late", d), before: d}
}

// An exchange is a request and what became of it. All times are readings of package clock.
type exchange struct {
	method, key        string
	ifMatch, ifNone    string
	body               []byte
	arrived            time.Duration // all of it was here
	status             int           // of the server's answer; 0: it has given none
	landed             bool          // the server has carried a write out
	etag, date, answer string
	sent               time.Duration // its answer was begun to be passed on; 0: it was not
	shown              int           // the status that the subject got; 0: none
	fault              string

	request *http.Request
}

func (e *exchange) write() bool { return e.method == http.MethodPut }

// A proxy stands between the subject of one case and the server. It passes the Host header on as it is, so that
// signatures stay valid.
type proxy struct {
	endpoint string

	target  *url.URL
	key     string // the path of the lock's object
	began   time.Duration
	forward *http.Transport
	ctx     context.Context
	cancel  context.CancelFunc
	server  *http.Server
	served  chan struct{}

	mu   sync.Mutex
	log  []*exchange
	rule func(*exchange) fault
}

func startProxy(ctx context.Context, opts *Options, key string, began time.Duration) (*proxy, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the proxy cannot listen: %w", err)
	}
	p := &proxy{
		endpoint: "http://" + l.Addr().String(), target: opts.Endpoint, began: began,
		key:     strings.TrimSuffix(opts.Endpoint.Path, "/") + "/" + opts.Bucket + "/" + opts.Prefix + key,
		forward: &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		served:  make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(l) // until it is closed
	}()
	return p, nil
}

func (p *proxy) stop() {
	p.cancel()
	_ = p.server.Close()
	<-p.served
}

// faults sets what becomes of the requests for the lock that come from now on.
func (p *proxy) faults(rule func(*exchange) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// always does the same to every request.
func (p *proxy) always(f fault) { p.faults(func(*exchange) fault { return f }) }

// once does something to the next write that suits, and reports on the channel when it came.
func (p *proxy) once(suits func(*exchange) bool, f fault) <-chan *exchange {
	hit := make(chan *exchange, 1)
	done := false
	p.faults(func(e *exchange) fault {
		if done || !e.write() || !suits(e) {
			return pass
		}
		done = true
		hit <- e
		return f
	})
	return hit
}

// exchanges are those for the lock's object so far, in the order in which they came.
func (p *proxy) exchanges() []exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]exchange, 0, len(p.log))
	for _, e := range p.log {
		all = append(all, *e)
	}
	return all
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 2<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	e := &exchange{
		method: r.Method, key: r.URL.Path, ifMatch: r.Header.Get("If-Match"), ifNone: r.Header.Get("If-None-Match"),
		body: body, arrived: clock.Now(), request: r.Clone(p.ctx), //nolint:contextcheck // it goes on when its client has left
	}
	f := p.arrive(e)
	p.wait(f.before)
	var got answer
	if !f.unsent {
		if got, err = p.pass(e); err == nil && f.twice { //nolint:contextcheck // the same
			got, err = p.pass(e) //nolint:contextcheck // the same
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	p.wait(f.after)
	switch {
	case f.silent:
		<-p.ctx.Done()
		panic(http.ErrAbortHandler)
	case f.mute:
		panic(http.ErrAbortHandler) // closes the connection
	case f.status != 0:
		p.show(e, f.status)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>`+codes[f.status]+`</Code><Message>by the proxy of leasehold conformance</Message></Error>`)
	default:
		maps.Copy(w.Header(), got.header)
		p.show(e, got.status)
		w.WriteHeader(got.status)
		_, _ = w.Write(got.body)
	}
}

// codes are those of S3.
var codes = map[int]string{
	http.StatusForbidden: "AccessDenied", http.StatusConflict: "ConditionalRequestConflict", http.StatusTooManyRequests: "TooManyRequests",
	http.StatusInternalServerError: "InternalError", http.StatusServiceUnavailable: "SlowDown",
}

func (p *proxy) arrive(e *exchange) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.log) < maxLog {
		p.log = append(p.log, e)
	}
	if e.key != p.key || p.rule == nil { // requests for anything else are shown, and left alone
		return pass
	}
	f := p.rule(e)
	e.fault = f.name
	return f
}

// maxLog bounds the exchanges that are kept: a subject that sends more has failed already (F17).
const maxLog = 20_000

func (p *proxy) show(e *exchange, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.sent, e.shown = clock.Now(), status
}

func (p *proxy) wait(d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// An answer is all of the server's.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// pass gives a request to the server, whether or not its client is there still, and notes what came of it.
func (p *proxy) pass(e *exchange) (answer, error) {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	out := e.request.Clone(ctx)
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.RequestURI = ""
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(e.body)), int64(len(e.body)), nil
	if len(e.body) == 0 {
		out.Body = http.NoBody
	}
	got, err := p.forward.RoundTrip(out)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(io.LimitReader(got.Body, 2<<20))
	if err != nil {
		return answer{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.status, e.date = got.StatusCode, got.Header.Get("Date")
	if got.StatusCode == http.StatusOK {
		e.etag = got.Header.Get("ETag")
		e.landed = e.landed || e.write()
	}
	e.answer = string(body)
	return answer{got.StatusCode, got.Header, body}, nil
}

// again has the server get a request once more, as a network does that delivers late, and says what it has answered.
func (p *proxy) again(e *exchange) (int, error) {
	late := &exchange{method: e.method, key: e.key, body: e.body, request: e.request}
	got, err := p.pass(late)
	return got.status, err
}

// transcript shows the exchanges to people.
func (p *proxy) transcript() (lines []string) {
	for i, e := range p.exchanges() {
		if i == 200 {
			return append(lines, "… and more")
		}
		line := fmt.Sprintf("%7.3f s  %s %s", (e.arrived - p.began).Seconds(), e.method, e.key[strings.LastIndexByte(e.key, '/')+1:])
		if e.ifMatch != "" {
			line += " If-Match: " + e.ifMatch
		}
		if e.ifNone != "" {
			line += " If-None-Match: " + e.ifNone
		}
		if e.status != 0 {
			line += fmt.Sprintf(" → %d %s", e.status, e.etag)
		}
		if e.fault != "" {
			line += " [" + e.fault + "]"
		}
		if e.write() {
			line += fmt.Sprintf("\n           %.600s", bytes.TrimSpace(e.body))
		} else if e.status == http.StatusOK {
			line += fmt.Sprintf("\n           %.600s", strings.TrimSpace(e.answer))
		}
		lines = append(lines, line)
	}
	return lines
}
